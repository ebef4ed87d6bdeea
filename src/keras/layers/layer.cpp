// What all layers share: names, building once for all replicas, weights.

#include "tutti/keras/layer.h"

#include <map>
#include <set>

#include "base/mutex.h"
#include "keras/json.h"
#include "keras/layers/call_losses.h"
#include "tutti/base/log.h"
#include "tutti/distribute/strategy.h"
#include "tutti/keras/layers.h"

namespace tutti::keras {
namespace {

/// How many layers of each name were made: Keras' dense, dense_1, dense_2, ….
struct NameCounts {
  Mutex mutex;
  std::map<std::string, int> counts TUTTI_GUARDED_BY(mutex);
};
NameCounts& name_counts() {
  static NameCounts counts;
  return counts;
}

/// MaxPooling2D → max_pooling2d, as Keras does.
std::string snake_case(const std::string& name) {
  std::string snake;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool upper = name[i] >= 'A' && name[i] <= 'Z';
    const bool starts_word = upper && i > 0 &&
                             ((name[i - 1] >= 'a' && name[i - 1] <= 'z') ||
                              (i + 1 < name.size() && name[i + 1] >= 'a' && name[i + 1] <= 'z'));
    if (starts_word) snake += '_';
    snake += upper ? static_cast<char>(name[i] - 'A' + 'a') : name[i];
  }
  return snake;
}

}  // namespace

std::string automatic_name(const std::string& class_name) {
  NameCounts& names = name_counts();
  MutexLock lock(names.mutex);
  const std::string base = snake_case(class_name);
  const int number = names.counts[base]++;
  return number == 0 ? base : cat(base, "_", number);
}

void clear_session() {
  NameCounts& names = name_counts();
  MutexLock lock(names.mutex);
  names.counts.clear();
}

