#pragma once
// Losses with Keras' numbers: per-sample values, sample weights, reductions.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::keras::losses {

enum class Reduction { kSumOverBatchSize, kSum, kNone, kMean, kMeanWithSampleWeight };
std::string to_string(Reduction reduction);
Reduction reduction_from_name(const std::string& name);

/// A handle; copies share the implementation, which no call changes: any thread may call it.
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
  /// By the name of a class ("MeanSquaredError"), of a function ("mean_squared_error") or a short
  /// form ("mse", "mae", "mape", "msle", "bce", "kld"); InvalidArgument lists them for another one.
  Loss(const std::string& name);                       // NOLINT: `.loss = "mse"`
  Loss(const char* name) : Loss(std::string(name)) {}  // NOLINT

  /// Reduced as the loss says. Inside replicas a mean would divide by the replica's share alone:
  /// with more than one replica it is InvalidArgument that asks for SUM or NONE.
  Tensor operator()(const Tensor& y_true, const Tensor& y_pred,
                    const Tensor& sample_weight = {}) const;
  /// One value a sample, unweighted; a scalar where the loss is one of the whole batch. Predictions
  /// that are neither float32 nor float64 are taken as float32. Wrong shapes are InvalidArgument
  /// with both shapes. A batch without rows has no loss: a scalar is 0 then.
  Tensor per_sample(const Tensor& y_true, const Tensor& y_pred) const;
  /// True where a sample counts (its label is not `ignore_class`, say), of per_sample's shape;
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
/// an axis may be 1; a scalar value takes weights of any shape. InvalidArgument for other shapes:
/// [B] does not fit [B, steps].
Tensor apply_weights(const Tensor& values, const Tensor& sample_weight);
/// The weights that leave out what `mask` (bool, true where a value counts) leaves out, of `dtype`.
/// For the means that divide by a number of values they are scaled by all / valid, so that the mean
/// over all values is the one over the valid ones; the other reductions take the mask as it is.
/// Undefined where both are.
Tensor apply_mask(const Tensor& sample_weight, const Tensor& mask, at::ScalarType dtype,
                  Reduction reduction);
/// Weighted and reduced as Keras does: means divide by the number of values (of valid ones), not by
/// the sum of weights, but for kMeanWithSampleWeight. Nothing to divide by gives 0; a scalar, with
/// its weight, is not divided.
Tensor reduce_weighted(const Tensor& values, const Tensor& sample_weight, Reduction reduction,
                       const Tensor& valid = {});

// ---- Options. An empty name stands for the name of the function ("huber_loss" for Huber). The
// functions further down take the same options, but for reduction and name.

struct LossOptions {
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = "";
};
struct CosineSimilarityOptions {
  int64_t axis = -1;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = "";
};
struct HuberOptions {
  double delta = 1.0;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = "";
};
struct CrossentropyOptions {
  bool from_logits = false;
  double label_smoothing = 0;
  int64_t axis = -1;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = "";
};
struct SparseCategoricalCrossentropyOptions {
  bool from_logits = false;
  std::optional<int64_t> ignore_class = std::nullopt;
  Reduction reduction = Reduction::kSumOverBatchSize;
  int64_t axis = -1;
  std::string name = "";
};
struct BinaryFocalCrossentropyOptions {
  bool apply_class_balancing = false;
  double alpha = 0.25;
  double gamma = 2.0;
  bool from_logits = false;
  double label_smoothing = 0;
  int64_t axis = -1;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = "";
};
struct CategoricalFocalCrossentropyOptions {
  double alpha = 0.25;
  double gamma = 2.0;
  bool from_logits = false;
  double label_smoothing = 0;
  int64_t axis = -1;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = "";
};
struct CategoricalGeneralizedCrossEntropyOptions {
  double q = 0.5;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = "";
};
struct DiceOptions {
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = "";
  /// Axes to sum over; unset: all, which gives one value a batch.
  std::optional<std::vector<int64_t>> axis = std::nullopt;
};
struct TverskyOptions {
  double alpha = 0.5;
  double beta = 0.5;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = "";
  std::optional<std::vector<int64_t>> axis = std::nullopt;
};
struct CircleOptions {
  double gamma = 80;
  double margin = 0.4;
  bool remove_diagonal = true;
  Reduction reduction = Reduction::kSumOverBatchSize;
  std::string name = "";
};

