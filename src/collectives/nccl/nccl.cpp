// Calls are announced between the hosts' processors, by Gloo, as all backends do; NCCL itself would
// hang or mix them when they differ. Then NCCL moves the tensors, and this thread looks whether it
// is through: NCCL does not notice a rank that has died or stands still, and c10d's own watchdog
// would end the process.

#include "collectives/nccl/nccl.h"

#include "tutti/base/error.h"

#ifdef TUTTI_WITH_NCCL

#include <chrono>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/mutex.h"
#include "collectives/gloo/c10d_store.h"
#include "collectives/gloo/gloo_group.h"
#include "collectives/host_communicator.h"
#include "tutti/base/text.h"

namespace tutti::collectives {
namespace {

using Clock = std::chrono::steady_clock;
using C10dWork = c10::intrusive_ptr<c10d::Work>;
constexpr std::chrono::microseconds kLookAgain{20};
constexpr std::chrono::milliseconds kForever{int64_t{1} << 40};  // this thread ends it before

class DoneWork : public Work {
 public:
  explicit DoneWork(std::exception_ptr error) : error_(std::move(error)) {}
  void wait() override {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::exception_ptr error_;
};

class NcclCommunicator : public Communicator {
 public:
  explicit NcclCommunicator(const GroupOptions& options)
      : Communicator("nccl", options.rank, options.size),
        group_(std::make_shared<GlooGroup>(options)),
        host_(make_group_communicator("nccl", group_, /*in_background=*/false)),
        where_(where()) {
    // An error is this file's to tell; a program that has set it otherwise is left alone.
    setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", /*overwrite=*/0);
    const auto nccl = c10d::ProcessGroupNCCL::Options::create();
    nccl->timeout = kForever;
    const auto store =
        c10::make_intrusive<C10dStore>(options.store, options.key("nccl/"), options.timeout);
    nccl_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, options.rank, options.size, nccl);
  }
  ~NcclCommunicator() override {
    try {
      nccl_->abort();                  // waits for nobody
    } catch (const std::exception&) {  // it has been
    }
  }

 private:
  using Options = CommunicationOptions;

  static bool on_device(const at::Tensor& tensor) { return tensor.is_cuda(); }

  CallRecord record(Verb verb, const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum,
                    int root = 0) const {
    CallRecord call = record_of(verb, num_calls(), tensor, op, root);
    call.wire = CallRecord::kOnDevice;
    return call;
  }

  /// Announces, starts by `start`, and returns when it is done.
  template <class Function>
  void collective(const CallRecord& call, const Options& options, Function start) {
    at::NoGradGuard no_grad;
    std::string difference;
    if (!group_->announce(where_, call, nullptr, 0, options.timeout(), &difference)) {
      throw InvalidArgument(difference);
    }
    try {
      finish(start());
    } catch (const std::exception& error) {
      group_->fail(ErrorCode::kAborted, cat("aborted, ", to_string(call.verb), " failed on rank ",
                                            rank(), ": ", error.what()));
      nccl_->abort();
      const auto failure = group_->failure();
      throw_error(failure->code, call_head(where_, call) + failure->reason);
    }
  }

  /// Throws when it fails, at the deadline (see GlooGroup::fail_at_deadline) and when the group has
  /// been aborted.
  void finish(const C10dWork& work) {
    while (!work->isCompleted()) {
      if (const auto failure = group_->failure()) throw_error(failure->code, failure->reason);
      if (Clock::now() >= group_->deadline()) {
        std::vector<int> others;
        for (int other = 0; other < size(); ++other) {
          if (other != rank()) others.push_back(other);
        }
        const auto failure = group_->fail_at_deadline(others);
        throw_error(failure.code, failure.reason);
      }
      std::this_thread::sleep_for(kLookAgain);
    }
    if (!work->isSuccess()) std::rethrow_exception(work->exception());
    work->wait();  // the current stream goes on behind it
  }

  void do_all_reduce(at::Tensor& tensor, ReduceOp op, const Options& options) override {
    if (!on_device(tensor)) return host_->all_reduce(tensor, op, options);
    std::vector<at::Tensor> tensors{tensor.detach()};
    collective(record(Verb::kAllReduce, tensor, op), options,
               [&] { return nccl_->allreduce(tensors); });
    if (op == ReduceOp::kMean) tensors[0].div_(size());
    note_written(tensor);
  }

