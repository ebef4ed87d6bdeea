#include "tutti/keras/layers/wrappers.h"

#include "keras/layers/nested.h"
#include "tutti/distribute/replica_context.h"

namespace tutti::keras::layers {

WrapperImpl::WrapperImpl(const std::string& class_name, const Layer& layer,
                         const LayerOptions& options)
    : LayerImpl(class_name, options.name, options.input_shape), layer_(layer) {
  if (layer_.impl() == nullptr)
    throw InvalidArgument(
        cat(class_name, " [", name(), "]: an empty handle, expected a layer to stand around"));
  track(layer_.impl());
  if (!options.dtype.empty()) set_dtype_policy(options.dtype);
  if (!options.trainable) set_trainable(false);
}

std::string WrapperImpl::config() const {
  Json json = base_config(*this);
  json["layer"] = nested_json(*layer_);
  return json.dump();
}
Layer WrapperImpl::wrapped_layer(const std::string& config) {
  return nested_layer(parse_object("wrapper", config), "layer", {});
}

std::vector<Shape> WrapperImpl::compute_output_shapes(const std::vector<Shape>& inputs) const {
  return layer_->compute_output_shapes(inputs);
}
Tensor WrapperImpl::compute_mask(const std::vector<Tensor>& inputs,
                                 const CallArguments& arguments) const {
  return layer_->compute_mask(inputs, arguments);
}
void WrapperImpl::build_all(const std::vector<Shape>& inputs) {
  build_inside(*this, *layer_, inputs);
}
std::vector<Tensor> WrapperImpl::call_all(const std::vector<Tensor>& inputs,
                                          const CallArguments& arguments) {
  return layer_.call_all(inputs, arguments);
}

namespace {

/// x / |x|, with Keras' bound on 1 / |x|.
Tensor unit(const Tensor& x) { return x * x.square().sum().rsqrt().clamp_max(1e7); }

class SpectralNormalizationImpl final : public WrapperImpl {
 public:
  SpectralNormalizationImpl(const Layer& layer, const SpectralNormalizationOptions& options)
      : WrapperImpl("SpectralNormalization", layer,
                    {options.name, options.trainable, options.dtype, options.input_shape}),
        power_iterations_(options.power_iterations) {
    check_count(*this, "power_iterations", power_iterations_);
  }
  std::string class_name() const override { return "SpectralNormalization"; }
  std::string config() const override {
    Json json = Json::parse(WrapperImpl::config());
    json["power_iterations"] = power_iterations_;
    return json.dump();
  }

 protected:
  bool has_weights() const override { return true; }
  void build_all(const std::vector<Shape>& inputs) override {
    WrapperImpl::build_all(inputs);
    for (const Variable& weight : layer()->weights()) {
      const std::string own = cat(name(), "/", layer()->name(), "/");
      if (weight.name() == own + "kernel" || weight.name() == own + "embeddings") kernel_ = weight;
    }
    if (!kernel_.defined()) {
      throw InvalidArgument(cat(head(*this), "a layer ", layer()->class_name(),
                                ", expected one with a weight \"kernel\" or \"embeddings\""));
    }
    vector_u_ = add_weight({.name = "vector_u",
                            .shape = {1, kernel_.sizes().back()},
                            .initializer = initializers::TruncatedNormal(0, 0.02),
                            .trainable = false,
                            .dtype = kernel_.dtype()});
    // A layer called twice in a step changes the kernel between the first call and its gradient.
    copy_weights_of(*layer());
  }
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) override {
    if (arguments.training)
      distribute::once_for_all_replicas("spectral normalization", [&] { divide_kernel(); });
    return WrapperImpl::call_all(inputs, arguments);
  }

 private:
  void divide_kernel() {
    at::NoGradGuard no_grad;
    const Tensor kernel = kernel_.read_value();
    const Tensor matrix = kernel.reshape({-1, kernel.size(-1)});
    const Tensor before = vector_u_.read_value();
    Tensor u = before, v;
    for (int64_t i = 0; i < power_iterations_; ++i) {
      v = unit(at::matmul(u, matrix.t()));
      u = unit(at::matmul(v, matrix));
    }
    const Tensor sigma = at::matmul(at::matmul(v, matrix), u.t()).squeeze();
    const Tensor any = matrix.ne(0).any();
    vector_u_.assign(at::where(any, u, before));
    kernel_.assign(at::where(any, kernel / sigma, kernel));
  }

  int64_t power_iterations_;
  Variable kernel_, vector_u_;
};

constexpr LayerEntry kWrappers[] = {
    {"SpectralNormalization", [](const Json& json, const LayerBase& base) -> Layer {
       return SpectralNormalization(
           nested_layer(json, "layer", base.limits),
           {.power_iterations = member<int64_t>(json, "power_iterations", 1),
            .name = base.name,
            .trainable = base.trainable,
            .input_shape = base.input_shape});
     }}};

}  // namespace

SpectralNormalization::SpectralNormalization(const Layer& layer,
                                             const SpectralNormalizationOptions& options)
    : Layer(std::make_shared<SpectralNormalizationImpl>(layer, options)) {}

LayerFamily wrapper_layers() { return kWrappers; }

}  // namespace tutti::keras::layers