namespace layers {

LayerImpl::LayerImpl(const std::string& class_name, const std::string& name, Shape input_shape)
    : name_(name.empty() ? automatic_name(class_name) : name),
      input_shape_(std::move(input_shape)) {
  set_dtype_policy(mixed_precision::global_policy());
}

LayerImpl::~LayerImpl() { delete call_losses_.load(); }

void LayerImpl::set_dtype_policy(const DTypePolicy& policy) {
  if (built_)
    throw FailedPrecondition(
        cat("dtype policy [", name_,
            "]: the layer is built, expected to be set before its first call"));
  policy_ = policy;
  converts_ = copies_weights_ || policy.compute_dtype() != policy.variable_dtype();
}

void LayerImpl::set_trainable(bool trainable) {
  trainable_ = trainable;
  for (const auto& layer : inner_) layer->set_trainable(trainable);
}

void LayerImpl::limit_weights(int64_t numel) {
  weight_limit_ = numel;
  for (const auto& layer : inner_) layer->limit_weights(numel);
}

void LayerImpl::track(std::shared_ptr<LayerImpl> inner) {
  inner_.push_back(std::move(inner));
  holds_layers_ = true;
}

Tensor LayerImpl::cast(const Tensor& input) const {
  if (!input.defined())
    throw InvalidArgument(
        cat(class_name(), " [", name_, "]: an undefined input, expected a batch"));
  if (input.scalar_type() == policy_.compute_dtype() || !autocasts()) return input;
  const bool casts = input.is_floating_point() || casts_integers();
  return casts ? input.to(policy_.compute_dtype()) : input;
}

namespace {

Shape shape_of_batch(const Tensor& input) {
  Shape shape = input.sizes().vec();
  if (!shape.empty()) shape[0] = -1;
  return shape;
}

}  // namespace

/// Costs a layer nothing that holds no others and has added nothing.
inline void LayerImpl::enter(CallScope& scope) {
  if (!holds_layers_ && call_losses_.load(std::memory_order_relaxed) == nullptr) return;
  if (scope.enter()) forget_losses();
}

Tensor LayerImpl::operator()(const Tensor& input, bool training) {
  const Tensor ready = cast(input);
  if (!built_) build_for(shape_of_batch(ready));
  CallScope scope;
  enter(scope);
  return call(ready, training);
}

std::vector<Tensor> LayerImpl::ready(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> ready;
  ready.reserve(inputs.size());
  for (const Tensor& input : inputs) ready.push_back(cast(input));
  if (!built_) {
    std::vector<Shape> shapes;
    for (const Tensor& input : ready) shapes.push_back(shape_of_batch(input));
    build_for(shapes);
  }
  return ready;
}

std::vector<Tensor> LayerImpl::operator()(const std::vector<Tensor>& inputs,
                                          const CallArguments& arguments) {
  const std::vector<Tensor> all = ready(inputs);
  CallScope scope;
  enter(scope);
  return call_all(all, arguments);
}

std::vector<Tensor> LayerImpl::call_with_masks(const std::vector<Tensor>& inputs,
                                               const CallArguments& arguments,
                                               std::vector<Tensor>& masks) {
  const std::vector<Tensor> all = ready(inputs);
  CallScope scope;
  enter(scope);
  return call_masked(all, arguments, masks);
}

std::vector<Tensor> LayerImpl::call_masked(const std::vector<Tensor>& inputs,
                                           const CallArguments& arguments,
                                           std::vector<Tensor>& masks) {
  std::vector<Tensor> outputs = call_all(inputs, arguments);
  masks.assign(outputs.size(), Tensor());
  if (!masks.empty()) masks[0] = compute_mask(inputs, arguments);
  if (arguments.has_masks() && !supports_masking() && !uses_masks() &&
      !mask_dropped_.exchange(true)) {
    log_warning("layer [", name_, "]: ", class_name(),
                " was given a mask, which it does not support and which ends here: what follows "
                "counts the steps that were to be left out");
  }
  return outputs;
}

// Each of these two pairs has one that the layer overrides; the other one asks it.

Tensor LayerImpl::call(const Tensor& input, bool training) {
  std::vector<Tensor> outputs = call_all({input}, {training});
  if (outputs.size() != 1)
    throw InvalidArgument(cat(class_name(), " [", name_, "]: ", outputs.size(),
                              " outputs, expected one; call it with a vector of inputs"));
  return std::move(outputs[0]);
}

std::vector<Tensor> LayerImpl::call_all(const std::vector<Tensor>& inputs,
                                        const CallArguments& arguments) {
  if (inputs.size() != 1)
    throw InvalidArgument(
        cat(class_name(), " [", name_, "]: ", inputs.size(), " inputs, expected one"));
  return {call(inputs[0], arguments.training)};
}

Shape LayerImpl::compute_output_shape(const Shape& input) const {
  std::vector<Shape> outputs = compute_output_shapes({input});
  if (outputs.size() != 1)
    throw InvalidArgument(
        cat(class_name(), " [", name_, "]: ", outputs.size(), " outputs, expected one"));
  return std::move(outputs[0]);
}

std::vector<Shape> LayerImpl::compute_output_shapes(const std::vector<Shape>& inputs) const {
  if (inputs.size() != 1)
    throw InvalidArgument(
        cat(class_name(), " [", name_, "]: ", inputs.size(), " inputs, expected one"));
  return {compute_output_shape(inputs[0])};
}

Tensor LayerImpl::compute_mask(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) const {
  return supports_masking() ? arguments.mask(0) : Tensor();
}

void LayerImpl::build_all(const std::vector<Shape>& inputs) { build(inputs.at(0)); }

void LayerImpl::build_for(const std::vector<Shape>& inputs) {
  if (built_) return;
  distribute::once_for_all_replicas("build", [&] { build_now(inputs); });
}

void LayerImpl::build_now(const std::vector<Shape>& inputs) {
  if (built_) return;
  compute_output_shapes(inputs);  // says what is wrong with the shape before anything is made
  build_all(inputs);
  built_shapes_ = inputs;
  built_ = true;
}

std::vector<Variable> LayerImpl::weights() const {
  if (!built_ && has_weights()) {
    throw FailedPrecondition(cat("weights [", name_,
                                 "]: the layer is not built, so it has no weights yet; give "
                                 "input_shape, call build, or call "
                                 "it once"));
  }
  std::vector<Variable> all = weights_;
  for (const auto& layer : inner_) {
    for (Variable& weight : layer->weights()) all.push_back(std::move(weight));
  }
  return all;
}

std::vector<Variable> LayerImpl::trainable_weights() const {
  std::vector<Variable> trainable;
  if (!trainable_) return trainable;
  for (const Variable& weight : weights_) {
    if (weight.trainable()) trainable.push_back(weight);
  }
  for (const auto& layer : inner_) {
    for (Variable& weight : layer->trainable_weights()) trainable.push_back(std::move(weight));
  }
  return trainable;
}

std::vector<Tensor> LayerImpl::losses() const {
  std::vector<Tensor> losses;
  if (const CallLosses* own = call_losses_.load(std::memory_order_acquire)) own->append_to(losses);
  if (trainable_) {  // as Keras: what is not trained has no penalty
    for (const auto& [weight, penalty] : penalties_) losses.push_back(penalty(weight.value()));
  }
  for (const auto& layer : inner_) {
    for (Tensor& loss : layer->losses()) losses.push_back(std::move(loss));
  }
  return losses;
}

void LayerImpl::forget_losses() {
  if (CallLosses* own = call_losses_.load(std::memory_order_acquire)) own->clear();
  for (const auto& layer : inner_) layer->clear_losses();
}

void LayerImpl::add_loss(const Tensor& loss) {
  CallLosses* own = call_losses_.load(std::memory_order_acquire);
  if (own == nullptr) {  // replicas may come here together
    auto made = std::make_unique<CallLosses>();
    if (call_losses_.compare_exchange_strong(own, made.get())) own = made.release();
  }
  own->add(loss, name_);
}

void LayerImpl::add_penalty(const Regularizer& regularizer, const Tensor& output) {
  const int64_t rows = output.dim() > 0 ? output.size(0) : 1;
  if (rows > 0) add_loss(regularizer(output) / rows);
}

Variable LayerImpl::add_weight(const WeightOptions& options) {
  int64_t numel = 1;
  bool fits = true;
  for (int64_t size : options.shape) {
    fits = fits && size >= 0 && !__builtin_mul_overflow(numel, size, &numel);
  }
  if (!fits || numel > weight_limit_) {
    throw InvalidArgument(cat(class_name(), " [", name_, "]: a weight \"", options.name,
                              "\" of shape ", shape_text(options.shape), ", expected at most ",
                              weight_limit_, " entries"));
  }
  Tensor initial = options.initializer(options.shape);
  const at::ScalarType dtype = options.dtype.value_or(policy_.variable_dtype());
  if (initial.scalar_type() != dtype) initial = initial.to(dtype);
  if (!options.storage_order.empty()) {
    std::vector<int64_t> back(options.storage_order.size());
    for (std::size_t i = 0; i < back.size(); ++i)
      back[static_cast<std::size_t>(options.storage_order[i])] = static_cast<int64_t>(i);
    initial = initial.permute(options.storage_order).contiguous().permute(back);
  }
  VariableOptions variable;
  variable.trainable = options.trainable;
  variable.name = cat(name_, "/", options.name);
  variable.synchronization = options.synchronization;
  variable.aggregation = options.aggregation;
  variable.constraint = options.constraint;
  Variable weight(initial, variable);
  weights_.push_back(weight);
  if (options.regularizer.defined()) penalties_.emplace_back(weight, options.regularizer);
  return weight;
}

}  // namespace layers
}  // namespace tutti::keras
