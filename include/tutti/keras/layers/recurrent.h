#pragma once
// Recurrent layers: cells, which do one step, and layers that run one over sequences.
//
// Sequences are [batch, time, features]. A layer takes initial states [batch, units] as further
// inputs, or starts from zeros. In a masked step the states and the output stay what they were
// (before the first one that counts the output is 0). Dropout masks are drawn once for a sequence,
// and hold for all its steps.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/keras/activations.h"
#include "tutti/keras/constraints.h"
#include "tutti/keras/layer.h"

namespace tutti::keras::layers {

/// Base of cells. As a layer: {input, states…} → {output, new states…}; no states: zeros.
///
/// A user's own cell overrides state_size and call_all; one that has work to do once for a sequence
/// overrides begin instead.
class RNNCellImpl : public LayerImpl {
 public:
  using LayerImpl::LayerImpl;

  /// One pass over a batch of sequences. Used by one thread.
  class Pass {
   public:
    virtual ~Pass() = default;
    /// What does not depend on the states, for all steps at once: [time, batch, …] → [time, batch,
    /// …].
    virtual Tensor project(const Tensor& inputs) { return inputs; }
    /// One step on what `project` gave for it: the output, and the new states.
    virtual std::vector<Tensor> step(const Tensor& projected,
                                     const std::vector<Tensor>& states) = 0;
    /// All steps at once: the outputs [time, batch, …], and `states` are those after the last one.
    /// Undefined where there is no operation for it.
    virtual Tensor run(const Tensor& inputs, std::vector<Tensor>& states) { return {}; }
  };

  /// Features of each state; those of a StackedRNNCells one after another.
  virtual std::vector<int64_t> state_size() const = 0;
  virtual int64_t output_size() const { return state_size().at(0); }
  /// `input` is one step's, [batch, …].
  virtual std::unique_ptr<Pass> begin(const Tensor& input, bool training);
  /// Zeros, in dtype and place of `like`.
  std::vector<Tensor> initial_states(int64_t batch, const Tensor& like) const;
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override;

 protected:
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) override;
};

/// A handle to a cell.
class RNNCell : public Layer {
 public:
  RNNCell() = default;
  template <class T>
  requires std::derived_from<T, RNNCellImpl> RNNCell(std::shared_ptr<T> impl)  // NOLINT
      : Layer(impl), cell_(std::move(impl)) {}
  const std::shared_ptr<RNNCellImpl>& cell() const { return cell_; }

 private:
  std::shared_ptr<RNNCellImpl> cell_;
};

struct SimpleRNNCellOptions {
  keras::Activation activation = "tanh";
  bool use_bias = true;
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer recurrent_initializer = initializers::Orthogonal();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;
  double recurrent_dropout = 0;
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
};
/// h' = activation(x kernel + bias + h recurrent_kernel).
class SimpleRNNCell : public RNNCell {
 public:
  explicit SimpleRNNCell(int64_t units, const SimpleRNNCellOptions& options = {});
};

struct LSTMCellOptions {
  keras::Activation activation = "tanh";
  keras::Activation recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer recurrent_initializer = initializers::Orthogonal();
  Initializer bias_initializer = initializers::Zeros();
  /// The forget gate's bias starts at 1.
  bool unit_forget_bias = true;
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;
  double recurrent_dropout = 0;
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
};
/// Gates i, f, c, o side by side in kernel [in, 4 units] and recurrent_kernel [units, 4 units];
/// states h and c: c' = f c + i activation(…), h' = o activation(c').
class LSTMCell : public RNNCell {
 public:
  explicit LSTMCell(int64_t units, const LSTMCellOptions& options = {});
};

struct GRUCellOptions {
  keras::Activation activation = "tanh";
  keras::Activation recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer recurrent_initializer = initializers::Orthogonal();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;
  double recurrent_dropout = 0;
  /// True: the reset gate is applied to h recurrent_kernel, and the bias is [2, 3 units]; false: to
  /// h, and the bias is [3 units].
  bool reset_after = true;
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
};
/// Gates z, r, h side by side: h' = z h + (1 - z) activation(…).
class GRUCell : public RNNCell {
 public:
  explicit GRUCell(int64_t units, const GRUCellOptions& options = {});
};

struct StackedRNNCellsOptions {
  std::string name = "";
};
/// Each cell's output is the next one's input.
class StackedRNNCells : public RNNCell {
 public:
  explicit StackedRNNCells(const std::vector<RNNCell>& cells,
                           const StackedRNNCellsOptions& options = {});
};

struct RNNOptions {
  /// True: the output of every step, [batch, time, units]; false: the last one's, [batch, units].
  bool return_sequences = false;
  /// True: the states after the last step are further outputs.
  bool return_state = false;
  /// Steps from the last to the first; so are the outputs.
  bool go_backwards = false;
  /// True: a call starts from the states in which the last one ended, each replica from its own.
  bool stateful = false;
  /// True: the output of a masked step is 0.
  bool zero_output_for_mask = false;
  std::string name = "";
  Shape input_shape = {};
};
/// A cell over sequences. InvalidArgument for sequences of no steps, for initial states that do not
/// fit, and for a stateful layer when the batch changes.
class RNN : public Layer {
 public:
  explicit RNN(const RNNCell& cell, const RNNOptions& options = {});
  /// A handle to a recurrent layer that something else made; InvalidArgument for other layers.
  explicit RNN(const Layer& layer);
  /// Of a stateful layer: the next call starts from zeros.
  void reset_state() const;
};

struct SimpleRNNOptions {
  keras::Activation activation = "tanh";
  bool use_bias = true;
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer recurrent_initializer = initializers::Orthogonal();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;
  double recurrent_dropout = 0;
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  std::optional<int64_t> seed = std::nullopt;
  std::string name = "";
  Shape input_shape = {};
};
/// RNN(SimpleRNNCell(units)).
class SimpleRNN : public RNN {
 public:
  explicit SimpleRNN(int64_t units, const SimpleRNNOptions& options = {});
};

struct LSTMOptions {
  keras::Activation activation = "tanh";
  keras::Activation recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer recurrent_initializer = initializers::Orthogonal();
  Initializer bias_initializer = initializers::Zeros();
  bool unit_forget_bias = true;
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;
  double recurrent_dropout = 0;
  std::optional<int64_t> seed = std::nullopt;
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  std::string name = "";
  Shape input_shape = {};
};
/// RNN(LSTMCell(units)). With tanh and sigmoid, float32 on CPU, no mask and no recurrent dropout it
/// is one operation of LibTorch (oneDNN's), whose numbers agree within rounding.
class LSTM : public RNN {
 public:
  explicit LSTM(int64_t units, const LSTMOptions& options = {});
};

struct GRUOptions {
  keras::Activation activation = "tanh";
  keras::Activation recurrent_activation = "sigmoid";
  bool use_bias = true;
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer recurrent_initializer = initializers::Orthogonal();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer kernel_regularizer = {};
  Regularizer recurrent_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint recurrent_constraint = {};
  Constraint bias_constraint = {};
  double dropout = 0;
  double recurrent_dropout = 0;
  std::optional<int64_t> seed = std::nullopt;
  bool return_sequences = false;
  bool return_state = false;
  bool go_backwards = false;
  bool stateful = false;
  bool reset_after = true;
  std::string name = "";
  Shape input_shape = {};
};
/// RNN(GRUCell(units)).
class GRU : public RNN {
 public:
  explicit GRU(int64_t units, const GRUOptions& options = {});
};

}  // namespace tutti::keras::layers
