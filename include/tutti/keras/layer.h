#pragma once
// Layers: what turns a tensor into another, with weights. Handles in front, LayerImpl behind.
// Symbolic tensors, by which layers are put together to functional models.

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/distribute/variable.h"
#include "tutti/keras/dtype_policy.h"
#include "tutti/keras/initializers.h"
#include "tutti/keras/regularizers.h"

namespace tutti::keras::layers {

class CallLosses;  // src/keras/layers/call_losses.h
class CallScope;

/// A shape with the batch dimension in front; -1 is unknown.
using Shape = std::vector<int64_t>;

struct WeightOptions {
  std::string name;
  Shape shape;  ///< as the user sees it (a Conv2D kernel is HWIO)
  Initializer initializer;
  Regularizer regularizer = {};
  /// Applied to the weight after each update by an optimizer.
  std::function<Tensor(const Tensor&)> constraint = {};
  bool trainable = true;
  VariableSynchronization synchronization = VariableSynchronization::kAuto;
  VariableAggregation aggregation = VariableAggregation::kNone;
  /// Order in which dimensions are stored, outermost first; empty: as the user sees it. {3, 2, 0,
  /// 1} stores HWIO as OIHW.
  std::vector<int64_t> storage_order = {};
  /// Unset: the policy's variable dtype.
  std::optional<at::ScalarType> dtype = std::nullopt;
};

/// What a call carries besides its inputs.
struct CallArguments {
  bool training = false;
  /// For each input, undefined where it has none: bool [batch, time], true where a step counts.
  /// Shorter than the inputs, or empty: no more masks.
  std::vector<Tensor> masks = {};
  Tensor mask(std::size_t input) const { return input < masks.size() ? masks[input] : Tensor(); }
  bool has_masks() const {
    for (const Tensor& mask : masks) {
      if (mask.defined()) return true;
    }
    return false;
  }
};

/// Base of every layer. A layer is built once, by its first call or by build_for; in `run` replica
/// 0 builds while the others wait.
///
/// A layer of one input and one output overrides `call`, `compute_output_shape` and `build`; one of
/// several inputs or outputs, or one that reads masks, overrides `call_all`,
/// `compute_output_shapes` and `build_all` instead.
class LayerImpl {
 public:
  /// `name` empty: the class name in snake case with a number behind it. `input_shape` (without
  /// batch axis) may be empty: unknown.
  LayerImpl(const std::string& class_name, const std::string& name, Shape input_shape);
  virtual ~LayerImpl();
  LayerImpl(const LayerImpl&) = delete;
  LayerImpl& operator=(const LayerImpl&) = delete;

  /// The class' name in Keras: "Dense".
  virtual std::string class_name() const = 0;
  /// Arguments as a JSON object text from which `layer_from_config` makes the layer again.
  virtual std::string config() const = 0;
  /// Input shape → output shape. Throws InvalidArgument for an input that the layer cannot take.
  /// The default asks compute_output_shapes, and is InvalidArgument when there are several outputs.
  virtual Shape compute_output_shape(const Shape& input) const;
  /// The same for several inputs and outputs. The default takes one input, and asks
  /// compute_output_shape.
  virtual std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const;
  /// The mask of the outputs, given the inputs' masks; undefined: none. The default hands the first
  /// input's on when supports_masking().
  virtual Tensor compute_mask(const std::vector<Tensor>& inputs,
                              const CallArguments& arguments) const;
  /// True: a mask of the input is one of the output too.
  virtual bool supports_masking() const { return false; }
  /// True: call_all must be given the masks, or compute_mask may give one where no input had any.
  virtual bool uses_masks() const { return false; }

