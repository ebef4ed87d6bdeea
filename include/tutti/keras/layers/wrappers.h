#pragma once
// Layers around one other layer.

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/keras/layers/core.h"

namespace tutti::keras::layers {

/// Base of layers around one other layer, which a user may derive from: it has the other's weights
/// (their names begin with its own), losses, shapes and masks, and its call is the other's until
/// call_all is overridden.
class WrapperImpl : public LayerImpl {
 public:
  /// InvalidArgument for an empty handle.
  WrapperImpl(const std::string& class_name, const Layer& layer, const LayerOptions& options = {});
  const Layer& layer() const { return layer_; }
  /// The arguments of every layer, and "layer": wrapped_layer gives it again.
  std::string config() const override;
  static Layer wrapped_layer(const std::string& config);
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override;
  Tensor compute_mask(const std::vector<Tensor>& inputs,
                      const CallArguments& arguments) const override;
  bool supports_masking() const override { return layer_->supports_masking(); }
  bool uses_masks() const override { return layer_->uses_masks(); }

 protected:
  bool autocasts() const override { return false; }  // the layer inside decides
  void build_all(const std::vector<Shape>& inputs) override;
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) override;

 private:
  Layer layer_;
};

struct SpectralNormalizationOptions {
  /// At least 1 (InvalidArgument).
  int64_t power_iterations = 1;
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// Divides, in each training call and before it, the weight "kernel" of `layer`, or "embeddings",
/// by its largest singular value (Miyato et al., 2018), so that the layer is 1-Lipschitz but for
/// its bias. The value is estimated by power iterations from the weight "vector_u" [1, channels],
/// which goes on from call to call: u = |v W|, v = |u W^T|, sigma = v W u^T. A kernel of zeros
/// stays. Replicas do it once for all of them. The gradient is that at the divided kernel.
/// InvalidArgument, when it is built, for a layer with neither weight.
class SpectralNormalization : public Layer {
 public:
  explicit SpectralNormalization(const Layer& layer,
                                 const SpectralNormalizationOptions& options = {});
};

}  // namespace tutti::keras::layers
