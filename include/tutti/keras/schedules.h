#pragma once
// Learning rates that are functions of the number of updates made so far. Formulas, defaults and
// float32 arithmetic: Keras' `keras.optimizers.schedules`.

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::keras::optimizers {

namespace schedules {

/// Base of every schedule, and of a user's own: `.learning_rate = MySchedule(…)`.
class LearningRateSchedule {
 public:
  virtual ~LearningRateSchedule() = default;
  /// The rate of the update before which `step` updates were made. Called once an update, by one
  /// thread, and by Optimizer::learning_rate() on any: a function of `step` alone.
  virtual double operator()(int64_t step) const = 0;
  /// What a saved optimizer says of its schedule. A user's own schedule that does not override both
  /// cannot be saved (Unimplemented); load_model makes it again by its maker in custom_objects.
  virtual std::string class_name() const;
  /// JSON object text with Keras' argument names.
  virtual std::string config() const;
};

struct ExponentialDecayOptions {
  double initial_learning_rate = 0;
  int64_t decay_steps = 0;
  double decay_rate = 0;
  bool staircase = false;
  std::string name = "ExponentialDecay";
};
/// initial decay_rate^(step / decay_steps); `staircase`: of whole exponents. InvalidArgument unless
/// decay_steps > 0, as for the others.
class ExponentialDecay : public LearningRateSchedule {
 public:
  explicit ExponentialDecay(const ExponentialDecayOptions& options);
  double operator()(int64_t step) const override;
  std::string class_name() const override;
  std::string config() const override;

 private:
  ExponentialDecayOptions options_;
};

struct PiecewiseConstantDecayOptions {
  std::vector<int64_t> boundaries = {};
  std::vector<double> values = {};
  std::string name = "PiecewiseConstant";
};
/// values[0] up to and with step boundaries[0], then values[1], …. InvalidArgument unless there is
/// one value more than boundaries, and these ascend.
class PiecewiseConstantDecay : public LearningRateSchedule {
 public:
  explicit PiecewiseConstantDecay(const PiecewiseConstantDecayOptions& options);
  double operator()(int64_t step) const override;
  std::string class_name() const override;
  std::string config() const override;

 private:
  PiecewiseConstantDecayOptions options_;
};

struct PolynomialDecayOptions {
  double initial_learning_rate = 0;
  int64_t decay_steps = 0;
  double end_learning_rate = 0.0001;
  double power = 1;
  bool cycle = false;
  std::string name = "PolynomialDecay";
};
/// (initial - end) (1 - step / decay_steps)^power + end, then end; `cycle`: decay_steps grows to
/// its next multiple instead.
class PolynomialDecay : public LearningRateSchedule {
 public:
  explicit PolynomialDecay(const PolynomialDecayOptions& options);
  double operator()(int64_t step) const override;
  std::string class_name() const override;
  std::string config() const override;

 private:
  PolynomialDecayOptions options_;
};

struct InverseTimeDecayOptions {
  double initial_learning_rate = 0;
  int64_t decay_steps = 0;
  double decay_rate = 0;
  bool staircase = false;
  std::string name = "InverseTimeDecay";
};
/// initial / (1 + decay_rate step / decay_steps); `staircase`: of whole quotients.
class InverseTimeDecay : public LearningRateSchedule {
 public:
  explicit InverseTimeDecay(const InverseTimeDecayOptions& options);
  double operator()(int64_t step) const override;
  std::string class_name() const override;
  std::string config() const override;

 private:
  InverseTimeDecayOptions options_;
};

struct CosineDecayOptions {
  double initial_learning_rate = 0;
  int64_t decay_steps = 0;
  double alpha = 0;
  std::string name = "CosineDecay";
  std::optional<double> warmup_target = std::nullopt;
  int64_t warmup_steps = 0;
};
/// initial ((1 - alpha) (1 + cos(pi step / decay_steps)) / 2 + alpha). With a warmup_target: from
/// initial to it in a line over warmup_steps, then the same from the target.
class CosineDecay : public LearningRateSchedule {
 public:
  explicit CosineDecay(const CosineDecayOptions& options);
  double operator()(int64_t step) const override;
  std::string class_name() const override;
  std::string config() const override;

 private:
  CosineDecayOptions options_;
};

struct CosineDecayRestartsOptions {
  double initial_learning_rate = 0;
  int64_t first_decay_steps = 0;
  double t_mul = 2;
  double m_mul = 1;
  double alpha = 0;
  std::string name = "SGDRDecay";
};
/// CosineDecay again and again, each time t_mul times as long and from m_mul times the rate.
class CosineDecayRestarts : public LearningRateSchedule {
 public:
  explicit CosineDecayRestarts(const CosineDecayRestartsOptions& options);
  double operator()(int64_t step) const override;
  std::string class_name() const override;
  std::string config() const override;

 private:
  CosineDecayRestartsOptions options_;
};

/// A schedule of the classes above from its class name and config(); InvalidArgument lists them for
/// another name.
std::shared_ptr<const LearningRateSchedule> from_config(const std::string& class_name,
                                                        const std::string& config);

}  // namespace schedules

/// A number, or a schedule: what an optimizer's `learning_rate` takes.
class LearningRate {
 public:
  LearningRate(double rate) : rate_(rate) {}  // NOLINT: `.learning_rate = 0.1`
  template <class Schedule>
  requires std::derived_from<Schedule, schedules::LearningRateSchedule> LearningRate(
      std::shared_ptr<Schedule> schedule)  // NOLINT
      : schedule_(std::move(schedule)) {}
  template <class Schedule>
  requires std::derived_from<Schedule, schedules::LearningRateSchedule> LearningRate(
      Schedule schedule)  // NOLINT: `.learning_rate = schedules::CosineDecay(…)`
      : schedule_(std::make_shared<const Schedule>(std::move(schedule))) {}

  double at(int64_t step) const { return schedule_ ? (*schedule_)(step) : rate_; }
  /// Null: it is a number.
  const std::shared_ptr<const schedules::LearningRateSchedule>& schedule() const {
    return schedule_;
  }

 private:
  double rate_ = 0;
  std::shared_ptr<const schedules::LearningRateSchedule> schedule_;
};

}  // namespace tutti::keras::optimizers
