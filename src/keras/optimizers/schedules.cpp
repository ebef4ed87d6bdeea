// Keras computes schedules in float32, and so do these: some of them (the logarithm of a restart)
// show it.

#include "tutti/keras/schedules.h"

#include <algorithm>
#include <cmath>

#include "keras/json.h"

namespace tutti::keras::optimizers::schedules {
namespace {

constexpr float kPi = 3.14159265358979323846F;

void check_steps(const std::string& name, const char* argument, int64_t steps) {
  if (steps > 0) return;
  throw InvalidArgument(
      cat("schedule [", name, "]: ", argument, " ", steps, ", expected more than 0"));
}

float quotient(int64_t step, int64_t decay_steps, bool staircase) {
  const float p = static_cast<float>(step) / static_cast<float>(decay_steps);
  return staircase ? std::floor(p) : p;
}

/// From `rate` at the fraction 0 down to alpha times it at 1.
float cosine(float rate, float fraction, double alpha) {
  const float decayed = 0.5F * (1.0F + std::cos(kPi * fraction));
  return rate * (static_cast<float>(1 - alpha) * decayed + static_cast<float>(alpha));
}

[[noreturn]] void cannot_be_saved() {
  throw Unimplemented(
      "learning rate schedule: a class of your own without class_name() and config(), expected "
      "both "
      "where an optimizer is saved or described; override them");
}

}  // namespace

std::string LearningRateSchedule::class_name() const { cannot_be_saved(); }
std::string LearningRateSchedule::config() const { cannot_be_saved(); }

// ---- ExponentialDecay
// ----------------------------------------------------------------------------------------------------

ExponentialDecay::ExponentialDecay(const ExponentialDecayOptions& options) : options_(options) {
  check_steps(options_.name, "decay_steps", options_.decay_steps);
}
double ExponentialDecay::operator()(int64_t step) const {
  const float p = quotient(step, options_.decay_steps, options_.staircase);
  return static_cast<float>(options_.initial_learning_rate) *
         std::pow(static_cast<float>(options_.decay_rate), p);
}
std::string ExponentialDecay::class_name() const { return "ExponentialDecay"; }
std::string ExponentialDecay::config() const {
  return Json{{"initial_learning_rate", options_.initial_learning_rate},
              {"decay_steps", options_.decay_steps},
              {"decay_rate", options_.decay_rate},
              {"staircase", options_.staircase},
              {"name", options_.name}}
      .dump();
}

// ---- PiecewiseConstantDecay
// ----------------------------------------------------------------------------------------------------

PiecewiseConstantDecay::PiecewiseConstantDecay(const PiecewiseConstantDecayOptions& options)
    : options_(options) {
  const auto& boundaries = options_.boundaries;
  if (options_.values.size() != boundaries.size() + 1) {
    throw InvalidArgument(cat("schedule [", options_.name, "]: boundaries of length ",
                              boundaries.size(), " and values of length ", options_.values.size(),
                              ", expected one value more than boundaries"));
  }
  if (!std::is_sorted(boundaries.begin(), boundaries.end())) {
    throw InvalidArgument(
        cat("schedule [", options_.name, "]: boundaries that do not ascend, expected them sorted"));
  }
}
double PiecewiseConstantDecay::operator()(int64_t step) const {
  const auto& boundaries = options_.boundaries;
  const auto at = std::lower_bound(boundaries.begin(), boundaries.end(), step);
  return static_cast<float>(options_.values[static_cast<std::size_t>(at - boundaries.begin())]);
}
std::string PiecewiseConstantDecay::class_name() const { return "PiecewiseConstantDecay"; }
std::string PiecewiseConstantDecay::config() const {
  return Json{
      {"boundaries", options_.boundaries}, {"values", options_.values}, {"name", options_.name}}
      .dump();
}

// ---- PolynomialDecay
// ----------------------------------------------------------------------------------------------------

PolynomialDecay::PolynomialDecay(const PolynomialDecayOptions& options) : options_(options) {
  check_steps(options_.name, "decay_steps", options_.decay_steps);
}
double PolynomialDecay::operator()(int64_t step) const {
  const auto end = static_cast<float>(options_.end_learning_rate);
  auto at = static_cast<float>(step);
  auto steps = static_cast<float>(options_.decay_steps);
  if (options_.cycle) {
    steps *= step == 0 ? 1.0F : std::ceil(at / steps);
  } else {
    at = std::min(at, steps);
  }
  const auto start = static_cast<float>(options_.initial_learning_rate);
  return (start - end) * std::pow(1.0F - at / steps, static_cast<float>(options_.power)) + end;
}
std::string PolynomialDecay::class_name() const { return "PolynomialDecay"; }
std::string PolynomialDecay::config() const {
  return Json{{"initial_learning_rate", options_.initial_learning_rate},
              {"decay_steps", options_.decay_steps},
              {"end_learning_rate", options_.end_learning_rate},
              {"power", options_.power},
              {"cycle", options_.cycle},
              {"name", options_.name}}
      .dump();
}

// ---- InverseTimeDecay
// ----------------------------------------------------------------------------------------------------

InverseTimeDecay::InverseTimeDecay(const InverseTimeDecayOptions& options) : options_(options) {
  check_steps(options_.name, "decay_steps", options_.decay_steps);
}
double InverseTimeDecay::operator()(int64_t step) const {
  const float p = quotient(step, options_.decay_steps, options_.staircase);
  return static_cast<float>(options_.initial_learning_rate) /
         (1.0F + static_cast<float>(options_.decay_rate) * p);
}
std::string InverseTimeDecay::class_name() const { return "InverseTimeDecay"; }
std::string InverseTimeDecay::config() const {
  return Json{{"initial_learning_rate", options_.initial_learning_rate},
              {"decay_steps", options_.decay_steps},
              {"decay_rate", options_.decay_rate},
              {"staircase", options_.staircase},
              {"name", options_.name}}
      .dump();
}

// ---- CosineDecay
// ----------------------------------------------------------------------------------------------------

CosineDecay::CosineDecay(const CosineDecayOptions& options) : options_(options) {
  check_steps(options_.name, "decay_steps", options_.decay_steps);
  if (options_.warmup_steps < 0) {
    throw InvalidArgument(cat("schedule [", options_.name, "]: warmup_steps ",
                              options_.warmup_steps, ", expected 0 or more"));
  }
}
double CosineDecay::operator()(int64_t step) const {
  const auto initial = static_cast<float>(options_.initial_learning_rate);
  const auto steps = static_cast<float>(options_.decay_steps);
  const auto at = static_cast<float>(step);
  if (!options_.warmup_target) return cosine(initial, std::min(at, steps) / steps, options_.alpha);
  const auto target = static_cast<float>(*options_.warmup_target);
  const auto warmup = static_cast<float>(options_.warmup_steps);
  if (at < warmup) return (target - initial) * (at / warmup) + initial;
  return cosine(target, std::min(at - warmup, steps) / steps, options_.alpha);
}
std::string CosineDecay::class_name() const { return "CosineDecay"; }
std::string CosineDecay::config() const {
  return Json{{"initial_learning_rate", options_.initial_learning_rate},
              {"decay_steps", options_.decay_steps},
              {"alpha", options_.alpha},
              {"name", options_.name},
              {"warmup_target", options_.warmup_target ? Json(*options_.warmup_target) : Json()},
              {"warmup_steps", options_.warmup_steps}}
      .dump();
}

// ---- CosineDecayRestarts
// ----------------------------------------------------------------------------------------------------

CosineDecayRestarts::CosineDecayRestarts(const CosineDecayRestartsOptions& options)
    : options_(options) {
  check_steps(options_.name, "first_decay_steps", options_.first_decay_steps);
}
double CosineDecayRestarts::operator()(int64_t step) const {
  const auto t_mul = static_cast<float>(options_.t_mul);
  float fraction = quotient(step, options_.first_decay_steps, false);
  float restart = 0;
  if (t_mul == 1.0F) {
    restart = std::floor(fraction);
    fraction -= restart;
  } else {
    restart = std::floor(std::log(1.0F - fraction * (1.0F - t_mul)) / std::log(t_mul));
    const float before = (1.0F - std::pow(t_mul, restart)) / (1.0F - t_mul);
    fraction = (fraction - before) / std::pow(t_mul, restart);
  }
  const float factor = std::pow(static_cast<float>(options_.m_mul), restart);
  const float decayed = 0.5F * factor * (1.0F + std::cos(kPi * fraction));
  const auto alpha = static_cast<float>(options_.alpha);
  return static_cast<float>(options_.initial_learning_rate) * ((1.0F - alpha) * decayed + alpha);
}
std::string CosineDecayRestarts::class_name() const { return "CosineDecayRestarts"; }
std::string CosineDecayRestarts::config() const {
  return Json{{"initial_learning_rate", options_.initial_learning_rate},
              {"first_decay_steps", options_.first_decay_steps},
              {"t_mul", options_.t_mul},
              {"m_mul", options_.m_mul},
              {"alpha", options_.alpha},
              {"name", options_.name}}
      .dump();
}

// ---- from_config
// ----------------------------------------------------------------------------------------------------

namespace {

using SchedulePtr = std::shared_ptr<const LearningRateSchedule>;

template <class Options>
void read_decay(const Json& json, Options& options) {
  options.initial_learning_rate = member<double>(json, "initial_learning_rate", 0);
  options.decay_steps = member<int64_t>(json, "decay_steps", 0);
  options.name = member<std::string>(json, "name", options.name);
}
/// For the two of one set of arguments.
template <class Schedule, class Options>
SchedulePtr rate_decay(const Json& json) {
  Options options;
  read_decay(json, options);
  options.decay_rate = member<double>(json, "decay_rate", 0);
  options.staircase = member<bool>(json, "staircase", false);
  return std::make_shared<const Schedule>(options);
}
SchedulePtr piecewise(const Json& json) {
  PiecewiseConstantDecayOptions options;
  options.boundaries = member<std::vector<int64_t>>(json, "boundaries", {});
  options.values = member<std::vector<double>>(json, "values", {});
  options.name = member<std::string>(json, "name", options.name);
  return std::make_shared<const PiecewiseConstantDecay>(options);
}
SchedulePtr polynomial(const Json& json) {
  PolynomialDecayOptions options;
  read_decay(json, options);
  options.end_learning_rate = member<double>(json, "end_learning_rate", options.end_learning_rate);
  options.power = member<double>(json, "power", options.power);
  options.cycle = member<bool>(json, "cycle", false);
  return std::make_shared<const PolynomialDecay>(options);
}
SchedulePtr cosine_decay(const Json& json) {
  CosineDecayOptions options;
  read_decay(json, options);
  options.alpha = member<double>(json, "alpha", 0);
  if (json.contains("warmup_target") && !json["warmup_target"].is_null())
    options.warmup_target = member<double>(json, "warmup_target", 0);
  options.warmup_steps = member<int64_t>(json, "warmup_steps", 0);
  return std::make_shared<const CosineDecay>(options);
}
SchedulePtr cosine_restarts(const Json& json) {
  CosineDecayRestartsOptions options;
  options.initial_learning_rate = member<double>(json, "initial_learning_rate", 0);
  options.first_decay_steps = member<int64_t>(json, "first_decay_steps", 0);
  options.t_mul = member<double>(json, "t_mul", options.t_mul);
  options.m_mul = member<double>(json, "m_mul", options.m_mul);
  options.alpha = member<double>(json, "alpha", 0);
  options.name = member<std::string>(json, "name", options.name);
  return std::make_shared<const CosineDecayRestarts>(options);
}

}  // namespace

SchedulePtr from_config(const std::string& class_name, const std::string& config) {
  const Json json = parse_object(cat("schedule ", class_name), config);
  if (class_name == "ExponentialDecay")
    return rate_decay<ExponentialDecay, ExponentialDecayOptions>(json);
  if (class_name == "InverseTimeDecay")
    return rate_decay<InverseTimeDecay, InverseTimeDecayOptions>(json);
  if (class_name == "PiecewiseConstantDecay") return piecewise(json);
  if (class_name == "PolynomialDecay") return polynomial(json);
  if (class_name == "CosineDecay") return cosine_decay(json);
  if (class_name == "CosineDecayRestarts") return cosine_restarts(json);
  throw InvalidArgument(cat("learning rate schedule: \"", class_name,
                            "\", expected ExponentialDecay, PiecewiseConstantDecay, "
                            "PolynomialDecay, InverseTimeDecay, CosineDecay or "
                            "CosineDecayRestarts; give load_model the maker of a class of your "
                            "own in custom_objects"));
}

}  // namespace tutti::keras::optimizers::schedules
