// Noise in training, and penalties on activations.

#include <cmath>

#include "keras/layers/config.h"
#include "keras/layers/random.h"

namespace tutti::keras::layers {
namespace {

void check_rate(const LayerImpl& layer, double rate) {
  if (rate >= 0 && rate < 1) return;
  throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: rate ", rate,
                            ", expected from 0 to below 1"));
}

/// A layer that draws: its streams, and what it shares with the others.
template <class Arguments>
class NoiseLayer : public ConfiguredLayer<Arguments> {
 public:
  NoiseLayer(const char* class_name, Arguments arguments)
      : ConfiguredLayer<Arguments>(class_name, std::move(arguments)),
        random_(this->options().seed) {}
  bool supports_masking() const override { return true; }
  Shape compute_output_shape(const Shape& input) const override { return input; }

 protected:
  void build(const Shape& input) override { random_.build(); }
  at::Generator& generator() { return random_.generator(*this); }

 private:
  LayerRandom random_;
};

struct DropoutArguments {
  double rate = 0;
  DropoutOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("rate", rate);
    io("seed", options.seed);
    io("noise_shape", options.noise_shape);
  }
};

/// Dropout and AlphaDropout.
class DropoutLayer : public NoiseLayer<DropoutArguments> {
 public:
  DropoutLayer(const char* class_name, DropoutArguments arguments)
      : NoiseLayer(class_name, std::move(arguments)) {
    check_rate(*this, rate());
    for (int64_t size : options().noise_shape) {
      if (size != -1 && size < 1)
        throw InvalidArgument(cat(class_name, " [", name(), "]: noise_shape ",
                                  shape_text(options().noise_shape),
                                  ", expected sizes of at least 1, or -1 for the input's"));
    }
  }

 protected:
  double rate() const { return arguments().rate; }
  /// 1 with probability 1 - rate, else 0.
  Tensor kept(const Tensor& input) {
    const Shape& given = options().noise_shape;
    if (given.empty()) return at::empty_like(input).bernoulli_(1 - rate(), generator());
    bool fits = static_cast<int64_t>(given.size()) == input.dim();
    Shape shape = given;
    for (std::size_t i = 0; fits && i < shape.size(); ++i) {
      const int64_t size = input.size(static_cast<int64_t>(i));
      if (shape[i] == -1) shape[i] = size;
      fits = shape[i] == 1 || shape[i] == size;
    }
    if (!fits)
      throw InvalidArgument(cat(class_name(), " [", name(), "]: noise_shape ", shape_text(given),
                                " for an input of shape ", shape_text(input.sizes()),
                                ", expected a shape that broadcasts to the input's"));
    return at::empty(shape, input.options()).bernoulli_(1 - rate(), generator());
  }
};

class DropoutImpl final : public DropoutLayer {
 public:
  explicit DropoutImpl(DropoutArguments arguments)
      : DropoutLayer("Dropout", std::move(arguments)) {}

 protected:
  Tensor call(const Tensor& input, bool training) override {
    if (!training || rate() == 0) return input;
    return input * kept(input).div_(1 - rate());
  }
};

class AlphaDropoutImpl final : public DropoutLayer {
 public:
  explicit AlphaDropoutImpl(DropoutArguments arguments)
      : DropoutLayer("AlphaDropout", std::move(arguments)) {}

 protected:
  Tensor call(const Tensor& input, bool training) override {
    if (!training || rate() == 0) return input;
    // -alpha * scale of selu, and the affine map that gives mean 0 and variance 1 back.
    constexpr double kLeast = -1.6732632423543772 * 1.0507009873554805;
    const double a = 1 / std::sqrt((1 - rate()) * (1 + rate() * kLeast * kLeast));
    const double b = -a * kLeast * rate();
    const Tensor keep = kept(input);
    return (input * keep + (1 - keep) * kLeast) * a + b;
  }
};

struct NoiseArguments {
  double rate = 0;
  NoiseOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("rate", rate);
    io("seed", options.seed);
  }
};

template <int kN>
class SpatialDropoutImpl final : public NoiseLayer<NoiseArguments> {
  static constexpr const char* kNames[] = {"SpatialDropout1D", "SpatialDropout2D",
                                           "SpatialDropout3D"};

 public:
  explicit SpatialDropoutImpl(NoiseArguments arguments)
      : NoiseLayer(kNames[kN - 1], std::move(arguments)) {
    check_rate(*this, this->arguments().rate);
  }
  Shape compute_output_shape(const Shape& input) const override {
    if (input.size() == kN + 2) return input;
    throw InvalidArgument(cat(class_name(), " [", name(), "]: input of shape ", shape_text(input),
                              ", expected rank ", kN + 2,
                              " with the batch first and channels last"));
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    const double rate = arguments().rate;
    if (!training || rate == 0) return input;
    Shape shape(kN + 2, 1);
    shape.front() = input.size(0);
    shape.back() = input.size(-1);
    return input *
           at::empty(shape, input.options()).bernoulli_(1 - rate, generator()).div_(1 - rate);
  }
};

