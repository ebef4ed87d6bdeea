#pragma once
// Models as graphs of layers: Python's keras.Model(inputs, outputs).

#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/keras/model_base.h"

namespace tutti::keras {

class FunctionalBody;  // src/keras/model/model_body.h

/// Symbolic tensors as the inputs or outputs of a model: one, a list, or by name.
class SymbolicNest : public NestOf<KerasTensor> {
 public:
  SymbolicNest() = default;
  SymbolicNest(const KerasTensor& tensor) : NestOf(tensor) {}           // NOLINT
  SymbolicNest(const layers::Input& input) : NestOf(input.tensor()) {}  // NOLINT
  SymbolicNest(std::initializer_list<KerasTensor> list)
      : SymbolicNest(std::vector<KerasTensor>(list)) {}
  SymbolicNest(const std::vector<KerasTensor>& list);               // NOLINT
  SymbolicNest(const std::map<std::string, KerasTensor>& by_name);  // NOLINT
  SymbolicNest(std::initializer_list<std::pair<const std::string, KerasTensor>> by_name)
      : SymbolicNest(std::map<std::string, KerasTensor>(by_name)) {}
};

struct FunctionalOptions {
  SymbolicNest inputs = {};
  SymbolicNest outputs = {};
  std::string name = "";
};
struct FunctionalName {
  std::string name = "";
};

/// A graph of layers between symbolic tensors:
///
///     Input x({4});
///     KerasTensor hidden = Dense(8, {.activation = "relu"})(x);
///     Functional model(x, Dense(3)(hidden));
///
/// Layers that are called several times are shared, models may be called as layers, and a tensor
/// inside another model's graph may be an input. The graph is checked and put into an order when
/// the model is made (InvalidArgument: an Input that the outputs need is missing, or a name comes
/// twice); a call then searches nothing, and drops each tensor after its last use.
///
/// Inputs by position (a tensor, a tuple or list) or by name (the keys, or the names of the
/// Inputs); what a map has besides is left out, with one warning. Outputs have the structure that
/// they were given. Layers and weights are in Keras' order.
class Functional : public Model {
 public:
  Functional(const SymbolicNest& inputs, const SymbolicNest& outputs,
             const FunctionalName& options = {});
  explicit Functional(const FunctionalOptions& options);
  ~Functional() override;

  Tensor call(const Tensor& x, bool training) override;
  Nest call_all(const Nest& inputs, bool training) override;
  void build(const layers::Shape&) override {}
  bool built() const override { return true; }
  std::vector<layers::Layer> layers() const override;
  /// The keys of a map, or the names of the Inputs.
  const std::vector<std::string>& input_names() const { return input_names_; }
  std::vector<std::string> output_names() const override { return output_names_; }
  const SymbolicNest& inputs() const { return inputs_; }
  const SymbolicNest& outputs() const { return outputs_; }
  /// The first output of the first call of a layer, to make another model of: Python's
  /// `model.get_layer(name).output`. NotFound lists the layers.
  KerasTensor layer_output(const std::string& name) const;

 protected:
  std::vector<SummaryRow> summary_rows() const override;

 private:
  friend struct ModelFile;
  Functional(std::shared_ptr<FunctionalBody> graph, const SymbolicNest& inputs,
             const SymbolicNest& outputs);
  std::vector<Tensor> in_order(const Nest& inputs) const;
  std::vector<Tensor> run(std::vector<Tensor> inputs, bool training);
  SymbolicNest inputs_;
  SymbolicNest outputs_;
  std::vector<std::string> input_names_;
  std::vector<std::string> output_names_;
  mutable std::once_flag extra_inputs_;
  FunctionalBody* graph_;
};

}  // namespace tutti::keras
