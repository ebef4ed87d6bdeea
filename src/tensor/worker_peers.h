#pragma once
// What objects that several processes hold together say to a checkpoint: the seam between saving
// and the workers of a strategy, of which saving knows nothing else.

#include <memory>
#include <string>
#include <vector>

#include "tutti/base/function_ref.h"
#include "tutti/tensor/trackable.h"

namespace tutti {

/// The workers that hold an object. Every call but the first three is made by all of them, in the
/// same order, and no call leaves one waiting for another that failed.
class WorkerPeers {
 public:
  virtual ~WorkerPeers() = default;
  virtual int worker() const = 0;
  virtual int num_workers() const = 0;
  /// The same for the same workers.
  virtual const void* identity() const = 0;
  bool is_chief() const { return worker() == 0; }

  /// The texts of all, in their order. InvalidArgument on all that names both when two are in other
  /// operations.
  std::vector<std::string> exchange(const std::string& operation, const std::string& mine) const;
  /// The chief's text.
  std::string of_chief(const std::string& operation, const std::string& mine) const;
  /// `body` on every worker; it makes no call here. When it throws on one, all throw once all are
  /// through: that one its own error, the others Aborted with its message.
  void together(const std::string& operation, FunctionRef<void()> body) const;
  /// `body`, which may make calls here or of the strategy: when it throws on one worker, the others
  /// get Aborted in their pending or next call.
  void guarded(FunctionRef<void()> body) const { call_guarded(body); }

  /// While it lives this worker counts as moving, however long its disk takes: the others, which
  /// wait, do so within the time limit of their call. `peers` may be null.
  class Moving {
   public:
    explicit Moving(const WorkerPeers* peers) : peers_(peers) {
      if (peers_ != nullptr) peers_->count_as_moving(true);
    }
    ~Moving() {
      if (peers_ != nullptr) peers_->count_as_moving(false);
    }
    Moving(const Moving&) = delete;
    Moving& operator=(const Moving&) = delete;

   private:
    const WorkerPeers* peers_;
  };

 private:
  virtual std::vector<std::string> gather(const std::string& mine) const = 0;
  virtual void call_guarded(FunctionRef<void()> body) const = 0;
  virtual void count_as_moving(bool /*on*/) const {}
};

/// A Trackable that knows of workers.
class SharedTrackable : public Trackable {
 public:
  /// Null: this process has it alone.
  virtual std::shared_ptr<WorkerPeers> peers() const { return nullptr; }
  /// True: each worker has a state of its own (a place in its part of the data). A checkpoint of
  /// several workers then has those of all, {"of_workers": list}; as many workers get back theirs,
  /// others the whole list, of which set_state makes what it can.
  virtual bool differs_between_workers() const { return false; }
};

inline constexpr const char* kOfWorkers = "of_workers";

/// For messages and comparisons: absolute, without "." and "..".
std::string plain_path(const std::string& path);
/// Whether this worker, which was given `path`, writes what all save together: the chief, and who
/// was given another path than the chief (a folder of its own, as TensorFlow's tutorials have it).
/// All call it. Without peers, yes.
bool writes_to(const WorkerPeers* peers, const std::string& operation, const std::string& path);

}  // namespace tutti
