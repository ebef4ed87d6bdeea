// The layers without weights.

#include <ATen/core/Generator.h>

#include <limits>

#include "keras/layers/config.h"
#include "tutti/base/seed.h"
#include "tutti/distribute/strategy.h"

namespace tutti::keras::layers {

namespace {

class PoolingImpl : public LayerImpl {
 public:
  PoolingImpl(const char* class_name, Size2 pool_size, const Pooling2DOptions& options)
      : LayerImpl(class_name, options.name, options.input_shape),
        class_name_(class_name),
        pool_(pool_size),
        strides_(options.strides.value_or(pool_size)),
        padding_(options.padding),
        same_(padding_ == "same") {
    is_same(*this, padding_);
    if (pool_.height < 1 || pool_.width < 1 || strides_.height < 1 || strides_.width < 1) {
      throw InvalidArgument(
          cat(class_name_, " [", name(), "]: a pool size or stride below 1, expected at least 1"));
    }
  }
  std::string class_name() const override { return class_name_; }
  std::string config() const override {
    Json json = base_config(*this);
    json.update(
        {{"pool_size", to_json(pool_)}, {"strides", to_json(strides_)}, {"padding", padding_}});
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    check_image(*this, input);
    return {input[0], window_output(*this, input[1], pool_.height, strides_.height, 1, same_),
            window_output(*this, input[2], pool_.width, strides_.width, 1, same_), input[3]};
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    const bool max = class_name_ == "MaxPooling2D";
    Tensor images = to_channels_first(input);
    if (images.size(0) == 0) {  // LibTorch's pooling wants rows
      const Shape output = compute_output_shape(input.sizes().vec());
      return input.new_empty({0, output[1], output[2], output[3]}) + input.sum();
    }
    Padding rows{0, 0}, columns{0, 0};
    if (same_) {
      rows = same_padding(input.size(1), pool_.height, strides_.height, 1);
      columns = same_padding(input.size(2), pool_.width, strides_.width, 1);
    }
    const std::array<int64_t, 4> pads{columns.before, columns.after, rows.before, rows.after};
    const bool padded = rows.after > 0 || columns.after > 0;
    const std::array<int64_t, 2> window{pool_.height, pool_.width};
    const std::array<int64_t, 2> stride{strides_.height, strides_.width};
    if (max) {
      if (padded)
        images = at::constant_pad_nd(images, pads, -std::numeric_limits<double>::infinity());
      return to_channels_last(at::max_pool2d(images, window, stride));
    }
    if (!padded) return to_channels_last(at::avg_pool2d(images, window, stride));
    // The entries outside the image do not count: sums are divided by how many lie inside.
    const Tensor inside =
        at::constant_pad_nd(at::ones({1, 1, input.size(1), input.size(2)}, input.options()), pads);
    const Tensor sums = at::avg_pool2d(at::constant_pad_nd(images, pads), window, stride, 0, false,
                                       true, /*divisor_override=*/1);
    return to_channels_last(
        sums / at::avg_pool2d(inside, window, stride, 0, false, true, /*divisor_override=*/1));
  }

 private:
  std::string class_name_;
  Size2 pool_;
  Size2 strides_;
  std::string padding_;
  bool same_;
};

class GlobalAverageImpl : public LayerImpl {
 public:
  explicit GlobalAverageImpl(const LayerOptions& options)
      : LayerImpl("GlobalAveragePooling2D", options.name, options.input_shape) {}
  std::string class_name() const override { return "GlobalAveragePooling2D"; }
  std::string config() const override { return base_config(*this).dump(); }
  Shape compute_output_shape(const Shape& input) const override {
    check_image(*this, input);
    return {input[0], input[3]};
  }

