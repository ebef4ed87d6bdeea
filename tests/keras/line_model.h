#pragma once
// For tests of the training loop: y = w x, whose loss can be worked out by hand, and a callback
// that notes the calls of its hooks.

#include <memory>
#include <string>
#include <vector>

#include "support/expect.h"
#include "tutti/distribute/strategies.h"
#include "tutti/keras/layers.h"
#include "tutti/keras/model.h"

namespace tutti::keras::testing {

using Numbers = std::vector<double>;
using Steps = std::vector<int64_t>;
using Calls = std::vector<std::string>;

inline std::unique_ptr<distribute::MirroredStrategy> replicas(int count) {
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) devices.push_back(cat("cpu:", i));
  return std::make_unique<distribute::MirroredStrategy>(
      distribute::MirroredStrategyOptions{.devices = devices});
}

inline Tensor column(std::vector<float> values) { return at::tensor(values).unsqueeze(1); }

/// y = w x, w = 1 at first.
inline std::unique_ptr<Sequential> line(const CompileOptions& options) {
  auto model = std::make_unique<Sequential>(
      std::vector<layers::Layer>{layers::Dense(1, {.use_bias = false, .input_shape = {1}})});
  model->set_weights({at::ones({1, 1})});
  model->compile(options);
  return model;
}
/// A learning rate of 0 leaves w at 1, so that the loss of (x, y) is (x - y)^2.
inline std::unique_ptr<Sequential> still(CompileOptions options = {.loss = "mse"}) {
  options.optimizer = optimizers::SGD({.learning_rate = 0});
  return line(options);
}
inline double weight(const Model& model) { return model.get_weights()[0].item<double>(); }

/// Calls of the hooks, in order.
struct Recorder : callbacks::Callback {
  std::shared_ptr<std::vector<std::string>> calls = std::make_shared<std::vector<std::string>>();
  void note(const std::string& call) { calls->push_back(call); }
  void on_train_begin(const Logs&) override { note("train"); }
  void on_train_end(const Logs& logs) override { note(cat("train end ", logs.size())); }
  void on_epoch_begin(int64_t epoch, const Logs&) override { note(cat("epoch ", epoch)); }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    note(cat("epoch end ", epoch, " ", logs.size()));
  }
  void on_train_batch_begin(int64_t batch, const Logs&) override { note(cat("batch ", batch)); }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    note(cat("batch end ", batch, " ", logs["loss"]));
  }
  void on_test_begin(const Logs&) override { note("test"); }
  void on_test_end(const Logs& logs) override { note(cat("test end ", logs["loss"])); }
  void on_test_batch_begin(int64_t batch, const Logs&) override { note(cat("test batch ", batch)); }
  void on_test_batch_end(int64_t batch, const Logs& logs) override {
    note(cat("test batch end ", batch, " ", logs["loss"]));
  }
  void on_predict_begin(const Logs&) override { note("predict"); }
  void on_predict_end(const Logs&) override { note("predict end"); }
  void on_predict_batch_begin(int64_t batch, const Logs&) override {
    note(cat("predict batch ", batch));
  }
  void on_predict_batch_end(int64_t batch, const Logs&) override {
    note(cat("predict batch end ", batch));
  }
};
}  // namespace tutti::keras::testing
