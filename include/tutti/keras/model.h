#pragma once
// Models: layers together, with the training loop of Keras.

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "tutti/keras/functional.h"
#include "tutti/keras/model_base.h"
#include "tutti/keras/sequential.h"

namespace tutti::keras {

/// Makes a layer, a loss or a metric that is not Tutti's from its config(), a JSON text:
///
///     {"Gate", [](const std::string& config) { return std::make_shared<Gate>(config); }}
///
/// It gives a handle (Layer, Loss, Metric) or a std::shared_ptr to a class of the user's own.
class CustomObject {
 public:
  template <class Maker>
  requires std::invocable<const Maker&, const std::string&> CustomObject(Maker maker) {  // NOLINT
    using Made = std::invoke_result_t<const Maker&, const std::string&>;
    if constexpr (std::is_constructible_v<layers::Layer, Made>) {
      make_layer = [maker](const std::string& config) { return layers::Layer(maker(config)); };
    } else if constexpr (std::is_constructible_v<metrics::Metric, Made>) {
      make_metric = [maker](const std::string& config) { return metrics::Metric(maker(config)); };
    } else {
      static_assert(std::is_constructible_v<losses::Loss, Made>,
                    "a maker gives a layer, a loss or a metric, or a std::shared_ptr to its class");
      make_loss = [maker](const std::string& config) { return losses::Loss(maker(config)); };
    }
  }
  std::function<layers::Layer(const std::string&)> make_layer;
  std::function<losses::Loss(const std::string&)> make_loss;
  std::function<metrics::Metric(const std::string&)> make_metric;
};

struct LoadModelOptions {
  /// By class name; a loss or metric that is a function by its own name.
  std::map<std::string, CustomObject> custom_objects = {};
  /// False: architecture and weights only, for a model whose loss or metrics are the user's own.
  bool compile = true;
  /// Larger files are InvalidArgument before anything of them is read.
  int64_t max_bytes = std::numeric_limits<int64_t>::max();
};
/// The model that Model::save wrote, under the current strategy, built, compiled if it was: fit
/// goes on as if there had been no interruption. A Sequential comes back as one, any other as a
/// Functional. Nothing of the file is executed, and no weight is larger than the largest in it.
/// NotFound, InvalidArgument or DataLoss says what is wrong with the file; Unimplemented names a
/// layer class that is neither Tutti's nor among the custom_objects.
std::unique_ptr<Model> load_model(const std::string& path, const LoadModelOptions& options = {});

}  // namespace tutti::keras
