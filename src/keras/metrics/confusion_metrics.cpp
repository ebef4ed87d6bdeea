#include "tutti/keras/metrics/confusion_metrics.h"

#include <limits>

#include "keras/metrics/confusion.h"
#include "keras/metrics/families.h"

namespace tutti::keras::metrics {
namespace {

using Part = Tensor ConfusionCounts::*;

Json thresholds_json(const std::vector<double>& thresholds) {
  return thresholds.empty() ? Json() : Json(thresholds);
}

/// The number of a single threshold is a scalar.
Tensor of_thresholds(const Tensor& values) {
  return values.numel() == 1 ? values.reshape({}) : values;
}

class CountImpl : public ArgumentsImpl {
 public:
  CountImpl(const char* class_name, const ConfusionCountOptions& options, Part part)
      : ArgumentsImpl(class_name, options.name.empty() ? snake_case(class_name) : options.name,
                      Direction::kUnknown,
                      Json{{"thresholds", thresholds_json(options.thresholds)}}),
        thresholds_(name(), options.thresholds, 0.5),
        part_(part),
        accumulator_(add_variable("accumulator", {thresholds_.size()})) {}
  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    const ConfusionCounts counts =
        count_confusion(thresholds_, confusion_input(name(), y_true, y_pred, sample_weight));
    accumulator_.assign_add(counts.*part_);
  }
  Tensor result() const override { return of_thresholds(accumulator_.read_value()); }

 private:
  Thresholds thresholds_;
  Part part_;
  Variable accumulator_;
};

/// true positives / (true positives + misses): Precision and Recall differ in what is a miss.
class RatioImpl : public ArgumentsImpl {
 public:
  template <class Options>
  RatioImpl(const char* class_name, const Options& options, const char* miss_name, Part miss)
      : ArgumentsImpl(class_name, options.name, Direction::kUp,
                      Json{{"thresholds", thresholds_json(options.thresholds)},
                           {"top_k", to_json(options.top_k)},
                           {"class_id", to_json(options.class_id)}}),
        thresholds_(name(), options.thresholds, options.top_k ? kBelowAll : 0.5),
        selection_{options.top_k, options.class_id},
        miss_(miss) {
    if (options.top_k && *options.top_k < 1) {
      throw InvalidArgument(
          cat("metric [", name(), "]: top_k ", *options.top_k, ", expected at least 1"));
    }
    true_positives_ = add_variable("true_positives", {thresholds_.size()});
    misses_ = add_variable(miss_name, {thresholds_.size()});
  }
  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    const ConfusionCounts counts = count_confusion(
        thresholds_, confusion_input(name(), y_true, y_pred, sample_weight, selection_));
    true_positives_.assign_add(counts.true_positives);
    misses_.assign_add(counts.*miss_);
  }
  Tensor result() const override {
    const Tensor hits = true_positives_.read_value();
    return of_thresholds(divide_no_nan(hits, hits + misses_.read_value()));
  }

 private:
  static constexpr double kBelowAll = -1e10;  // what is not among the top k is not above
  Thresholds thresholds_;
  ConfusionSelection selection_;
  Part miss_;
  Variable true_positives_;
  Variable misses_;
};

enum class Rate { kSensitivity, kSpecificity, kPrecision };

struct AtRate {
  const char* class_name;
  const char* argument;
  Rate asked;
  Rate wanted;
};
constexpr AtRate kSensitivityAtSpecificity{"SensitivityAtSpecificity", "specificity",
                                           Rate::kSpecificity, Rate::kSensitivity};
constexpr AtRate kSpecificityAtSensitivity{"SpecificityAtSensitivity", "sensitivity",
                                           Rate::kSensitivity, Rate::kSpecificity};
constexpr AtRate kPrecisionAtRecall{"PrecisionAtRecall", "recall", Rate::kSensitivity,
                                    Rate::kPrecision};
constexpr AtRate kRecallAtPrecision{"RecallAtPrecision", "precision", Rate::kPrecision,
                                    Rate::kSensitivity};

class AtRateImpl : public ArgumentsImpl {
 public:
  AtRateImpl(const AtRate& kind, double value, const AtRateOptions& options)
      : ArgumentsImpl(kind.class_name,
                      options.name.empty() ? snake_case(kind.class_name) : options.name,
                      Direction::kUp,
                      Json{{kind.argument, value},
                           {"num_thresholds", options.num_thresholds},
                           {"class_id", to_json(options.class_id)}}),
        kind_(kind),
        value_(value),
        thresholds_(Thresholds::evenly(name(), options.num_thresholds)),
        selection_{std::nullopt, options.class_id} {
    if (!(value >= 0 && value <= 1)) {
      throw InvalidArgument(
          cat("metric [", name(), "]: ", kind.argument, " ", value, ", expected from 0 to 1"));
    }
    for (const char* part :
         {"true_positives", "false_positives", "true_negatives", "false_negatives"})
      state_.push_back(add_variable(part, {thresholds_.size()}));
  }
  void update_state(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight) override {
    const ConfusionCounts counts = count_confusion(
        thresholds_, confusion_input(name(), y_true, y_pred, sample_weight, selection_));
    state_[0].assign_add(counts.true_positives);
    state_[1].assign_add(counts.false_positives);
    state_[2].assign_add(counts.true_negatives);
    state_[3].assign_add(counts.false_negatives);
  }
  Tensor result() const override {
    const Tensor enough = rate(kind_.asked).ge(value_);
    return rate(kind_.wanted).masked_fill(enough.logical_not(), 0).amax();
  }

