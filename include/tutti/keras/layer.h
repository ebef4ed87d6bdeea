#pragma once
// Layers: what turns a tensor into another, with weights. Handles in front, LayerImpl behind.

#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/distribute/variable.h"
#include "tutti/keras/initializers.h"
#include "tutti/keras/regularizers.h"

namespace tutti::keras::layers {

/// A shape with the batch dimension in front; -1 is unknown.
using Shape = std::vector<int64_t>;

struct WeightOptions {
  std::string name;
  Shape shape;  ///< as the user sees it (a Conv2D kernel is HWIO)
  Initializer initializer;
  Regularizer regularizer = {};
  bool trainable = true;
  VariableSynchronization synchronization = VariableSynchronization::kAuto;
  VariableAggregation aggregation = VariableAggregation::kNone;
  /// Order in which dimensions are stored, outermost first; empty: as the user sees it. {3, 2, 0,
  /// 1} stores HWIO as OIHW.
  std::vector<int64_t> storage_order = {};
};

/// Base of every layer. A layer is built once, by its first call or by build_for; in `run` replica
/// 0 builds while the others wait.
class LayerImpl {
 public:
  /// `name` empty: the class name in snake case with a number behind it. `input_shape` (without
  /// batch axis) may be empty: unknown.
  LayerImpl(const std::string& class_name, const std::string& name, Shape input_shape);
  virtual ~LayerImpl() = default;
  LayerImpl(const LayerImpl&) = delete;
  LayerImpl& operator=(const LayerImpl&) = delete;

  /// The class' name in Keras: "Dense".
  virtual std::string class_name() const = 0;
  /// Arguments as a JSON object text from which `layer_from_config` makes the layer again.
  virtual std::string config() const = 0;
  /// Input shape → output shape. Throws InvalidArgument for an input that the layer cannot take.
  virtual Shape compute_output_shape(const Shape& input) const = 0;

  /// Builds when needed, then call(). Regularisation losses are not computed here, but in losses().
  Tensor operator()(const Tensor& input, bool training);
  /// Makes the weights for inputs of this shape (batch dimension included); a second call is
  /// without effect.
  void build_for(const Shape& input);
  bool built() const { return built_; }
  /// Of one sample, as the user gave it; empty when not given.
  const Shape& input_shape() const { return input_shape_; }

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  bool trainable() const { return trainable_; }
  void set_trainable(bool trainable) { trainable_ = trainable; }
  /// All weights in the order in which they were made. Throws FailedPrecondition before the layer
  /// is built, if it has weights.
  const std::vector<Variable>& weights() const;
  std::vector<Variable> trainable_weights() const;
  /// Penalties of this layer's regularised weights, one scalar each, with gradient; none when it is
  /// not trainable.
  std::vector<Tensor> losses() const;
  /// Weights of more entries than `numel` become InvalidArgument: for layers from descriptions that
  /// are not trusted.
  void limit_weights(int64_t numel) { weight_limit_ = numel; }

 protected:
  virtual void build(const Shape& input) {}
  virtual Tensor call(const Tensor& input, bool training) = 0;
  virtual bool has_weights() const { return false; }
  Variable add_weight(const WeightOptions& options);

 private:
  void build_now(const Shape& input);

  std::string name_;
  Shape input_shape_;
  bool built_ = false;
  bool trainable_ = true;
  int64_t weight_limit_ = std::numeric_limits<int64_t>::max();
  std::vector<Variable> weights_;
  std::vector<std::pair<Variable, Regularizer>> penalties_;
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
  const std::shared_ptr<LayerImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<LayerImpl> impl_;
};

/// A layer from its class name and config(); Unimplemented for an unknown class.
Layer layer_from_config(const std::string& class_name, const std::string& config);

}  // namespace tutti::keras::layers
