// Losses of probabilities.

#include <limits>

#include "keras/losses/families.h"

namespace tutti::keras::losses {
namespace {

/// Not LibTorch's default -100, which would hide a wrong label.
constexpr int64_t kIgnoreNothing = std::numeric_limits<int64_t>::min();

void check_smoothing(const std::string& name, double label_smoothing) {
  if (label_smoothing >= 0 && label_smoothing <= 1) return;
  throw InvalidArgument(
      cat("loss [", name, "]: label_smoothing ", label_smoothing, ", expected from 0 to 1"));
}

Tensor clipped(const Tensor& probabilities) { return probabilities.clamp(kEpsilon, 1 - kEpsilon); }

Tensor binary_smoothed(const Tensor& labels, double smoothing) {
  return smoothing > 0 ? labels * (1 - smoothing) + 0.5 * smoothing : labels;
}

Tensor categorical_smoothed(const Tensor& labels, double smoothing, int64_t axis) {
  if (smoothing <= 0) return labels;
  return labels * (1 - smoothing) + smoothing / static_cast<double>(labels.size(axis));
}

Tensor binary_entries(const Tensor& labels, const Tensor& probabilities) {
  const Tensor p = clipped(probabilities);
  return -(labels * p.log() + (1 - labels) * (1 - p).log());
}

Tensor shares_of_classes(const Tensor& predictions, int64_t axis) {
  return clipped(predictions / predictions.sum(axis, /*keepdim=*/true));
}

Json smoothed_arguments(bool from_logits, double label_smoothing, int64_t axis) {
  return {{"from_logits", from_logits}, {"label_smoothing", label_smoothing}, {"axis", axis}};
}

/// Labels and predictions with the classes last.
struct ClassNumbers {
  Tensor labels;
  Tensor predictions;
};
ClassNumbers class_numbers(const char* name, const Tensor& y_true, const Tensor& y_pred,
                           int64_t axis) {
  if (y_pred.dim() < 1) wrong_shapes(name, y_true, y_pred, "predictions with an axis of classes");
  const int64_t own = checked_axis(name, axis, y_pred);
  const bool last = own == y_pred.dim() - 1;
  ClassNumbers all{y_true, last ? y_pred : y_pred.movedim(own, -1)};
  if (y_true.dim() == y_pred.dim() && y_true.size(own) == 1) all.labels = y_true.squeeze(own);
  const auto rows = all.predictions.sizes().slice(0, static_cast<std::size_t>(y_pred.dim() - 1));
  if (all.labels.sizes() != rows) {
    wrong_shapes(name, y_true, y_pred,
                 "one class number for each row of predictions; one-hot labels go with "
                 "CategoricalCrossentropy");
  }
  if (all.labels.scalar_type() != at::kLong) all.labels = all.labels.to(at::kLong);
  return all;
}

[[noreturn]] void wrong_label(const char* name, const Tensor& labels, int64_t classes) {
  throw InvalidArgument(cat("loss [", name, "]: labels from ", labels.min().item<int64_t>(), " to ",
                            labels.max().item<int64_t>(), " for ", classes,
                            " classes, expected from 0 to ", classes - 1,
                            "; check the labels and the last layer"));
}

struct SparseImpl : FunctionImpl {
  explicit SparseImpl(const SparseCategoricalCrossentropyOptions& options)
      : FunctionImpl(
            "SparseCategoricalCrossentropy", options.name, options.reduction,
            [options](const Tensor& y_true, const Tensor& y_pred) {
              return sparse_categorical_crossentropy(y_true, y_pred, options);
            },
            Json{{"from_logits", options.from_logits}, {"axis", options.axis}}),
        ignore_class(options.ignore_class),
        axis(options.axis) {
    if (ignore_class) arguments["ignore_class"] = *ignore_class;
  }
  Tensor valid(const Tensor& y_true, const Tensor& y_pred) const override {
    if (!ignore_class) return {};
    return class_numbers("sparse_categorical_crossentropy", y_true, y_pred, axis)
        .labels.ne(*ignore_class);
  }
  std::optional<int64_t> ignore_class;
  int64_t axis;
};

template <class Options>
Options smoothed_options(const Json& json, const LossBase& base) {
  Options options;
  options.from_logits = member<bool>(json, "from_logits", false);
  options.label_smoothing = member<double>(json, "label_smoothing", 0);
  options.axis = member<int64_t>(json, "axis", -1);
  options.reduction = base.reduction;
  options.name = base.name;
  return options;
}

/// What a class with a function of (labels, predictions, options) is.
template <class Options>
std::shared_ptr<FunctionImpl> smoothed(const char* class_name, const Options& given,
                                       const char* name, Json arguments,
                                       Tensor (*function)(const Tensor&, const Tensor&,
                                                          const Options&)) {
  const Options options = named(given, name);
  check_smoothing(options.name, options.label_smoothing);
  arguments.update(smoothed_arguments(options.from_logits, options.label_smoothing, options.axis));
  return std::make_shared<FunctionImpl>(
      class_name, options.name, options.reduction,
      [options, function](const Tensor& y_true, const Tensor& y_pred) {
        return function(y_true, y_pred, options);
      },
      std::move(arguments));
}

}  // namespace

Tensor kl_divergence(const Tensor& y_true, const Tensor& y_pred) {
  const auto [labels, predictions] = matched("kl_divergence", y_true, y_pred);
  checked_axis("kl_divergence", -1, predictions);
  const Tensor y = labels.clamp(kEpsilon, 1);
  return (y * (y / predictions.clamp(kEpsilon, 1)).log()).sum(-1);
}

Tensor binary_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                           const CrossentropyOptions& options) {
  auto [labels, predictions] = matched("binary_crossentropy", y_true, y_pred);
  labels = binary_smoothed(labels, options.label_smoothing);
  const Tensor entries = options.from_logits ? at::binary_cross_entropy_with_logits(
                                                   predictions, labels, {}, {}, at::Reduction::None)
                                             : binary_entries(labels, predictions);
  if (entries.dim() == 0) return entries;
  return mean_over(entries, checked_axis("binary_crossentropy", options.axis, entries));
}