 private:
  Tensor rate(Rate rate) const {
    const bool specificity = rate == Rate::kSpecificity;
    const std::size_t other = rate == Rate::kSensitivity ? 3 : 1;
    const Tensor hits = state_[specificity ? 2 : 0].read_value();
    return divide_no_nan(hits, hits + state_[other].read_value());
  }

  AtRate kind_;
  double value_;
  Thresholds thresholds_;
  ConfusionSelection selection_;
  std::vector<Variable> state_;
};

template <class Class>
Metric count_from(const Json& json, const std::string& name) {
  return Class({numbers_member(json, "thresholds"), name});
}

template <class Class, class Options>
Metric ratio_from(const Json& json, const std::string& name) {
  Options options;
  options.thresholds = numbers_member(json, "thresholds");
  options.top_k = optional_member<int64_t>(json, "top_k");
  options.class_id = optional_member<int64_t>(json, "class_id");
  return Class(with_name(options, name));
}

template <class Class>
Metric at_rate_from(const Json& json, const std::string& name, const AtRate& kind) {
  return Class(member<double>(json, kind.argument, std::numeric_limits<double>::quiet_NaN()),
               {member<int64_t>(json, "num_thresholds", 200),
                optional_member<int64_t>(json, "class_id"), name});
}

}  // namespace

TruePositives::TruePositives(const ConfusionCountOptions& options)
    : Metric(std::make_shared<CountImpl>("TruePositives", options,
                                         &ConfusionCounts::true_positives)) {}
TrueNegatives::TrueNegatives(const ConfusionCountOptions& options)
    : Metric(std::make_shared<CountImpl>("TrueNegatives", options,
                                         &ConfusionCounts::true_negatives)) {}
FalsePositives::FalsePositives(const ConfusionCountOptions& options)
    : Metric(std::make_shared<CountImpl>("FalsePositives", options,
                                         &ConfusionCounts::false_positives)) {}
FalseNegatives::FalseNegatives(const ConfusionCountOptions& options)
    : Metric(std::make_shared<CountImpl>("FalseNegatives", options,
                                         &ConfusionCounts::false_negatives)) {}
Precision::Precision(const PrecisionOptions& options)
    : Metric(std::make_shared<RatioImpl>("Precision", options, "false_positives",
                                         &ConfusionCounts::false_positives)) {}
Recall::Recall(const RecallOptions& options)
    : Metric(std::make_shared<RatioImpl>("Recall", options, "false_negatives",
                                         &ConfusionCounts::false_negatives)) {}
SensitivityAtSpecificity::SensitivityAtSpecificity(double specificity, const AtRateOptions& options)
    : Metric(std::make_shared<AtRateImpl>(kSensitivityAtSpecificity, specificity, options)) {}
SpecificityAtSensitivity::SpecificityAtSensitivity(double sensitivity, const AtRateOptions& options)
    : Metric(std::make_shared<AtRateImpl>(kSpecificityAtSensitivity, sensitivity, options)) {}
PrecisionAtRecall::PrecisionAtRecall(double recall, const AtRateOptions& options)
    : Metric(std::make_shared<AtRateImpl>(kPrecisionAtRecall, recall, options)) {}
RecallAtPrecision::RecallAtPrecision(double precision, const AtRateOptions& options)
    : Metric(std::make_shared<AtRateImpl>(kRecallAtPrecision, precision, options)) {}

MetricFamily confusion_metrics() {
  static const std::vector<MetricEntry> kEntries = {
      {"TruePositives", count_from<TruePositives>},
      {"TrueNegatives", count_from<TrueNegatives>},
      {"FalsePositives", count_from<FalsePositives>},
      {"FalseNegatives", count_from<FalseNegatives>},
      {"Precision", ratio_from<Precision, PrecisionOptions>},
      {"Recall", ratio_from<Recall, RecallOptions>},
      {"SensitivityAtSpecificity",
       [](const Json& json, const std::string& name) {
         return at_rate_from<SensitivityAtSpecificity>(json, name, kSensitivityAtSpecificity);
       },
       {},
       "specificity"},
      {"SpecificityAtSensitivity",
       [](const Json& json, const std::string& name) {
         return at_rate_from<SpecificityAtSensitivity>(json, name, kSpecificityAtSensitivity);
       },
       {},
       "sensitivity"},
      {"PrecisionAtRecall",
       [](const Json& json, const std::string& name) {
         return at_rate_from<PrecisionAtRecall>(json, name, kPrecisionAtRecall);
       },
       {},
       "recall"},
      {"RecallAtPrecision",
       [](const Json& json, const std::string& name) {
         return at_rate_from<RecallAtPrecision>(json, name, kRecallAtPrecision);
       },
       {},
       "precision"}};
  return kEntries;
}

}  // namespace tutti::keras::metrics
