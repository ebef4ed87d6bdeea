#pragma once
// What the families of losses share, and where the table finds them.

#include <span>
#include <utility>
#include <vector>

#include "keras/json.h"
#include "tutti/keras/losses.h"

namespace tutti::keras::losses {

inline constexpr double kEpsilon = 1e-7;  // keras.backend.epsilon()

/// What every loss has in its configuration.
struct LossBase {
  Reduction reduction;
  std::string name;
};
/// A class by its Keras name, the other names it goes by in Keras besides the class name in
/// snake_case, and how one is made again of its config().
struct LossEntry {
  const char* class_name;
  const char* function_name;
  std::vector<const char*> aliases;
  Loss (*make)(const Json& config, const LossBase& base);
};
using LossFamily = std::span<const LossEntry>;
// The families, each in the file of its losses; from_config (names.cpp) looks through them.
LossFamily regression_losses();
LossFamily crossentropy_losses();
LossFamily structured_losses();

/// Labels in the predictions' rank and dtype; InvalidArgument unless the shapes then agree (a
/// broadcast would hide a mistake). Predictions in a dtype to compute with.
std::pair<Tensor, Tensor> matched(const char* name, const Tensor& y_true, const Tensor& y_pred);
/// float32 and float64 as they are, all else as float32.
Tensor computable(const Tensor& y_pred);
[[noreturn]] void wrong_shapes(const char* name, const Tensor& y_true, const Tensor& y_pred,
                               const char* expected);
/// `axis` counted from the front; InvalidArgument for one that `tensor` does not have.
int64_t checked_axis(const char* name, int64_t axis, const Tensor& tensor);
/// The mean over an axis; of a scalar itself.
Tensor mean_over(const Tensor& values, int64_t axis = -1);

/// A loss that is a function of labels and predictions and of arguments that stand in its config.
struct FunctionImpl : Loss::Impl {
  using Function = std::function<Tensor(const Tensor&, const Tensor&)>;
  FunctionImpl(const char* class_name, const std::string& name, Reduction reduction,
               Function function, Json arguments = Json::object())
      : Impl(name, reduction),
        class_name_(class_name),
        function(std::move(function)),
        arguments(std::move(arguments)) {}
  std::string class_name() const override { return class_name_; }
  std::string config() const override;
  Tensor per_sample(const Tensor& y_true, const Tensor& y_pred) const override {
    return function(y_true, y_pred);
  }
  const char* class_name_;
  Function function;
  Json arguments;
};

/// Options with the function's name where they have none.
template <class Options>
Options named(Options options, const char* name) {
  if (options.name.empty()) options.name = name;
  return options;
}

}  // namespace tutti::keras::losses