// ---- Functions: the unreduced values, with Keras 3's formulas. Labels are converted to the
// predictions' dtype; shapes must agree after same_rank (InvalidArgument), and the last axis is the
// one that is averaged or summed unless an axis is given. y is y_true, p is y_pred, e = 1e-7.

/// mean((y - p)^2)
Tensor mean_squared_error(const Tensor& y_true, const Tensor& y_pred);
/// mean(|y - p|)
Tensor mean_absolute_error(const Tensor& y_true, const Tensor& y_pred);
/// 100 mean(|y - p| / max(|y|, e))
Tensor mean_absolute_percentage_error(const Tensor& y_true, const Tensor& y_pred);
/// mean((log(max(y, e) + 1) - log(max(p, e) + 1))^2)
Tensor mean_squared_logarithmic_error(const Tensor& y_true, const Tensor& y_pred);
/// -sum(y / |y| * p / |p|): -1 where both point the same way, 0 for a row of zeros. (To be called
/// as losses::cosine_similarity: LibTorch has one of its own.)
Tensor cosine_similarity(const Tensor& y_true, const Tensor& y_pred, int64_t axis = -1);
/// mean(d^2 / 2) where d = |y - p| <= delta, else delta (d - delta / 2)
Tensor huber(const Tensor& y_true, const Tensor& y_pred, double delta = 1.0);
/// mean(log(cosh(p - y)))
Tensor log_cosh(const Tensor& y_true, const Tensor& y_pred);
/// mean(p - y log(p + e))
Tensor poisson(const Tensor& y_true, const Tensor& y_pred);
/// sum(y log(y / p)), both clipped to [e, 1]
Tensor kl_divergence(const Tensor& y_true, const Tensor& y_pred);
/// mean(max(1 - y p, 0)); labels that are all 0 or 1 become -1 or 1.
Tensor hinge(const Tensor& y_true, const Tensor& y_pred);
/// mean(max(1 - y p, 0)^2); labels as in hinge.
Tensor squared_hinge(const Tensor& y_true, const Tensor& y_pred);
/// max(max((1 - y) p) - sum(y p) + 1, 0)
Tensor categorical_hinge(const Tensor& y_true, const Tensor& y_pred);
/// mean(-y log(p) - (1 - y) log(1 - p)), p clipped to [e, 1 - e]; smoothing: y (1 - s) + s / 2.
Tensor binary_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                           const CrossentropyOptions& options = {});
/// binary_crossentropy's entries times (1 - p_t)^gamma, with p_t the probability of the label; with
/// class balancing also times alpha for label 1, 1 - alpha for label 0.
Tensor binary_focal_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                 const BinaryFocalCrossentropyOptions& options = {});
/// One-hot labels: -sum(y log(p)), p divided by the sum over its classes, then clipped to
/// [e, 1 - e]; smoothing: y (1 - s) + s / classes.
Tensor categorical_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                const CrossentropyOptions& options = {});
/// -sum(alpha (1 - p)^gamma y log(p)), p as in categorical_crossentropy.
Tensor categorical_focal_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                      const CategoricalFocalCrossentropyOptions& options = {});
/// Class numbers as labels, of the predictions' shape without the class axis, or with 1 there;
/// InvalidArgument shows the range of labels that are no class. Entries of `ignore_class` are 0.
Tensor sparse_categorical_crossentropy(const Tensor& y_true, const Tensor& y_pred,
                                       const SparseCategoricalCrossentropyOptions& options = {});
/// (1 - p_y^q) / q for class numbers y; q between 0 and 1.
Tensor categorical_generalized_cross_entropy(const Tensor& y_true, const Tensor& y_pred,
                                             double q = 0.5);
/// 1 - 2 sum(y p) / (sum(y) + sum(p) + e)
Tensor dice(const Tensor& y_true, const Tensor& y_pred,
            const std::optional<std::vector<int64_t>>& axis = std::nullopt);
