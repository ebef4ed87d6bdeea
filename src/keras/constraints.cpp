#include "tutti/keras/constraints.h"

#include "keras/json.h"

namespace tutti::keras {
namespace {

constexpr double kEpsilon = 1e-7;  // keras.backend.epsilon()

class FunctionConstraint final : public Constraint::Impl {
 public:
  FunctionConstraint(std::string class_name, const Json& config,
                     std::function<Tensor(const Tensor&)> function)
      : class_name_(std::move(class_name)),
        config_(config.dump()),
        function_(std::move(function)) {}
  Tensor operator()(const Tensor& weight) const override { return function_(weight); }
  std::string class_name() const override { return class_name_; }
  std::string config() const override { return config_; }

 private:
  std::string class_name_;
  std::string config_;
  std::function<Tensor(const Tensor&)> function_;
};

Constraint make(const char* class_name, const Json& config,
                std::function<Tensor(const Tensor&)> function) {
  return Constraint(std::make_shared<FunctionConstraint>(class_name, config, std::move(function)));
}

Tensor norms(const Tensor& weight, const std::vector<int64_t>& axis) {
  for (int64_t one : axis) {
    if (one < -weight.dim() || one >= weight.dim())
      throw InvalidArgument(cat("constraint: axis ", one, " of a weight of shape ",
                                shape_text(weight.sizes()), ", expected one that it has"));
  }
  return weight.square().sum(axis, /*keepdim=*/true).sqrt();
}

std::vector<int64_t> axis_from(const Json& json) {
  const auto found = json.find("axis");
  if (found != json.end() && found->is_number_integer()) return {found->get<int64_t>()};
  return member<std::vector<int64_t>>(json, "axis", {0});
}

}  // namespace

namespace constraints {

Constraint MaxNorm(double max_value, std::vector<int64_t> axis) {
  if (!(max_value >= 0))
    throw InvalidArgument(cat("MaxNorm: max_value ", max_value, ", expected 0 or more"));
  return make("MaxNorm", {{"max_value", max_value}, {"axis", axis}},
              [max_value, axis](const Tensor& weight) {
                const Tensor norm = norms(weight, axis);
                return weight * (norm.clamp_max(max_value) / (norm + kEpsilon));
              });
}
Constraint NonNeg() {
  return make("NonNeg", Json::object(), [](const Tensor& weight) { return weight.clamp_min(0); });
}
Constraint UnitNorm(std::vector<int64_t> axis) {
  return make("UnitNorm", {{"axis", axis}},
              [axis](const Tensor& weight) { return weight / (norms(weight, axis) + kEpsilon); });
}
Constraint MinMaxNorm(double min_value, double max_value, double rate, std::vector<int64_t> axis) {
  if (!(min_value >= 0 && max_value >= min_value))
    throw InvalidArgument(cat("MinMaxNorm: norms from ", min_value, " to ", max_value,
                              ", expected 0 or more, the least first"));
  return make("MinMaxNorm",
              {{"min_value", min_value}, {"max_value", max_value}, {"rate", rate}, {"axis", axis}},
              [=](const Tensor& weight) {
                const Tensor norm = norms(weight, axis);
                const Tensor wanted = norm.clamp(min_value, max_value) * rate + norm * (1 - rate);
                return weight * (wanted / (norm + kEpsilon));
              });
}

}  // namespace constraints

std::function<Tensor(const Tensor&)> Constraint::function() const {
  if (!defined()) return {};
  return [impl = impl_](const Tensor& weight) { return (*impl)(weight); };
}

Constraint Constraint::of_function(std::function<Tensor(const Tensor&)> function) {
  return make("function", Json::object(), std::move(function));
}

Constraint Constraint::from_config(const std::string& class_name, const std::string& config) {
  const Json json = parse_object(cat("constraint ", class_name), config);
  auto number = [&](const char* key, double fallback) {
    return member<double>(json, key, fallback);
  };
  std::string name;  // "MaxNorm" and "max_norm" are one
  for (char c : class_name) {
    if (c != '_') name += c;
  }
  name = to_lower(name);
  if (name == "maxnorm") return constraints::MaxNorm(number("max_value", 2), axis_from(json));
  if (name == "nonneg") return constraints::NonNeg();
  if (name == "unitnorm") return constraints::UnitNorm(axis_from(json));
  if (name == "minmaxnorm") {
    return constraints::MinMaxNorm(number("min_value", 0), number("max_value", 1),
                                   number("rate", 1), axis_from(json));
  }
  throw InvalidArgument(cat("constraint: \"", class_name,
                            "\", expected max_norm, non_neg, unit_norm or min_max_norm; a function "
                            "of the user's own is given in code"));
}

Constraint::Constraint(const std::string& name) : Constraint(from_config(name, "{}")) {}

}  // namespace tutti::keras
