#pragma once
// Windows, sizes and places of images [batch, height, width, channels].

#include <string>

#include "keras/layers/nested.h"

namespace tutti::keras::layers {

/// InvalidArgument unless [batch, height, width, channels] or one image without the batch axis.
void check_images(const LayerImpl& layer, const Shape& input);
Shape resized_shape(const LayerImpl& layer, const Shape& input, const Size2& size);
/// A batch of one for one image.
inline Tensor as_batch(const Tensor& images) {
  return images.dim() == 3 ? images.unsqueeze(0) : images;
}
inline Tensor like_given(const Tensor& batch, const Tensor& given) {
  return given.dim() == 3 ? batch.squeeze(0) : batch;
}

/// "bilinear" or "nearest" with half-pixel centres; floats.
Tensor resize(const Tensor& images, const Size2& size, const std::string& interpolation);
/// The largest window of the target's aspect ratio around the middle.
Tensor cut_to_aspect_ratio(const Tensor& images, const Size2& size);

struct Transformation {
  std::string interpolation;
  std::string fill_mode;
  double fill_value;
};
/// Output (x, y) of image n shows what is at (a0 x + a1 y + a2, b0 x + b1 y + b2), a and b being
/// rows n of `matrices` [batch, 6]; TensorFlow's ImageProjectiveTransformV3.
Tensor transform(const Tensor& images, const Tensor& matrices, const Transformation& how);

}  // namespace tutti::keras::layers
