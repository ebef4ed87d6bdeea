#pragma once
// The functions that wait for a worker, and the rules of their errors: TensorFlow's closure queue.

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/mutex.h"
#include "ps/remote_value.h"

namespace tutti::ps {

/// Something that every worker has of its own, by number: an iterator.
struct OfEachWorker {
  int64_t number = 0;
};
/// What a function is given: tensors, what another function returned, or the worker's own piece.
using Argument = std::variant<Nest, ValuePtr, OfEachWorker>;

struct Closure {
  std::string function;
  std::vector<Argument> arguments;
  ValuePtr result;
  int64_t lost_server = -1;  ///< that an earlier run of it reported
};

struct QueueOptions {
  /// Closures that wait at most; 0: any number, with a warning.
  std::size_t size = 256 * 1024;
};

/// First in, first out; a closure whose arguments are to come from others is passed by until they
/// are there. Any thread.
///
/// The first error is kept. At the next put(), wait() or done() what is under way is cancelled and
/// waited for, what waits is dropped (both their values are Cancelled), and the error is thrown;
/// then the queue is as new.
class ClosureQueue {
 public:
  /// `cancel` is called, without locks, when closures under way are to be ended.
  explicit ClosureQueue(const QueueOptions& options, std::function<void()> cancel = {});

  /// Blocks while the queue is full or someone is in wait(). Throws a pending error first,
  /// Cancelled once stopped.
  void put(Closure closure);
  /// Blocks until there are neither closures that wait nor closures under way.
  void wait();
  /// The same question without waiting.
  bool done();

  // ---- for workers; each closure that is got is given back by one of the three
  /// Blocks until there is one; nothing once stopped.
  std::optional<Closure> get();
  /// Like get(), and nothing when there is none at once.
  std::optional<Closure> try_get();
  void finished(const Closure& closure, Nest value);
  /// Another worker is to run it: it is the next one. Dropped when an error is pending.
  void put_back(Closure closure);
  void failed(const Closure& closure, const Error& error);

  /// Drops what waits, and lets go of whoever blocks.
  void stop();

 private:
  enum class Readiness { kNotYet, kReady, kNever };
  static Readiness readiness(const Closure& closure);
  std::optional<Closure> take() TUTTI_REQUIRES(mutex_);
  void end_one() TUTTI_REQUIRES(mutex_);
  void throw_pending() TUTTI_REQUIRES(mutex_);
  void wait_for_all() TUTTI_REQUIRES(mutex_);
  void drop_waiting(const std::string& why) TUTTI_REQUIRES(mutex_);

  const QueueOptions options_;
  const std::function<void()> cancel_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Closure> waiting_ TUTTI_GUARDED_BY(mutex_);
  int64_t under_way_ TUTTI_GUARDED_BY(mutex_) = 0;
  int64_t waiters_ TUTTI_GUARDED_BY(mutex_) = 0;
  bool clearing_ TUTTI_GUARDED_BY(mutex_) = false;
  bool stopped_ TUTTI_GUARDED_BY(mutex_) = false;
  struct Pending {
    ErrorCode code;
    std::string message;
  };
  std::optional<Pending> error_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::ps