Tensor binary_focal_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                 const BinaryFocalCrossentropyOptions& options) {
  auto [labels, predictions] = matched("binary_focal_crossentropy", y_true, y_pred);
  labels = binary_smoothed(labels, options.label_smoothing);
  const Tensor p = options.from_logits ? predictions.sigmoid() : predictions;
  const Tensor of_label = labels * p + (1 - labels) * (1 - p);
  Tensor entries = (1 - of_label).pow(options.gamma) * binary_entries(labels, p);
  if (options.apply_class_balancing)
    entries = (labels * options.alpha + (1 - labels) * (1 - options.alpha)) * entries;
  if (entries.dim() == 0) return entries;
  return mean_over(entries, checked_axis("binary_focal_crossentropy", options.axis, entries));
}

Tensor categorical_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                const CrossentropyOptions& options) {
  auto [labels, predictions] = matched("categorical_crossentropy", y_true, y_pred);
  const int64_t axis = checked_axis("categorical_crossentropy", options.axis, predictions);
  labels = categorical_smoothed(labels, options.label_smoothing, axis);
  if (options.from_logits) return -(labels * predictions.log_softmax(axis)).sum(axis);
  return -(labels * shares_of_classes(predictions, axis).log()).sum(axis);
}

Tensor categorical_focal_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                      const CategoricalFocalCrossentropyOptions& options) {
  auto [labels, predictions] = matched("categorical_focal_crossentropy", y_true, y_pred);
  const int64_t axis = checked_axis("categorical_focal_crossentropy", options.axis, predictions);
  labels = categorical_smoothed(labels, options.label_smoothing, axis);
  const Tensor p =
      shares_of_classes(options.from_logits ? predictions.softmax(axis) : predictions, axis);
  return -((1 - p).pow(options.gamma) * options.alpha * labels * p.log()).sum(axis);
}

Tensor sparse_categorical_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                       const SparseCategoricalCrossentropyOptions& options) {
  constexpr const char* kName = "sparse_categorical_crossentropy";
  const auto [labels, predictions] = class_numbers(kName, y_true, computable(y_pred), options.axis);
  const int64_t classes = predictions.size(-1);
  // Keras takes the logarithm of the clipped probabilities as logits.
  const Tensor logits = options.from_logits ? predictions : clipped(predictions).log();
  const bool flat = predictions.dim() == 2;
  try {
    const Tensor loss = at::cross_entropy_loss(
        flat ? logits : logits.reshape({-1, classes}), flat ? labels : labels.reshape({-1}), {},
        at::Reduction::None, options.ignore_class.value_or(kIgnoreNothing));
    return flat ? loss : loss.reshape(labels.sizes());
  } catch (const c10::IndexError&) {
    wrong_label(kName, labels, classes);
  }
}

Tensor categorical_generalized_cross_entropy(const Tensor& y_true, const Tensor& y_pred, double q) {
  constexpr const char* kName = "categorical_generalized_cross_entropy";
  if (!(q > 0 && q < 1))
    throw InvalidArgument(cat("loss [", kName, "]: q ", q, ", expected between 0 and 1"));
  const auto [labels, predictions] = class_numbers(kName, y_true, computable(y_pred), -1);
  const int64_t classes = predictions.size(-1);
  const Tensor column = labels.unsqueeze(-1);
  if (labels.numel() > 0 && labels.lt(0).logical_or_(labels.ge(classes)).any().item<bool>())
    wrong_label(kName, labels, classes);
  return (1 - predictions.gather(-1, column).squeeze(-1).pow(q)) / q;
}

KLDivergence::KLDivergence(const LossOptions& options)
    : Loss([&] {
        const LossOptions own = named(options, "kl_divergence");
        return std::make_shared<FunctionImpl>("KLDivergence", own.name, own.reduction,
                                              kl_divergence);
      }()) {}
