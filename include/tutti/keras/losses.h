#pragma once
// Losses with Keras' numbers: per-sample values, sample weights, reductions.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tutti/tensor/tensor.h"

namespace tutti::keras::losses {

enum class Reduction { kSumOverBatchSize, kSum, kNone, kMean, kMeanWithSampleWeight };
std::string to_string(Reduction reduction);
Reduction reduction_from_name(const std::string& name);

/// A handle; copies share the implementation.
class Loss {
 public:
  class Impl {
   public:
    Impl(std::string name, Reduction reduction) : name(std::move(name)), reduction(reduction) {}
    virtual ~Impl() = default;
    virtual std::string class_name() const = 0;
    /// JSON object text of the arguments.
    virtual std::string config() const = 0;
    virtual Tensor per_sample(const Tensor& y_true, const Tensor& y_pred) const = 0;
    /// True where a sample counts, of per_sample's shape; undefined: all do.
    virtual Tensor valid(const Tensor& y_true, const Tensor& y_pred) const { return {}; }
    std::string name;
    Reduction reduction;
  };
  Loss() = default;
  Loss(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}  // NOLINT
  /// "mse", "mean_squared_error", "mae", "binary_crossentropy", "categorical_crossentropy",
  /// "sparse_categorical_crossentropy"; InvalidArgument lists them for another name.
  Loss(const std::string& name);                       // NOLINT: `.loss = "mse"`
  Loss(const char* name) : Loss(std::string(name)) {}  // NOLINT

  /// Reduced as the loss says. Inside replicas a mean would divide by the replica's share alone:
  /// with more than one replica it is InvalidArgument that asks for SUM or NONE.
  Tensor operator()(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight = {}) const;
  /// One value a sample, unweighted. Wrong shapes are InvalidArgument with both shapes.
  Tensor per_sample(const Tensor& y_true, const Tensor& y_pred) const;
  /// True where a sample counts (its label is not `ignore_class`), of per_sample's shape;
  /// undefined: all do.
  Tensor valid(const Tensor& y_true, const Tensor& y_pred) const {
    return impl_->valid(y_true, y_pred);
  }
  bool defined() const { return impl_ != nullptr; }
  Reduction reduction() const { return impl_->reduction; }
  const std::string& name() const { return impl_->name; }
  std::string class_name() const { return impl_->class_name(); }
  std::string config() const { return impl_->config(); }
  static Loss from_config(const std::string& class_name, const std::string& config);

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Two tensors of one rank, where they differ by a last axis of 1: with [B] and [B, 1] both become
/// [B, 1], else the axis is dropped.
std::pair<Tensor, Tensor> same_rank(const Tensor& y_true, const Tensor& y_pred);
/// `values` times the weights (undefined: 1): a scalar, or after same_rank the values' shape, where
/// an axis may be 1. InvalidArgument for other shapes: [B] does not fit [B, steps].
Tensor apply_weights(const Tensor& values, const Tensor& sample_weight);
/// Weighted and reduced as Keras does: means divide by the number of values (of valid ones), not by
/// the sum of weights, but for kMeanWithSampleWeight. Nothing to divide by gives 0.
Tensor reduce_weighted(const Tensor& values, const Tensor& sample_weight, Reduction reduction,
                       const Tensor& valid = {});

struct LossOptions {
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = "";
};
/// mean((y_true - y_pred)^2) over the last axis.
class MeanSquaredError : public Loss {
 public:
  explicit MeanSquaredError(const LossOptions& options = {});
};
/// mean(|y_true - y_pred|) over the last axis.
class MeanAbsoluteError : public Loss {
 public:
  explicit MeanAbsoluteError(const LossOptions& options = {});
};

struct CrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = "";
};
/// Labels 0 or 1 for each entry; mean over the last axis. Probabilities are clipped to [1e-7, 1 -
/// 1e-7].
class BinaryCrossentropy : public Loss {
 public:
  explicit BinaryCrossentropy(const CrossentropyOptions& options = {});
};
/// One-hot labels. Probabilities are divided by their sum, then clipped.
class CategoricalCrossentropy : public Loss {
 public:
  explicit CategoricalCrossentropy(const CrossentropyOptions& options = {});
};

struct SparseCategoricalCrossentropyOptions {
  bool from_logits = false;
  std::optional<int64_t> ignore_class = std::nullopt;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = "";
};
/// Class numbers as labels, [B] or [B, 1] for predictions [B, classes].
class SparseCategoricalCrossentropy : public Loss {
 public:
  explicit SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options = {});
};

}  // namespace tutti::keras::losses
