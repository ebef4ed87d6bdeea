// What all layers share: names, building once for all replicas, weights.

#include "tutti/keras/layer.h"

#include <map>
#include <set>

#include "base/mutex.h"
#include "keras/json.h"
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
      input_shape_(std::move(input_shape)) {}

Tensor LayerImpl::operator()(const Tensor& input, bool training) {
  if (!input.defined())
    throw InvalidArgument(
        cat(class_name(), " [", name_, "]: an undefined input, expected a batch"));
  if (!built_) {
    Shape shape = input.sizes().vec();
    if (!shape.empty()) shape[0] = -1;
    build_for(shape);
  }
  return call(input, training);
}

void LayerImpl::build_for(const Shape& input) {
  if (built_) return;
  distribute::once_for_all_replicas("build", [&] { build_now(input); });
}

void LayerImpl::build_now(const Shape& input) {
  if (built_) return;
  compute_output_shape(input);  // says what is wrong with the shape before anything is made
  build(input);
  built_ = true;
}

const std::vector<Variable>& LayerImpl::weights() const {
  if (!built_ && has_weights()) {
    throw FailedPrecondition(cat("weights [", name_,
                                 "]: the layer is not built, so it has no weights yet; give "
                                 "input_shape, call build, or call "
                                 "it once"));
  }
  return weights_;
}

std::vector<Variable> LayerImpl::trainable_weights() const {
  std::vector<Variable> trainable;
  for (const Variable& weight : weights()) {
    if (trainable_ && weight.trainable()) trainable.push_back(weight);
  }
  return trainable;
}

std::vector<Tensor> LayerImpl::losses() const {
  std::vector<Tensor> losses;
  if (!trainable_) return losses;  // as Keras: what is not trained has no penalty
  for (const auto& [weight, penalty] : penalties_) losses.push_back(penalty(weight.value()));
  return losses;
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
  Variable weight(initial, variable);
  weights_.push_back(weight);
  if (options.regularizer.defined()) penalties_.emplace_back(weight, options.regularizer);
  return weight;
}

}  // namespace layers
}  // namespace tutti::keras
