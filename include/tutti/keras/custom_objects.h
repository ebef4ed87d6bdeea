#pragma once
// Makers of what is the user's own in a saved model.

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>

#include "tutti/keras/activations.h"
#include "tutti/keras/constraints.h"
#include "tutti/keras/initializers.h"
#include "tutti/keras/layer.h"
#include "tutti/keras/losses.h"
#include "tutti/keras/metrics/metric.h"
#include "tutti/keras/regularizers.h"
#include "tutti/keras/schedules.h"

namespace tutti::keras {

/// Makes a layer, a loss, a metric, an initializer, a regularizer, a constraint, an activation or a
/// learning rate schedule that is not Tutti's from its config(), a JSON text:
///
///     {"Gate", [](const std::string& config) { return std::make_shared<Gate>(config); }}
///
/// It gives a handle (Layer, Loss, Metric, Initializer, …), or a std::shared_ptr to a class of the
/// user's own; a schedule may be given by value too. Of an activation, whose name alone is in the
/// file, `config` is "{}". A function of the user's own is found when it has a name:
/// `Activation(function, "my_gate")`, or an Impl whose class_name() is not "function".
class CustomObject {
  /// The handle itself or what its constructor takes; constructible would be too wide, as some
  /// handles are made from any function.
  template <class Handle, class Made>
  static constexpr bool kIs =
      std::is_same_v<std::remove_cvref_t<Made>, Handle> ||
      std::is_convertible_v<Made, std::shared_ptr<const typename Handle::Impl>>;
  template <class Made>
  static constexpr bool kIsSchedule =
      std::is_constructible_v<optimizers::LearningRate, Made> && !std::is_arithmetic_v<Made>;

 public:
  template <class Maker>
  requires std::invocable<const Maker&, const std::string&> CustomObject(Maker maker) {  // NOLINT
    using Made = std::invoke_result_t<const Maker&, const std::string&>;
    if constexpr (std::is_constructible_v<layers::Layer, Made>) {
      make_layer = [maker](const std::string& config) { return layers::Layer(maker(config)); };
    } else if constexpr (std::is_constructible_v<metrics::Metric, Made>) {
      make_metric = [maker](const std::string& config) { return metrics::Metric(maker(config)); };
    } else if constexpr (kIs<Initializer, Made>) {
      make_initializer = [maker](const std::string& config) { return Initializer(maker(config)); };
    } else if constexpr (kIs<Regularizer, Made>) {
      make_regularizer = [maker](const std::string& config) { return Regularizer(maker(config)); };
    } else if constexpr (kIs<Constraint, Made>) {
      make_constraint = [maker](const std::string& config) { return Constraint(maker(config)); };
    } else if constexpr (std::is_same_v<std::remove_cvref_t<Made>, Activation>) {
      make_activation = maker;
    } else if constexpr (kIsSchedule<Made>) {
      make_schedule = [maker](const std::string& config) {
        return optimizers::LearningRate(maker(config));
      };
    } else {
      static_assert(std::is_constructible_v<losses::Loss, Made>,
                    "a maker gives a layer, a loss, a metric, an initializer, a regularizer, a "
                    "constraint, an activation or a schedule, or a std::shared_ptr to its class");
      make_loss = [maker](const std::string& config) { return losses::Loss(maker(config)); };
    }
  }
  std::function<layers::Layer(const std::string&)> make_layer;
  std::function<losses::Loss(const std::string&)> make_loss;
  std::function<metrics::Metric(const std::string&)> make_metric;
  std::function<Initializer(const std::string&)> make_initializer;
  std::function<Regularizer(const std::string&)> make_regularizer;
  std::function<Constraint(const std::string&)> make_constraint;
  std::function<Activation(const std::string&)> make_activation;
  std::function<optimizers::LearningRate(const std::string&)> make_schedule;
};

/// By class name; a loss, metric or activation that is a function by its own name.
using CustomObjects = std::map<std::string, CustomObject>;

}  // namespace tutti::keras
