// The area under a curve through the points of many thresholds.

#include <algorithm>

#include "keras/metrics/confusion.h"
#include "keras/metrics/families.h"

namespace tutti::keras::metrics {
namespace {

enum class Curve { kRoc, kPr, kPrGain };
enum class Summation { kInterpolation, kMinoring, kMajoring };

Curve curve_from(const std::string& metric, const std::string& name) {
  if (name == "ROC" || name == "roc") return Curve::kRoc;
  if (name == "PR" || name == "pr") return Curve::kPr;
  if (name == "PRGAIN" || name == "prgain") return Curve::kPrGain;
  throw InvalidArgument(
      cat("metric [", metric, "]: curve \"", name, "\", expected ROC, PR or PRGAIN"));
}

Summation summation_from(const std::string& metric, const std::string& name) {
  const std::string lower = to_lower(name);
  if (lower == "interpolation") return Summation::kInterpolation;
  if (lower == "minoring") return Summation::kMinoring;
  if (lower == "majoring") return Summation::kMajoring;
  throw InvalidArgument(cat("metric [", metric, "]: summation_method \"", name,
                            "\", expected interpolation, minoring or majoring"));
}

/// The ends lie beside [0, 1], so that at them everything and nothing is predicted.
Thresholds auc_thresholds(const AUCOptions& options) {
  std::vector<double> values = options.thresholds;
  std::sort(values.begin(), values.end());
  if (values.empty()) {
    if (options.num_thresholds < 2) {
      throw InvalidArgument(cat("metric [", options.name, "]: num_thresholds ",
                                options.num_thresholds, ", expected at least 2"));
    }
    const auto steps = static_cast<double>(options.num_thresholds - 1);
    for (int64_t i = 1; i < options.num_thresholds - 1; ++i)
      values.push_back(static_cast<double>(i) / steps);
  }
  values.insert(values.begin(), -kEpsilon);
  values.push_back(1 + kEpsilon);
  return Thresholds(std::move(values));
}

/// All but the first, all but the last: a step is what lies between.
Tensor upper(const Tensor& values) { return values.slice(0, 1); }
Tensor lower(const Tensor& values) { return values.slice(0, 0, -1); }

class AUCImpl : public ArgumentsImpl {
 public:
  explicit AUCImpl(const AUCOptions& options)
      : ArgumentsImpl("AUC", options.name, Direction::kUp, arguments_of(options)),
        options_(options),
        curve_(curve_from(options.name, options.curve)),
        summation_(summation_from(options.name, options.summation_method)),
        thresholds_(auc_thresholds(options)) {
    if (!options.label_weights.empty())
      label_weights_ = at::tensor(options.label_weights, at::kFloat);
    if (options.num_labels && !options.multi_label) {
      throw InvalidArgument(cat("metric [", options.name, "]: num_labels ", *options.num_labels,
                                " without multi_label, expected both or neither"));
    }
    if (options.multi_label && !options.num_labels) {
      defer_build();
    } else {
      make_state(options.num_labels.value_or(0));
    }
  }

  void build(at::IntArrayRef, at::IntArrayRef y_pred) override {
    if (y_pred.size() != 2) {
      throw InvalidArgument(cat("metric [", name(), "]: predictions ", shape_text(y_pred),
                                ", expected (rows, labels) with multi_label"));
    }
    make_state(y_pred[1]);
  }

  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    ConfusionInput input = confusion_input(
        name(), y_true, options_.from_logits ? y_pred.sigmoid() : y_pred, sample_weight);
    const Tensor& predictions = input.predictions;
    if (options_.multi_label &&
        (predictions.dim() != 2 || predictions.size(1) != state_[0].sizes()[1])) {
      throw InvalidArgument(cat("metric [", name(), "]: predictions ",
                                shape_text(predictions.sizes()), ", expected (rows, ",
                                state_[0].sizes()[1], ") with multi_label"));
    }
    input.predictions = predictions.clamp(0, 1);
    if (label_weights_.defined() && !options_.multi_label) weigh_labels(input);
    const ConfusionCounts counts = count_confusion(thresholds_, input, options_.multi_label);
    state_[0].assign_add(counts.true_positives);
    state_[1].assign_add(counts.false_positives);
    state_[2].assign_add(counts.true_negatives);
    state_[3].assign_add(counts.false_negatives);
  }

  Tensor result() const override {
    const Tensor tp = state_[0].read_value();
    const Tensor fp = state_[1].read_value();
    const Tensor tn = state_[2].read_value();
    const Tensor fn = state_[3].read_value();
    if (curve_ == Curve::kPr && summation_ == Summation::kInterpolation)
      return over_labels(precision_recall_steps(tp, fp, fn).sum(0));
    const Tensor recall = divide_no_nan(tp, tp + fn);
    Tensor x, y;
    if (curve_ == Curve::kRoc) {
      x = divide_no_nan(fp, fp + tn);
      y = recall;
    } else if (curve_ == Curve::kPr) {
      x = recall;
      y = divide_no_nan(tp, tp + fp);
    } else {
      const Tensor odds = divide_no_nan(tp + fn, tn + fp);
      x = (1 - odds * divide_no_nan(fn, tp)).masked_fill(tp.eq(0), 0).clamp_min(0);
      y = (1 - odds * divide_no_nan(fp, tp)).masked_fill(tp.eq(0), 1);
    }
    return over_labels(((lower(x) - upper(x)) * heights(y)).sum(0));
  }

