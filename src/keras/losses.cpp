#include "tutti/keras/losses.h"

#include <limits>

#include "keras/json.h"
#include "tutti/distribute/replica_context.h"

namespace tutti::keras::losses {
namespace {

constexpr double kEpsilon = 1e-7;
/// Not LibTorch's default -100, which would hide a wrong label.
constexpr int64_t kIgnoreNothing = std::numeric_limits<int64_t>::min();

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

[[noreturn]] void wrong_shapes(const std::string& name, const Tensor& y_true, const Tensor& y_pred,
                               const char* expected) {
  throw InvalidArgument(cat("loss [", name, "]: labels ", shape_text(y_true.sizes()),
                            " for predictions ", shape_text(y_pred.sizes()), ", expected ",
                            expected));
}

/// Labels in the predictions' rank and dtype; InvalidArgument unless the shapes then agree (a
/// broadcast would hide a mistake).
std::pair<Tensor, Tensor> matched(const std::string& name, const Tensor& y_true,
                                  const Tensor& y_pred) {
  auto [labels, predictions] = same_rank(y_true, y_pred);
  if (labels.sizes() != predictions.sizes())
    wrong_shapes(name, y_true, y_pred, "the same shape; check the labels and the last layer");
  return {labels.to(predictions.scalar_type()), predictions};
}

Json base_config(const Loss::Impl& loss) {
  return {{"reduction", to_string(loss.reduction)}, {"name", loss.name}};
}

struct ErrorLoss : Loss::Impl {
  ErrorLoss(const LossOptions& options, bool squared)
      : Impl(!options.name.empty() ? options.name
             : squared             ? "mean_squared_error"
                                   : "mean_absolute_error",
             options.reduction),
        squared(squared) {}
  std::string class_name() const override {
    return squared ? "MeanSquaredError" : "MeanAbsoluteError";
  }
  std::string config() const override { return base_config(*this).dump(); }
  Tensor per_sample(const Tensor& y_true, const Tensor& y_pred) const override {
    const auto [labels, predictions] = matched(name, y_true, y_pred);
    const Tensor difference = predictions - labels;
    const Tensor error = squared ? difference.square() : difference.abs();
    return error.dim() == 0 ? error : error.mean(-1);
  }
  bool squared;
};

struct EntropyLoss : Loss::Impl {
  EntropyLoss(const CrossentropyOptions& options, const char* default_name)
      : Impl(options.name.empty() ? default_name : options.name, options.reduction),
        from_logits(options.from_logits),
        label_smoothing(options.label_smoothing) {
    if (!(label_smoothing >= 0 && label_smoothing <= 1)) {
      throw InvalidArgument(
          cat("loss [", name, "]: label_smoothing ", label_smoothing, ", expected from 0 to 1"));
    }
  }
  std::string config() const override {
    Json json = base_config(*this);
    json["from_logits"] = from_logits;
    json["label_smoothing"] = label_smoothing;
    return json.dump();
  }
  bool from_logits;
  double label_smoothing;
};

struct BinaryImpl : EntropyLoss {
  explicit BinaryImpl(const CrossentropyOptions& options)
      : EntropyLoss(options, "binary_crossentropy") {}
  std::string class_name() const override { return "BinaryCrossentropy"; }
  Tensor per_sample(const Tensor& y_true, const Tensor& y_pred) const override {
    auto [labels, predictions] = matched(name, y_true, y_pred);
    if (label_smoothing > 0) labels = labels * (1 - label_smoothing) + 0.5 * label_smoothing;
    Tensor entropy;
    if (from_logits) {
      entropy =
          at::binary_cross_entropy_with_logits(predictions, labels, {}, {}, at::Reduction::None);
    } else {
      const Tensor p = predictions.clamp(kEpsilon, 1 - kEpsilon);
      entropy = -(labels * p.log() + (1 - labels) * (1 - p).log());
    }
    return entropy.dim() == 0 ? entropy : entropy.mean(-1);
  }
};

struct CategoricalImpl : EntropyLoss {
  explicit CategoricalImpl(const CrossentropyOptions& options)
      : EntropyLoss(options, "categorical_crossentropy") {}
  std::string class_name() const override { return "CategoricalCrossentropy"; }
  Tensor per_sample(const Tensor& y_true, const Tensor& y_pred) const override {
    auto [labels, predictions] = matched(name, y_true, y_pred);
    if (predictions.dim() == 0) wrong_shapes(name, y_true, y_pred, "one-hot rows");
    const auto classes = static_cast<double>(predictions.size(-1));
    if (label_smoothing > 0) labels = labels * (1 - label_smoothing) + label_smoothing / classes;
    if (from_logits) return -(labels * predictions.log_softmax(-1)).sum(-1);
    const Tensor p =
        (predictions / predictions.sum(-1, /*keepdim=*/true)).clamp(kEpsilon, 1 - kEpsilon);
    return -(labels * p.log()).sum(-1);
  }
};

struct SparseImpl : Loss::Impl {
  explicit SparseImpl(const SparseCategoricalCrossentropyOptions& options)
      : Impl(options.name.empty() ? "sparse_categorical_crossentropy" : options.name,
             options.reduction),
        from_logits(options.from_logits),
        ignore_class(options.ignore_class) {}
  std::string class_name() const override { return "SparseCategoricalCrossentropy"; }
  std::string config() const override {
    Json json = base_config(*this);
    json["from_logits"] = from_logits;
    if (ignore_class) json["ignore_class"] = *ignore_class;
    return json.dump();
  }
  Tensor labels_of(const Tensor& y_true, const Tensor& y_pred) const {
    Tensor labels = y_true;
    if (labels.dim() == y_pred.dim() && labels.dim() > 0 && labels.size(-1) == 1)
      labels = labels.squeeze(-1);
    if (y_pred.dim() < 1 ||
        labels.sizes() != y_pred.sizes().slice(0, static_cast<std::size_t>(y_pred.dim() - 1))) {
      wrong_shapes(name, y_true, y_pred,
                   "one class number for each row of predictions; one-hot labels go with "
                   "CategoricalCrossentropy");
    }
    return labels;
  }
  Tensor valid(const Tensor& y_true, const Tensor& y_pred) const override {
    return ignore_class ? labels_of(y_true, y_pred).ne(*ignore_class) : Tensor();
  }
  Tensor per_sample(const Tensor& y_true, const Tensor& y_pred) const override {
    const Tensor labels = labels_of(y_true, y_pred);
    const int64_t classes = y_pred.size(-1);
    // Keras takes the logarithm of the clipped probabilities as logits.
    const Tensor logits = from_logits ? y_pred : y_pred.clamp(kEpsilon, 1 - kEpsilon).log();
    const Tensor target = labels.scalar_type() == at::kLong ? labels : labels.to(at::kLong);
    const bool flat = y_pred.dim() == 2;
    try {
      const Tensor loss = at::cross_entropy_loss(
          flat ? logits : logits.reshape({-1, classes}), flat ? target : target.reshape({-1}), {},
          at::Reduction::None, ignore_class.value_or(kIgnoreNothing));
      return flat ? loss : loss.reshape(labels.sizes());
    } catch (const c10::IndexError&) {
      throw InvalidArgument(cat("loss [", name, "]: labels from ", target.min().item<int64_t>(),
                                " to ", target.max().item<int64_t>(), " for ", classes,
                                " classes, expected from 0 to ", classes - 1,
                                "; check the labels and the last layer"));
    }
  }
  bool from_logits;
  std::optional<int64_t> ignore_class;
};

std::string snake_class(const std::string& name) {
  std::string lower = to_lower(name);
  std::string plain;
  for (char c : lower) {
    if (c != '_') plain += c;
  }
  return plain;
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
  bool fits = weights.dim() == 0 || weights.dim() == own.dim();
  for (int64_t axis = 0; fits && axis < weights.dim(); ++axis) {
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

Tensor reduce_weighted(const Tensor& values, const Tensor& sample_weight, Reduction reduction,
                       const Tensor& valid) {
  Tensor weights = sample_weight;
  if (valid.defined()) {
    Tensor counts = valid.to(values.scalar_type());
    const bool mean = reduction == Reduction::kMean || reduction == Reduction::kSumOverBatchSize;
    // The mean below divides by all values; this makes it the mean of the valid ones.
    if (mean) counts = counts * (static_cast<double>(counts.numel()) / (counts.sum() + kEpsilon));
    weights = apply_weights(counts, weights);
  }
  const Tensor weighted = apply_weights(values, weights);
  if (reduction == Reduction::kNone) return weighted;
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
  return impl_->per_sample(y_true, y_pred);
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

MeanSquaredError::MeanSquaredError(const LossOptions& options)
    : Loss(std::make_shared<ErrorLoss>(options, true)) {}
MeanAbsoluteError::MeanAbsoluteError(const LossOptions& options)
    : Loss(std::make_shared<ErrorLoss>(options, false)) {}
BinaryCrossentropy::BinaryCrossentropy(const CrossentropyOptions& options)
    : Loss(std::make_shared<BinaryImpl>(options)) {}
CategoricalCrossentropy::CategoricalCrossentropy(const CrossentropyOptions& options)
    : Loss(std::make_shared<CategoricalImpl>(options)) {}
SparseCategoricalCrossentropy::SparseCategoricalCrossentropy(
    const SparseCategoricalCrossentropyOptions& options)
    : Loss(std::make_shared<SparseImpl>(options)) {}

Loss Loss::from_config(const std::string& class_name, const std::string& config) {
  const Json json = parse_object(cat("loss ", class_name), config);
  const Reduction reduction =
      reduction_from_name(member<std::string>(json, "reduction", "sum_over_batch_size"));
  const std::string given = member<std::string>(json, "name", "");
  const CrossentropyOptions entropy{member<bool>(json, "from_logits", false),
                                    member<double>(json, "label_smoothing", 0), reduction, given};
  const std::string name = snake_class(class_name);
  if (name == "meansquarederror" || name == "mse") return MeanSquaredError({reduction, given});
  if (name == "meanabsoluteerror" || name == "mae") return MeanAbsoluteError({reduction, given});
  if (name == "binarycrossentropy" || name == "bce") return BinaryCrossentropy(entropy);
  if (name == "categoricalcrossentropy") return CategoricalCrossentropy(entropy);
  if (name == "sparsecategoricalcrossentropy") {
    SparseCategoricalCrossentropyOptions options{entropy.from_logits, std::nullopt, reduction,
                                                 given};
    if (json.contains("ignore_class") && !json["ignore_class"].is_null())
      options.ignore_class = member<int64_t>(json, "ignore_class", 0);
    return SparseCategoricalCrossentropy(options);
  }
  throw InvalidArgument(
      cat("loss: \"", class_name,
          "\", expected mean_squared_error (mse), mean_absolute_error (mae), binary_crossentropy, "
          "categorical_crossentropy or sparse_categorical_crossentropy"));
}

Loss::Loss(const std::string& name) : Loss(from_config(name, "{}")) {}

}  // namespace tutti::keras::losses
