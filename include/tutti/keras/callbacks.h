#pragma once
// Callbacks: what a user hangs into the training loop.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tutti::keras {

class Model;

/// Numbers by name, sorted: "accuracy", "loss", "val_loss", ….
class Logs : public std::map<std::string, double> {
 public:
  using std::map<std::string, double>::map;
  /// Throws NotFound that lists the names when there is no such one.
  double& operator[](const std::string& name);
  double operator[](const std::string& name) const;
  void set(const std::string& name, double value) { insert_or_assign(name, value); }
};

/// What fit returns: for each name the numbers of the epochs in which it was there.
struct History {
  std::map<std::string, std::vector<double>> history;
  std::vector<int64_t> epoch;
};

namespace callbacks {

struct Params {
  int verbose = 0;
  int64_t epochs = 1;
  /// -1: unknown.
  int64_t steps = -1;
};

/// Derive from it and override what is needed. Called on the thread that called fit, between steps.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual void on_train_begin(const Logs& logs) {}
  virtual void on_train_end(const Logs& logs) {}
  virtual void on_epoch_begin(int64_t epoch, const Logs& logs) {}
  /// `logs` may be added to; later callbacks and the history see it.
  virtual void on_epoch_end(int64_t epoch, Logs& logs) {}
  virtual void on_train_batch_begin(int64_t batch, const Logs& logs) {}
  virtual void on_train_batch_end(int64_t batch, const Logs& logs) {}
  virtual void on_test_begin(const Logs& logs) {}
  virtual void on_test_end(const Logs& logs) {}
  virtual void on_test_batch_begin(int64_t batch, const Logs& logs) {}
  virtual void on_test_batch_end(int64_t batch, const Logs& logs) {}
  virtual void on_predict_begin(const Logs& logs) {}
  virtual void on_predict_end(const Logs& logs) {}
  virtual void on_predict_batch_begin(int64_t batch, const Logs& logs) {}
  virtual void on_predict_batch_end(int64_t batch, const Logs& logs) {}
  /// False: the logs of the batch hooks may be empty, which spares reading the metrics after every
  /// batch. The default is true.
  virtual bool needs_batch_logs() const { return true; }

  Model* model() const { return model_; }
  const Params& params() const { return params_; }
  void set_model(Model* model) { model_ = model; }
  void set_params(const Params& params) { params_ = params; }

 private:
  Model* model_ = nullptr;
  Params params_;
};

/// Any callback: a handle of this header, a std::shared_ptr to one's own, or one's own by value
/// through make(). An empty pointer is InvalidArgument.
class AnyCallback {
 public:
  template <class T>
  requires std::derived_from<T, Callback> AnyCallback(std::shared_ptr<T> callback)
      : callback_(checked(std::move(callback))) {}  // NOLINT
  Callback* operator->() const { return callback_.get(); }
  const std::shared_ptr<Callback>& get() const { return callback_; }

 private:
  static std::shared_ptr<Callback> checked(std::shared_ptr<Callback> callback);
  std::shared_ptr<Callback> callback_;
};

template <class T>
AnyCallback make(T callback) {
  return AnyCallback(std::make_shared<T>(std::move(callback)));
}

struct LambdaCallbackOptions {
  std::function<void(int64_t, const Logs&)> on_epoch_begin = {};
  std::function<void(int64_t, const Logs&)> on_epoch_end = {};
  std::function<void(const Logs&)> on_train_begin = {};
  std::function<void(const Logs&)> on_train_end = {};
  std::function<void(int64_t, const Logs&)> on_train_batch_begin = {};
  std::function<void(int64_t, const Logs&)> on_train_batch_end = {};
};
AnyCallback LambdaCallback(LambdaCallbackOptions options);

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0;
  int64_t patience = 0;
  int verbose = 0;
  /// auto, min or max.
  std::string mode = "auto";
  std::optional<double> baseline = std::nullopt;
  bool restore_best_weights = false;
  int64_t start_from_epoch = 0;
};
/// Stops training when the monitored number has not improved for `patience` epochs. A number that
/// is missing gives one warning with those there are; NaN is no improvement. With
/// restore_best_weights the model has the weights of the best epoch after fit, whatever ended it:
/// they come back in on_train_end, after the weights have become the average of use_ema and after
/// what ModelCheckpoint has saved of the last epoch.
AnyCallback EarlyStopping(const EarlyStoppingOptions& options = {});

struct ModelCheckpointOptions {
  std::string monitor = "val_loss";
  int verbose = 0;
  bool save_best_only = false;
  bool save_weights_only = false;
  std::string mode = "auto";
  /// 0: after each epoch; k: after every k batches.
  int64_t save_freq = 0;
  std::optional<double> initial_value_threshold = std::nullopt;
};
/// Saves to `filepath`, in which `{epoch:02d}` (from 1) and `{name:.2f}` of any log stand for
/// numbers. It ends in ".tutti", or in
/// ".weights.tutti" with save_weights_only (InvalidArgument otherwise).
AnyCallback ModelCheckpoint(const std::string& filepath,
                            const ModelCheckpointOptions& options = {});

struct CSVLoggerOptions {
  std::string separator = ",";
  bool append = false;
};
/// One line an epoch; columns are fixed at the first one: epoch, then the sorted names, with val_
/// columns for all when none was there.
AnyCallback CSVLogger(const std::string& filename, const CSVLoggerOptions& options = {});

/// Stops at the batch whose loss is not finite.
AnyCallback TerminateOnNaN();

}  // namespace callbacks
}  // namespace tutti::keras