struct GaussianNoiseArguments {
  double stddev = 0;
  NoiseOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("stddev", stddev);
    io("seed", options.seed);
  }
};

class GaussianNoiseImpl final : public NoiseLayer<GaussianNoiseArguments> {
 public:
  explicit GaussianNoiseImpl(GaussianNoiseArguments arguments)
      : NoiseLayer("GaussianNoise", std::move(arguments)) {
    const double stddev = this->arguments().stddev;
    if (!(stddev >= 0 && stddev <= 1))
      throw InvalidArgument(
          cat("GaussianNoise [", name(), "]: stddev ", stddev, ", expected from 0 to 1"));
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    const double stddev = arguments().stddev;
    if (!training || stddev == 0) return input;
    return input + at::empty_like(input).normal_(0, stddev, generator());
  }
};

class GaussianDropoutImpl final : public NoiseLayer<NoiseArguments> {
 public:
  explicit GaussianDropoutImpl(NoiseArguments arguments)
      : NoiseLayer("GaussianDropout", std::move(arguments)) {
    check_rate(*this, this->arguments().rate);
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    const double rate = arguments().rate;
    if (!training || rate == 0) return input;
    return input * at::empty_like(input).normal_(1, std::sqrt(rate / (1 - rate)), generator());
  }
};

struct ActivityRegularizationArguments {
  ActivityRegularizationOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("l1", options.l1);
    io("l2", options.l2);
  }
};

class ActivityRegularizationImpl final : public ConfiguredLayer<ActivityRegularizationArguments> {
 public:
  explicit ActivityRegularizationImpl(ActivityRegularizationArguments arguments)
      : ConfiguredLayer("ActivityRegularization", std::move(arguments)) {
    activity_regularizer_ = regularizers::L1L2(options().l1, options().l2);
  }
  bool supports_masking() const override { return true; }
  Shape compute_output_shape(const Shape& input) const override { return input; }

 protected:
  Tensor call(const Tensor& input, bool training) override { return penalised(input); }
};

}  // namespace

Dropout::Dropout(double rate, const DropoutOptions& options)
    : Layer(std::make_shared<DropoutImpl>(DropoutArguments{rate, options})) {}
AlphaDropout::AlphaDropout(double rate, const DropoutOptions& options)
    : Layer(std::make_shared<AlphaDropoutImpl>(DropoutArguments{rate, options})) {}
SpatialDropout1D::SpatialDropout1D(double rate, const NoiseOptions& options)
    : Layer(std::make_shared<SpatialDropoutImpl<1>>(NoiseArguments{rate, options})) {}
SpatialDropout2D::SpatialDropout2D(double rate, const NoiseOptions& options)
    : Layer(std::make_shared<SpatialDropoutImpl<2>>(NoiseArguments{rate, options})) {}
SpatialDropout3D::SpatialDropout3D(double rate, const NoiseOptions& options)
    : Layer(std::make_shared<SpatialDropoutImpl<3>>(NoiseArguments{rate, options})) {}
GaussianNoise::GaussianNoise(double stddev, const NoiseOptions& options)
    : Layer(std::make_shared<GaussianNoiseImpl>(GaussianNoiseArguments{stddev, options})) {}
GaussianDropout::GaussianDropout(double rate, const NoiseOptions& options)
    : Layer(std::make_shared<GaussianDropoutImpl>(NoiseArguments{rate, options})) {}
ActivityRegularization::ActivityRegularization(const ActivityRegularizationOptions& options)
    : Layer(
          std::make_shared<ActivityRegularizationImpl>(ActivityRegularizationArguments{options})) {}

namespace {

constexpr LayerEntry kRegularization[] = {
    {"Dropout", make_configured<DropoutImpl>},
    {"AlphaDropout", make_configured<AlphaDropoutImpl>},
    {"SpatialDropout1D", make_configured<SpatialDropoutImpl<1>>},
    {"SpatialDropout2D", make_configured<SpatialDropoutImpl<2>>},
    {"SpatialDropout3D", make_configured<SpatialDropoutImpl<3>>},
    {"GaussianNoise", make_configured<GaussianNoiseImpl>},
    {"GaussianDropout", make_configured<GaussianDropoutImpl>},
    {"ActivityRegularization", make_configured<ActivityRegularizationImpl>},
};

}  // namespace

LayerFamily regularization_layers() { return kRegularization; }

}  // namespace tutti::keras::layers
