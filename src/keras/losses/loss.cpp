#include "keras/losses/families.h"
#include "tutti/distribute/replica_context.h"

namespace tutti::keras::losses {
namespace {

struct ReductionName {
  Reduction reduction;
  const char* name;
};
constexpr ReductionName kReductions[] = {
    {Reduction::kSumOverBatchSize, "sum_over_batch_size"},
    {Reduction::kSum, "sum"},
    {Reduction::kNone, "none"},
    {Reduction::kMean, "mean"},
    {Reduction::kMeanWithSampleWeight, "mean_with_sample_weight"}};

bool divides_by_number(Reduction reduction) {
  return reduction == Reduction::kMean || reduction == Reduction::kSumOverBatchSize;
}

}  // namespace

std::string to_string(Reduction reduction) {
  for (const ReductionName& known : kReductions) {
    if (known.reduction == reduction) return known.name;
  }
  return "";
}

Reduction reduction_from_name(const std::string& name) {
  std::vector<std::string> names;
  for (const ReductionName& known : kReductions) {
    if (name == known.name) return known.reduction;
    names.push_back(known.name);
  }
  throw InvalidArgument(cat("reduction: \"", name, "\", expected one of ", join(names, ", ")));
}

std::pair<Tensor, Tensor> same_rank(const Tensor& y_true, const Tensor& y_pred) {
  if (y_true.dim() == y_pred.dim() + 1 && y_true.size(-1) == 1) {
    return y_pred.dim() == 1 ? std::pair(y_true, y_pred.unsqueeze(-1))
                             : std::pair(y_true.squeeze(-1), y_pred);
  }
  if (y_pred.dim() == y_true.dim() + 1 && y_pred.size(-1) == 1) {
    return y_true.dim() == 1 ? std::pair(y_true.unsqueeze(-1), y_pred)
                             : std::pair(y_true, y_pred.squeeze(-1));
  }
  return {y_true, y_pred};
}

Tensor apply_weights(const Tensor& values, const Tensor& sample_weight) {
  if (!sample_weight.defined()) return values;
  const auto [own, weights] = same_rank(values, sample_weight.to(values.scalar_type()));
  bool fits = weights.dim() == 0 || own.dim() == 0 || weights.dim() == own.dim();
  for (int64_t axis = 0; fits && own.dim() > 0 && axis < weights.dim(); ++axis) {
    fits = weights.size(axis) == own.size(axis) || weights.size(axis) == 1;
  }
  if (!fits) {
    throw InvalidArgument(cat(
        "sample_weight: shape ", shape_text(sample_weight.sizes()), " for losses of shape ",
        shape_text(values.sizes()),
        ", expected that shape or a scalar; give one weight a loss, or axes of 1 to repeat it"));
  }
  return own * weights;
}

Tensor apply_mask(const Tensor& sample_weight, const Tensor& mask, at::ScalarType dtype,
                  Reduction reduction) {
  if (!mask.defined()) return sample_weight.defined() ? sample_weight.to(dtype) : sample_weight;
  Tensor counts = mask.to(dtype);
  if (divides_by_number(reduction))
    counts = counts * (static_cast<double>(counts.numel()) / counts.sum().clamp_min(1));
  return apply_weights(counts, sample_weight);
}

Tensor reduce_weighted(const Tensor& values, const Tensor& sample_weight, Reduction reduction,
                       const Tensor& valid) {
  const Tensor weights = valid.defined()
                             ? apply_mask(sample_weight, valid, values.scalar_type(), reduction)
                             : sample_weight;
  const Tensor weighted = apply_weights(values, weights);
  // A scalar is a loss of the whole batch already: nothing to reduce, nor to divide by.
  if (reduction == Reduction::kNone || weighted.dim() == 0) return weighted;
  if (reduction == Reduction::kSum || weighted.numel() == 0) return weighted.sum();
  if (reduction == Reduction::kMeanWithSampleWeight && weights.defined()) {
    const Tensor total =
        weights.sum(values.scalar_type());  // of the weights as given: a scalar counts once
    const Tensor none = total == 0;
    return (weighted.sum() / total.masked_fill(none, 1)).masked_fill(none, 0);
  }
  return weighted.mean();
}

Tensor Loss::per_sample(const Tensor& y_true, const Tensor& y_pred) const {
  if (impl_ == nullptr)
    throw FailedPrecondition(
        "loss: an empty handle, expected a loss; construct one, e.g. MeanSquaredError()");
  if (!y_true.defined() || !y_pred.defined()) {
    throw InvalidArgument(cat("loss [", name(), "]: no ",
                              y_true.defined() ? "predictions" : "labels",
                              ", expected both; does the dataset give (x, y)?"));
  }
  const Tensor values = impl_->per_sample(y_true, computable(y_pred));
  // A scalar that was made of no rows says nothing (a mean of nothing is NaN); the sum keeps the
  // zero gradients.
  if (values.dim() == 0 && y_pred.dim() > 0 && y_pred.size(0) == 0) return y_pred.sum();
  return values;
}

Tensor Loss::operator()(const Tensor& y_true, const Tensor& y_pred,
                        const Tensor& sample_weight) const {
  const Tensor values = per_sample(y_true, y_pred);
  const bool mean = reduction() != Reduction::kSum && reduction() != Reduction::kNone;
  const distribute::ReplicaContext* replica = distribute::get_replica_context();
  if (mean && replica != nullptr && replica->num_replicas_in_sync() > 1) {
    throw InvalidArgument(cat("loss [", name(), "]: reduction ", to_string(reduction()),
                              " inside a replica, expected SUM or NONE; a mean over "
                              "one replica's rows is not the mean of the batch. Use "
                              "Reduction::kNone with nn::compute_average_loss"));
  }
  return reduce_weighted(values, sample_weight, reduction(), impl_->valid(y_true, y_pred));
}

std::pair<Tensor, Tensor> matched(const char* name, const Tensor& y_true, const Tensor& y_pred) {
  auto [labels, predictions] = same_rank(y_true, computable(y_pred));
  if (labels.sizes() != predictions.sizes())
    wrong_shapes(name, y_true, y_pred, "the same shape; check the labels and the last layer");
  return {labels.to(predictions.scalar_type()), predictions};
}

Tensor computable(const Tensor& y_pred) {
  const at::ScalarType dtype = y_pred.scalar_type();
  return dtype == at::kFloat || dtype == at::kDouble ? y_pred : y_pred.to(at::kFloat);
}

void wrong_shapes(const char* name, const Tensor& y_true, const Tensor& y_pred,
                  const char* expected) {
  throw InvalidArgument(cat("loss [", name, "]: labels ", shape_text(y_true.sizes()),
                            " for predictions ", shape_text(y_pred.sizes()), ", expected ",
                            expected));
}

int64_t checked_axis(const char* name, int64_t axis, const Tensor& tensor) {
  const int64_t rank = tensor.dim();
  if (axis < -rank || axis >= rank) {
    throw InvalidArgument(cat("loss [", name, "]: axis ", axis, " for predictions ",
                              shape_text(tensor.sizes()), ", expected one of their axes, from ",
                              -rank, " to ", rank - 1));
  }
  return axis < 0 ? axis + rank : axis;
}

Tensor mean_over(const Tensor& values, int64_t axis) {
  return values.dim() == 0 ? values : values.mean(axis);
}

std::string FunctionImpl::config() const {
  Json json = arguments;
  json["reduction"] = to_string(reduction);
  json["name"] = name;
  return json.dump();
}

LossFunctionWrapper::LossFunctionWrapper(
    std::function<Tensor(const Tensor&, const Tensor&)> function, const LossOptions& options)
    : Loss([&] {
        const LossOptions own = named(options, "loss_function");
        if (!function)
          throw InvalidArgument(cat("loss [", own.name, "]: no function, expected one"));
        return std::make_shared<FunctionImpl>(
            "LossFunctionWrapper", own.name, own.reduction,
            [function = std::move(function)](const Tensor& y_true, const Tensor& y_pred) {
              const auto [labels, predictions] = same_rank(y_true, y_pred);
              return function(labels, predictions);
            });
      }()) {}

Loss from_function(std::function<Tensor(const Tensor&, const Tensor&)> function,
                   const std::string& name) {
  return LossFunctionWrapper(std::move(function), {.name = name});
}

}  // namespace tutti::keras::losses
