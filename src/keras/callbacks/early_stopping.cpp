#include <iostream>

#include "keras/callbacks/monitor.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/keras/callbacks/control.h"
#include "tutti/keras/model.h"

namespace tutti::keras::callbacks {
namespace {

class Early : public Callback {
 public:
  explicit Early(const EarlyStoppingOptions& options)
      : options_(options),
        monitor_("EarlyStopping", options.monitor, options.mode, options.min_delta) {
    if (options.patience < 0)
      throw InvalidArgument(
          cat("EarlyStopping [patience]: ", options.patience, ", expected 0 or more"));
  }
  void on_train_begin(const Logs& logs) override {
    wait_ = 0;
    stopped_epoch_ = -1;
    monitor_.begin();
    best_.reset();
    best_weights_.clear();
    best_epoch_ = 0;
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    const auto current = monitor_.read(model(), logs);
    if (!current || epoch < options_.start_from_epoch) return;
    if (options_.restore_best_weights && best_weights_.empty()) keep(epoch);
    ++wait_;
    if (monitor_.better(*current, best_)) {
      best_ = *current;
      if (options_.restore_best_weights) keep(epoch);
      if (!options_.baseline || monitor_.better(*current, options_.baseline)) wait_ = 0;
      return;
    }
    if (wait_ >= options_.patience && epoch > 0) {
      stopped_epoch_ = epoch;
      model()->stop_training = true;
    }
  }
  void on_train_end(const Logs& logs) override {
    if (stopped_epoch_ >= 0 && options_.verbose > 0)
      std::cout << "Epoch " << stopped_epoch_ + 1 << ": early stopping\n" << std::flush;
    if (!options_.restore_best_weights || best_weights_.empty()) return;
    if (options_.verbose > 0) {
      std::cout << "Restoring model weights from the end of the best epoch: " << best_epoch_ + 1
                << ".\n"
                << std::flush;
    }
    model()->set_weights(best_weights_);
  }
  bool needs_batch_logs() const override { return false; }

 private:
  void keep(int64_t epoch) {
    best_weights_ = model()->get_weights();
    best_epoch_ = epoch;
  }
  EarlyStoppingOptions options_;
  Monitor monitor_;
  int64_t wait_ = 0;
  int64_t stopped_epoch_ = -1;
  std::optional<double> best_;
  std::vector<Tensor> best_weights_;
  int64_t best_epoch_ = 0;
};

}  // namespace

AnyCallback EarlyStopping(const EarlyStoppingOptions& options) {
  return AnyCallback(std::make_shared<Early>(options));
}

}  // namespace tutti::keras::callbacks
