#pragma once
// What recurrent layers share with the layers around them.

#include <memory>
#include <string>
#include <vector>

#include "keras/layers/nested.h"
#include "tutti/keras/layers/recurrent.h"

namespace tutti::keras::layers {

/// The arguments of all cells; each uses its own.
struct CellArguments {
  int64_t units = 0;
  keras::Activation activation = "tanh";
  keras::Activation recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer;
  Initializer recurrent_initializer;
  Initializer bias_initializer;
  bool unit_forget_bias = true;
  Regularizer kernel_regularizer;
  Regularizer recurrent_regularizer;
  Regularizer bias_regularizer;
  Constraint kernel_constraint;
  Constraint recurrent_constraint;
  Constraint bias_constraint;
  double dropout = 0;
  double recurrent_dropout = 0;
  bool reset_after = true;
  std::optional<int64_t> seed;
};

/// Of the options of a cell, or of a layer around one.
template <class Options>
CellArguments cell_arguments(int64_t units, const Options& options) {
  CellArguments arguments;
  arguments.units = units;
  arguments.activation = options.activation;
  if constexpr (requires { options.recurrent_activation; })
    arguments.recurrent_activation = options.recurrent_activation;
  arguments.use_bias = options.use_bias;
  arguments.kernel_initializer = options.kernel_initializer;
  arguments.recurrent_initializer = options.recurrent_initializer;
  arguments.bias_initializer = options.bias_initializer;
  if constexpr (requires { options.unit_forget_bias; })
    arguments.unit_forget_bias = options.unit_forget_bias;
  arguments.kernel_regularizer = options.kernel_regularizer;
  arguments.recurrent_regularizer = options.recurrent_regularizer;
  arguments.bias_regularizer = options.bias_regularizer;
  arguments.kernel_constraint = options.kernel_constraint;
  arguments.recurrent_constraint = options.recurrent_constraint;
  arguments.bias_constraint = options.bias_constraint;
  arguments.dropout = options.dropout;
  arguments.recurrent_dropout = options.recurrent_dropout;
  if constexpr (requires { options.reset_after; }) arguments.reset_after = options.reset_after;
  arguments.seed = options.seed;
  return arguments;
}
/// The other way round, from a description.
template <class Options>
Options cell_options(const Json& json, const LayerBase& base) {
  Options options;
  options.activation = argument_from(json, "activation", options.activation, base);
  if constexpr (requires { options.recurrent_activation; })
    options.recurrent_activation =
        argument_from(json, "recurrent_activation", options.recurrent_activation, base);
  options.use_bias = member<bool>(json, "use_bias", true);
  options.kernel_initializer =
      argument_from(json, "kernel_initializer", options.kernel_initializer, base);
  options.recurrent_initializer =
      argument_from(json, "recurrent_initializer", options.recurrent_initializer, base);
  options.bias_initializer =
      argument_from(json, "bias_initializer", options.bias_initializer, base);
  if constexpr (requires { options.unit_forget_bias; })
    options.unit_forget_bias = member<bool>(json, "unit_forget_bias", true);
  options.kernel_regularizer =
      argument_from(json, "kernel_regularizer", options.kernel_regularizer, base);
  options.recurrent_regularizer =
      argument_from(json, "recurrent_regularizer", options.recurrent_regularizer, base);
  options.bias_regularizer =
      argument_from(json, "bias_regularizer", options.bias_regularizer, base);
  options.kernel_constraint =
      argument_from(json, "kernel_constraint", options.kernel_constraint, base);
  options.recurrent_constraint =
      argument_from(json, "recurrent_constraint", options.recurrent_constraint, base);
  options.bias_constraint = argument_from(json, "bias_constraint", options.bias_constraint, base);
  options.dropout = member<double>(json, "dropout", 0);
  options.recurrent_dropout = member<double>(json, "recurrent_dropout", 0);
  if constexpr (requires { options.reset_after; })
    options.reset_after = member<bool>(json, "reset_after", true);
  options.seed = optional_member<int64_t>(json, "seed");
  options.name = base.name;
  return options;
}

std::shared_ptr<RNNCellImpl> make_simple_rnn_cell(const CellArguments& arguments,
                                                  const std::string& name);
std::shared_ptr<RNNCellImpl> make_lstm_cell(const CellArguments& arguments,
                                            const std::string& name);
std::shared_ptr<RNNCellImpl> make_gru_cell(const CellArguments& arguments, const std::string& name);
/// The cell that a description names; DataLoss when it is another layer's.
RNNCell cell_from(const Layer& layer);

/// A cell over sequences: RNN, and with a cell of their own SimpleRNN, LSTM and GRU.
class RecurrentImpl : public LayerImpl {
 public:
  /// `own_cell`: the cell is part of the layer, and its arguments are the layer's.
  RecurrentImpl(const char* class_name, std::shared_ptr<RNNCellImpl> cell, bool own_cell,
                const RNNOptions& options);
  std::string class_name() const override { return class_name_; }
  std::string config() const override;
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override;
  Tensor compute_mask(const std::vector<Tensor>& inputs,
                      const CallArguments& arguments) const override;
  bool supports_masking() const override { return true; }
  bool uses_masks() const override { return true; }

  const RNNOptions& options() const { return options_; }
  std::size_t num_states() const { return cell_->state_size().size(); }
  void zero_output_for_mask(bool zero) { options_.zero_output_for_mask = zero; }
  void reset_state();

 protected:
  bool has_weights() const override { return own_cell_; }
  void build_all(const std::vector<Shape>& inputs) override;
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) override;

 private:
  struct alignas(64) Kept {
    std::vector<Tensor> states;
  };
  std::vector<Tensor> first_states(const std::vector<Tensor>& inputs, Kept* kept) const;
  /// Outputs of all steps, or the last one's alone; `states` become those after the last step.
  Tensor loop(RNNCellImpl::Pass& pass, const Tensor& steps, const Tensor& mask,
              std::vector<Tensor>& states) const;
  Kept* kept_states();

  std::string class_name_;
  std::shared_ptr<RNNCellImpl> cell_;
  bool own_cell_;
  RNNOptions options_;
  std::vector<Kept> kept_;  ///< of a stateful layer, one a replica
};

}  // namespace tutti::keras::layers
