// Metrics by name.

#include <algorithm>
#include <cctype>

#include "keras/metrics/families.h"

namespace tutti::keras::metrics {
namespace {

/// Names whose class hangs on the shapes.
const char* kind_by_shapes(const std::string& name) {
  const std::string lower = to_lower(name);
  if (lower == "accuracy" || lower == "acc") return "Accuracy";
  if (lower == "crossentropy" || lower == "ce") return "Crossentropy";
  return nullptr;
}

const MetricEntry* find(const std::string& name, bool aliases) {
  for (const MetricFamily family :
       {mean_metrics(), confusion_metrics(), auc_metrics(), score_metrics(), iou_metrics()}) {
    for (const MetricEntry& entry : family) {
      if (name == entry.class_name) return &entry;
      if (!aliases) continue;
      if (name == snake_case(entry.class_name) ||
          std::find(entry.aliases.begin(), entry.aliases.end(), name) != entry.aliases.end())
        return &entry;
    }
  }
  return nullptr;
}

const MetricEntry& entry_named(const std::string& name) {
  const MetricEntry* found = find(name, /*aliases=*/true);
  if (found == nullptr) {
    std::vector<std::string> names{"accuracy (acc)", "crossentropy (ce)"};
    for (const MetricFamily family :
         {mean_metrics(), confusion_metrics(), auc_metrics(), score_metrics(), iou_metrics()}) {
      for (const MetricEntry& entry : family) {
        const std::string snake = snake_case(entry.class_name);
        if (entry.required != nullptr || snake == "accuracy") continue;
        names.push_back(entry.aliases.empty() ? snake : cat(snake, " (", entry.aliases[0], ")"));
      }
    }
    throw InvalidArgument(cat("metric: \"", name, "\", expected ", join(names, ", ")));
  }
  if (found->required != nullptr) {
    throw InvalidArgument(cat("metric: \"", name, "\", which needs ", found->required,
                              ", expected a name that needs nothing; construct a ",
                              found->class_name, " instead"));
  }
  return *found;
}

}  // namespace

std::string snake_case(const std::string& class_name) {
  // Keras' to_snake_case: a word begins at a capital with a small letter behind it, and where a
  // small letter or a digit stands before a capital.
  std::string snake;
  const auto is = [&](std::size_t i, int (*test)(int)) {
    return i < class_name.size() && test(static_cast<unsigned char>(class_name[i])) != 0;
  };
  for (std::size_t i = 0; i < class_name.size(); ++i) {
    const bool word = is(i, std::isupper) && is(i + 1, std::islower);
    const bool after_small = i > 0 && is(i, std::isupper) && !is(i - 1, std::isupper);
    if (i > 0 && (word || after_small)) snake += '_';
    snake += static_cast<char>(std::tolower(static_cast<unsigned char>(class_name[i])));
  }
  return snake;
}

void check_name(const std::string& name) {
  if (kind_by_shapes(name) == nullptr) entry_named(name);
}

Metric get(const std::string& name) {
  if (to_lower(name) == "acc") return Accuracy("acc");
  return entry_named(name).make(Json::object(), "");
}

Metric from_string(const std::string& name, at::IntArrayRef y_true_sizes,
                   at::IntArrayRef y_pred_sizes) {
  const char* kind = kind_by_shapes(name);
  if (kind == nullptr) return entry_named(name).make(Json::object(), name);
  const bool binary = y_pred_sizes.empty() || y_pred_sizes.back() == 1;
  const bool sparse = y_true_sizes.size() < y_pred_sizes.size() ||
                      (!y_true_sizes.empty() && y_true_sizes.back() == 1);
  const char* prefix = binary ? "Binary" : sparse ? "SparseCategorical" : "Categorical";
  return entry_named(cat(prefix, kind)).make(Json::object(), name);
}

Metric Metric::from_config(const std::string& class_name, const std::string& config) {
  const Json json = parse_object(cat("metric ", class_name), config);
  const MetricEntry* found = find(class_name, /*aliases=*/false);
  if (found == nullptr) {
    throw InvalidArgument(
        cat("metric: class \"", class_name,
            "\" cannot be made from a file, expected one of Tutti's metrics; compile anew"));
  }
  return found->make(json, member<std::string>(json, "name", ""));
}

}  // namespace tutti::keras::metrics
