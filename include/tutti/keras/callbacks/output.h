#pragma once
// Callbacks that write: files, tables, bars. RemoteMonitor is left out: it needs an HTTP client.

#include "tutti/keras/callbacks/callback.h"

namespace tutti::keras {

namespace callbacks {

struct ModelCheckpointOptions {
  std::string monitor = "val_loss";
  int verbose = 0;
  bool save_best_only = false;
  bool save_weights_only = false;
  /// auto, min or max.
  std::string mode = "auto";
  /// "epoch", or batches: counted over epochs, saved at the end of the execution that reaches them.
  Frequency save_freq = "epoch";
  std::optional<double> initial_value_threshold = std::nullopt;
};
/// Saves to `filepath`, in which `{epoch:02d}` (from 1), `{batch}` (from 1) and `{name:.2f}` of any
/// log stand for numbers; its folder is made if need be. It ends in ".tutti"; with
/// save_weights_only in ".weights.tutti" or ".safetensors" (InvalidArgument otherwise). A number
/// that is monitored with save_best_only must be among the logs of the time when it saves: batches
/// have no val_ ones. The time at which it saves is before the weights become the average of
/// use_ema, and before EarlyStopping restores the best ones.
AnyCallback ModelCheckpoint(const std::string& filepath,
                            const ModelCheckpointOptions& options = {});

struct BackupAndRestoreOptions {
  /// "epoch", or batches: counted over epochs, saved at the end of the execution that reaches them.
  Frequency save_freq = "epoch";
  /// Keeps the backup before the last one too, and takes it when the last one cannot be read.
  bool double_checkpoint = false;
  /// After a training that ended by itself the backup is removed.
  bool delete_checkpoint = true;
};
/// Keeps a backup of the training in the folder `backup_dir`, as a file that is there as a whole or
/// not at all: weights, optimizer, learning rate, the metrics of the epoch, the step of the random
/// numbers, the epoch and the place in it. A fit that finds one goes on there, whatever its
/// initial_epoch, with a model that may not be built yet: it ends with the weights, bit for bit, of
/// a fit that was not interrupted, if set_seed decides what is drawn and the data come in the same
/// order. Arrays do, shuffled or not; datasets do when they are made anew in a new process, with
/// seeds: the batches of the pass that were seen are read and passed over.
///
/// What other callbacks remember (EarlyStopping's best, ReduceLROnPlateau's patience) is not in it,
/// nor what those behind it in the list change in on_epoch_end: let it stand last. The history has
/// the epochs since. The file is that of the same model, compiled alike: InvalidArgument otherwise.
/// Only in fit: FailedPrecondition in a CallbackList, where train::Checkpoint does it.
AnyCallback BackupAndRestore(const std::string& backup_dir,
                             const BackupAndRestoreOptions& options = {});

struct CSVLoggerOptions {
  std::string separator = ",";
  bool append = false;
};
/// One line an epoch; columns are fixed at the first one: epoch, then the sorted names, with val_
/// columns for all when none was there.
AnyCallback CSVLogger(const std::string& filename, const CSVLoggerOptions& options = {});

struct TensorBoardOptions {
  /// Every so many epochs the weights as histograms `<weight>/histogram`; 0: never.
  int64_t histogram_freq = 0;
  /// The model's summary as a text.
  bool write_graph = true;
  /// With the histograms the weights as images `<weight>/image`.
  bool write_images = false;
  bool write_steps_per_second = false;
  /// "batch", or a number: after every so many batches of an epoch `batch_<name>` too.
  Frequency update_freq = "epoch";
  /// Unimplemented unless 0: TensorBoard's profiler reads XLA's traces only.
  int64_t profile_batch = 0;
  /// Every so many epochs the weights of Embedding layers, for the projector; 0: never.
  int64_t embeddings_freq = 0;
  /// File with the labels of the rows of an Embedding layer, by the layer's name, or "" for all.
  std::map<std::string, std::string> embeddings_metadata = {};
};
/// Event files for TensorBoard in `log_dir`/train and `log_dir`/validation: `epoch_<name>` (of
/// val_<name> in validation), `epoch_learning_rate`, `evaluation_<name>_vs_iterations` after each
/// evaluation, `batch_steps_per_second` and `epoch_steps_per_second`. The step of `epoch_` tags is
/// the epoch, from 0; that of `batch_` tags the number of training steps so far.
AnyCallback TensorBoard(const std::string& log_dir = "logs",
                        const TensorBoardOptions& options = {});

/// The numbers of the epochs, as fit returns them; a training begins anew. In a program:
/// `auto history = std::make_shared<callbacks::History>()`.
class History : public Callback, public keras::History {
 public:
  void on_train_begin(const Logs& logs) override;
  void on_epoch_end(int64_t epoch, Logs& logs) override { add(epoch, logs); }
  bool needs_batch_logs() const override { return false; }
};

/// The bar that fit draws; given to fit it stands in the place of fit's own. Params::verbose says
/// how: 0 not at all, 1 a bar, 2 a line.
AnyCallback ProgbarLogger();

}  // namespace callbacks

namespace config {

struct ProgressBarConfig {
  /// "keras3": `1/3 ━━━ 2s 1s/step - accuracy: 0.2500 - loss: 0.5000`; "classic", that of tf.keras:
  /// `1/3 [=>...] - ETA: 2s - loss: 0.5000 - accuracy: 0.2500`, numbers in the order of compile.
  std::string layout = "keras3";
  /// Whether a line is drawn over; unset: on a terminal.
  std::optional<bool> dynamic = std::nullopt;
};
/// How fit, evaluate and predict draw their bars from now on, in this process. InvalidArgument for
/// another layout. Any thread.
void set_progress_bar(const ProgressBarConfig& config);
inline void set_progress_bar(const char* layout) { set_progress_bar(ProgressBarConfig{layout}); }
ProgressBarConfig progress_bar();

}  // namespace config
}  // namespace tutti::keras