  /// Builds when needed, casts floating inputs to the policy's compute dtype, then call().
  /// Regularisation losses are not computed here, but in losses(). InvalidArgument when the layer
  /// has several outputs.
  Tensor operator()(const Tensor& input, bool training);
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs, const CallArguments& arguments);
  /// The same, and in `masks` the outputs' masks, undefined where they have none.
  std::vector<Tensor> call_with_masks(const std::vector<Tensor>& inputs,
                                      const CallArguments& arguments, std::vector<Tensor>& masks);
  /// Makes the weights for inputs of this shape (batch dimension included); a second call is
  /// without effect.
  void build_for(const Shape& input) { build_for(std::vector<Shape>{input}); }
  void build_for(const std::vector<Shape>& inputs);
  bool built() const { return built_; }
  /// The inputs' shapes for which it was built; empty before.
  const std::vector<Shape>& built_shapes() const { return built_shapes_; }
  /// Of one sample, as the user gave it; empty when not given.
  const Shape& input_shape() const { return input_shape_; }

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  bool trainable() const { return trainable_; }
  virtual void set_trainable(bool trainable);
  const DTypePolicy& dtype_policy() const { return policy_; }
  /// Before the layer is built (FailedPrecondition).
  void set_dtype_policy(const DTypePolicy& policy);
  /// All weights in the order in which they were made. Throws FailedPrecondition before the layer
  /// is built, if it has weights.
  virtual std::vector<Variable> weights() const;
  virtual std::vector<Variable> trainable_weights() const;
  /// What add_loss was given, and the penalties on outputs, since the outermost call that this
  /// layer was last part of began: of this replica. Then those on its weights, while it is
  /// trainable, and those of the layers in it. One scalar each, with gradient.
  virtual std::vector<Tensor> losses() const;
  /// From within a call: adds a scalar (the sum of a larger tensor) to the loss of this call, as
  /// fit and compute_loss count it. A layer that is called several times adds each time; the next
  /// outermost call, of a model or of a layer by itself, forgets what was added before.
  void add_loss(const Tensor& loss);
  /// Forgets what this replica's calls have added, here and in the layers in it. Calls do it.
  void clear_losses() {
    if (holds_layers_ || call_losses_.load(std::memory_order_relaxed) != nullptr) forget_losses();
  }
  /// Weights of more entries than `numel` become InvalidArgument: for layers from descriptions that
  /// are not trusted.
  virtual void limit_weights(int64_t numel);
  /// Counts the symbolic calls: the place of the next one, from 0.
  int64_t next_symbolic_call() { return symbolic_calls_++; }

 protected:
  virtual void build(const Shape& input) {}
  /// The default builds for the first of the inputs.
  virtual void build_all(const std::vector<Shape>& inputs);
  /// Called with inputs in the compute dtype. The default asks call_all.
  virtual Tensor call(const Tensor& input, bool training);
  /// The default takes one input, and asks call().
  virtual std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                                       const CallArguments& arguments);
  /// False: inputs come as they are, whatever the policy (labels, indices held as floats).
  virtual bool autocasts() const { return true; }
  /// True: integers (and booleans) become numbers of the compute dtype, as Keras' layers with
  /// weights take them. Never where autocasts() is false.
  virtual bool casts_integers() const { return has_weights(); }
  /// call_all, and the outputs' masks. The default asks compute_mask for that of the first output,
  /// and warns once where a mask ends here though nobody looked at it.
  virtual std::vector<Tensor> call_masked(const std::vector<Tensor>& inputs,
                                          const CallArguments& arguments,
                                          std::vector<Tensor>& masks);
  virtual bool has_weights() const { return false; }
  Variable add_weight(const WeightOptions& options);
  /// The weight's value in the compute dtype, with gradient.
  Tensor value_of(const Variable& weight) const {
    Tensor value = weight.value();
    return converts_ && value.is_floating_point()
               ? value.to(policy_.compute_dtype(), false, copies_weights_)
               : value;
  }
  /// The penalty on an output of this call, divided by the rows of the batch as in Keras; an empty
  /// batch has none.
  void add_penalty(const Regularizer& regularizer, const Tensor& output);
  /// clear_losses of what is here; a layer that holds others otherwise than by track() goes on to
  /// them.
  virtual void forget_losses();
  void set_holds_layers() { holds_layers_ = true; }
  /// From now on value_of gives copies, so that a weight may be changed between a call and its
  /// gradient.
  static void copy_weights_of(LayerImpl& layer) { layer.copies_weights_ = layer.converts_ = true; }
  /// Adds a layer that belongs to this one: its weights, losses and trainable flag are counted
  /// here.
  void track(std::shared_ptr<LayerImpl> inner);
  /// For containers, which may lose the layers that made them built.
  void set_built(bool built) { built_ = built; }

 private:
  void build_now(const std::vector<Shape>& inputs);
  void enter(CallScope& scope);
  Tensor cast(const Tensor& input) const;
  std::vector<Tensor> ready(const std::vector<Tensor>& inputs);

  std::string name_;
  Shape input_shape_;
  bool built_ = false;
  bool trainable_ = true;
  int64_t weight_limit_ = std::numeric_limits<int64_t>::max();
  DTypePolicy policy_;
  bool copies_weights_ = false;
  bool converts_ = false;  ///< compute and variable dtypes differ, or weights are copied
  bool holds_layers_ = false;
  std::atomic<CallLosses*> call_losses_{nullptr};  ///< null before something was added
  std::vector<Shape> built_shapes_;
  int64_t symbolic_calls_ = 0;
  std::atomic<bool> mask_dropped_{false};  ///< and said so
  std::vector<std::shared_ptr<LayerImpl>> inner_;
  std::vector<Variable> weights_;
  std::vector<std::pair<Variable, Regularizer>> penalties_;
};

