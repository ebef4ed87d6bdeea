#include "tutti/keras/metrics/score_metrics.h"

#include "keras/metrics/families.h"
#include "tutti/base/log.h"
#include "tutti/keras/losses.h"

namespace tutti::keras::metrics {
namespace {

void check_columns(const std::string& metric, at::IntArrayRef y_true, at::IntArrayRef y_pred) {
  if (y_true.size() == 2 && y_pred == y_true) return;
  throw InvalidArgument(cat("metric [", metric, "]: labels ", shape_text(y_true),
                            " for predictions ", shape_text(y_pred),
                            ", expected both (rows, outputs)"));
}

class FBetaImpl : public ArgumentsImpl {
 public:
  FBetaImpl(const char* class_name, const FBetaScoreOptions& options, Json arguments)
      : ArgumentsImpl(class_name, options.name, Direction::kUp, std::move(arguments)),
        options_(options) {
    const std::string& average = options.average;
    if (!average.empty() && average != "micro" && average != "macro" && average != "weighted") {
      throw InvalidArgument(cat("metric [", options.name, "]: average \"", average,
                                "\", expected \"\" (none), micro, macro or weighted"));
    }
    if (!(options.beta > 0))
      throw InvalidArgument(
          cat("metric [", options.name, "]: beta ", options.beta, ", expected more than 0"));
    if (options.threshold && !(*options.threshold > 0 && *options.threshold <= 1)) {
      throw InvalidArgument(cat("metric [", options.name, "]: threshold ", *options.threshold,
                                ", expected more than 0, at most 1"));
    }
    defer_build();
  }
  void build(at::IntArrayRef y_true, at::IntArrayRef y_pred) override {
    check_columns(name(), y_true, y_pred);
    const std::vector<int64_t> shape =
        options_.average == "micro" ? std::vector<int64_t>{} : std::vector<int64_t>{y_pred[1]};
    for (const char* part :
         {"true_positives", "false_positives", "false_negatives", "intermediate_weights"})
      state_.push_back(add_variable(part, shape));
  }
  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    check_columns(name(), y_true.sizes(), y_pred.sizes());
    const Tensor labels = y_true.to(at::kFloat);
    const Tensor values = y_pred.to(at::kFloat);
    const Tensor predicted =
        options_.threshold
            ? values.gt(*options_.threshold)
            : values.ge(values.amax(-1, /*keepdim=*/true)).logical_and_(values.abs().gt(1e-9));
    Tensor guesses = predicted.to(at::kFloat);
    Tensor truths = labels;
    if (sample_weight.defined()) {
      const Tensor weights = entry_weights(name(), sample_weight, labels.sizes());
      guesses = guesses * weights;
      truths = truths * weights;
    }
    state_[0].assign_add(total(guesses * labels));
    state_[1].assign_add(total(guesses * (1 - labels)));
    state_[2].assign_add(total(truths.masked_fill(predicted, 0)));
    state_[3].assign_add(total(truths));
  }
  Tensor result() const override {
    const Tensor hits = state_[0].read_value();
    const Tensor precision = hits / (hits + state_[1].read_value() + kEpsilon);
    const Tensor recall = hits / (hits + state_[2].read_value() + kEpsilon);
    const double squared = options_.beta * options_.beta;
    const Tensor score =
        precision * recall / (squared * precision + recall + kEpsilon) * (1 + squared);
    if (options_.average.empty()) return score;
    if (options_.average != "weighted") return score.mean();
    const Tensor weights = state_[3].read_value();
    return (score * weights / (weights.sum() + kEpsilon)).sum();
  }

