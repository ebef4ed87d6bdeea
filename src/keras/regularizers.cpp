#include "tutti/keras/regularizers.h"

#include <cmath>

#include "keras/json.h"

namespace tutti::keras {
namespace {

class FunctionRegularizer final : public Regularizer::Impl {
 public:
  FunctionRegularizer(std::string class_name, const Json& config,
                      std::function<Tensor(const Tensor&)> function)
      : class_name_(std::move(class_name)),
        config_(config.dump()),
        function_(std::move(function)) {}
  Tensor operator()(const Tensor& tensor) const override { return function_(tensor); }
  std::string class_name() const override { return class_name_; }
  std::string config() const override { return config_; }

 private:
  std::string class_name_;
  std::string config_;
  std::function<Tensor(const Tensor&)> function_;
};

void check_factor(const char* what, double factor) {
  if (factor >= 0 && std::isfinite(factor)) return;
  throw InvalidArgument(
      cat("regularizer: ", what, " ", factor, ", expected a finite number, 0 or more"));
}

Tensor l1_l2(const Tensor& tensor, double l1, double l2) {
  Tensor penalty;
  if (l1 != 0) penalty = tensor.abs().sum() * l1;
  if (l2 != 0) {
    const Tensor squares = tensor.square().sum() * l2;
    penalty = penalty.defined() ? penalty + squares : squares;
  }
  return penalty;
}

Tensor orthogonality(const Tensor& matrix, double factor, bool rows) {
  if (matrix.dim() != 2)
    throw InvalidArgument(cat("OrthogonalRegularizer: a weight of shape ",
                              shape_text(matrix.sizes()), ", expected a matrix"));
  const Tensor vectors = rows ? matrix : matrix.t();
  const int64_t number = vectors.size(0);
  if (number < 2) return vectors.sum() * 0;  // no pairs
  const Tensor unit = vectors * vectors.square().sum(1, true).clamp_min(1e-14).rsqrt();
  const Tensor products = at::matmul(unit, unit.t());
  const Tensor others = products - products.diagonal().diag();
  const double pairs = static_cast<double>(number) * static_cast<double>(number - 1) / 2;
  return others.abs().sum() * (factor * 0.5 / pairs);
}

Regularizer make(const char* class_name, const Json& config,
                 std::function<Tensor(const Tensor&)> function) {
  return Regularizer(
      std::make_shared<FunctionRegularizer>(class_name, config, std::move(function)));
}

}  // namespace

namespace regularizers {

Regularizer L1(double l1) {
  check_factor("l1", l1);
  if (l1 == 0) return {};
  return make("L1", {{"l1", l1}}, [l1](const Tensor& tensor) { return l1_l2(tensor, l1, 0); });
}
Regularizer L2(double l2) {
  check_factor("l2", l2);
  if (l2 == 0) return {};
  return make("L2", {{"l2", l2}}, [l2](const Tensor& tensor) { return l1_l2(tensor, 0, l2); });
}
Regularizer L1L2(double l1, double l2) {
  check_factor("l1", l1);
  check_factor("l2", l2);
  if (l1 == 0 && l2 == 0) return {};
  return make("L1L2", {{"l1", l1}, {"l2", l2}},
              [l1, l2](const Tensor& tensor) { return l1_l2(tensor, l1, l2); });
}
Regularizer OrthogonalRegularizer(double factor, const std::string& mode) {
  check_factor("factor", factor);
  if (mode != "rows" && mode != "columns")
    throw InvalidArgument(
        cat("OrthogonalRegularizer: mode \"", mode, "\", expected \"rows\" or \"columns\""));
  return make("OrthogonalRegularizer", {{"factor", factor}, {"mode", mode}},
              [factor, rows = mode == "rows"](const Tensor& tensor) {
                return orthogonality(tensor, factor, rows);
              });
}

}  // namespace regularizers

Regularizer Regularizer::of_function(std::function<Tensor(const Tensor&)> function) {
  return make("function", Json::object(), std::move(function));
}

Regularizer Regularizer::from_config(const std::string& class_name, const std::string& config) {
  const Json json = parse_object(cat("regularizer ", class_name), config);
  auto number = [&](const char* key, double fallback) {
    return member<double>(json, key, fallback);
  };
  std::string name;  // "L1L2" and "l1_l2" are one
  for (char c : class_name) {
    if (c != '_') name += c;
  }
  name = to_lower(name);
  if (name == "l1") return regularizers::L1(number("l1", 0.01));
  if (name == "l2") return regularizers::L2(number("l2", 0.01));
  // By name alone both factors are 0.01, as in Keras.
  const double missing = json.empty() ? 0.01 : 0;
  if (name == "l1l2") return regularizers::L1L2(number("l1", missing), number("l2", missing));
  if (name == "orthogonalregularizer") {
    return regularizers::OrthogonalRegularizer(number("factor", 0.01),
                                               member<std::string>(json, "mode", "rows"));
  }
  throw InvalidArgument(cat("regularizer: \"", class_name,
                            "\", expected l1, l2, l1_l2 or orthogonal_regularizer; a function of "
                            "the user's own is given in code"));
}

Regularizer::Regularizer(const std::string& name) : Regularizer(from_config(name, "{}")) {}

Tensor Regularizer::operator()(const Tensor& tensor) const {
  return defined() ? (*impl_)(tensor) : at::zeros({}, tensor.options());
}

}  // namespace tutti::keras
