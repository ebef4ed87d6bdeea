// Means by name.

#include "keras/metrics/families.h"

namespace tutti::keras::metrics {
namespace {

template <class Class>
Metric named_only(const Json&, const std::string& name) {
  return name.empty() ? Class() : Class(name);
}

template <class Class>
Metric with_axis(const Json& json, const std::string& name, const char* default_name) {
  return Class(name.empty() ? default_name : name, member<int64_t>(json, "axis", -1));
}

std::vector<MetricEntry> named_entries() {
  return {
      {"Mean", named_only<Mean>},
      {"Sum", named_only<Sum>},
      {"Accuracy", named_only<Accuracy>},
      {"CategoricalAccuracy", named_only<CategoricalAccuracy>},
      {"SparseCategoricalAccuracy", named_only<SparseCategoricalAccuracy>},
      {"MeanSquaredError", named_only<MeanSquaredError>, {"mse", "MSE"}},
      {"RootMeanSquaredError", named_only<RootMeanSquaredError>},
      {"MeanAbsoluteError", named_only<MeanAbsoluteError>, {"mae", "MAE"}},
      {"MeanAbsolutePercentageError", named_only<MeanAbsolutePercentageError>, {"mape", "MAPE"}},
      {"MeanSquaredLogarithmicError", named_only<MeanSquaredLogarithmicError>, {"msle", "MSLE"}},
      {"LogCoshError", named_only<LogCoshError>, {"logcosh", "log_cosh"}},
      {"Poisson", named_only<Poisson>},
      {"KLDivergence", named_only<KLDivergence>, {"kld", "KLD"}},
      {"Hinge", named_only<Hinge>},
      {"SquaredHinge", named_only<SquaredHinge>},
      {"CategoricalHinge", named_only<CategoricalHinge>}};
}

std::vector<MetricEntry> accuracy_entries() {
  return {
      {"BinaryAccuracy",
       [](const Json& json, const std::string& name) -> Metric {
         return BinaryAccuracy(name.empty() ? "binary_accuracy" : name,
                               member<double>(json, "threshold", 0.5));
       }},
      {"TopKCategoricalAccuracy",
       [](const Json& json, const std::string& name) -> Metric {
         return TopKCategoricalAccuracy(member<int64_t>(json, "k", 5),
                                        name.empty() ? "top_k_categorical_accuracy" : name);
       }},
      {"SparseTopKCategoricalAccuracy", [](const Json& json, const std::string& name) -> Metric {
         return SparseTopKCategoricalAccuracy(
             member<int64_t>(json, "k", 5),
             name.empty() ? "sparse_top_k_categorical_accuracy" : name,
             member<bool>(json, "from_sorted_ids", false));
       }}};
}

std::vector<MetricEntry> argument_entries() {
  return {{"BinaryCrossentropy",
           [](const Json& json, const std::string& name) -> Metric {
             BinaryCrossentropyOptions options;
             options.from_logits = member<bool>(json, "from_logits", false);
             options.label_smoothing = member<double>(json, "label_smoothing", 0);
             return BinaryCrossentropy(with_name(options, name));
           },
           {"bce", "BCE"}},
          {"CategoricalCrossentropy",
           [](const Json& json, const std::string& name) -> Metric {
             CategoricalCrossentropyOptions options;
             options.from_logits = member<bool>(json, "from_logits", false);
             options.label_smoothing = member<double>(json, "label_smoothing", 0);
             options.axis = member<int64_t>(json, "axis", -1);
             return CategoricalCrossentropy(with_name(options, name));
           }},
          {"SparseCategoricalCrossentropy",
           [](const Json& json, const std::string& name) -> Metric {
             SparseCategoricalCrossentropyOptions options;
             options.from_logits = member<bool>(json, "from_logits", false);
             options.ignore_class = optional_member<int64_t>(json, "ignore_class");
             options.axis = member<int64_t>(json, "axis", -1);
             return SparseCategoricalCrossentropy(with_name(options, name));
           }},
          {"CosineSimilarity",
           [](const Json& json, const std::string& name) {
             return with_axis<CosineSimilarity>(json, name, "cosine_similarity");
           }},
          {"PearsonCorrelation",
           [](const Json& json, const std::string& name) {
             return with_axis<PearsonCorrelation>(json, name, "pearson_correlation");
           }},
          {"ConcordanceCorrelation", [](const Json& json, const std::string& name) {
             return with_axis<ConcordanceCorrelation>(json, name, "concordance_correlation");
           }}};
}

}  // namespace

MetricFamily mean_metrics() {
  static const std::vector<MetricEntry> kEntries = [] {
    std::vector<MetricEntry> all = named_entries();
    for (const auto& more : {accuracy_entries(), argument_entries()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return kEntries;
}

}  // namespace tutti::keras::metrics
