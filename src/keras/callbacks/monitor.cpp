#include "keras/callbacks/monitor.h"

#include <cmath>
#include <limits>

#include "keras/training/training_position.h"
#include "tutti/base/log.h"
#include "tutti/keras/model.h"

namespace tutti::keras::callbacks {

Monitor::Monitor(const char* callback, std::string name, const std::string& mode, double min_delta)
    : callback_(callback), name_(std::move(name)), min_delta_(std::abs(min_delta)) {
  if (mode != "auto" && mode != "min" && mode != "max") {
    throw InvalidArgument(cat(callback, " [mode]: \"", mode, "\", expected auto, min or max"));
  }
  if (mode != "auto") up_ = mode == "max";
}

std::optional<double> Monitor::read(const Model* model, const Logs& logs) {
  const auto found = logs.find(name_);
  if (found != logs.end()) {
    if (!up_) up_ = goes_up(model);
    return found->second;
  }
  std::vector<std::string> names;
  for (const auto& [key, unused] : logs) names.push_back(key);
  if (!warned_)
    log_warning(callback_, ": \"", name_, "\" is not among the logs (", join(names, ", "),
                "); nothing is done. With validation data there is val_loss");
  warned_ = true;
  return std::nullopt;
}

bool Monitor::better(double value, const std::optional<double>& best) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double bar = best.value_or(*up_ ? -kInfinity : kInfinity);
  return *up_ ? value > bar + min_delta_ : value < bar - min_delta_;
}

bool Monitor::goes_up(const Model* model) const {
  const std::string plain = name_.starts_with("val_") ? name_.substr(4) : name_;
  if (model != nullptr) {
    // "out_accuracy" is the metric "accuracy" of the output "out".
    const std::vector<std::string> names = model->metrics_names();
    const std::vector<metrics::Metric> metrics = model->metrics();
    for (std::size_t i = 0; i < std::min(names.size(), metrics.size()); ++i) {
      if (names[i] == plain && metrics[i].direction() != metrics::Direction::kUnknown)
        return metrics[i].direction() == metrics::Direction::kUp;
    }
  }
  return plain.find("acc") != std::string::npos || plain.starts_with("fmeasure") ||
         plain.ends_with("auc");
}

bool BatchCounter::due(int64_t batch, const TrainingPosition* position, int64_t frequency) {
  const int64_t now = position != nullptr ? position->step : batch + 1;
  seen_ += now - before_;
  before_ = now;
  if (seen_ < frequency) return false;
  seen_ = 0;
  return true;
}
void BatchCounter::begin_epoch(const TrainingPosition* position) {
  before_ = position != nullptr ? position->step : 0;
}

}  // namespace tutti::keras::callbacks
