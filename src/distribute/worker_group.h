#pragma once
// One worker's view of the workers of a strategy: the seam between MultiWorkerMirroredStrategy and
// whatever connects the processes. Who makes one needs a Communicator with a rank a worker; in
// tests workers are threads.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "distribute/early_calls.h"
#include "tutti/base/function_ref.h"
#include "tutti/collectives/communicator.h"
#include "tutti/distribute/strategies.h"

namespace tutti::coordination {
class CoordinationAgent;
}

namespace tutti::distribute {

class Membership;

/// The texts of all ranks, in rank order. A collective.
std::vector<std::string> gather_texts(collectives::Communicator& group, const std::string& mine,
                                      const CommunicationOptions& options);
/// The same number for the same text in every build.
int64_t hash_of(const std::string& text);

/// Every collective is called by one thread of each worker at a time, in the same order on all
/// workers: by the thread of the worker's first replica. Workers that make different calls all get
/// InvalidArgument that names both, and may go on. A worker that fails tells the others why: their
/// pending or next collective is Aborted with its message, and they may go on too. After any other
/// error the group is broken, for ever.
///
/// Between processes, which have a Membership, an error that not all workers have ends the job: a
/// pending or next collective of every worker throws what came first, under its own code,
/// "worker:1 failed first: …". A worker that does not move is found by the progress that
/// collectives report.
///
/// Early calls, which a thread of the group makes meanwhile, are over before any other collective
/// begins; their errors are thrown there. Workers that come to an early call and to another one at
/// the same time do the other one first, and no early calls from then on.
///
/// Tensors on accelerators go by way of the host.
class WorkerGroup {
 public:
  /// Of workers that are threads.
  explicit WorkerGroup(std::unique_ptr<collectives::Communicator> communicator);
  /// Of workers that are processes.
  WorkerGroup(std::unique_ptr<collectives::Communicator> communicator,
              std::unique_ptr<Membership> membership);
  /// Others do not wait for a worker that has gone: their calls are Aborted. Between processes it
  /// waits until all others are at their end too, for at most the time limit of a collective; an
  /// exception that destroys it is told to the others instead, at once.
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  int worker() const { return communicator_->rank(); }
  int num_workers() const { return communicator_->size(); }
  /// The chief is worker 0: its variables begin everywhere, and it speaks for all.
  bool is_chief() const { return worker() == 0; }
  /// Collectives that this worker has begun.
  int64_t num_calls() const { return communicator_->num_calls(); }
  /// This worker's part in the coordination of the job; null where there is none.
  std::shared_ptr<coordination::CoordinationAgent> agent() const;
  /// As CoordinationAgent's; nothing where there is none.
  void count_as_moving(bool on) const;
  /// Of calls that are made without options.
  const CommunicationOptions& options() const { return options_; }
  void set_options(const CommunicationOptions& options) { options_ = options; }

  /// As Communicator's. `tensor` need not be contiguous.
  void all_reduce(at::Tensor& tensor, ReduceOp op, const CommunicationOptions& options);
  at::Tensor all_gather(const at::Tensor& tensor, const CommunicationOptions& options);
  void broadcast(at::Tensor& tensor, int root, const CommunicationOptions& options);
  void barrier(const CommunicationOptions& options);

  /// Calls ahead of the caller: buckets of gradients while backward goes on.
  EarlyCalls& early() { return early_; }
  /// Whether gradients are exchanged early: between hosts, unless TUTTI_OVERLAP says 0, or 1 for
  /// anywhere.
  bool overlaps() const { return overlaps_; }
  void set_overlaps(bool overlaps) { overlaps_ = overlaps; }
  /// Waits for the early calls and throws what they threw, once.
  void finish_early();
  /// Numbers things that all workers make in one order, from 0.
  int64_t next_number() { return made_++; }

  /// Adds each number up over the workers.
  void add_up(std::vector<int64_t>& numbers);
  /// The numbers of all workers, as many of each.
  std::vector<std::vector<int64_t>> exchange(const std::vector<int64_t>& numbers);
  /// Worker 0's value, in the strides of `mine`, whose shape and dtype must be worker 0's.
  at::Tensor of_first(const at::Tensor& mine);
  int64_t of_first(int64_t mine);
  /// InvalidArgument on every worker unless all have brought the same text.
  void agree(const char* operation, const std::string& text);

  /// Calls `body`. When it throws what is not an error of all workers, the others are told.
  void guarded(FunctionRef<void()> body);
  /// The destructor's part between processes, for a process that ends without it: true when all
  /// workers came to their ends together. What ends in one of them from then on is not noticed.
  bool leave() noexcept;
  /// Fails the pending and all later calls of every worker. Any thread may call it.
  void abort(const std::string& reason);

  /// While it lives, reads of ON_READ variables on this thread see this worker alone, without a
  /// collective: for what only one worker looks at.
  class LocalReads {
   public:
    explicit LocalReads(WorkerGroup* group) : group_(group) {
      if (group_ != nullptr) ++group_->local_reads_;
    }
    ~LocalReads() {
      if (group_ != nullptr) --group_->local_reads_;
    }
    LocalReads(const LocalReads&) = delete;
    LocalReads& operator=(const LocalReads&) = delete;

   private:
    WorkerGroup* group_;
  };
  bool reads_locally() const { return local_reads_ > 0; }

 private:
  class Waiting;
  enum class From { kCaller, kEarly };
  void collective(const char* name, FunctionRef<void()> call);
  bool done(const char* name, FunctionRef<void()> call, From from);
  bool reduce_early(at::Tensor& bucket);
  bool settle_to_tell(ErrorCode code, const std::string& failure);
  void tell(ErrorCode code, const std::string& failure);
  void explain(const std::string& mismatch, From from);
  void remember(const std::string& error);
  std::string last_error();
  std::vector<std::string> say(const std::string& mine, double patience);
  bool leaves_in_order() noexcept;
  void abort_as_left() noexcept;

  const int exceptions_;  // under way when it was made
  std::unique_ptr<collectives::Communicator> communicator_;
  std::unique_ptr<Membership> membership_;
  CommunicationOptions options_;
  bool left_in_order_ = false;
  std::atomic<bool> broken_{false};
  std::atomic<bool> all_know_{false};  // the last error was thrown on every worker
  Mutex mutex_;
  std::string last_error_ TUTTI_GUARDED_BY(mutex_);  // that this worker told, or that all know
  int local_reads_ = 0;
  int64_t made_ = 0;
  bool overlaps_ = false;
  EarlyCalls early_;  // the last: its thread uses the others
};

/// The workers of the resolver's cluster, over processes: null for a single one, for none and for
/// an evaluator. Throws as MultiWorkerMirroredStrategy's constructor.
std::shared_ptr<WorkerGroup> workers_from_environment(
    const cluster_resolver::ClusterResolver& resolver,
    const MultiWorkerMirroredStrategyOptions& options);

}  // namespace tutti::distribute
