#pragma once
// What hangs in the training loop: the base of callbacks, lists of them, and the numbers that they
// see.

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::keras {

class Model;
class TrainLoop;
struct TrainingPosition;

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
  /// For each name those epochs: with validation_freq not all have the names of the validation.
  std::map<std::string, std::vector<int64_t>> epochs_of;

  /// One more epoch.
  void add(int64_t epoch, const Logs& logs);
};

namespace callbacks {

struct Params {
  int verbose = 0;
  int64_t epochs = 1;
  /// -1: unknown.
  int64_t steps = -1;
};

/// Derive from it and override what is needed. Called on the thread that called fit, between steps:
/// in fit as
///
///     on_train_begin
///       on_epoch_begin (on_train_batch_begin on_train_batch_end)*
///         on_test_begin (on_test_batch_begin on_test_batch_end)* on_test_end
///       on_epoch_end
///     on_train_end
///
/// each for all callbacks in the order of the list. Epochs and batches count from 0; with
/// steps_per_execution = k a batch hook stands for k batches and on_train_batch_end is told the
/// index of the last. What one throws ends the training.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual void on_train_begin(const Logs& logs) {}
  /// After the weights have become the average of use_ema, with the logs of the last epoch.
  virtual void on_train_end(const Logs& logs) {}
  virtual void on_epoch_begin(int64_t epoch, const Logs& logs) {}
  /// `logs` may be added to; later callbacks and the history see it.
  virtual void on_epoch_end(int64_t epoch, Logs& logs) {}
  /// on_batch_begin and on_batch_end are other names of these two.
  virtual void on_train_batch_begin(int64_t batch, const Logs& logs) {
    on_batch_begin(batch, logs);
  }
  virtual void on_train_batch_end(int64_t batch, const Logs& logs) { on_batch_end(batch, logs); }
  virtual void on_batch_begin(int64_t batch, const Logs& logs) {}
  virtual void on_batch_end(int64_t batch, const Logs& logs) {}
  virtual void on_test_begin(const Logs& logs) {}
  virtual void on_test_end(const Logs& logs) {}
  virtual void on_test_batch_begin(int64_t batch, const Logs& logs) {}
  virtual void on_test_batch_end(int64_t batch, const Logs& logs) {}
  virtual void on_predict_begin(const Logs& logs) {}
  virtual void on_predict_end(const Logs& logs) {}
  virtual void on_predict_batch_begin(int64_t batch, const Logs& logs) {}
  virtual void on_predict_batch_end(int64_t batch, const Logs& logs) {}
  /// False: the logs of the batch hook that comes next may be empty, which spares reading the
  /// metrics after every batch. The default is true.
  virtual bool needs_batch_logs() const { return true; }

  Model* model() const { return model_; }
  const Params& params() const { return params_; }
  void set_model(Model* model) { model_ = model; }
  void set_params(const Params& params) { params_ = params; }

 protected:
  /// Where the fit under way stands; null outside fit. Of the library's own callbacks.
  TrainingPosition* position() const { return position_; }

 private:
  friend class keras::TrainLoop;
  Model* model_ = nullptr;
  Params params_;
  TrainingPosition* position_ = nullptr;
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

/// How often something happens: "epoch", "batch", or after every so many batches. InvalidArgument
/// for another word, or a number below 1.
class Frequency {
 public:
  Frequency(const char* word) : Frequency(std::string(word)) {}  // NOLINT: `.save_freq = "epoch"`
  Frequency(const std::string& word);                            // NOLINT
  Frequency(int batches) : Frequency(int64_t{batches}) {}        // NOLINT: `.save_freq = 30`
  Frequency(int64_t batches);                                    // NOLINT
  bool each_epoch() const { return batches_ == 0; }
  /// 0: each epoch.
  int64_t batches() const { return batches_; }

 private:
  int64_t batches_ = 0;
};

struct CallbackListOptions {
  bool add_history = false;
  /// A bar, unless `verbose` is 0.
  bool add_progbar = false;
  Model* model = nullptr;
  int verbose = 1;
  int64_t epochs = 1;
  /// -1: unknown.
  int64_t steps = -1;
};

/// Callbacks for a loop of one's own, which calls the hooks where fit would. One thread. The
/// callbacks that need the loop of fit say so (BackupAndRestore).
class CallbackList {
 public:
  explicit CallbackList(std::vector<AnyCallback> callbacks,
                        const CallbackListOptions& options = {});
  void append(AnyCallback callback);
  void set_model(Model* model);
  void set_params(const Params& params);

  void on_train_begin(const Logs& logs = {});
  void on_train_end(const Logs& logs = {});
  void on_epoch_begin(int64_t epoch, const Logs& logs = {});
  void on_epoch_end(int64_t epoch, Logs& logs);
  void on_epoch_end(int64_t epoch, Logs&& logs) { on_epoch_end(epoch, logs); }
  void on_train_batch_begin(int64_t batch, const Logs& logs = {});
  void on_train_batch_end(int64_t batch, const Logs& logs = {});
  void on_batch_begin(int64_t batch, const Logs& logs = {}) { on_train_batch_begin(batch, logs); }
  void on_batch_end(int64_t batch, const Logs& logs = {}) { on_train_batch_end(batch, logs); }
  void on_test_begin(const Logs& logs = {});
  void on_test_end(const Logs& logs = {});
  void on_test_batch_begin(int64_t batch, const Logs& logs = {});
  void on_test_batch_end(int64_t batch, const Logs& logs = {});
  void on_predict_begin(const Logs& logs = {});
  void on_predict_end(const Logs& logs = {});
  void on_predict_batch_begin(int64_t batch, const Logs& logs = {});
  void on_predict_batch_end(int64_t batch, const Logs& logs = {});

  const std::vector<AnyCallback>& callbacks() const { return callbacks_; }
  /// Of add_history, or of a History among the callbacks; FailedPrecondition without one.
  const keras::History& history() const;

 private:
  std::vector<AnyCallback> callbacks_;
  Model* model_ = nullptr;
  Params params_;
};

}  // namespace callbacks
}  // namespace tutti::keras
