#include "tutti/keras/initializers.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <random>

#include "base/mutex.h"
#include "keras/json.h"
#include "tutti/base/seed.h"

namespace tutti::keras {
namespace {

/// Standard deviation of a normal cut at two of them is 0.87962566103423978; Keras divides it out.
constexpr double kTruncatedStddev = 0.87962566103423978;

/// One stream for all initialisers, made anew after set_seed: weights depend on the seed and on the
/// order in which they are made.
class Stream {
 public:
  template <class Draw>
  Tensor draw(Draw draw) {
    MutexLock lock(mutex_);
    if (!generator_.defined() || generation_ != seed_generation()) {
      generation_ = seed_generation();
      const auto seed = global_seed();
      std::random_device device;
      generator_ = at::detail::createCPUGenerator(
          seed ? mix_seeds(static_cast<uint64_t>(*seed), 0x1417) : mix_seeds(device(), device()));
    }
    return draw(generator_);
  }

 private:
  Mutex mutex_;
  at::Generator generator_;
  uint64_t generation_ = 0;
};

Stream& stream() {
  static Stream instance;
  return instance;
}

/// From the library's stream, or from one that the seed alone starts: then the same each time.
template <class Draw>
Tensor drawn(const initializers::Seed& seed, Draw draw) {
  if (!seed) return stream().draw(draw);
  at::Generator generator =
      at::detail::createCPUGenerator(mix_seeds(static_cast<uint64_t>(*seed), 0x5eed));
  return draw(generator);
}

Tensor uniform(const std::vector<int64_t>& shape, double low, double high,
               const initializers::Seed& seed) {
  return drawn(seed, [&](at::Generator& generator) {
    return at::empty(shape, at::kFloat).uniform_(low, high, generator);
  });
}
Tensor normal(const std::vector<int64_t>& shape, double mean, double stddev,
              const initializers::Seed& seed) {
  return drawn(seed, [&](at::Generator& generator) {
    return at::empty(shape, at::kFloat).normal_(mean, stddev, generator);
  });
}
/// By the inverse of the distribution function, between two standard deviations.
Tensor truncated_normal(const std::vector<int64_t>& shape, double mean, double stddev,
                        const initializers::Seed& seed) {
  const double edge = std::erf(2 / std::sqrt(2.0));
  const Tensor u = uniform(shape, -edge, edge, seed);
  return (u.to(at::kDouble).erfinv() * (std::sqrt(2.0) * stddev) + mean).to(at::kFloat);
}

class FunctionInitializer : public Initializer::Impl {
 public:
  using Function = std::function<Tensor(const std::vector<int64_t>&)>;
  FunctionInitializer(std::string class_name, Json config, Function function)
      : class_name_(std::move(class_name)),
        config_(config.dump()),
        function_(std::move(function)) {}
  Tensor operator()(const std::vector<int64_t>& shape) const override { return function_(shape); }
  std::string class_name() const override { return class_name_; }
  std::string config() const override { return config_; }

