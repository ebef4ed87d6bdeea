#pragma once
// Checkpoints: the state of objects in one file, by name.
//
// A checkpoint file is a safetensors file (docs/formats.md): each tensor under its path, as
// `model/weights/dense/kernel`. It is written beside its place, flushed to the disk and renamed, so
// that it is there as a whole or not at all (docs/reliability.md).
//
// Several workers. The objects of a strategy with several workers (variables, models, optimizers,
// metrics, the strategy) are saved and restored by all workers together: each makes the same calls.
// The chief alone writes. A worker that was given another path than the chief, as the folders
// `workertemp_1` of TensorFlow's tutorials, writes its own copy there, which the program may
// delete. Everybody restores the chief's file: files that are not the same, or that a worker does
// not see, are an error on all workers, and so is whatever fails on one of them. Iterators of
// distributed datasets have a place on each worker; a checkpoint has them all. Another number of
// workers or replicas can restore it: values that are the sums of the replicas' are shared out
// anew, and a pass over data takes as many steps as had been taken.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tutti/tensor/trackable.h"

namespace tutti {
class WorkerPeers;
}
namespace tutti::io {
class FileSystem;
}

namespace tutti::train {

class FolderLock;
struct StateFile;

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
  /// InvalidArgument: an empty name, one with a slash, or "save_counter". `files`: for tests, what
  /// writes; null: the system.
  explicit Checkpoint(Objects objects, std::shared_ptr<io::FileSystem> files = nullptr);

  /// One object more, which users need not know of: a file that lacks it is as good. In the place
  /// of an earlier one of that name; InvalidArgument as the constructor.
  void add_hidden(const std::string& name, AnyTrackable object);

  /// Writes the states to `path`, to which ".tutti" is added unless it ends so. Gives `path`
  /// without it. Makes the folder when it is not there. All objects must have a state
  /// (FailedPrecondition); nothing is written otherwise. What fails of the disk is
  /// ResourceExhausted, NotFound, PermissionDenied or Unavailable; what was there before is there
  /// still, and the next save begins anew.
  std::string write(const std::string& path, const CheckpointOptions& options = {}) const;
  /// Counts one up and writes `prefix`-N; then the file `checkpoint` beside it names it the latest.
  /// From the first save on this process is the folder's only writer, until the Checkpoint is gone:
  /// FailedPrecondition names both where another one is (a second job, a chief that was replaced).
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
  class Locks;
  /// What goes before and behind the file, where one is written.
  struct Around {
    std::function<void(const std::string& bare)> before;
    std::function<void(const std::string& bare)> after;
  };
  /// Null: this process alone.
  std::shared_ptr<WorkerPeers> peers() const;
  void wait(const WorkerPeers* peers) const;
  std::string names() const;
  Nest states(const WorkerPeers* peers) const;
  std::string write_with(const std::string& path, const CheckpointOptions& options,
                         Around around) const;
  /// Nothing when it cannot be read on every worker; `why` says on which.
  std::shared_ptr<const StateFile> try_read(const WorkerPeers* peers, const std::string& path,
                                            std::string& why) const;
  LoadStatus give(const WorkerPeers* peers, const std::string& path, const StateFile& file);
  Objects objects_;
  std::set<std::string> hidden_;
  std::shared_ptr<io::FileSystem> files_;
  std::shared_ptr<Locks> locks_;
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
/// there, and taken up again by the next manager of the folder. From its first save on its process
/// is the folder's only writer, as Checkpoint::save says. What a process that was killed in a save
/// left there, the next save removes. With several workers every worker has one and makes its
/// calls; the chief decides.
class CheckpointManager {
 public:
  CheckpointManager(Checkpoint& checkpoint, const std::string& directory,
                    const CheckpointManagerOptions& options = {});
  /// Saves as `<directory>/<name>-N`, N the save counter or `checkpoint_number`; then deletes what
  /// is too old. With check_interval it does nothing, and gives nothing, before
  /// `checkpoint_interval` steps have passed. With enable_async the states are copied here, and the
  /// rest is done by a thread of the checkpoint's.
  std::optional<std::string> save(std::optional<int64_t> checkpoint_number = std::nullopt,
                                  bool check_interval = true,
                                  const CheckpointOptions& options = {});
  /// Checkpoint::sync.
  void sync() { checkpoint_.sync(); }
  /// Restores the latest that can be read and gives its path; a warning says why one was passed
  /// over. Without any calls init_fn and gives nothing. DataLoss, with all reasons, when none of
  /// those that are there can be read. Of several workers the chief says which they are: all take
  /// the same.
  std::optional<std::string> restore_or_initialize();
  /// "" when there is none. What is being written is not there yet.
  std::string latest_checkpoint() const;
  /// Those kept, the oldest first.
  std::vector<std::string> checkpoints() const;
  const std::string& directory() const { return directory_; }
  Checkpoint& checkpoint() const { return checkpoint_; }
  std::optional<int64_t> checkpoint_interval() const { return options_.checkpoint_interval; }

 private:
  struct Folder;
  struct Plan;
  Plan plan_for(const std::string& path, double now) const;
  Checkpoint& checkpoint_;
  std::string directory_;
  CheckpointManagerOptions options_;
  std::shared_ptr<Folder> folder_;  ///< the writing thread has it too
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