  /// Over when it returns: the announcement needs this thread.
  std::unique_ptr<Work> do_start_all_reduce(at::Tensor& tensor, ReduceOp op,
                                            const Options& options) override {
    std::exception_ptr error;
    try {
      do_all_reduce(tensor, op, options);
    } catch (...) {
      error = std::current_exception();
    }
    return std::make_unique<DoneWork>(std::move(error));
  }

  /// NCCL gathers equal parts: as many rows as the longest has.
  at::Tensor do_all_gather(const at::Tensor& tensor, const Options& options) override {
    if (!on_device(tensor)) return host_->all_gather(tensor, options);
    at::Tensor gathered;
    std::vector<int64_t> rows;
    int64_t most = 0;
    collective(record(Verb::kAllGather, tensor), options, [&] {
      for (int other = 0; other < size(); ++other) {
        rows.push_back(group_->call_of(other).sizes[0]);
        most = std::max(most, rows.back());
      }
      std::vector<int64_t> sizes = tensor.sizes().vec();
      sizes[0] = most;
      at::Tensor mine = tensor.detach();
      if (mine.size(0) < most) {
        mine = at::zeros(sizes, tensor.options().requires_grad(false));
        mine.narrow(0, 0, tensor.size(0)).copy_(tensor.detach());
      }
      sizes[0] = most * size();
      gathered = at::empty(sizes, tensor.options().requires_grad(false));
      return nccl_->_allgather_base(gathered, mine);
    });
    std::vector<at::Tensor> parts;
    for (std::size_t other = 0; other < rows.size(); ++other) {
      parts.push_back(gathered.narrow(0, most * static_cast<int64_t>(other), rows[other]));
    }
    return at::cat(parts);
  }

  at::Tensor do_reduce_scatter(const at::Tensor& tensor, ReduceOp op,
                               const Options& options) override {
    if (!on_device(tensor)) return host_->reduce_scatter(tensor, op, options);
    at::Tensor part;
    at::Tensor whole = tensor.detach();
    collective(record(Verb::kReduceScatter, tensor, op), options, [&] {
      std::vector<int64_t> sizes = tensor.sizes().vec();
      sizes[0] /= size();
      part = at::empty(sizes, tensor.options().requires_grad(false));
      return nccl_->_reduce_scatter_base(part, whole);
    });
    if (op == ReduceOp::kMean) part.div_(size());
    return part;
  }

  void do_broadcast(at::Tensor& tensor, int root, const Options& options) override {
    if (!on_device(tensor)) return host_->broadcast(tensor, root, options);
    std::vector<at::Tensor> tensors{tensor.detach()};
    c10d::BroadcastOptions from;
    from.rootRank = root;
    collective(record(Verb::kBroadcast, tensor, ReduceOp::kSum, root), options,
               [&] { return nccl_->broadcast(tensors, from); });
    if (rank() != root) note_written(tensor);
  }

  void do_barrier(const Options& options) override { host_->barrier(options); }

  void do_abort(std::string_view reason) override {
    group_->fail(ErrorCode::kAborted, cat("aborted, ", reason));
  }

  std::shared_ptr<GlooGroup> group_;
  std::unique_ptr<Communicator> host_;  // for tensors of the host, over the same connections
  const std::string where_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> nccl_;
};

}  // namespace

bool has_nccl() { return true; }

std::unique_ptr<Communicator> make_nccl(const GroupOptions& options) {
  options.check();
  return std::make_unique<NcclCommunicator>(options);
}

}  // namespace tutti::collectives

#else

namespace tutti::collectives {

bool has_nccl() { return false; }

std::unique_ptr<Communicator> make_nccl(const GroupOptions&) {
  throw Unimplemented(
      "make_communicator: NCCL between processes is not in this build, expected AUTO or RING; "
      "build with TUTTI_WITH_CUDA and CUDA's headers. GPUs of one process are reduced by "
      "NcclAllReduce");
}

}  // namespace tutti::collectives

#endif
