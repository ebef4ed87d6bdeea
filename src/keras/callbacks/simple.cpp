// LambdaCallback, TerminateOnNaN and SwapEMAWeights.

#include <ATen/ATen.h>

#include <cmath>
#include <iostream>

#include "keras/json.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/keras/callbacks/control.h"
#include "tutti/keras/model.h"

namespace tutti::keras::callbacks {
namespace {

template <class Function, class... Args>
void call(const Function& function, const Args&... args) {
  if (function) function(args...);
}

class Lambda : public Callback {
 public:
  explicit Lambda(LambdaCallbackOptions options) : hooks_(std::move(options)) {}
  void on_epoch_begin(int64_t epoch, const Logs& logs) override {
    call(hooks_.on_epoch_begin, epoch, logs);
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override { call(hooks_.on_epoch_end, epoch, logs); }
  void on_train_begin(const Logs& logs) override { call(hooks_.on_train_begin, logs); }
  void on_train_end(const Logs& logs) override { call(hooks_.on_train_end, logs); }
  void on_train_batch_begin(int64_t batch, const Logs& logs) override {
    call(hooks_.on_train_batch_begin, batch, logs);
  }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    call(hooks_.on_train_batch_end, batch, logs);
  }
  void on_test_begin(const Logs& logs) override { call(hooks_.on_test_begin, logs); }
  void on_test_end(const Logs& logs) override { call(hooks_.on_test_end, logs); }
  void on_test_batch_begin(int64_t batch, const Logs& logs) override {
    call(hooks_.on_test_batch_begin, batch, logs);
  }
  void on_test_batch_end(int64_t batch, const Logs& logs) override {
    call(hooks_.on_test_batch_end, batch, logs);
  }
  void on_predict_begin(const Logs& logs) override { call(hooks_.on_predict_begin, logs); }
  void on_predict_end(const Logs& logs) override { call(hooks_.on_predict_end, logs); }
  void on_predict_batch_begin(int64_t batch, const Logs& logs) override {
    call(hooks_.on_predict_batch_begin, batch, logs);
  }
  void on_predict_batch_end(int64_t batch, const Logs& logs) override {
    call(hooks_.on_predict_batch_end, batch, logs);
  }
  bool needs_batch_logs() const override {
    return hooks_.on_train_batch_end || hooks_.on_test_batch_end;
  }

 private:
  LambdaCallbackOptions hooks_;
};

class NanStop : public Callback {
 public:
  explicit NanStop(const TerminateOnNaNOptions& options) : options_(options) {}
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    const auto loss = logs.find("loss");
    if (loss == logs.end() || std::isfinite(loss->second)) return;
    if (options_.raise_error) {
      throw FailedPrecondition(cat("TerminateOnNaN [batch ", batch, "]: the loss is ",
                                   std::isnan(loss->second) ? "NaN" : "infinite",
                                   ", expected a finite one; a smaller learning rate or clipnorm "
                                   "may keep it so"));
    }
    std::cout << "Batch " << batch << ": Invalid loss, terminating training\n" << std::flush;
    model()->stop_training = true;
  }

 private:
  TerminateOnNaNOptions options_;
};

/// The weights stand aside while the model has their averages; the slot itself is left alone, so
/// that what the optimizer does at the end of fit is right whenever it comes.
class EmaSwap : public Callback {
 public:
  explicit EmaSwap(const SwapEMAWeightsOptions& options) : options_(options) {}
  /// What an exception left of an earlier training comes back first.
  void on_train_begin(const Logs& logs) override {
    swap_out();
    check();
  }
  void on_epoch_begin(int64_t epoch, const Logs& logs) override { swap_out(); }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    if (options_.swap_on_epoch) swap_in();
  }
  /// The weights are the average already.
  void on_train_end(const Logs& logs) override { aside_.clear(); }
  void on_test_begin(const Logs& logs) override { begin(); }
  void on_test_end(const Logs& logs) override { end(); }
  void on_predict_begin(const Logs& logs) override { begin(); }
  void on_predict_end(const Logs& logs) override { end(); }
  bool needs_batch_logs() const override { return false; }

 private:
  void check() const {
    if (!model()->compiled()) return;
    const Json config = parse_object("SwapEMAWeights", model()->optimizer().config());
    if (!member<bool>(config, "use_ema", false)) {
      throw InvalidArgument(cat("SwapEMAWeights [", model()->name(),
                                "]: an optimizer without average, expected one with use_ema = "
                                "true"));
    }
  }
  void begin() {
    check();
    own_ = aside_.empty();
    if (own_) swap_in();
  }
  void end() {
    if (own_) swap_out();
  }
  void swap_in() {
    if (!model()->compiled() || !aside_.empty()) return;
    const optimizers::Optimizer& optimizer = model()->optimizer();
    std::vector<Variable> weights = optimizer.trainable_variables();
    const std::vector<Variable> averages = optimizer.slots("average");
    at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < averages.size() && i < weights.size(); ++i) {
      aside_.emplace_back(weights[i], weights[i].read_value().clone());
      weights[i].assign(averages[i].read_value());
    }
  }
  void swap_out() {
    at::NoGradGuard no_grad;
    for (auto& [weight, value] : aside_) weight.assign(value);
    aside_.clear();
  }
  SwapEMAWeightsOptions options_;
  std::vector<std::pair<Variable, Tensor>> aside_;
  bool own_ = false;
};

}  // namespace

AnyCallback LambdaCallback(LambdaCallbackOptions options) {
  return AnyCallback(std::make_shared<Lambda>(std::move(options)));
}
AnyCallback TerminateOnNaN(const TerminateOnNaNOptions& options) {
  return AnyCallback(std::make_shared<NanStop>(options));
}
AnyCallback SwapEMAWeights(const SwapEMAWeightsOptions& options) {
  return AnyCallback(std::make_shared<EmaSwap>(options));
}

}  // namespace tutti::keras::callbacks
