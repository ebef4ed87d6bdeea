#include "tutti/keras/metrics/metric.h"

#include "keras/metrics/families.h"
#include "tutti/distribute/replica_context.h"

namespace tutti::keras::metrics {

std::string Metric::Impl::config() const { return Json{{"name", name_}}.dump(); }

void Metric::Impl::build(at::IntArrayRef, at::IntArrayRef) {}

void Metric::Impl::build_once(at::IntArrayRef y_true_sizes, at::IntArrayRef y_pred_sizes) {
  distribute::once_for_all_replicas("metric build", [&] {
    build(y_true_sizes, y_pred_sizes);
    built_ = true;
  });
}

Variable Metric::Impl::add_variable(const std::string& name, at::IntArrayRef shape,
                                    at::ScalarType dtype) {
  VariableOptions options;
  options.trainable = false;
  options.name = cat(name_, "/", name);
  options.synchronization = VariableSynchronization::kOnRead;
  options.aggregation = VariableAggregation::kSum;
  return variables_.emplace_back(at::zeros(shape, dtype), options);
}

Metric::Impl& Metric::impl() const {
  if (impl_ == nullptr)
    throw FailedPrecondition(
        "metric: an empty handle, expected a metric; construct one, e.g. Mean()");
  return *impl_;
}

void Metric::update_state(const Tensor& y_true, const Tensor& y_pred,
                          const Tensor& sample_weight) const {
  Impl& own = impl();
  if (!y_true.defined() || (own.takes_predictions() && !y_pred.defined())) {
    const char* missing = !own.takes_predictions() ? "values"
                          : y_true.defined()       ? "predictions"
                                                   : "labels";
    throw InvalidArgument(cat("metric [", name(), "]: no ", missing,
                              own.takes_predictions()
                                  ? ", expected both; does the dataset give (x, y)?"
                                  : ", expected some"));
  }
  at::NoGradGuard no_grad;
  if (!own.built())
    own.build_once(y_true.sizes(), y_pred.defined() ? y_pred.sizes() : y_true.sizes());
  own.update_state(y_true, y_pred.defined() ? y_pred.detach() : y_pred, sample_weight);
}

Tensor Metric::result() const {
  at::NoGradGuard no_grad;
  return impl().built() ? impl_->result() : at::zeros({});
}

double Metric::log_value() const {
  const Tensor value = result();
  return value.numel() == 1 ? value.item<double>() : value.mean(at::kDouble).item<double>();
}

void Metric::reset_state() const {
  for (Variable variable : impl().variables()) variable.assign(0);
}

const std::string& Metric::name() const { return impl().name(); }
std::vector<Variable> Metric::variables() const { return impl().variables(); }
Direction Metric::direction() const { return impl().direction(); }
std::string Metric::class_name() const { return impl().class_name(); }
std::string Metric::config() const { return impl().config(); }

void wrong_shapes(const char* metric, const Tensor& y_true, const Tensor& y_pred) {
  throw InvalidArgument(
      cat("metric [", metric, "]: labels ", shape_text(y_true.sizes()), " for predictions ",
          shape_text(y_pred.sizes()),
          ", expected matching shapes; check the labels, the last layer and the choice of metric"));
}

Tensor entry_weights(const std::string& metric, const Tensor& sample_weight,
                     at::IntArrayRef entry_sizes) {
  Tensor weights = sample_weight.to(at::kFloat);
  const auto rank = static_cast<int64_t>(entry_sizes.size());
  if (weights.dim() == rank + 1 && weights.size(-1) == 1) weights = weights.squeeze(-1);
  bool fits = weights.dim() <= rank;
  for (int64_t axis = 0; fits && axis < weights.dim(); ++axis) {
    fits = weights.size(axis) == entry_sizes[static_cast<std::size_t>(axis)] ||
           weights.size(axis) == 1;
  }
  if (!fits) {
    throw InvalidArgument(cat("metric [", metric, "]: sample_weight of shape ",
                              shape_text(sample_weight.sizes()), " for entries of shape ",
                              shape_text(entry_sizes),
                              ", expected one weight a row, that shape or a scalar"));
  }
  while (weights.dim() < rank) weights = weights.unsqueeze(-1);
  return weights.expand(entry_sizes);
}

std::vector<double> numbers_member(const Json& json, const char* key) {
  if (json.contains(key) && json[key].is_number()) return {member<double>(json, key, 0)};
  return member<std::vector<double>>(json, key, {});
}

std::string ArgumentsImpl::config() const {
  Json json = arguments_;
  json["name"] = name();
  return json.dump();
}

}  // namespace tutti::keras::metrics
