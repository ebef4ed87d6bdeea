#pragma once
// What the leader knows of its cluster, and decides. No network: a service or an in-process link
// hands it what tasks say.

#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "coordination/barriers.h"
#include "coordination/cluster.h"
#include "coordination/key_value_store.h"
#include "tutti/coordination.pb.h"

namespace tutti::coordination {

/// Where a task's events go. Called with locks held: it neither blocks nor calls back.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_event(const v1::Event& event) = 0;
  /// The last call. `failure` is null when the other side ended it in order.
  virtual void on_end(const v1::Failure* failure) = 0;
};

struct CoordinatorOptions {
  Cluster cluster;
  uint64_t generation = 0;  // 0: by the clock, above those of earlier starts
  Limits limits = {};
  std::set<std::string> recoverable_jobs = {};  // whose tasks may be lost, and join anew
  // For tests: another clock, and no thread that looks at it; they call tick().
  std::function<TimePoint()> now = {};
};

/// Any thread may call.
class Coordinator {
 public:
  /// As Listener: neither blocks nor calls back.
  using Done = std::function<void(v1::Reply&&)>;

  explicit Coordinator(CoordinatorOptions options);
  ~Coordinator();

  /// Lets a task in, or refuses it: the listener hears which, then all that ends the job. Returns
  /// the number of the session, for disconnected().
  uint64_t join(const v1::JoinRequest& request, std::shared_ptr<Listener> listener);
  /// The task's connection is gone. Nothing happens when it left in order before.
  void disconnected(uint64_t session);
  /// Answers by `done`, once: at once, or when what was waited for is there or the slice is over.
  void call(const v1::Request& request, Done done);

  /// What time brings: limits that are over. Called by an own thread but in tests.
  void tick();

  /// Waits until no task is joined; false after `timeout`.
  bool wait_until_all_left(Milliseconds timeout);
  /// Tells those that have not left that the service ends, answers all calls, takes no more.
  void stop(const std::string& reason);

  uint64_t generation() const { return options_.generation; }
  const Limits& limits() const { return options_.limits; }
  /// What ended the job, if anything did.
  std::optional<v1::Failure> root_cause();

 private:
  struct Member {
    TaskState state = TaskState::kAwaited;
    uint64_t incarnation = 0;
    uint64_t session = 0;
    std::shared_ptr<Listener> listener;
    std::string process;
    v1::Progress progress;
    TimePoint last_heard;
    TimePoint last_moved;
    std::list<std::pair<uint64_t, v1::Reply>> answered;  // the last calls that changed something
  };
  struct Waiter {  // for a barrier's round, or for a key when round is 0
    std::string task;
    Barriers::Key what;
    TimePoint slice_end;
    Done done;
  };
  struct Suspicion {  // an error that another task's may have caused
    v1::Failure failure;
    TimePoint due;
    Done done;
  };

  // coordinator.cpp: who is in
  std::optional<v1::Failure> refusal(const v1::JoinRequest& request) TUTTI_REQUIRES(mutex_);
  std::optional<v1::Failure> refusal(const v1::Caller& caller) TUTTI_REQUIRES(mutex_);
  std::optional<v1::Failure> wrong_cluster(const v1::Caller& caller) const;
  void lose(const std::string& task, ErrorCode code, const std::string& how) TUTTI_REQUIRES(mutex_);
  void end_job(v1::Failure failure) TUTTI_REQUIRES(mutex_);
  void leave(const std::string& task) TUTTI_REQUIRES(mutex_);
  std::string described(const std::string& task) TUTTI_REQUIRES(mutex_);

  // coordinator_calls.cpp: what they ask
  void dispatch(const v1::Request& request, Done done) TUTTI_REQUIRES(mutex_);
  bool answer_again(const v1::Caller& caller, const Done& done) TUTTI_REQUIRES(mutex_);
  void remember(const v1::Caller& caller, const v1::Reply& reply) TUTTI_REQUIRES(mutex_);
  void heartbeat(const std::string& task, const v1::Progress& progress) TUTTI_REQUIRES(mutex_);
  void barrier(const std::string& task, const v1::Barrier& request, Done done)
      TUTTI_REQUIRES(mutex_);
  void set(const v1::Set& request) TUTTI_REQUIRES(mutex_);
  void get(const std::string& task, const v1::Get& request, Done done) TUTTI_REQUIRES(mutex_);
  void report(const std::string& task, const v1::ReportError& request, Done done)
      TUTTI_REQUIRES(mutex_);
  v1::Reply list(const v1::List& request) TUTTI_REQUIRES(mutex_);
  v1::Reply states() TUTTI_REQUIRES(mutex_);
  std::set<std::string> participants(const std::string& task, const v1::Barrier& request)
      TUTTI_REQUIRES(mutex_);
  void settle(const Barriers::Key& key) TUTTI_REQUIRES(mutex_);
  void fail_barrier(const Barriers::Key& key, ErrorCode code, const std::string& message)
      TUTTI_REQUIRES(mutex_);
  std::vector<std::string> missing(const BarrierRound& round) TUTTI_REQUIRES(mutex_);
  void answer_waiters(const std::function<bool(const Waiter&)>& chosen, const v1::Reply& reply)
      TUTTI_REQUIRES(mutex_);

  // coordinator_watch.cpp: what time brings
  void watch(std::stop_token stop);
  void look(TimePoint now) TUTTI_REQUIRES(mutex_);
  void forgive_own_freeze(TimePoint now) TUTTI_REQUIRES(mutex_);
  void find_frozen(TimePoint now) TUTTI_REQUIRES(mutex_);
  void find_stuck(TimePoint now) TUTTI_REQUIRES(mutex_);
  void end_slices(TimePoint now) TUTTI_REQUIRES(mutex_);
  TimePoint next_due() TUTTI_REQUIRES(mutex_);

  CoordinatorOptions options_;
  const uint64_t hash_;
  const std::string leader_;
  const bool own_ticker_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::map<std::string, Member> members_ TUTTI_GUARDED_BY(mutex_);
  std::optional<v1::Failure> root_ TUTTI_GUARDED_BY(mutex_);
  std::list<Suspicion> suspicions_ TUTTI_GUARDED_BY(mutex_);
  std::list<Waiter> waiters_ TUTTI_GUARDED_BY(mutex_);
  Barriers barriers_ TUTTI_GUARDED_BY(mutex_);
  KeyValueStore store_ TUTTI_GUARDED_BY(mutex_);
  uint64_t sessions_ TUTTI_GUARDED_BY(mutex_) = 0;
  TimePoint last_look_ TUTTI_GUARDED_BY(mutex_);
  bool stopped_ TUTTI_GUARDED_BY(mutex_) = false;
  bool all_leave_ TUTTI_GUARDED_BY(mutex_) = false;  // nobody joins any more

  std::jthread ticker_;
};

/// A failure as it goes over the wire.
v1::Failure make_failure(ErrorCode code, const std::string& message, const std::string& task = "",
                         bool ends_the_job = false);
v1::Reply reply_of(const v1::Failure& failure);

}  // namespace tutti::coordination
