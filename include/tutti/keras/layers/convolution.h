#pragma once
// Convolutions over channels-last sequences, images and volumes.
//
// padding: "valid" lets the window stay inside; "same" pads so that there are size / strides
// outputs, rounded up, the extra entry at the end; "causal" (Conv1D) pads in front only. Input that
// the window does not fit, or whose channels are unknown, is InvalidArgument.

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/keras/layers/core.h"
#include "tutti/keras/layers/sizes.h"

namespace tutti::keras::layers {

template <class Size>
struct ConvOptions {
  Size strides = 1;
  std::string padding = "valid";
  Size dilation_rate = 1;
  int64_t groups = 1;
  keras::Activation activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
using Conv1DOptions = ConvOptions<int64_t>;
using Conv2DOptions = ConvOptions<Size2>;
using Conv3DOptions = ConvOptions<Size3>;

/// [N, T, C] → [N, T', filters]; kernel [w, C / groups, filters].
class Conv1D : public Layer {
 public:
  Conv1D(int64_t filters, int64_t kernel_size, const Conv1DOptions& options = {});
};
/// [N, H, W, C] → [N, H', W', filters]; kernel [h, w, C / groups, filters].
class Conv2D : public Layer {
 public:
  Conv2D(int64_t filters, Size2 kernel_size, const Conv2DOptions& options = {});
};
/// [N, D, H, W, C] → [N, D', H', W', filters]; kernel [d, h, w, C / groups, filters].
class Conv3D : public Layer {
 public:
  Conv3D(int64_t filters, Size3 kernel_size, const Conv3DOptions& options = {});
};

template <class Size>
struct ConvTransposeOptions {
  Size strides = 1;
  std::string padding = "valid";
  /// Unset: what makes the output size * strides long with "same", and the shortest that was wholly
  /// covered with "valid". Set: (size - 1) * strides + window + output_padding with "valid", and
  /// with "same" window % 2 in place of the window; it must leave a size that the convolution with
  /// these strides maps back to the input's (InvalidArgument).
  std::optional<Size> output_padding = std::nullopt;
  Size dilation_rate = 1;
  keras::Activation activation = {};
  bool use_bias = true;
  Initializer kernel_initializer = initializers::GlorotUniform();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
using Conv1DTransposeOptions = ConvTransposeOptions<int64_t>;
using Conv2DTransposeOptions = ConvTransposeOptions<Size2>;
using Conv3DTransposeOptions = ConvTransposeOptions<Size3>;

/// The gradient of a convolution by its input, as a layer; kernel [w, filters, C].
class Conv1DTranspose : public Layer {
 public:
  Conv1DTranspose(int64_t filters, int64_t kernel_size, const Conv1DTransposeOptions& options = {});
};
/// Kernel [h, w, filters, C].
class Conv2DTranspose : public Layer {
 public:
  Conv2DTranspose(int64_t filters, Size2 kernel_size, const Conv2DTransposeOptions& options = {});
};
/// Kernel [d, h, w, filters, C].
class Conv3DTranspose : public Layer {
 public:
  Conv3DTranspose(int64_t filters, Size3 kernel_size, const Conv3DTransposeOptions& options = {});
};

template <class Size>
struct DepthwiseConvOptions {
  Size strides = 1;
  std::string padding = "valid";
  int64_t depth_multiplier = 1;
  Size dilation_rate = 1;
  keras::Activation activation = {};
  bool use_bias = true;
  Initializer depthwise_initializer = initializers::GlorotUniform();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer depthwise_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint depthwise_constraint = {};
  Constraint bias_constraint = {};
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
using DepthwiseConv1DOptions = DepthwiseConvOptions<int64_t>;
using DepthwiseConv2DOptions = DepthwiseConvOptions<Size2>;

/// Each channel by depth_multiplier windows of its own: [N, T, C] → [N, T', C * depth_multiplier];
/// kernel [w, C, depth_multiplier].
class DepthwiseConv1D : public Layer {
 public:
  explicit DepthwiseConv1D(int64_t kernel_size, const DepthwiseConv1DOptions& options = {});
};
/// Kernel [h, w, C, depth_multiplier].
class DepthwiseConv2D : public Layer {
 public:
  explicit DepthwiseConv2D(Size2 kernel_size, const DepthwiseConv2DOptions& options = {});
};

template <class Size>
struct SeparableConvOptions {
  Size strides = 1;
  std::string padding = "valid";
  Size dilation_rate = 1;
  int64_t depth_multiplier = 1;
  keras::Activation activation = {};
  bool use_bias = true;
  Initializer depthwise_initializer = initializers::GlorotUniform();
  Initializer pointwise_initializer = initializers::GlorotUniform();
  Initializer bias_initializer = initializers::Zeros();
  Regularizer depthwise_regularizer = {};
  Regularizer pointwise_regularizer = {};
  Regularizer bias_regularizer = {};
  Regularizer activity_regularizer = {};
  Constraint depthwise_constraint = {};
  Constraint pointwise_constraint = {};
  Constraint bias_constraint = {};
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
using SeparableConv1DOptions = SeparableConvOptions<int64_t>;
using SeparableConv2DOptions = SeparableConvOptions<Size2>;

/// A depthwise convolution, then one of window 1: depthwise_kernel [w, C, depth_multiplier],
/// pointwise_kernel [1, C * depth_multiplier, filters].
class SeparableConv1D : public Layer {
 public:
  SeparableConv1D(int64_t filters, int64_t kernel_size, const SeparableConv1DOptions& options = {});
};
class SeparableConv2D : public Layer {
 public:
  SeparableConv2D(int64_t filters, Size2 kernel_size, const SeparableConv2DOptions& options = {});
};

using Convolution1D = Conv1D;
using Convolution2D = Conv2D;
using Convolution3D = Conv3D;
using Convolution1DTranspose = Conv1DTranspose;
using Convolution2DTranspose = Conv2DTranspose;
using Convolution3DTranspose = Conv3DTranspose;
using SeparableConvolution1D = SeparableConv1D;
using SeparableConvolution2D = SeparableConv2D;

}  // namespace tutti::keras::layers
