#include "keras/callbacks/progbar_logger.h"

#include <iostream>

#include "tutti/base/text.h"
#include "tutti/keras/callbacks/output.h"
#include "tutti/keras/model.h"

namespace tutti::keras::callbacks {
namespace {

class Logger : public Callback {
 public:
  void on_train_begin(const Logs& logs) override { in_fit_ = true; }
  void on_train_end(const Logs& logs) override {
    in_fit_ = false;
    bar_.reset();
  }
  void on_epoch_begin(int64_t epoch, const Logs& logs) override {
    if (params().verbose != 0 && params().epochs > 1)
      std::cout << "Epoch " << epoch + 1 << "/" << params().epochs << "\n" << std::flush;
    begin(known_steps_ >= 0 ? known_steps_ : params().steps);
  }
  void on_train_batch_end(int64_t batch, const Logs& logs) override { step(batch, logs); }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    known_steps_ = params().steps >= 0 ? params().steps : seen_;
    end(logs);
  }
  void on_test_begin(const Logs& logs) override {
    if (!in_fit_) begin(params().steps);
  }
  void on_test_batch_end(int64_t batch, const Logs& logs) override {
    if (!in_fit_) step(batch, logs);
  }
  void on_test_end(const Logs& logs) override {
    if (!in_fit_) end(logs);
  }
  void on_predict_begin(const Logs& logs) override { begin(params().steps); }
  void on_predict_batch_end(int64_t batch, const Logs& logs) override { count(batch, {}); }
  void on_predict_end(const Logs& logs) override { end({}); }
  bool needs_batch_logs() const override { return bar_ && bar_->due(seen_ + 1); }

 private:
  void begin(int64_t target) {
    seen_ = 0;
    bar_ = params().verbose == 0 ? nullptr : make_bar(target, params().verbose);
  }
  /// Without logs needs_batch_logs said a moment ago that nothing would be drawn.
  void step(int64_t batch, const Logs& logs) {
    if (logs.empty()) {
      seen_ = batch + 1;
    } else {
      count(batch, logs);
    }
  }
  void count(int64_t batch, const Logs& logs) {
    seen_ = batch + 1;
    if (params().steps >= 0) seen_ = std::min(seen_, params().steps);
    if (bar_ && bar_->due(seen_)) bar_->update(seen_, values_of(model(), logs), /*finalize=*/false);
  }
  void end(const Logs& logs) {
    if (!bar_) return;
    bar_->set_target(std::max(seen_, params().steps));
    bar_->update(seen_, values_of(model(), logs), /*finalize=*/true);
    bar_.reset();
  }
  std::unique_ptr<ProgressBar> bar_;
  int64_t seen_ = 0;
  int64_t known_steps_ = -1;
  bool in_fit_ = false;
};

}  // namespace

ProgressBar::Values values_of(const Model* model, const Logs& logs) {
  if (!bar_keeps_order() || model == nullptr) return {logs.begin(), logs.end()};
  ProgressBar::Values values;
  Logs rest = logs;
  const auto take = [&](const std::string& name) {
    const auto found = rest.find(name);
    if (found == rest.end()) return;
    values.emplace_back(*found);
    rest.erase(found);
  };
  const std::vector<std::string> names = model->metrics_names();
  for (const char* prefix : {"", "val_"}) {
    for (const std::string& name : names) take(cat(prefix, name));
  }
  for (const auto& value : rest) values.emplace_back(value);
  return values;
}

bool is_progbar_logger(const Callback& callback) {
  return dynamic_cast<const Logger*>(&callback) != nullptr;
}

AnyCallback ProgbarLogger() { return AnyCallback(std::make_shared<Logger>()); }

}  // namespace tutti::keras::callbacks
