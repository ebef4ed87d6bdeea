// Losses of numbers: errors, similarities, hinges, Poisson.

#include "keras/losses/families.h"

namespace tutti::keras::losses {
namespace {

/// Labels that are all 0 or 1 stand for -1 and 1. Decided by tensor operations: no wait for a GPU.
Tensor hinge_labels(const Tensor& labels) {
  const Tensor binary = labels.eq(0).logical_or_(labels.eq(1)).all();
  return at::where(binary, labels * 2 - 1, labels);
}

Tensor hinge_terms(const char* name, const Tensor& y_true, const Tensor& y_pred) {
  const auto [labels, predictions] = matched(name, y_true, y_pred);
  return (1 - hinge_labels(labels) * predictions).clamp_min(0);
}

/// A row of zeros stays one.
Tensor normalized(const Tensor& values, int64_t axis) {
  const Tensor inverse = values.square().sum(axis, /*keepdim=*/true).rsqrt();
  return values * inverse.clamp_max(1 / kEpsilon);
}

std::shared_ptr<FunctionImpl> plain(const char* class_name, const char* name,
                                    const LossOptions& options,
                                    Tensor (*function)(const Tensor&, const Tensor&)) {
  const LossOptions own = named(options, name);
  return std::make_shared<FunctionImpl>(class_name, own.name, own.reduction, function);
}

template <class Class>
Loss make_plain(const Json&, const LossBase& base) {
  return Class(LossOptions{base.reduction, base.name});
}

}  // namespace

Tensor mean_squared_error(const Tensor& y_true, const Tensor& y_pred) {
  const auto [labels, predictions] = matched("mean_squared_error", y_true, y_pred);
  return mean_over((predictions - labels).square());
}

Tensor mean_absolute_error(const Tensor& y_true, const Tensor& y_pred) {
  const auto [labels, predictions] = matched("mean_absolute_error", y_true, y_pred);
  return mean_over((predictions - labels).abs());
}

Tensor mean_absolute_percentage_error(const Tensor& y_true, const Tensor& y_pred) {
  const auto [labels, predictions] = matched("mean_absolute_percentage_error", y_true, y_pred);
  return 100 * mean_over(((labels - predictions) / labels.abs().clamp_min(kEpsilon)).abs());
}

Tensor mean_squared_logarithmic_error(const Tensor& y_true, const Tensor& y_pred) {
  const auto [labels, predictions] = matched("mean_squared_logarithmic_error", y_true, y_pred);
  const auto logarithm = [](const Tensor& x) { return (x.clamp_min(kEpsilon) + 1).log(); };
  return mean_over((logarithm(predictions) - logarithm(labels)).square());
}

Tensor cosine_similarity(const Tensor& y_true, const Tensor& y_pred, int64_t axis) {
  const auto [labels, predictions] = matched("cosine_similarity", y_true, y_pred);
  const int64_t own = checked_axis("cosine_similarity", axis, predictions);
  return -(normalized(labels, own) * normalized(predictions, own)).sum(own);
}

Tensor huber(const Tensor& y_true, const Tensor& y_pred, double delta) {
  const auto [labels, predictions] = matched("huber", y_true, y_pred);
  if (!(delta > 0))
    throw InvalidArgument(cat("loss [huber]: delta ", delta, ", expected more than 0"));
  return mean_over(at::huber_loss(predictions, labels, at::Reduction::None, delta));
}

Tensor log_cosh(const Tensor& y_true, const Tensor& y_pred) {
  const auto [labels, predictions] = matched("log_cosh", y_true, y_pred);
  // cosh overflows early: log(cosh(x)) = x + log(1 + exp(-2 x)) - log(2).
  const Tensor difference = predictions - labels;
  return mean_over(difference + at::softplus(difference * -2) - 0.69314718055994530942);
}

Tensor poisson(const Tensor& y_true, const Tensor& y_pred) {
  const auto [labels, predictions] = matched("poisson", y_true, y_pred);
  return mean_over(predictions - labels * (predictions + kEpsilon).log());
}

Tensor hinge(const Tensor& y_true, const Tensor& y_pred) {
  return mean_over(hinge_terms("hinge", y_true, y_pred));
}

Tensor squared_hinge(const Tensor& y_true, const Tensor& y_pred) {
  return mean_over(hinge_terms("squared_hinge", y_true, y_pred).square());
}

Tensor categorical_hinge(const Tensor& y_true, const Tensor& y_pred) {
  const auto [labels, predictions] = matched("categorical_hinge", y_true, y_pred);
  checked_axis("categorical_hinge", -1, predictions);
  const Tensor right = (labels * predictions).sum(-1);
  const Tensor wrong = ((1 - labels) * predictions).amax(-1);
  return (wrong - right + 1).clamp_min(0);
}

MeanSquaredError::MeanSquaredError(const LossOptions& options)
    : Loss(plain("MeanSquaredError", "mean_squared_error", options, mean_squared_error)) {}
MeanAbsoluteError::MeanAbsoluteError(const LossOptions& options)
    : Loss(plain("MeanAbsoluteError", "mean_absolute_error", options, mean_absolute_error)) {}
MeanAbsolutePercentageError::MeanAbsolutePercentageError(const LossOptions& options)
    : Loss(plain("MeanAbsolutePercentageError", "mean_absolute_percentage_error", options,
                 mean_absolute_percentage_error)) {}
MeanSquaredLogarithmicError::MeanSquaredLogarithmicError(const LossOptions& options)
    : Loss(plain("MeanSquaredLogarithmicError", "mean_squared_logarithmic_error", options,
                 mean_squared_logarithmic_error)) {}
LogCosh::LogCosh(const LossOptions& options)
    : Loss(plain("LogCosh", "log_cosh", options, log_cosh)) {}
Poisson::Poisson(const LossOptions& options)
    : Loss(plain("Poisson", "poisson", options, poisson)) {}
Hinge::Hinge(const LossOptions& options) : Loss(plain("Hinge", "hinge", options, hinge)) {}
SquaredHinge::SquaredHinge(const LossOptions& options)
    : Loss(plain("SquaredHinge", "squared_hinge", options, squared_hinge)) {}
CategoricalHinge::CategoricalHinge(const LossOptions& options)
    : Loss(plain("CategoricalHinge", "categorical_hinge", options, categorical_hinge)) {}

CosineSimilarity::CosineSimilarity(const CosineSimilarityOptions& options)
    : Loss([&] {
        const CosineSimilarityOptions own = named(options, "cosine_similarity");
        return std::make_shared<FunctionImpl>(
            "CosineSimilarity", own.name, own.reduction,
            [axis = own.axis](const Tensor& y_true, const Tensor& y_pred) {
              return losses::cosine_similarity(y_true, y_pred, axis);
            },
            Json{{"axis", own.axis}});
      }()) {}

Huber::Huber(const HuberOptions& options)
    : Loss([&] {
        const HuberOptions own = named(options, "huber_loss");
        if (!(own.delta > 0))
          throw InvalidArgument(
              cat("loss [", own.name, "]: delta ", own.delta, ", expected more than 0"));
        return std::make_shared<FunctionImpl>(
            "Huber", own.name, own.reduction,
            [delta = own.delta](const Tensor& y_true, const Tensor& y_pred) {
              return huber(y_true, y_pred, delta);
            },
            Json{{"delta", own.delta}});
      }()) {}

LossFamily regression_losses() {
  static const std::vector<LossEntry> kEntries = {
      {"MeanSquaredError", "mean_squared_error", {"mse"}, make_plain<MeanSquaredError>},
      {"MeanAbsoluteError", "mean_absolute_error", {"mae"}, make_plain<MeanAbsoluteError>},
      {"MeanAbsolutePercentageError",
       "mean_absolute_percentage_error",
       {"mape"},
       make_plain<MeanAbsolutePercentageError>},
      {"MeanSquaredLogarithmicError",
       "mean_squared_logarithmic_error",
       {"msle"},
       make_plain<MeanSquaredLogarithmicError>},
      {"CosineSimilarity",
       "cosine_similarity",
       {},
       [](const Json& json, const LossBase& base) -> Loss {
         return CosineSimilarity({member<int64_t>(json, "axis", -1), base.reduction, base.name});
       }},
      {"Huber",
       "huber",
       {"huber_loss"},
       [](const Json& json, const LossBase& base) -> Loss {
         return Huber({member<double>(json, "delta", 1.0), base.reduction, base.name});
       }},
      {"LogCosh", "log_cosh", {}, make_plain<LogCosh>},
      {"Poisson", "poisson", {}, make_plain<Poisson>},
      {"Hinge", "hinge", {}, make_plain<Hinge>},
      {"SquaredHinge", "squared_hinge", {}, make_plain<SquaredHinge>},
      {"CategoricalHinge", "categorical_hinge", {}, make_plain<CategoricalHinge>}};
  return kEntries;
}

}  // namespace tutti::keras::losses
