#pragma once
// What the families of metrics share, and where the table finds them.

#include <span>
#include <vector>

#include "keras/json.h"
#include "tutti/keras/metrics.h"

namespace tutti::keras::metrics {

inline constexpr double kEpsilon = 1e-7;  // keras.backend.epsilon()

/// A class by its Keras name, and how one is made again of its config(); an empty name stands for
/// the default one.
struct MetricEntry {
  const char* class_name;
  Metric (*make)(const Json& config, const std::string& name);
  /// Other names than the class in snake_case.
  std::vector<const char*> aliases = {};
  /// An argument without a default.
  const char* required = nullptr;
};
using MetricFamily = std::span<const MetricEntry>;
// The families, each in the file of its metrics; from_config (names.cpp) looks through them.
MetricFamily mean_metrics();
MetricFamily confusion_metrics();
MetricFamily auc_metrics();
MetricFamily score_metrics();
MetricFamily iou_metrics();

[[noreturn]] void wrong_shapes(const char* metric, const Tensor& y_true, const Tensor& y_pred);
/// numerator / denominator, 0 where the denominator is 0.
inline Tensor divide_no_nan(const Tensor& numerator, const Tensor& denominator) {
  return (numerator / denominator).masked_fill(denominator.eq(0), 0);
}
/// "MeanIoU" -> "mean_io_u", as Keras names objects without a name.
std::string snake_case(const std::string& class_name);
/// Weights of one a row, of leading axes or of all of them, in the entries' shape (an expanded
/// view), float32; InvalidArgument for another shape.
Tensor entry_weights(const std::string& metric, const Tensor& sample_weight,
                     at::IntArrayRef entry_sizes);

/// Options with `name` where there is one.
template <class Options>
Options with_name(Options options, const std::string& name) {
  if (!name.empty()) options.name = name;
  return options;
}
template <class T>
std::optional<T> optional_member(const Json& json, const char* key) {
  if (!json.contains(key) || json[key].is_null()) return std::nullopt;
  return member<T>(json, key, T{});
}
template <class T>
Json to_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}
/// A list, or one number for a list of one; empty when there is none.
std::vector<double> numbers_member(const Json& json, const char* key);

/// A metric with arguments in its configuration.
class ArgumentsImpl : public Metric::Impl {
 public:
  ArgumentsImpl(const char* class_name, const std::string& name, Direction direction,
                Json arguments = Json::object())
      : Impl(name, direction), class_name_(class_name), arguments_(std::move(arguments)) {}
  std::string class_name() const override { return class_name_; }
  std::string config() const override;

 protected:
  const char* class_name_;
  Json arguments_;
};

}  // namespace tutti::keras::metrics
