// LearningRateScheduler and ReduceLROnPlateau.

#include <cmath>
#include <iostream>

#include "keras/callbacks/monitor.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/keras/callbacks/control.h"
#include "tutti/keras/model.h"
#include "tutti/tensor/printing.h"

namespace tutti::keras::callbacks {
namespace {

constexpr char kLearningRate[] = "learning_rate";

/// The optimizer's rate as the float32 that Keras keeps.
double rate_of(const Callback& callback) {
  return static_cast<float>(callback.model()->optimizer().learning_rate());
}

std::string text_of(double rate) { return number_to_string(rate, /*single_precision=*/false); }

class Scheduler : public Callback {
 public:
  Scheduler(std::function<double(int64_t, double)> schedule,
            const LearningRateSchedulerOptions& options)
      : schedule_(std::move(schedule)), options_(options) {}
  void on_epoch_begin(int64_t epoch, const Logs& logs) override {
    const double rate = schedule_(epoch, rate_of(*this));
    if (!(rate >= 0) || std::isinf(rate)) {
      throw InvalidArgument(cat("LearningRateScheduler [epoch ", epoch, "]: the schedule gave ",
                                rate, ", expected a finite number, 0 or more"));
    }
    model()->optimizer().set_learning_rate(rate);
    if (options_.verbose > 0) {
      std::cout << cat("\nEpoch ", epoch + 1, ": LearningRateScheduler setting learning rate to ",
                       text_of(rate), ".\n")
                << std::flush;
    }
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override { logs.set(kLearningRate, rate_of(*this)); }
  bool needs_batch_logs() const override { return false; }

 private:
  std::function<double(int64_t, double)> schedule_;
  LearningRateSchedulerOptions options_;
};

class Plateau : public Callback {
 public:
  explicit Plateau(const ReduceLROnPlateauOptions& options)
      : options_(options),
        monitor_("ReduceLROnPlateau", options.monitor, options.mode, options.min_delta) {
    if (!(options.factor >= 0 && options.factor < 1)) {
      throw InvalidArgument(cat("ReduceLROnPlateau [factor]: ", options.factor,
                                ", expected at least 0 and below 1; the rate is multiplied by it"));
    }
    if (options.patience < 0 || options.cooldown < 0 || !(options.min_lr >= 0)) {
      throw InvalidArgument(cat("ReduceLROnPlateau: patience ", options.patience, ", cooldown ",
                                options.cooldown, ", min_lr ", options.min_lr,
                                ", expected 0 or more of each"));
    }
  }
  void on_train_begin(const Logs& logs) override {
    monitor_.begin();
    best_.reset();
    wait_ = 0;
    cooldown_ = 0;
    // Throws where the rate is a schedule's: now, and not after the first plateau.
    optimizers::Optimizer& optimizer = model()->optimizer();
    optimizer.set_learning_rate(optimizer.learning_rate());
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    const double rate = rate_of(*this);
    logs.set(kLearningRate, rate);
    const auto current = monitor_.read(model(), logs);
    if (!current) return;
    if (cooldown_ > 0) {
      --cooldown_;
      wait_ = 0;
    }
    if (monitor_.better(*current, best_)) {
      best_ = *current;
      wait_ = 0;
      return;
    }
    if (cooldown_ > 0 || ++wait_ < options_.patience) return;
    if (rate > static_cast<float>(options_.min_lr)) reduce(epoch, rate);
  }
  bool needs_batch_logs() const override { return false; }

 private:
  void reduce(int64_t epoch, double rate) {
    const double reduced = std::max(rate * options_.factor, options_.min_lr);
    model()->optimizer().set_learning_rate(reduced);
    if (options_.verbose > 0) {
      std::cout << cat("\nEpoch ", epoch + 1, ": ReduceLROnPlateau reducing learning rate to ",
                       text_of(reduced), ".\n")
                << std::flush;
    }
    cooldown_ = options_.cooldown;
    wait_ = 0;
  }
  ReduceLROnPlateauOptions options_;
  Monitor monitor_;
  std::optional<double> best_;
  int64_t wait_ = 0;
  int64_t cooldown_ = 0;
};

}  // namespace

AnyCallback LearningRateScheduler(std::function<double(int64_t, double)> schedule,
                                  const LearningRateSchedulerOptions& options) {
  if (!schedule)
    throw InvalidArgument("LearningRateScheduler: an empty function, expected a schedule");
  return AnyCallback(std::make_shared<Scheduler>(std::move(schedule), options));
}
AnyCallback LearningRateScheduler(std::function<double(int64_t)> schedule,
                                  const LearningRateSchedulerOptions& options) {
  if (!schedule)
    throw InvalidArgument("LearningRateScheduler: an empty function, expected a schedule");
  return LearningRateScheduler(
      [schedule = std::move(schedule)](int64_t epoch, double) { return schedule(epoch); }, options);
}
AnyCallback ReduceLROnPlateau(const ReduceLROnPlateauOptions& options) {
  return AnyCallback(std::make_shared<Plateau>(options));
}

}  // namespace tutti::keras::callbacks
