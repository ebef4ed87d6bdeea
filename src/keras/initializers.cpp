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

Tensor uniform(const std::vector<int64_t>& shape, double low, double high) {
  return stream().draw([&](at::Generator& generator) {
    return at::empty(shape, at::kFloat).uniform_(low, high, generator);
  });
}
Tensor normal(const std::vector<int64_t>& shape, double mean, double stddev) {
  return stream().draw([&](at::Generator& generator) {
    return at::empty(shape, at::kFloat).normal_(mean, stddev, generator);
  });
}
/// By the inverse of the distribution function, between two standard deviations.
Tensor truncated_normal(const std::vector<int64_t>& shape, double mean, double stddev) {
  const double edge = std::erf(2 / std::sqrt(2.0));
  const Tensor u = uniform(shape, -edge, edge);
  return (u.to(at::kDouble).erfinv() * (std::sqrt(2.0) * stddev) + mean).to(at::kFloat);
}

/// Keras' way: the first factor of a QR decomposition of normal numbers, its signs made unique.
Tensor orthogonal(const std::vector<int64_t>& shape, double gain, std::optional<int64_t> seed) {
  if (shape.size() < 2)
    throw InvalidArgument(cat("Orthogonal: a weight of ", shape.size(),
                              " axes, expected at least 2; use another initializer"));
  int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  const int64_t columns = shape.back();
  const std::vector<int64_t> tall{std::max(rows, columns), std::min(rows, columns)};
  Tensor drawn;
  if (seed) {
    at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(*seed));
    drawn = at::empty(tall, at::kFloat).normal_(0, 1, generator);
  } else {
    drawn = normal(tall, 0, 1);
  }
  auto [q, r] = at::linalg_qr(drawn);
  q = q * at::where(r.diagonal() < 0, -1.0, 1.0).to(at::kFloat);
  if (rows < columns) q = q.t();
  return (q * gain).reshape(shape);
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
                        const std::string& distribution) {
  const Fans fans = fans_of(shape);
  const double fan = mode == "fan_in"    ? fans.in
                     : mode == "fan_out" ? fans.out
                                         : (fans.in + fans.out) / 2;
  const double variance = scale / std::max(1.0, fan);
  if (distribution == "uniform")
    return uniform(shape, -std::sqrt(3 * variance), std::sqrt(3 * variance));
  if (distribution == "untruncated_normal") return normal(shape, 0, std::sqrt(variance));
  return truncated_normal(shape, 0, std::sqrt(variance) / kTruncatedStddev);
}

Initializer scaled(const char* class_name, double scale, const char* mode,
                   const char* distribution) {
  return make(class_name, Json::object(), [=](const std::vector<int64_t>& shape) {
    return variance_scaling(shape, scale, mode, distribution);
  });
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
Initializer RandomNormal(double mean, double stddev) {
  return make("RandomNormal", {{"mean", mean}, {"stddev", stddev}},
              [=](const std::vector<int64_t>& shape) { return normal(shape, mean, stddev); });
}
Initializer RandomUniform(double minval, double maxval) {
  return make("RandomUniform", {{"minval", minval}, {"maxval", maxval}},
              [=](const std::vector<int64_t>& shape) { return uniform(shape, minval, maxval); });
}
Initializer TruncatedNormal(double mean, double stddev) {
  return make(
      "TruncatedNormal", {{"mean", mean}, {"stddev", stddev}},
      [=](const std::vector<int64_t>& shape) { return truncated_normal(shape, mean, stddev); });
}
Initializer VarianceScaling(double scale, const std::string& mode,
                            const std::string& distribution) {
  const bool known = (mode == "fan_in" || mode == "fan_out" || mode == "fan_avg") &&
                     (distribution == "truncated_normal" || distribution == "untruncated_normal" ||
                      distribution == "uniform");
  if (!known || !(scale > 0)) {
    throw InvalidArgument(cat("VarianceScaling: scale ", scale, ", mode \"", mode,
                              "\", distribution \"", distribution,
                              "\", expected a positive scale, fan_in, fan_out or fan_avg, and "
                              "truncated_normal, untruncated_normal or uniform"));
  }
  return make("VarianceScaling", {{"scale", scale}, {"mode", mode}, {"distribution", distribution}},
              [=](const std::vector<int64_t>& shape) {
                return variance_scaling(shape, scale, mode, distribution);
              });
}
Initializer Orthogonal(double gain, std::optional<int64_t> seed) {
  Json config{{"gain", gain}};
  if (seed) config["seed"] = *seed;
  return make("Orthogonal", config,
              [=](const std::vector<int64_t>& shape) { return orthogonal(shape, gain, seed); });
}
Initializer GlorotUniform() { return scaled("GlorotUniform", 1, "fan_avg", "uniform"); }
Initializer GlorotNormal() { return scaled("GlorotNormal", 1, "fan_avg", "truncated_normal"); }
Initializer HeUniform() { return scaled("HeUniform", 2, "fan_in", "uniform"); }
Initializer HeNormal() { return scaled("HeNormal", 2, "fan_in", "truncated_normal"); }
Initializer LecunUniform() { return scaled("LecunUniform", 1, "fan_in", "uniform"); }
Initializer LecunNormal() { return scaled("LecunNormal", 1, "fan_in", "truncated_normal"); }
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
  if (name == "zeros") return initializers::Zeros();
  if (name == "ones") return initializers::Ones();
  if (name == "constant") return initializers::Constant(number("value", 0));
  if (name == "randomnormal")
    return initializers::RandomNormal(number("mean", 0), number("stddev", 0.05));
  if (name == "randomuniform")
    return initializers::RandomUniform(number("minval", -0.05), number("maxval", 0.05));
  if (name == "truncatednormal")
    return initializers::TruncatedNormal(number("mean", 0), number("stddev", 0.05));
  if (name == "variancescaling") {
    return initializers::VarianceScaling(
        number("scale", 1), member<std::string>(json, "mode", "fan_in"),
        member<std::string>(json, "distribution", "truncated_normal"));
  }
  if (name == "orthogonal") {
    const bool seeded = json.contains("seed") && !json["seed"].is_null();
    return initializers::Orthogonal(
        number("gain", 1), seeded ? std::optional(member<int64_t>(json, "seed", 0)) : std::nullopt);
  }
  if (name == "glorotuniform") return initializers::GlorotUniform();
  if (name == "glorotnormal") return initializers::GlorotNormal();
  if (name == "heuniform") return initializers::HeUniform();
  if (name == "henormal") return initializers::HeNormal();
  if (name == "lecununiform") return initializers::LecunUniform();
  if (name == "lecunnormal") return initializers::LecunNormal();
  throw InvalidArgument(
      cat("initializer: \"", class_name,
          "\", expected zeros, ones, constant, random_normal, random_uniform, truncated_normal, "
          "variance_scaling, orthogonal, glorot_uniform, glorot_normal, he_uniform, he_normal, "
          "lecun_uniform "
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
