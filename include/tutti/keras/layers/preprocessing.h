#pragma once
// Layers that get numbers and images ready for a model.
//
// They stand in models and in `dataset.map` alike; there they may be given one sample without a
// batch axis. What `adapt` learns is the same for all replicas; call it outside them, before or in
// the scope of a strategy, before the layer is used. It takes a tensor, or a dataset of batches
// (tuples: their first component), `steps` of them or all.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/data/dataset.h"
#include "tutti/keras/layer.h"

namespace tutti::keras::layers {

struct NormalizationOptions {
  /// Axes that have a mean and a variance for each of their entries; the others are taken together.
  /// Empty: one mean and one variance in all.
  std::vector<int64_t> axis = {-1};
  /// One number for all, one for each entry of the last such axis, or one for each combination of
  /// entries. Empty: adapt finds them.
  std::vector<double> mean = {};
  std::vector<double> variance = {};
  /// True: from normalised numbers back.
  bool invert = false;
  std::string name = "";
  Shape input_shape = {};
};
/// (x - mean) / max(sqrt(variance), 1e-7). Weights, not trained: mean 0, variance 1 and count.
class Normalization : public Layer {
 public:
  explicit Normalization(const NormalizationOptions& options = {});
  /// Another layer's handle, made by layer_from_config, say; InvalidArgument for other classes.
  explicit Normalization(const Layer& layer);
  /// Mean and biased variance of everything given, in double precision.
  void adapt(const Tensor& data) const;
  void adapt(const data::Dataset<Nest>& data, std::optional<int64_t> steps = std::nullopt) const;
};

struct CategoryEncodingOptions {
  /// "one_hot": for each index; "multi_hot" and "count": for the last axis together.
  std::string output_mode = "multi_hot";
  std::string name = "";
  Shape input_shape = {};
};
/// Indices [batch, n] → float [batch, num_tokens], "one_hot" [batch, n, num_tokens] ([batch,
/// num_tokens] when n is 1). With "count" a second input holds what each index counts.
/// InvalidArgument for indices outside [0, num_tokens) (on GPUs they are left out).
class CategoryEncoding : public Layer {
 public:
  explicit CategoryEncoding(int64_t num_tokens, const CategoryEncodingOptions& options = {});
};

struct DiscretizationOptions {
  /// Rising; bin i holds what is at least boundary i - 1 and below boundary i.
  std::vector<double> bin_boundaries = {};
  /// Instead of boundaries: adapt finds those of so many bins of equal weight.
  std::optional<int64_t> num_bins = std::nullopt;
  /// Of adapt: the share of the data that one kept number stands for.
  double epsilon = 0.01;
  /// "int" (int32), or as CategoryEncoding's.
  std::string output_mode = "int";
  std::string name = "";
  Shape input_shape = {};
};
/// Numbers → the bins in which they lie.
class Discretization : public Layer {
 public:
  explicit Discretization(const DiscretizationOptions& options);
  explicit Discretization(const Layer& layer);
  void adapt(const Tensor& data) const;
  void adapt(const data::Dataset<Nest>& data, std::optional<int64_t> steps = std::nullopt) const;
  std::vector<double> bin_boundaries() const;
};

struct ResizingOptions {
  /// "bilinear" or "nearest", both with half-pixel centres.
  std::string interpolation = "bilinear";
  /// True: what does not fit the target's aspect ratio is cut off around the middle first.
  bool crop_to_aspect_ratio = false;
  /// True: `fill_value` is put around the image first, until its aspect ratio fits.
  bool pad_to_aspect_ratio = false;
  double fill_value = 0;
  std::string name = "";
  Shape input_shape = {};
};
/// Images [batch, height, width, channels]. Integers stay integers, rounded.
class Resizing : public Layer {
 public:
  Resizing(int64_t height, int64_t width, const ResizingOptions& options = {});
};

struct CenterCropOptions {
  std::string name = "";
  Shape input_shape = {};
};
/// The middle of each image; images that are too small are cut to the aspect ratio and resized.
class CenterCrop : public Layer {
 public:
  CenterCrop(int64_t height, int64_t width, const CenterCropOptions& options = {});
};

}  // namespace tutti::keras::layers