BinaryCrossentropy::BinaryCrossentropy(const CrossentropyOptions& options)
    : Loss(smoothed("BinaryCrossentropy", options, "binary_crossentropy", Json::object(),
                    binary_crossentropy)) {}
CategoricalCrossentropy::CategoricalCrossentropy(const CrossentropyOptions& options)
    : Loss(smoothed("CategoricalCrossentropy", options, "categorical_crossentropy", Json::object(),
                    categorical_crossentropy)) {}
BinaryFocalCrossentropy::BinaryFocalCrossentropy(const BinaryFocalCrossentropyOptions& options)
    : Loss(smoothed("BinaryFocalCrossentropy", options, "binary_focal_crossentropy",
                    Json{{"apply_class_balancing", options.apply_class_balancing},
                         {"alpha", options.alpha},
                         {"gamma", options.gamma}},
                    binary_focal_crossentropy)) {}
CategoricalFocalCrossentropy::CategoricalFocalCrossentropy(
    const CategoricalFocalCrossentropyOptions& options)
    : Loss(smoothed("CategoricalFocalCrossentropy", options, "categorical_focal_crossentropy",
                    Json{{"alpha", options.alpha}, {"gamma", options.gamma}},
                    categorical_focal_crossentropy)) {}
SparseCategoricalCrossentropy::SparseCategoricalCrossentropy(
    const SparseCategoricalCrossentropyOptions& options)
    : Loss(std::make_shared<SparseImpl>(named(options, "sparse_categorical_crossentropy"))) {}
CategoricalGeneralizedCrossEntropy::CategoricalGeneralizedCrossEntropy(
    const CategoricalGeneralizedCrossEntropyOptions& options)
    : Loss([&] {
        const auto own = named(options, "categorical_generalized_cross_entropy");
        if (!(own.q > 0 && own.q < 1))
          throw InvalidArgument(
              cat("loss [", own.name, "]: q ", own.q, ", expected between 0 and 1"));
        return std::make_shared<FunctionImpl>(
            "CategoricalGeneralizedCrossEntropy", own.name, own.reduction,
            [q = own.q](const Tensor& y_true, const Tensor& y_pred) {
              return categorical_generalized_cross_entropy(y_true, y_pred, q);
            },
            Json{{"q", own.q}});
      }()) {}

LossFamily crossentropy_losses() {
  static const std::vector<LossEntry> kEntries = {
      {"KLDivergence",
       "kl_divergence",
       {"kld", "kullback_leibler_divergence"},
       [](const Json&, const LossBase& base) -> Loss {
         return KLDivergence({base.reduction, base.name});
       }},
      {"BinaryCrossentropy",
       "binary_crossentropy",
       {"bce"},
       [](const Json& json, const LossBase& base) -> Loss {
         return BinaryCrossentropy(smoothed_options<CrossentropyOptions>(json, base));
       }},
      {"BinaryFocalCrossentropy",
       "binary_focal_crossentropy",
       {},
       [](const Json& json, const LossBase& base) -> Loss {
         auto options = smoothed_options<BinaryFocalCrossentropyOptions>(json, base);
         options.apply_class_balancing = member<bool>(json, "apply_class_balancing", false);
         options.alpha = member<double>(json, "alpha", 0.25);
         options.gamma = member<double>(json, "gamma", 2.0);
         return BinaryFocalCrossentropy(options);
       }},
      {"CategoricalCrossentropy",
       "categorical_crossentropy",
       {},
       [](const Json& json, const LossBase& base) -> Loss {
         return CategoricalCrossentropy(smoothed_options<CrossentropyOptions>(json, base));
       }},
      {"CategoricalFocalCrossentropy",
       "categorical_focal_crossentropy",
       {},
       [](const Json& json, const LossBase& base) -> Loss {
         auto options = smoothed_options<CategoricalFocalCrossentropyOptions>(json, base);
         options.alpha = member<double>(json, "alpha", 0.25);
         options.gamma = member<double>(json, "gamma", 2.0);
         return CategoricalFocalCrossentropy(options);
       }},
      {"SparseCategoricalCrossentropy",
       "sparse_categorical_crossentropy",
       {},
       [](const Json& json, const LossBase& base) -> Loss {
         SparseCategoricalCrossentropyOptions options;
         options.from_logits = member<bool>(json, "from_logits", false);
         if (json.contains("ignore_class") && !json["ignore_class"].is_null())
           options.ignore_class = member<int64_t>(json, "ignore_class", 0);
         options.reduction = base.reduction;
         options.axis = member<int64_t>(json, "axis", -1);
         options.name = base.name;
         return SparseCategoricalCrossentropy(options);
       }},
      {"CategoricalGeneralizedCrossEntropy",
       "categorical_generalized_cross_entropy",
       {},
       [](const Json& json, const LossBase& base) -> Loss {
         return CategoricalGeneralizedCrossEntropy(
             {member<double>(json, "q", 0.5), base.reduction, base.name});
       }}};
  return kEntries;
}

}  // namespace tutti::keras::losses