 protected:
  Tensor call(const Tensor& input, bool training) override { return input.mean({1, 2}); }
};

/// Product of the sizes behind the batch axis; -1 when one is unknown.
int64_t sample_numel(const Shape& input) {
  int64_t numel = 1;
  for (std::size_t i = 1; i < input.size(); ++i) {
    if (input[i] < 0) return -1;
    numel *= input[i];
  }
  return numel;
}

class FlattenImpl : public LayerImpl {
 public:
  explicit FlattenImpl(const LayerOptions& options)
      : LayerImpl("Flatten", options.name, options.input_shape) {}
  std::string class_name() const override { return "Flatten"; }
  std::string config() const override { return base_config(*this).dump(); }
  Shape compute_output_shape(const Shape& input) const override {
    if (input.empty())
      throw InvalidArgument(cat("Flatten [", name(), "]: a scalar input, expected a batch"));
    return {input[0], sample_numel(input)};
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    return input.reshape({input.size(0), sample_numel(input.sizes().vec())});
  }
};

class ReshapeImpl : public LayerImpl {
 public:
  ReshapeImpl(const Shape& target, const LayerOptions& options)
      : LayerImpl("Reshape", options.name, options.input_shape), target_(target) {}
  std::string class_name() const override { return "Reshape"; }
  std::string config() const override {
    Json json = base_config(*this);
    json["target_shape"] = target_;
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    const int64_t numel = sample_numel(input);
    Shape output{input.empty() ? -1 : input[0]};
    int64_t known = 1;
    int unknown = 0;
    for (int64_t size : target_) {
      output.push_back(size);
      if (size < 0)
        ++unknown;
      else
        known *= size;
    }
    const bool fits =
        numel < 0 || (unknown == 0 ? known == numel : known > 0 && numel % known == 0);
    if (input.empty() || unknown > 1 || !fits) {
      throw InvalidArgument(cat(
          "Reshape [", name(), "]: input of shape ", shape_text(input), " to ", shape_text(target_),
          ", expected the same number of entries a sample and at most one -1"));
    }
    for (int64_t& size : output) {
      if (&size != &output[0] && size < 0 && numel >= 0) size = numel / known;
    }
    return output;
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    return input.reshape(compute_output_shape(input.sizes().vec()));
  }

 private:
  Shape target_;
};

class DropoutImpl : public LayerImpl {
 public:
  DropoutImpl(double rate, const DropoutOptions& options)
      : LayerImpl("Dropout", options.name, options.input_shape), rate_(rate), seed_(options.seed) {
    if (!(rate >= 0 && rate < 1))
      throw InvalidArgument(
          cat("Dropout [", name(), "]: rate ", rate, ", expected from 0 to below 1"));
  }
  std::string class_name() const override { return "Dropout"; }
  std::string config() const override {
    Json json = base_config(*this);
    json["rate"] = rate_;
    if (seed_) json["seed"] = *seed_;
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override { return input; }

 protected:
  /// With a seed of its own the layer has streams of its own, whatever else draws; they follow step
  /// and replica as the strategy's do.
  void build(const Shape& input) override {
    const int replicas = distribute::get_strategy().num_local_replicas();
    for (int i = 0; seed_ && i < replicas; ++i) own_.push_back(std::make_unique<Stream>());
  }
  Tensor call(const Tensor& input, bool training) override {
    if (!training || rate_ == 0) return input;
    distribute::ReplicaContext* replica = distribute::get_replica_context();
    const int local = replica != nullptr ? replica->local_replica_id() : 0;
    at::Generator& generator =
        seed_ ? own_generator(local) : distribute::get_strategy().generator(local);
    return input * at::empty_like(input).bernoulli_(1 - rate_, generator).div_(1 - rate_);
  }

 private:
  struct alignas(64) Stream {
    at::Generator generator;
    int64_t step = -1;
    uint64_t seed_generation = 0;
  };

  at::Generator& own_generator(int local) {
    if (static_cast<std::size_t>(local) >= own_.size()) {
      throw FailedPrecondition(cat("Dropout [", name(), "]: replica ", local,
                                   " of a layer that was built for ", own_.size(),
                                   " of them, expected the strategy under which it was built"));
    }
    distribute::Strategy& strategy = distribute::get_strategy();
    Stream& stream = *own_[static_cast<std::size_t>(local)];
    const int64_t step = strategy.random_step();
    const uint64_t generation = seed_generation();
    if (stream.step == step && stream.seed_generation == generation) return stream.generator;
    if (!stream.generator.defined()) {
      // The strategy's is of the kind that the device needs.
      stream.generator = strategy.generator(local).clone();
    }
    stream.generator.set_current_seed(
        stream_seed(static_cast<uint64_t>(*seed_), step, strategy.first_replica_id() + local));
    stream.step = step;
    stream.seed_generation = generation;
    return stream.generator;
  }

  double rate_;
  std::optional<int64_t> seed_;
  std::vector<std::unique_ptr<Stream>> own_;
};

class ActivationImpl : public LayerImpl {
 public:
  ActivationImpl(const keras::Activation& activation, const LayerOptions& options)
      : LayerImpl("Activation", options.name, options.input_shape), activation_(activation) {}
  std::string class_name() const override { return "Activation"; }
  std::string config() const override {
    Json json = base_config(*this);
    json["activation"] = activation_.name();
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override { return input; }

 protected:
  Tensor call(const Tensor& input, bool training) override { return activation_(input); }

 private:
  keras::Activation activation_;
};

class RescalingImpl : public LayerImpl {
 public:
  RescalingImpl(double scale, const RescalingOptions& options)
      : LayerImpl("Rescaling", options.name, options.input_shape),
        scale_(scale),
        offset_(options.offset) {}
  std::string class_name() const override { return "Rescaling"; }
  std::string config() const override {
    Json json = base_config(*this);
    json.update({{"scale", scale_}, {"offset", offset_}});
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override { return input; }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    const Tensor scaled = input * scale_;
    return offset_ == 0 ? scaled : scaled + offset_;
  }

