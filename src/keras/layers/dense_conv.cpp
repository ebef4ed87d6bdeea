// The layers with kernels: Dense and Conv2D.

#include "keras/layers/config.h"

namespace tutti::keras::layers {
namespace {

void check_positive(const LayerImpl& layer, const char* what, int64_t value) {
  if (value >= 1) return;
  throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: ", what, " ", value,
                            ", expected at least 1"));
}

class DenseImpl : public LayerImpl {
 public:
  DenseImpl(int64_t units, const DenseOptions& options)
      : LayerImpl("Dense", options.name, options.input_shape), units_(units), options_(options) {
    check_positive(*this, "units", units);
  }
  std::string class_name() const override { return "Dense"; }
  std::string config() const override {
    Json json = base_config(*this);
    json.update({{"units", units_},
                 {"activation", options_.activation.name()},
                 {"use_bias", options_.use_bias},
                 {"kernel_initializer", to_json(options_.kernel_initializer)},
                 {"bias_initializer", to_json(options_.bias_initializer)},
                 {"kernel_regularizer", to_json(options_.kernel_regularizer)},
                 {"bias_regularizer", to_json(options_.bias_regularizer)}});
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    if (input.size() < 2 || input.back() < 1) {
      throw InvalidArgument(cat(
          "Dense [", name(), "]: input of shape ", shape_text(input),
          ", expected (batch, …, features) with a known number of features; put Flatten in front"));
    }
    Shape output = input;
    output.back() = units_;
    return output;
  }

 protected:
  bool has_weights() const override { return true; }
  void build(const Shape& input) override {
    kernel_ = add_weight({.name = "kernel",
                          .shape = {input.back(), units_},
                          .initializer = options_.kernel_initializer,
                          .regularizer = options_.kernel_regularizer});
    if (options_.use_bias) {
      bias_ = add_weight({.name = "bias",
                          .shape = {units_},
                          .initializer = options_.bias_initializer,
                          .regularizer = options_.bias_regularizer});
    }
  }
  Tensor call(const Tensor& input, bool training) override {
    const Tensor kernel = value_of(kernel_);
    if (input.dim() == 0 || input.size(-1) != kernel.size(0)) {
      throw InvalidArgument(cat("Dense [", name(), "]: input of shape ", shape_text(input.sizes()),
                                ", expected ", kernel.size(0),
                                " features, those it was built with"));
    }
    if (input.dim() == 2 && options_.use_bias)
      return activate(options_.activation, at::addmm(value_of(bias_), input, kernel));
    Tensor output = at::matmul(input, kernel);
    if (options_.use_bias) output = output + value_of(bias_);
    return activate(options_.activation, output);
  }

 private:
  int64_t units_;
  DenseOptions options_;
  Variable kernel_;
  Variable bias_;
};

class Conv2DImpl : public LayerImpl {
 public:
  Conv2DImpl(int64_t filters, Size2 kernel_size, const Conv2DOptions& options)
      : LayerImpl("Conv2D", options.name, options.input_shape),
        filters_(filters),
        kernel_size_(kernel_size),
        options_(options),
        same_(is_same(*this, options.padding)) {
    for (auto [what, value] : {std::pair{"filters", filters},
                               {"kernel_size", kernel_size.height},
                               {"kernel_size", kernel_size.width},
                               {"strides", options.strides.height},
                               {"strides", options.strides.width},
                               {"dilation_rate", options.dilation_rate.height},
                               {"dilation_rate", options.dilation_rate.width},
                               {"groups", options.groups}}) {
      check_positive(*this, what, value);
    }
  }
  std::string class_name() const override { return "Conv2D"; }
  std::string config() const override {
    Json json = base_config(*this);
    json.update({{"filters", filters_},
                 {"kernel_size", to_json(kernel_size_)},
                 {"strides", to_json(options_.strides)},
                 {"padding", options_.padding},
                 {"dilation_rate", to_json(options_.dilation_rate)},
                 {"groups", options_.groups},
                 {"activation", options_.activation.name()},
                 {"use_bias", options_.use_bias},
                 {"kernel_initializer", to_json(options_.kernel_initializer)},
                 {"bias_initializer", to_json(options_.bias_initializer)},
                 {"kernel_regularizer", to_json(options_.kernel_regularizer)},
                 {"bias_regularizer", to_json(options_.bias_regularizer)}});
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    check_image(*this, input);
    if (input[3] % options_.groups != 0 || filters_ % options_.groups != 0) {
      throw InvalidArgument(cat("Conv2D [", name(), "]: ", input[3], " channels and ", filters_,
                                " filters in ", options_.groups,
                                " groups, expected both to divide by the groups"));
    }
    return {input[0],
            window_output(*this, input[1], kernel_size_.height, options_.strides.height,
                          options_.dilation_rate.height, same_),
            window_output(*this, input[2], kernel_size_.width, options_.strides.width,
                          options_.dilation_rate.width, same_),
            filters_};
  }