/// 1 - sum(y p) / (sum(y p) + alpha sum((1 - p) y) + beta sum(p (1 - y)) + e)
Tensor tversky(const Tensor& y_true, const Tensor& y_pred, const TverskyOptions& options = {});
/// Circle loss of embeddings [B, dim] of length 1 with class numbers [B]: pairs of one class are
/// drawn together, others apart (Sun et al. 2020, with Keras' weights). The pairs are those with
/// `ref_embeddings` and `ref_labels`, or with the batch itself. 0 for a row without a pair of both
/// kinds; such rows do not count in a mean.
Tensor circle(const Tensor& y_true, const Tensor& y_pred, const CircleOptions& options = {},
              const Tensor& ref_labels = {}, const Tensor& ref_embeddings = {});
/// Connectionist temporal classification of logits [B, steps, classes] with labels [B, length],
/// padded by the blank 0 at their ends. Infinity where the labels do not fit into the steps.
Tensor ctc(const Tensor& y_true, const Tensor& y_pred);

// ---- Classes: the functions, reduced.

class MeanSquaredError : public Loss {
 public:
  explicit MeanSquaredError(const LossOptions& options = {});
};
class MeanAbsoluteError : public Loss {
 public:
  explicit MeanAbsoluteError(const LossOptions& options = {});
};
class MeanAbsolutePercentageError : public Loss {
 public:
  explicit MeanAbsolutePercentageError(const LossOptions& options = {});
};
class MeanSquaredLogarithmicError : public Loss {
 public:
  explicit MeanSquaredLogarithmicError(const LossOptions& options = {});
};
class CosineSimilarity : public Loss {
 public:
  explicit CosineSimilarity(const CosineSimilarityOptions& options = {});
};
class Huber : public Loss {
 public:
  explicit Huber(const HuberOptions& options = {});
};
class LogCosh : public Loss {
 public:
  explicit LogCosh(const LossOptions& options = {});
};
class Poisson : public Loss {
 public:
  explicit Poisson(const LossOptions& options = {});
};
class KLDivergence : public Loss {
 public:
  explicit KLDivergence(const LossOptions& options = {});
};
class Hinge : public Loss {
 public:
  explicit Hinge(const LossOptions& options = {});
};
class SquaredHinge : public Loss {
 public:
  explicit SquaredHinge(const LossOptions& options = {});
};
class CategoricalHinge : public Loss {
 public:
  explicit CategoricalHinge(const LossOptions& options = {});
};
class BinaryCrossentropy : public Loss {
 public:
  explicit BinaryCrossentropy(const CrossentropyOptions& options = {});
};
class BinaryFocalCrossentropy : public Loss {
 public:
  explicit BinaryFocalCrossentropy(const BinaryFocalCrossentropyOptions& options = {});
};
class CategoricalCrossentropy : public Loss {
 public:
  explicit CategoricalCrossentropy(const CrossentropyOptions& options = {});
};
class CategoricalFocalCrossentropy : public Loss {
 public:
  explicit CategoricalFocalCrossentropy(const CategoricalFocalCrossentropyOptions& options = {});
};
class SparseCategoricalCrossentropy : public Loss {
 public:
  explicit SparseCategoricalCrossentropy(const SparseCategoricalCrossentropyOptions& options = {});
};
class CategoricalGeneralizedCrossEntropy : public Loss {
 public:
  explicit CategoricalGeneralizedCrossEntropy(
      const CategoricalGeneralizedCrossEntropyOptions& options = {});
};
class Dice : public Loss {
 public:
  explicit Dice(const DiceOptions& options = {});
};
class Tversky : public Loss {
 public:
  explicit Tversky(const TverskyOptions& options = {});
};
class Circle : public Loss {
 public:
  explicit Circle(const CircleOptions& options = {});
};
class CTC : public Loss {
 public:
  explicit CTC(const LossOptions& options = {});
};

/// A user's function as a loss: `function(y_true, y_pred)` with both of one rank, reduced like the
/// others. It gives one value a sample, or a scalar, which is taken as it is: by `fit` as the loss
/// of its replica's rows, so that over replicas such losses are averaged by their rows.
///
/// Any replica thread may call the function. The name of a loss from a file is not enough to make
/// it again: from_config is InvalidArgument.
class LossFunctionWrapper : public Loss {
 public:
  explicit LossFunctionWrapper(std::function<Tensor(const Tensor&, const Tensor&)> function,
                               const LossOptions& options = {});
};
/// The same by its name.
Loss from_function(std::function<Tensor(const Tensor&, const Tensor&)> function,
                   const std::string& name);

}  // namespace tutti::keras::losses