 private:
  double scale_;
  double offset_;
};

Pooling2DOptions pooling_options(const Json& json, const LayerBase& base) {
  return {size_from(json, "strides", size_from(json, "pool_size", 2)),
          member<std::string>(json, "padding", "valid"), base.name, base.input_shape};
}

}  // namespace

MaxPooling2D::MaxPooling2D(Size2 pool_size, const Pooling2DOptions& options)
    : Layer(std::make_shared<PoolingImpl>("MaxPooling2D", pool_size, options)) {}
AveragePooling2D::AveragePooling2D(Size2 pool_size, const Pooling2DOptions& options)
    : Layer(std::make_shared<PoolingImpl>("AveragePooling2D", pool_size, options)) {}
GlobalAveragePooling2D::GlobalAveragePooling2D(const LayerOptions& options)
    : Layer(std::make_shared<GlobalAverageImpl>(options)) {}
Flatten::Flatten(const LayerOptions& options) : Layer(std::make_shared<FlattenImpl>(options)) {}
Reshape::Reshape(const Shape& target, const LayerOptions& options)
    : Layer(std::make_shared<ReshapeImpl>(target, options)) {}
Dropout::Dropout(double rate, const DropoutOptions& options)
    : Layer(std::make_shared<DropoutImpl>(rate, options)) {}
ActivationLayer::ActivationLayer(const keras::Activation& activation, const LayerOptions& options)
    : Layer(std::make_shared<ActivationImpl>(activation, options)) {}
Rescaling::Rescaling(double scale, const RescalingOptions& options)
    : Layer(std::make_shared<RescalingImpl>(scale, options)) {}

namespace {

Layer dropout_from(const Json& json, const LayerBase& base) {
  const auto seed =
      json.contains("seed") ? std::optional(member<int64_t>(json, "seed", 0)) : std::nullopt;
  return Dropout(member<double>(json, "rate", 0), {seed, base.name, base.input_shape});
}

constexpr LayerEntry kSimpleLayers[] = {
    {"MaxPooling2D",
     [](const Json& json, const LayerBase& base) -> Layer {
       return MaxPooling2D(size_from(json, "pool_size", 2), pooling_options(json, base));
     }},
    {"AveragePooling2D",
     [](const Json& json, const LayerBase& base) -> Layer {
       return AveragePooling2D(size_from(json, "pool_size", 2), pooling_options(json, base));
     }},
    {"GlobalAveragePooling2D",
     [](const Json&, const LayerBase& base) -> Layer {
       return GlobalAveragePooling2D({base.name, base.input_shape});
     }},
    {"Flatten",
     [](const Json&, const LayerBase& base) -> Layer {
       return Flatten({base.name, base.input_shape});
     }},
    {"Reshape",
     [](const Json& json, const LayerBase& base) -> Layer {
       return Reshape(member<Shape>(json, "target_shape", {}), {base.name, base.input_shape});
     }},
    {"Dropout", dropout_from},
    {"Activation",
     [](const Json& json, const LayerBase& base) -> Layer {
       return ActivationLayer(member<std::string>(json, "activation", "linear"),
                              {base.name, base.input_shape});
     }},
    {"Rescaling", [](const Json& json, const LayerBase& base) -> Layer {
       return Rescaling(member<double>(json, "scale", 1),
                        {member<double>(json, "offset", 0), base.name, base.input_shape});
     }}};

}  // namespace

LayerFamily simple_layers() { return kSimpleLayers; }

}  // namespace tutti::keras::layers