 protected:
  bool has_weights() const override { return true; }
  void build(const Shape& input) override {
    kernel_ = add_weight(
        {.name = "kernel",
         .shape = {kernel_size_.height, kernel_size_.width, input[3] / options_.groups, filters_},
         .initializer = options_.kernel_initializer,
         .regularizer = options_.kernel_regularizer,
         .storage_order = kernel_storage_order()});
    if (options_.use_bias) {
      bias_ = add_weight({.name = "bias",
                          .shape = {filters_},
                          .initializer = options_.bias_initializer,
                          .regularizer = options_.bias_regularizer});
    }
  }
  Tensor call(const Tensor& input, bool training) override {
    if (input.dim() != 4 || input.size(3) != kernel_.sizes()[2] * options_.groups) {
      throw InvalidArgument(cat("Conv2D [", name(), "]: input of shape ", shape_text(input.sizes()),
                                ", expected (batch, height, width, ",
                                kernel_.sizes()[2] * options_.groups,
                                "), the channels that it was built with"));
    }
    Tensor images = to_channels_first(input);
    std::array<int64_t, 2> padding{0, 0};
    if (same_) {
      const Padding rows = same_padding(input.size(1), kernel_size_.height, options_.strides.height,
                                        options_.dilation_rate.height);
      const Padding columns = same_padding(input.size(2), kernel_size_.width,
                                           options_.strides.width, options_.dilation_rate.width);
      if (rows.before == rows.after && columns.before == columns.after) {
        padding = {rows.before, columns.before};
      } else {
        images =
            at::constant_pad_nd(images, {columns.before, columns.after, rows.before, rows.after});
      }
    }
    const Tensor output =
        at::conv2d(images, value_of(kernel_).permute({3, 2, 0, 1}),
                   options_.use_bias ? value_of(bias_) : Tensor(),
                   {options_.strides.height, options_.strides.width}, padding,
                   {options_.dilation_rate.height, options_.dilation_rate.width}, options_.groups);
    return to_channels_last(activate(options_.activation, output));
  }

 private:
  int64_t filters_;
  Size2 kernel_size_;
  Conv2DOptions options_;
  bool same_;
  Variable kernel_;
  Variable bias_;
};

}  // namespace

Dense::Dense(int64_t units, const DenseOptions& options)
    : Layer(std::make_shared<DenseImpl>(units, options)) {}
Conv2D::Conv2D(int64_t filters, Size2 kernel_size, const Conv2DOptions& options)
    : Layer(std::make_shared<Conv2DImpl>(filters, kernel_size, options)) {}

namespace {

Layer dense_from(const Json& json, const LayerBase& base) {
  DenseOptions options;
  options.activation = member<std::string>(json, "activation", "linear");
  options.use_bias = member<bool>(json, "use_bias", true);
  options.kernel_initializer =
      initializer_from(json, "kernel_initializer", options.kernel_initializer);
  options.bias_initializer = initializer_from(json, "bias_initializer", options.bias_initializer);
  options.kernel_regularizer = regularizer_from(json, "kernel_regularizer");
  options.bias_regularizer = regularizer_from(json, "bias_regularizer");
  options.name = base.name;
  options.input_shape = base.input_shape;
  return Dense(member<int64_t>(json, "units", 0), options);
}

Layer conv2d_from(const Json& json, const LayerBase& base) {
  Conv2DOptions options;
  options.strides = size_from(json, "strides", 1);
  options.padding = member<std::string>(json, "padding", "valid");
  options.dilation_rate = size_from(json, "dilation_rate", 1);
  options.groups = member<int64_t>(json, "groups", 1);
  options.activation = member<std::string>(json, "activation", "linear");
  options.use_bias = member<bool>(json, "use_bias", true);
  options.kernel_initializer =
      initializer_from(json, "kernel_initializer", options.kernel_initializer);
  options.bias_initializer = initializer_from(json, "bias_initializer", options.bias_initializer);
  options.kernel_regularizer = regularizer_from(json, "kernel_regularizer");
  options.bias_regularizer = regularizer_from(json, "bias_regularizer");
  options.name = base.name;
  options.input_shape = base.input_shape;
  return Conv2D(member<int64_t>(json, "filters", 0), size_from(json, "kernel_size", 1), options);
}

constexpr LayerEntry kKernelLayers[] = {{"Dense", dense_from}, {"Conv2D", conv2d_from}};

}  // namespace

LayerFamily kernel_layers() { return kKernelLayers; }

}  // namespace tutti::keras::layers