struct SymbolicCall;  // src/keras/model/symbolic.h

/// What a layer's call with symbolic tensors gives: a tensor of which only shape and dtype are
/// known. A handle; it keeps the layers that lead to it alive. Symbolic calls are made on one
/// thread, outside replicas.
class KerasTensor {
 public:
  KerasTensor() = default;
  KerasTensor(std::shared_ptr<const SymbolicCall> call, std::size_t index)
      : call_(std::move(call)), index_(index) {}
  /// Batch dimension in front; -1 is unknown.
  const Shape& shape() const;
  /// An Input's own; of anything else the compute dtype of the layer that gives it.
  at::ScalarType dtype() const;
  /// The layer that gives it, and as which of its outputs.
  const std::shared_ptr<LayerImpl>& layer() const;
  std::size_t index() const { return index_; }
  const std::shared_ptr<const SymbolicCall>& call() const { return call_; }
  bool defined() const { return call_ != nullptr; }
  bool is_same(const KerasTensor& other) const {
    return call_ == other.call_ && index_ == other.index_;
  }

 private:
  std::shared_ptr<const SymbolicCall> call_;
  std::size_t index_ = 0;
};

/// A handle to a layer; copies share it. Every class of layers.h derives from it and adds only
/// constructors.
class Layer {
 public:
  Layer() = default;
  /// A user's own layer stands in a model as `std::make_shared<MyLayer>(…)`.
  template <class T>
  requires std::derived_from<T, LayerImpl> Layer(std::shared_ptr<T> impl)
      : impl_(std::move(impl)) {}  // NOLINT
  LayerImpl* operator->() const { return impl_.get(); }
  LayerImpl& operator*() const { return *impl_; }
  Tensor operator()(const Tensor& input, bool training = false) const {
    return (*impl_)(input, training);
  }
  /// Several inputs, one output (InvalidArgument when there are more).
  Tensor operator()(const std::vector<Tensor>& inputs, bool training = false) const;
  /// All outputs.
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments = {}) const {
    return (*impl_)(inputs, arguments);
  }

  /// Builds the layer when needed and notes the call, for a functional model (functional.h). A
  /// layer called twice is shared. InvalidArgument for shapes that do not fit, and for a layer of
  /// several outputs.
  KerasTensor operator()(const KerasTensor& input) const;
  KerasTensor operator()(const std::vector<KerasTensor>& inputs) const;
  /// All outputs.
  std::vector<KerasTensor> call_all(const std::vector<KerasTensor>& inputs) const;

  const std::shared_ptr<LayerImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<LayerImpl> impl_;
};

struct InputOptions {
  at::ScalarType dtype = at::ScalarType::Float;
  std::string name = "";
};
/// Where data come in: in a Sequential the shape of one sample, so that it is built at once; in a
/// functional model the symbolic tensor that calls begin with (`Dense(10)(Input({4}))`). `shape` is
/// without the batch axis; -1 is unknown.
class Input : public Layer {
 public:
  explicit Input(const Shape& shape, const std::string& name = "")
      : Input(shape, InputOptions{.name = name}) {}
  Input(const Shape& shape, const InputOptions& options);
  operator const KerasTensor&() const { return tensor_; }  // NOLINT: it is one
  const KerasTensor& tensor() const { return tensor_; }

 private:
  KerasTensor tensor_;
};

/// A layer from its class name and config(); Unimplemented for an unknown class.
Layer layer_from_config(const std::string& class_name, const std::string& config);

}  // namespace tutti::keras::layers

namespace tutti::keras {
using layers::Input;
using layers::KerasTensor;
}  // namespace tutti::keras
