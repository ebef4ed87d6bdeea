#pragma once
// Optimizers with Keras' formulas and defaults; g is the gradient, w the weight, t the update that
// is under way, from 1. Arguments that all of them have: optimizers/optimizer.h.
//
// Gradients of lookups (nn::embedding_lookup) stay rows. Numbers are those of the dense gradients:
// SGD without momentum and Adagrad, both without weight decay, leave rows that nobody looked up
// alone; all others move them, as zero gradients do.

#include <optional>
#include <string>
#include <vector>

#include "tutti/keras/optimizers/optimizer.h"
#include "tutti/keras/optimizers/wrappers.h"

namespace tutti::keras::optimizers {

struct SGDOptions {
  LearningRate learning_rate = 0.01;
  double momentum = 0;
  bool nesterov = false;
  std::optional<double> weight_decay = std::nullopt;
  TUTTI_OPTIMIZER_ARGUMENTS("SGD");
};
/// v = momentum v - lr g; w += v (nesterov: w += momentum v - lr g).
class SGD : public Optimizer {
 public:
  explicit SGD(const SGDOptions& options = {});
};

struct RMSpropOptions {
  LearningRate learning_rate = 0.001;
  double rho = 0.9;
  double momentum = 0;
  double epsilon = 1e-7;
  bool centered = false;
  std::optional<double> weight_decay = std::nullopt;
  TUTTI_OPTIMIZER_ARGUMENTS("rmsprop");
};
/// v = rho v + (1 - rho) g^2; w -= lr g / sqrt(v + epsilon) (centered: v less the squared mean
/// gradient).
class RMSprop : public Optimizer {
 public:
  explicit RMSprop(const RMSpropOptions& options = {});
};

struct AdamOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  std::optional<double> weight_decay = std::nullopt;
  TUTTI_OPTIMIZER_ARGUMENTS("adam");
};
/// w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + epsilon).
class Adam : public Optimizer {
 public:
  explicit Adam(const AdamOptions& options = {});
};

struct AdamWOptions {
  LearningRate learning_rate = 0.001;
  std::optional<double> weight_decay = 0.004;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  bool amsgrad = false;
  TUTTI_OPTIMIZER_ARGUMENTS("adamw");
};
/// Adam after w -= lr weight_decay w.
class AdamW : public Optimizer {
 public:
  explicit AdamW(const AdamWOptions& options = {});
};

struct AdamaxOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = std::nullopt;
  TUTTI_OPTIMIZER_ARGUMENTS("adamax");
};
/// u = max(b2 u, |g|); w -= lr m / ((1 - b1^t) (u + epsilon)).
class Adamax : public Optimizer {
 public:
  explicit Adamax(const AdamaxOptions& options = {});
};

struct NadamOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = std::nullopt;
  TUTTI_OPTIMIZER_ARGUMENTS("nadam");
};
/// u_t = b1 (1 - 0.96^t / 2), U_t = u_1 ... u_t;
/// w -= lr (u_(t+1) m / (1 - U_(t+1)) + (1 - u_t) g / (1 - U_t)) / (sqrt(v / (1 - b2^t)) +
/// epsilon).
class Nadam : public Optimizer {
 public:
  explicit Nadam(const NadamOptions& options = {});
};

struct AdagradOptions {
  LearningRate learning_rate = 0.001;
  double initial_accumulator_value = 0.1;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = std::nullopt;
  TUTTI_OPTIMIZER_ARGUMENTS("adagrad");
};
/// a += g^2; w -= lr g / sqrt(a + epsilon).
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(const AdagradOptions& options = {});
};

struct AdadeltaOptions {
  LearningRate learning_rate = 0.001;
  double rho = 0.95;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = std::nullopt;
  TUTTI_OPTIMIZER_ARGUMENTS("adadelta");
};
/// a = rho a + (1 - rho) g^2; x = sqrt(d + epsilon) / sqrt(a + epsilon) g;
/// d = rho d + (1 - rho) x^2; w -= lr x.
class Adadelta : public Optimizer {
 public:
  explicit Adadelta(const AdadeltaOptions& options = {});
};

struct FtrlOptions {
  LearningRate learning_rate = 0.001;
  double learning_rate_power = -0.5;
  double initial_accumulator_value = 0.1;
  double l1_regularization_strength = 0;
  double l2_regularization_strength = 0;
  double l2_shrinkage_regularization_strength = 0;
  double beta = 0;
  std::optional<double> weight_decay = std::nullopt;
  TUTTI_OPTIMIZER_ARGUMENTS("ftrl");
};
/// n' = n + g^2; z += g + 2 shrinkage w - (n'^-p - n^-p) / lr w, p the learning_rate_power;
/// w = (clip(z, -l1, l1) - z) / (n'^-p / lr + 2 l2 + beta / lr): the first update forgets the
/// initial weight. InvalidArgument for negative strengths, and for a power above 0.
class Ftrl : public Optimizer {
 public:
  explicit Ftrl(const FtrlOptions& options = {});
};

