#pragma once
// Checkpoints: the state of objects in one file, by name.
//
// A checkpoint file is a safetensors file (docs/formats.md): each tensor under its path, as
// `model/weights/dense/kernel`. It is written beside its place and renamed, so that it is there as
// a whole or not at all.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tutti/tensor/trackable.h"

namespace tutti::train {

/// What became of a restore. Says in the log what was left over when it dies unasked.
class LoadStatus {
 public:
  struct Record;
  explicit LoadStatus(std::shared_ptr<Record> record);
  ~LoadStatus();
  LoadStatus(LoadStatus&&) noexcept = default;
  LoadStatus& operator=(LoadStatus&&) noexcept = default;
  /// InvalidArgument that names them when something in the file has no object here, an object here
  /// has nothing in the file, or a state still waits for its object to be built.
  LoadStatus& assert_consumed();
  /// The same for objects without a state in the file only.
  LoadStatus& assert_existing_objects_matched();
  /// What the file has more is no news.
  LoadStatus& expect_partial();

 private:
  std::shared_ptr<Record> record_;
};

struct CheckpointOptions {
  /// True: write and save come back when they have copied the states; a thread of the checkpoint
  /// writes them. One write at a time: the next call of write, save, read, restore or sync waits
  /// for it, and throws what went wrong there. The destructor waits too, and logs it.
  bool enable_async = false;
};

/// Objects with names, saved and restored together: `Checkpoint checkpoint({{"model", model},
/// {"optimizer", optimizer}, {"epoch", epoch}})`. One thread at a time; outside replicas.
class Checkpoint {
 public:
  using Objects = std::map<std::string, AnyTrackable>;
  /// InvalidArgument: an empty name, one with a slash, or "save_counter".
  explicit Checkpoint(Objects objects);

  /// One object more, which users need not know of: a file that lacks it is as good. In the place
  /// of an earlier one of that name; InvalidArgument as the constructor.
  void add_hidden(const std::string& name, AnyTrackable object);

  /// Writes the states to `path`, to which ".tutti" is added unless it ends so. Gives `path`
  /// without it. Makes the folder when it is not there. All objects must have a state
  /// (FailedPrecondition); nothing is written otherwise.
  std::string write(const std::string& path, const CheckpointOptions& options = {}) const;
  /// Counts one up and writes `prefix`-N; then the file `checkpoint` beside it names it the latest.
  std::string save(const std::string& prefix, const CheckpointOptions& options = {});
  /// Waits until what enable_async left to write is written.
  void sync();
  /// Gives the states of `path` (as write or save gave it) to the objects of their names: to all of
  /// them or, when one does not fit (InvalidArgument), to none. An object that is not built yet
  /// takes its state when it is. NotFound, DataLoss or InvalidArgument says what is wrong with the
  /// file.
  LoadStatus read(const std::string& path);
  /// The same; the empty path does nothing, so that latest_checkpoint's result may be passed on.
  LoadStatus restore(const std::string& path);
  /// How often save() was called, over all restores.
  int64_t save_counter() const { return save_counter_; }

 private:
  friend class CheckpointManager;
  class Background;
  std::string write_then(const std::string& path, const CheckpointOptions& options,
                         std::function<void(const std::string& bare)> then) const;
  Objects objects_;
  std::set<std::string> hidden_;
  std::shared_ptr<Background> background_;
  int64_t save_counter_ = 0;
};

/// The path that the file `checkpoint` of the folder names the latest, or "" when there is none or
/// its file is gone.
std::string latest_checkpoint(const std::string& directory);

struct CheckpointManagerOptions {
  /// Older ones are deleted; unset: none is.
  std::optional<int64_t> max_to_keep = 5;
  /// One of every so many hours is kept for ever.
  std::optional<double> keep_checkpoint_every_n_hours = std::nullopt;
  std::string checkpoint_name = "ckpt";
  /// With `checkpoint_interval`: the training's step, asked at each save.
  std::function<int64_t()> step_counter = {};
  /// Steps that must lie between two saves.
  std::optional<int64_t> checkpoint_interval = std::nullopt;
  /// What restore_or_initialize calls when there is nothing to restore.
  std::function<void()> init_fn = {};
};

/// Keeps the last checkpoints of a folder. What it keeps is written down in the file `checkpoint`
/// there, and taken up again by the next manager of the folder.
class CheckpointManager {
 public:
  CheckpointManager(Checkpoint& checkpoint, const std::string& directory,
                    const CheckpointManagerOptions& options = {});
  /// Saves as `<directory>/<name>-N`, N the save counter or `checkpoint_number`; then deletes what
  /// is too old. With check_interval it does nothing, and gives nothing, before
  /// `checkpoint_interval` steps have passed.
  std::optional<std::string> save(std::optional<int64_t> checkpoint_number = std::nullopt,
                                  bool check_interval = true);
  /// Restores the latest and gives its path; else calls init_fn and gives nothing.
  std::optional<std::string> restore_or_initialize();
  /// "" when there is none.
  std::string latest_checkpoint() const;
  /// Those kept, the oldest first.
  std::vector<std::string> checkpoints() const;
  const std::string& directory() const { return directory_; }
  Checkpoint& checkpoint() const { return checkpoint_; }
  std::optional<int64_t> checkpoint_interval() const { return options_.checkpoint_interval; }

 private:
  struct Kept {
    std::string path;
    double time;  ///< seconds since the epoch, when it was saved
  };
  void drop_old();
  Checkpoint& checkpoint_;
  std::string directory_;
  CheckpointManagerOptions options_;
  std::vector<Kept> kept_;
  std::vector<Kept> preserved_;  ///< those that keep_checkpoint_every_n_hours keeps for ever
  double last_preserved_;
  std::optional<int64_t> last_step_;
};

struct CheckpointsIteratorOptions {
  double min_interval_secs = 0;
  /// Seconds to wait for a new one; unset: for ever.
  std::optional<double> timeout = std::nullopt;
  /// Asked at each timeout: true ends. Without it a timeout ends.
  std::function<bool()> timeout_fn = {};
};
/// Waits for checkpoints to appear in a folder.
class CheckpointsIterator {
 public:
  explicit CheckpointsIterator(const std::string& directory,
                               const CheckpointsIteratorOptions& options = {});
  /// The next latest one, when it is another than the last; nothing after a timeout. Blocks,
  /// asleep.
  std::optional<std::string> next();

 private:
  std::string directory_;
  CheckpointsIteratorOptions options_;
  std::string last_;
  double last_time_ = 0;
};

}  // namespace tutti::train
