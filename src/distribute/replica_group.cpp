#include "distribute/replica_group.h"

#include <exception>

#include "distribute/worker_group.h"
#include "tutti/base/error.h"

namespace tutti::distribute {
namespace {

using collectives::Communicator;
using collectives::Work;

/// What the first replica leaves for the others. It writes between two meetings of all of them,
/// after everybody has come for the call and before anybody reads.
struct FromFirst {
  std::exception_ptr error;
  at::Tensor result;
};

/// Was over when it started.
class DoneWork : public Work {
 public:
  explicit DoneWork(std::exception_ptr error) : error_(std::move(error)) {}
  void wait() override {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::exception_ptr error_;
};

class ReplicaCommunicator : public Communicator {
 public:
  ReplicaCommunicator(std::unique_ptr<Communicator> local, std::shared_ptr<FromFirst> from_first,
                      WorkerGroup& workers)
      : Communicator("replicas", workers.worker() * local->size() + local->rank(),
                     workers.num_workers() * local->size()),
        local_(std::move(local)),
        from_first_(std::move(from_first)),
        workers_(workers) {}

 private:
  bool alone() const { return local_->size() == 1; }
  bool is_first() const { return local_->rank() == 0; }

  /// Runs `call` on the first replica. What it throws, all local replicas throw when they have met
  /// again, in `meet`.
  template <class Call, class Meet>
  void by_first(Call call, Meet meet) {
    if (is_first()) {
      from_first_->error = nullptr;
      try {
        call();
      } catch (...) {
        from_first_->error = std::current_exception();
      }
    }
    meet();
    if (from_first_->error) std::rethrow_exception(from_first_->error);
  }

  void do_all_reduce(at::Tensor& tensor, ReduceOp op,
                     const CommunicationOptions& options) override {
    if (alone()) return workers_.all_reduce(tensor, op, options);
    local_->all_reduce(tensor, ReduceOp::kSum, options);
    by_first(
        [&] {
          workers_.all_reduce(tensor, ReduceOp::kSum, options);
          at::NoGradGuard no_grad;
          if (op == ReduceOp::kMean) tensor.div_(static_cast<double>(size()));
        },
        [&] { local_->broadcast(tensor, 0, options); });
  }

  std::unique_ptr<Work> do_start_all_reduce(at::Tensor& tensor, ReduceOp op,
                                            const CommunicationOptions& options) override {
    try {
      do_all_reduce(tensor, op, options);
    } catch (...) {
      return std::make_unique<DoneWork>(std::current_exception());
    }
    return std::make_unique<DoneWork>(nullptr);
  }

  at::Tensor do_all_gather(const at::Tensor& tensor, const CommunicationOptions& options) override {
    if (alone()) return workers_.all_gather(tensor, options);
    const at::Tensor here = local_->all_gather(tensor, options);
    by_first([&] { from_first_->result = workers_.all_gather(here, options); },
             [&] { local_->barrier(options); });
    return from_first_->result.clone();
  }

  at::Tensor do_reduce_scatter(const at::Tensor& tensor, ReduceOp op,
                               const CommunicationOptions& options) override {
    at::Tensor whole = tensor.detach().clone();
    do_all_reduce(whole, op, options);
    const int64_t rows = tensor.size(0) / size();
    return whole.narrow(0, rows * rank(), rows).clone();
  }

  void do_broadcast(at::Tensor& tensor, int root, const CommunicationOptions& options) override {
    const int root_worker = root / local_->size();
    if (alone()) return workers_.broadcast(tensor, root_worker, options);
    // Other workers' replicas meet too: all have then come for this call.
    local_->broadcast(tensor, root % local_->size(), options);
    by_first([&] { workers_.broadcast(tensor, root_worker, options); },
             [&] { local_->broadcast(tensor, 0, options); });
  }

  void do_barrier(const CommunicationOptions& options) override {
    if (alone()) return workers_.barrier(options);
    local_->barrier(options);
    by_first([&] { workers_.barrier(options); }, [&] { local_->barrier(options); });
  }

  void do_abort(std::string_view reason) override {
    local_->abort(reason);
    workers_.abort(std::string(reason));
  }

  std::unique_ptr<Communicator> local_;
  std::shared_ptr<FromFirst> from_first_;
  WorkerGroup& workers_;
};

}  // namespace

std::vector<std::unique_ptr<collectives::Communicator>> make_replica_group(
    std::vector<std::unique_ptr<collectives::Communicator>> local, WorkerGroup& workers) {
  const auto from_first = std::make_shared<FromFirst>();
  std::vector<std::unique_ptr<Communicator>> group;
  for (auto& replica : local)
    group.push_back(std::make_unique<ReplicaCommunicator>(std::move(replica), from_first, workers));
  return group;
}

}  // namespace tutti::distribute