 private:
  static Json arguments_of(const AUCOptions& options) {
    Json json{
        {"num_thresholds", options.num_thresholds},
        {"curve", options.curve},
        {"summation_method", options.summation_method},
        {"multi_label", options.multi_label},
        {"num_labels", to_json(options.num_labels)},
        {"label_weights", options.label_weights.empty() ? Json() : Json(options.label_weights)},
        {"from_logits", options.from_logits}};
    if (!options.thresholds.empty()) json["thresholds"] = options.thresholds;
    return json;
  }

  void make_state(int64_t labels) {
    if (options_.multi_label && label_weights_.defined() && label_weights_.numel() != labels) {
      throw InvalidArgument(cat("metric [", name(), "]: ", label_weights_.numel(),
                                " label_weights for ", labels, " labels, expected one each"));
    }
    std::vector<int64_t> shape{thresholds_.size()};
    if (options_.multi_label) shape.push_back(labels);
    for (const char* part :
         {"true_positives", "false_positives", "true_negatives", "false_negatives"})
      state_.push_back(add_variable(part, shape));
  }

  void weigh_labels(ConfusionInput& input) const {
    const Tensor& predictions = input.predictions;
    if (predictions.dim() < 1 || predictions.size(-1) != label_weights_.numel()) {
      throw InvalidArgument(cat("metric [", name(), "]: ", label_weights_.numel(),
                                " label_weights for predictions ", shape_text(predictions.sizes()),
                                ", expected one for each entry of the last axis"));
    }
    const Tensor weights = label_weights_.to(predictions.device()).expand(predictions.sizes());
    input.weights = input.weights.defined() ? input.weights * weights : weights;
  }

  Tensor heights(const Tensor& y) const {
    if (summation_ == Summation::kMinoring) return at::minimum(lower(y), upper(y));
    if (summation_ == Summation::kMajoring) return at::maximum(lower(y), upper(y));
    return (lower(y) + upper(y)) / 2;
  }

  /// Between two thresholds true positives grow in a line with all positives p (Davis and Goadrich
  /// 2006): with slope dtp / dp and intercept tp - slope p, the area of precision over recall is
  /// slope (dtp + intercept log(p_lower / p_upper)) / positives.
  static Tensor precision_recall_steps(const Tensor& tp, const Tensor& fp, const Tensor& fn) {
    const Tensor p = tp + fp;
    const Tensor dtp = lower(tp) - upper(tp);
    const Tensor slope = divide_no_nan(dtp, (lower(p) - upper(p)).clamp_min(0));
    const Tensor intercept = upper(tp) - slope * upper(p);
    const Tensor both = lower(p).gt(0).logical_and_(upper(p).gt(0));
    const Tensor ratio =
        divide_no_nan(lower(p), upper(p).clamp_min(0)).masked_fill(both.logical_not(), 1);
    return divide_no_nan(slope * (dtp + intercept * ratio.log()),
                         (upper(tp) + upper(fn)).clamp_min(0));
  }

  Tensor over_labels(const Tensor& areas) const {
    if (!options_.multi_label) return areas;
    if (!label_weights_.defined()) return areas.mean();
    const Tensor weights = label_weights_.to(areas.device());
    return divide_no_nan((areas * weights).sum(), weights.sum());
  }

  AUCOptions options_;
  Curve curve_;
  Summation summation_;
  Thresholds thresholds_;
  Tensor label_weights_;
  std::vector<Variable> state_;
};

}  // namespace

AUC::AUC(const AUCOptions& options) : Metric(std::make_shared<AUCImpl>(options)) {}

MetricFamily auc_metrics() {
  static const std::vector<MetricEntry> kEntries = {
      {"AUC", [](const Json& json, const std::string& name) -> Metric {
         AUCOptions options;
         options.num_thresholds = member<int64_t>(json, "num_thresholds", 200);
         options.curve = member<std::string>(json, "curve", "ROC");
         options.summation_method = member<std::string>(json, "summation_method", "interpolation");
         options.thresholds = numbers_member(json, "thresholds");
         options.multi_label = member<bool>(json, "multi_label", false);
         options.num_labels = optional_member<int64_t>(json, "num_labels");
         options.label_weights = numbers_member(json, "label_weights");
         options.from_logits = member<bool>(json, "from_logits", false);
         return AUC(with_name(options, name));
       }}};
  return kEntries;
}

}  // namespace tutti::keras::metrics