 private:
  std::string class_name_;
  std::string config_;
  Function function_;
};

Initializer make(std::string class_name, Json config, FunctionInitializer::Function function) {
  return Initializer(std::make_shared<FunctionInitializer>(std::move(class_name), std::move(config),
                                                           std::move(function)));
}

struct Fans {
  double in;
  double out;
};
Fans fans_of(const std::vector<int64_t>& shape) {
  if (shape.empty()) return {1, 1};
  if (shape.size() == 1) return {static_cast<double>(shape[0]), static_cast<double>(shape[0])};
  double field = 1;
  for (std::size_t i = 0; i + 2 < shape.size(); ++i) field *= static_cast<double>(shape[i]);
  return {field * static_cast<double>(shape[shape.size() - 2]),
          field * static_cast<double>(shape.back())};
}

Tensor variance_scaling(const std::vector<int64_t>& shape, double scale, const std::string& mode,
                        const std::string& distribution, const initializers::Seed& seed) {
  const Fans fans = fans_of(shape);
  const double fan = mode == "fan_in"    ? fans.in
                     : mode == "fan_out" ? fans.out
                                         : (fans.in + fans.out) / 2;
  const double variance = scale / std::max(1.0, fan);
  if (distribution == "uniform")
    return uniform(shape, -std::sqrt(3 * variance), std::sqrt(3 * variance), seed);
  if (distribution == "untruncated_normal") return normal(shape, 0, std::sqrt(variance), seed);
  return truncated_normal(shape, 0, std::sqrt(variance) / kTruncatedStddev, seed);
}

Json with_seed(Json config, const initializers::Seed& seed) {
  if (seed) config["seed"] = *seed;
  return config;
}

Initializer scaled(const char* class_name, double scale, const char* mode, const char* distribution,
                   const initializers::Seed& seed) {
  return make(class_name, with_seed(Json::object(), seed), [=](const std::vector<int64_t>& shape) {
    return variance_scaling(shape, scale, mode, distribution, seed);
  });
}

/// Of all dimensions but the last by the last: the Q of a normal matrix, with the signs of R's
/// diagonal, so that it is uniform among the orthogonal ones.
Tensor orthogonal(const std::vector<int64_t>& shape, double gain, const initializers::Seed& seed) {
  if (shape.size() < 2)
    throw InvalidArgument(cat("Orthogonal: a weight of shape ", shape_text(shape),
                              ", expected at least two dimensions"));
  int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  const int64_t columns = shape.back();
  const Tensor matrix = normal({std::max(rows, columns), std::min(rows, columns)}, 0, 1, seed);
  const auto [q, r] = at::linalg_qr(matrix);
  const Tensor signed_q = q * r.diagonal().sign();
  return ((rows < columns ? signed_q.t() : signed_q) * gain).reshape(shape);
}

}  // namespace

namespace initializers {
Initializer Zeros() {
  return make("Zeros", Json::object(),
              [](const std::vector<int64_t>& shape) { return at::zeros(shape, at::kFloat); });
}
Initializer Ones() {
  return make("Ones", Json::object(),
              [](const std::vector<int64_t>& shape) { return at::ones(shape, at::kFloat); });
}
Initializer Constant(double value) {
  return make("Constant", {{"value", value}}, [value](const std::vector<int64_t>& shape) {
    return at::full(shape, value, at::kFloat);
  });
}
Initializer Identity(double gain) {
  return make("Identity", {{"gain", gain}}, [gain](const std::vector<int64_t>& shape) {
    if (shape.size() != 2)
      throw InvalidArgument(
          cat("Identity: a weight of shape ", shape_text(shape), ", expected a matrix"));
    return at::eye(shape[0], shape[1], at::kFloat) * gain;
  });
}
Initializer RandomNormal(double mean, double stddev, Seed seed) {
  return make("RandomNormal", with_seed({{"mean", mean}, {"stddev", stddev}}, seed),
              [=](const std::vector<int64_t>& shape) { return normal(shape, mean, stddev, seed); });
}
Initializer RandomUniform(double minval, double maxval, Seed seed) {
  return make(
      "RandomUniform", with_seed({{"minval", minval}, {"maxval", maxval}}, seed),
      [=](const std::vector<int64_t>& shape) { return uniform(shape, minval, maxval, seed); });
}
Initializer TruncatedNormal(double mean, double stddev, Seed seed) {
  return make("TruncatedNormal", with_seed({{"mean", mean}, {"stddev", stddev}}, seed),
              [=](const std::vector<int64_t>& shape) {
                return truncated_normal(shape, mean, stddev, seed);
              });
}
Initializer Orthogonal(double gain, Seed seed) {
  return make("Orthogonal", with_seed({{"gain", gain}}, seed),
              [=](const std::vector<int64_t>& shape) { return orthogonal(shape, gain, seed); });
}
Initializer VarianceScaling(double scale, const std::string& mode, const std::string& distribution,
                            Seed seed) {
  const bool known = (mode == "fan_in" || mode == "fan_out" || mode == "fan_avg") &&
                     (distribution == "truncated_normal" || distribution == "untruncated_normal" ||
                      distribution == "uniform");
  if (!known || !(scale > 0)) {
    throw InvalidArgument(cat("VarianceScaling: scale ", scale, ", mode \"", mode,
                              "\", distribution \"", distribution,
                              "\", expected a positive scale, fan_in, fan_out or fan_avg, and "
                              "truncated_normal, untruncated_normal or uniform"));
  }
  return make("VarianceScaling",
              with_seed({{"scale", scale}, {"mode", mode}, {"distribution", distribution}}, seed),
              [=](const std::vector<int64_t>& shape) {
                return variance_scaling(shape, scale, mode, distribution, seed);
              });
}
Initializer GlorotUniform(Seed seed) {
  return scaled("GlorotUniform", 1, "fan_avg", "uniform", seed);
}
Initializer GlorotNormal(Seed seed) {
  return scaled("GlorotNormal", 1, "fan_avg", "truncated_normal", seed);
}
Initializer HeUniform(Seed seed) { return scaled("HeUniform", 2, "fan_in", "uniform", seed); }
Initializer HeNormal(Seed seed) {
  return scaled("HeNormal", 2, "fan_in", "truncated_normal", seed);
}
Initializer LecunUniform(Seed seed) { return scaled("LecunUniform", 1, "fan_in", "uniform", seed); }
Initializer LecunNormal(Seed seed) {
  return scaled("LecunNormal", 1, "fan_in", "truncated_normal", seed);
}
}  // namespace initializers

Initializer Initializer::from_config(const std::string& class_name, const std::string& config) {
  const Json json = parse_object(cat("initializer ", class_name), config);
  auto number = [&](const char* key, double fallback) {
    return member<double>(json, key, fallback);
  };
  std::string name;  // "GlorotUniform" and "glorot_uniform" are one
  for (char c : class_name) {
    if (c != '_') name += c;
  }
  name = to_lower(name);
  const initializers::Seed seed = json.contains("seed") && !json["seed"].is_null()
                                      ? initializers::Seed(member<int64_t>(json, "seed", 0))
                                      : std::nullopt;
  using namespace initializers;  // NOLINT: its names are the table's
  if (name == "zeros") return Zeros();
  if (name == "ones") return Ones();
  if (name == "constant") return Constant(number("value", 0));
  if (name == "identity" || name == "identityinitializer") return Identity(number("gain", 1));
  if (name == "randomnormal") return RandomNormal(number("mean", 0), number("stddev", 0.05), seed);
  if (name == "randomuniform")
    return RandomUniform(number("minval", -0.05), number("maxval", 0.05), seed);
  if (name == "truncatednormal")
    return TruncatedNormal(number("mean", 0), number("stddev", 0.05), seed);
  if (name == "orthogonal" || name == "orthogonalinitializer")
    return Orthogonal(number("gain", 1), seed);
  if (name == "variancescaling") {
    return VarianceScaling(number("scale", 1), member<std::string>(json, "mode", "fan_in"),
                           member<std::string>(json, "distribution", "truncated_normal"), seed);
  }
  if (name == "glorotuniform") return GlorotUniform(seed);
  if (name == "glorotnormal") return GlorotNormal(seed);
  if (name == "heuniform") return HeUniform(seed);
  if (name == "henormal") return HeNormal(seed);
  if (name == "lecununiform") return LecunUniform(seed);
  if (name == "lecunnormal") return LecunNormal(seed);
  throw InvalidArgument(
      cat("initializer: \"", class_name,
          "\", expected zeros, ones, constant, identity, orthogonal, random_normal, "
          "random_uniform, truncated_normal, "
          "variance_scaling, glorot_uniform, glorot_normal, he_uniform, he_normal, lecun_uniform "
          "or lecun_normal"));
}

Tensor Initializer::operator()(const std::vector<int64_t>& shape) const {
  if (impl_ == nullptr)
    throw FailedPrecondition(
        "initializer: an empty handle, expected an initializer; construct one, e.g. "
        "initializers::Zeros()");
  return (*impl_)(shape);
}

Initializer::Initializer(const std::string& name) : Initializer(from_config(name, "{}")) {}

}  // namespace tutti::keras