struct LionOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.99;
  std::optional<double> weight_decay = std::nullopt;
  TUTTI_OPTIMIZER_ARGUMENTS("lion");
};
/// w -= lr sign(b1 m + (1 - b1) g); m = b2 m + (1 - b2) g. One slot.
class Lion : public Optimizer {
 public:
  explicit Lion(const LionOptions& options = {});
};

struct LambOptions {
  LearningRate learning_rate = 0.001;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = std::nullopt;
  TUTTI_OPTIMIZER_ARGUMENTS("lamb");
};
/// r = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon); w -= lr |w| / |r| r, norms of the whole
/// variable, their ratio 1 when one of them is 0. Two passes over each variable.
class Lamb : public Optimizer {
 public:
  explicit Lamb(const LambOptions& options = {});
};

struct AdafactorOptions {
  LearningRate learning_rate = 0.001;
  double beta_2_decay = -0.8;
  double epsilon_1 = 1e-30;
  double epsilon_2 = 1e-3;
  double clip_threshold = 1;
  bool relative_step = true;
  std::optional<double> weight_decay = std::nullopt;
  TUTTI_OPTIMIZER_ARGUMENTS("adafactor");
};
/// v = b v + (1 - b) (g^2 + epsilon_1) with b = 1 - t^beta_2_decay; of rank 2 and more v is the
/// product of its means over rows and columns of the last two axes (slots "r" and "c").
/// u = g / sqrt(v), divided by max(1, rms(u) / clip_threshold);
/// w -= max(epsilon_2, rms(w)) min(lr, 1 / sqrt(t)) u. `relative_step` changes nothing, as in
/// Keras, which takes that minimum in any case. Two passes over each variable, three where it is
/// factored.
class Adafactor : public Optimizer {
 public:
  explicit Adafactor(const AdafactorOptions& options = {});
};

struct MuonOptions {
  LearningRate learning_rate = 0.001;
  double adam_beta_1 = 0.9;
  double adam_beta_2 = 0.999;
  std::optional<double> adam_weight_decay = 0.004;
  double epsilon = 1e-7;
  std::optional<double> weight_decay = 0.004;
  TUTTI_OPTIMIZER_ARGUMENTS("muon");
  /// Searched for in the variables' names.
  std::vector<std::string> exclude_layers = {};
  bool exclude_embeddings = true;
  double muon_a = 3.4445;
  double muon_b = -4.7750;
  double muon_c = 2.0315;
  double adam_lr_ratio = 1;
  double momentum = 0.95;
  int64_t ns_steps = 5;
  bool nesterov = true;
  std::optional<double> rms_rate = 0.2;
};
/// Matrices: m = momentum m + g; x = g + momentum m (nesterov; else m), made nearly orthogonal by
/// `ns_steps` of x = a x + (b A + c A^2) x, A = x x^T, from x / |x|;
/// w -= lr sqrt(max(rows, columns)) rms_rate x. All else, and matrices whose name has "embedding"
/// in it (exclude_embeddings) or matches a regular expression of exclude_layers: Adam with lr
/// adam_lr_ratio, and adam_weight_decay. A matrix is updated by matrix products.
class Muon : public Optimizer {
 public:
  explicit Muon(const MuonOptions& options = {});
};

struct ScheduleFreeAdamWOptions {
  LearningRate learning_rate = 0.0025;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-8;
  int64_t warmup_steps = 0;
  std::optional<double> weight_decay = std::nullopt;
  TUTTI_OPTIMIZER_ARGUMENTS("schedule_free_adamw");
};
/// z -= lr g / (sqrt(v / (1 - b2^t)) + epsilon) (in the slot "momentum"); x is the mean of all z;
/// w = (1 - b1) z + b1 x. finalize_variable_values makes w = x, the weights to evaluate with.
/// `warmup_steps`: lr grows from 0 over so many updates.
class ScheduleFreeAdamW : public Optimizer {
 public:
  explicit ScheduleFreeAdamW(const ScheduleFreeAdamWOptions& options = {});
};

#undef TUTTI_OPTIMIZER_ARGUMENTS

}  // namespace tutti::keras::optimizers