 private:
  Tensor total(const Tensor& entries) const {
    return options_.average == "micro" ? entries.sum() : entries.sum(0);
  }
  FBetaScoreOptions options_;
  std::vector<Variable> state_;
};

class R2Impl : public ArgumentsImpl {
 public:
  explicit R2Impl(const R2ScoreOptions& options)
      : ArgumentsImpl(
            "R2Score", options.name, Direction::kUp,
            Json{{"class_aggregation",
                  options.class_aggregation.empty() ? Json() : Json(options.class_aggregation)},
                 {"num_regressors", options.num_regressors}}),
        options_(options) {
    const std::string& way = options.class_aggregation;
    if (!way.empty() && way != "uniform_average" && way != "variance_weighted_average") {
      throw InvalidArgument(cat("metric [", options.name, "]: class_aggregation \"", way,
                                "\", expected \"\" (none), uniform_average or "
                                "variance_weighted_average"));
    }
    if (options.num_regressors < 0) {
      throw InvalidArgument(cat("metric [", options.name, "]: num_regressors ",
                                options.num_regressors, ", expected at least 0"));
    }
    num_samples_ = add_variable("num_samples", {});
    defer_build();
  }
  void build(at::IntArrayRef y_true, at::IntArrayRef y_pred) override {
    if (y_true.size() != 2 && y_pred.size() != 2) check_columns(name(), y_true, y_pred);
    const int64_t outputs = y_true.size() == 2 ? y_true[1] : y_pred[1];
    squared_sum_ = add_variable("squared_sum", {outputs});
    sum_ = add_variable("sum", {outputs});
    residual_ = add_variable("residual", {outputs});
    count_ = add_variable("count", {outputs});
  }
  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    const auto [own, predictions] = losses::same_rank(y_true, y_pred.to(at::kFloat));
    check_columns(name(), own.sizes(), predictions.sizes());
    const Tensor labels = own.to(at::kFloat);
    const Tensor weights = sample_weight.defined()
                               ? entry_weights(name(), sample_weight, labels.sizes())
                               : at::ones({}, labels.options()).expand(labels.sizes());
    const Tensor weighted = labels * weights;
    sum_.assign_add(weighted.sum(0));
    squared_sum_.assign_add((labels * weighted).sum(0));
    residual_.assign_add(((labels - predictions).square() * weights).sum(0));
    count_.assign_add(weights.sum(0));
    num_samples_.assign_add(at::full({}, static_cast<double>(labels.numel())));
  }
  Tensor result() const override {
    const Tensor number = count_.read_value();
    if (number.sum().item<float>() == 0) {
      return options_.class_aggregation.empty() ? at::zeros_like(number) : at::zeros({});
    }
    const Tensor sum = sum_.read_value();
    const Tensor variation = squared_sum_.read_value() - sum * (sum / number);
    Tensor score = 1 - residual_.read_value() / variation;
    score = score.masked_fill(score.isinf(), 0);
    if (options_.class_aggregation == "uniform_average") score = score.mean();
    if (options_.class_aggregation == "variance_weighted_average")
      score = (variation * score).sum() / variation.sum();
    return adjusted(score);
  }

 private:
  /// 1 - (1 - score) (n - 1) / (n - regressors - 1).
  Tensor adjusted(const Tensor& score) const {
    if (options_.num_regressors == 0) return score;
    const double samples = num_samples_.read_value().item<double>();
    const double freedom = samples - static_cast<double>(options_.num_regressors) - 1;
    if (freedom > 0) return 1 - (1 - score) * ((samples - 1) / freedom);
    log_warning("metric [", name(), "]: ", options_.num_regressors, " regressors for ", samples,
                " values, expected fewer; the score is not adjusted");
    return score;
  }
  R2ScoreOptions options_;
  Variable num_samples_;
  Variable squared_sum_;
  Variable sum_;
  Variable residual_;
  Variable count_;
};

Json average_json(const std::string& average) { return average.empty() ? Json() : Json(average); }

}  // namespace

FBetaScore::FBetaScore(const FBetaScoreOptions& options)
    : Metric(std::make_shared<FBetaImpl>("FBetaScore", options,
                                         Json{{"average", average_json(options.average)},
                                              {"beta", options.beta},
                                              {"threshold", to_json(options.threshold)}})) {}
F1Score::F1Score(const F1ScoreOptions& options)
    : Metric(std::make_shared<FBetaImpl>(
          "F1Score",
          FBetaScoreOptions{
              .average = options.average, .threshold = options.threshold, .name = options.name},
          Json{{"average", average_json(options.average)},
               {"threshold", to_json(options.threshold)}})) {}
R2Score::R2Score(const R2ScoreOptions& options) : Metric(std::make_shared<R2Impl>(options)) {}

MetricFamily score_metrics() {
  static const std::vector<MetricEntry> kEntries = {
      {"FBetaScore",
       [](const Json& json, const std::string& name) -> Metric {
         FBetaScoreOptions options;
         options.average = member<std::string>(json, "average", "");
         options.beta = member<double>(json, "beta", 1.0);
         options.threshold = optional_member<double>(json, "threshold");
         return FBetaScore(with_name(options, name));
       },
       {"fbeta_score"}},
      {"F1Score",
       [](const Json& json, const std::string& name) -> Metric {
         F1ScoreOptions options;
         options.average = member<std::string>(json, "average", "");
         options.threshold = optional_member<double>(json, "threshold");
         return F1Score(with_name(options, name));
       }},
      {"R2Score", [](const Json& json, const std::string& name) -> Metric {
         R2ScoreOptions options;
         // null is no aggregation, a missing member the default
         if (json.contains("class_aggregation"))
           options.class_aggregation = member<std::string>(json, "class_aggregation", "");
         options.num_regressors = member<int64_t>(json, "num_regressors", 0);
         return R2Score(with_name(options, name));
       }}};
  return kEntries;
}

}  // namespace tutti::keras::metrics
