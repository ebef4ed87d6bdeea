// Ranks are threads and see each other's memory. An all-reduce is: meet, each rank reduces its
// share of the entries from all ranks' buffers and writes it into all of them, leave. Shares are
// disjoint, so nobody reads what another writes.

#include <exception>

#include "collectives/in_process.h"
#include "collectives/local_reduce.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::collectives {
namespace {

// Entries; whole cache lines for every dtype.
constexpr int64_t kLine = 64;
// Up to here one rank does it all: a line that another core has just read is dear to write.
constexpr int64_t kSmallBytes = 4096;

/// What a rank tells the others of its call.
struct Call {
  at::Tensor tensor;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int64_t number = 0;
};

/// What all ranks share. The calls are here and own their tensors, because a rank that fails
/// returns while another may still read its call.
struct Group {
  explicit Group(std::shared_ptr<Rendezvous> meeting_point)
      : rendezvous(std::move(meeting_point)), calls(static_cast<std::size_t>(rendezvous->size())) {}
  std::shared_ptr<Rendezvous> rendezvous;
  std::vector<Call> calls;
};

/// What calls must have in common, and what their text names.
struct Form {
  const char* operation;
  bool reduces = false;
  bool has_root = false;
  bool any_first_size = false;  // sizes may differ in dimension 0
};
constexpr Form kAllReduce{"all_reduce", true};
constexpr Form kAllGather{"all_gather", false, false, true};
constexpr Form kReduceScatter{"reduce_scatter", true};
constexpr Form kBroadcast{"broadcast", false, true};

bool agree(const Form& form, const Call& a, const Call& b) {
  if (a.op != b.op || a.root != b.root) return false;
  if (a.tensor.scalar_type() != b.tensor.scalar_type()) return false;
  const std::size_t skipped = form.any_first_size ? 1 : 0;
  return a.tensor.dim() == b.tensor.dim() &&
         a.tensor.sizes().slice(skipped) == b.tensor.sizes().slice(skipped);
}

std::string call_text(const Form& form, int rank, const Call& call) {
  std::string text = cat("rank ", rank, ": ", form.operation);
  if (form.reduces) text += cat(" ", to_string(call.op));
  text += cat(" ", dtype_name(call.tensor.scalar_type()), " ", shape_text(call.tensor.sizes()));
  if (form.has_root) text += cat(" from root ", call.root);
  return cat(text, ", call ", call.number);
}

/// Written through pointers: autograd is told, as it is of every in-place operator.
void note_written(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

/// A collective that was over when it started.
class FinishedWork : public Work {
 public:
  FinishedWork(std::shared_ptr<Group> group, std::exception_ptr error)
      : group_(std::move(group)), error_(std::move(error)) {}
  ~FinishedWork() override {
    if (error_) group_->rendezvous->abort("a start_all_reduce failed and was not waited for");
  }
  void wait() override {
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  std::shared_ptr<Group> group_;
  std::exception_ptr error_;
};

class InProcessCommunicator : public Communicator {
 public:
  InProcessCommunicator(int rank, std::shared_ptr<Group> group)
      : Communicator("in_process", rank, group->rendezvous->size()), group_(std::move(group)) {}

 private:
  const Call& call_of(int rank) const { return group_->calls[static_cast<std::size_t>(rank)]; }

  /// Meets; throws on every rank when the calls do not fit one another; runs `work`, then leaves.
  template <class Function>
  void collective(const Form& form, const at::Tensor& tensor, ReduceOp op, int root,
                  const CommunicationOptions& options, Function work) {
    Rendezvous& rendezvous = *group_->rendezvous;
    rendezvous.check_open(rank(), form.operation, num_calls());
    Call& mine = group_->calls[static_cast<std::size_t>(rank())];
    mine = {tensor, op, root, num_calls()};
    rendezvous.meet(rank(), {form.operation, &mine, num_calls()}, options.timeout());
    std::string difference = first_difference(form);
    if (difference.empty()) run_or_abort(form, work);
    rendezvous.leave(rank(), options.timeout());
    mine.tensor.reset();
    if (!difference.empty()) throw InvalidArgument(difference);
  }

  std::string first_difference(const Form& form) const {
    for (int other = 1; other < size(); ++other) {
      if (agree(form, call_of(0), call_of(other))) continue;
      return cat(form.operation, " [", where(), "]: ", call_text(form, 0, call_of(0)), "; ",
                 call_text(form, other, call_of(other)), ", expected calls that agree",
                 form.any_first_size ? " but for dimension 0" : "",
                 "; every replica must make the same calls in the same order");
    }
    return {};
  }

  /// A rank that fails on its own (no memory, say) tells the others, who would wait for it.
  template <class Function>
  void run_or_abort(const Form& form, Function& work) {
    at::NoGradGuard no_grad;
    try {
      work();
    } catch (const std::exception& error) {
      group_->rendezvous->abort(
          cat(form.operation, " failed on rank ", rank(), ": ", error.what()));
      throw;
    }
  }

  void do_all_reduce(at::Tensor& tensor, ReduceOp op,
                     const CommunicationOptions& options) override {
    collective(kAllReduce, tensor, op, 0, options, [&] { reduce_share(tensor, op); });
    note_written(tensor);
  }

  std::unique_ptr<Work> do_start_all_reduce(at::Tensor& tensor, ReduceOp op,
                                            const CommunicationOptions& options) override {
    std::exception_ptr error;
    try {
      do_all_reduce(tensor, op, options);
    } catch (...) {
      error = std::current_exception();
    }
    return std::make_unique<FinishedWork>(group_, error);
  }

  void reduce_share(const at::Tensor& tensor, ReduceOp op) {
    if (size() == 1) return;
    inputs_.clear();
    outputs_.clear();
    bool all_on_cpu = true;
    for (const Call& call : group_->calls) {
      all_on_cpu = all_on_cpu && call.tensor.is_cpu();
      inputs_.push_back(call.tensor.const_data_ptr());
      outputs_.push_back(const_cast<void*>(call.tensor.const_data_ptr()));
    }
    const auto [begin, end] = share(tensor);
    if (all_on_cpu && reduce_range(op, tensor.scalar_type(), inputs_, outputs_, begin, end)) return;
    if (rank() == 0) reduce_by_operators(op);
  }

  /// Other devices, and dtypes without a loop.
  void reduce_by_operators(ReduceOp op) {
    std::vector<at::Tensor> all;
    for (const Call& call : group_->calls) all.push_back(call.tensor.detach());
    const at::Tensor reduced = local_reduce(op, all);
    for (at::Tensor& tensor : all) tensor.copy_(reduced);
  }

  /// The entries that this rank reduces.
  std::pair<int64_t, int64_t> share(const at::Tensor& tensor) const {
    const int64_t numel = tensor.numel();
    if (numel * tensor.element_size() <= kSmallBytes) return {0, rank() == 0 ? numel : 0};
    const int64_t lines = (numel + kLine - 1) / kLine;
    return {std::min(numel, lines * rank() / size() * kLine),
            std::min(numel, lines * (rank() + 1) / size() * kLine)};
  }

  at::Tensor do_all_gather(const at::Tensor& tensor, const CommunicationOptions& options) override {
    at::Tensor joined;
    collective(kAllGather, tensor, ReduceOp::kSum, 0, options, [&] {
      std::vector<at::Tensor> parts;
      for (const Call& call : group_->calls) parts.push_back(call.tensor.to(tensor.device()));
      joined = at::cat(parts);
    });
    return joined;
  }

  at::Tensor do_reduce_scatter(const at::Tensor& tensor, ReduceOp op,
                               const CommunicationOptions& options) override {
    at::Tensor reduced;
    collective(kReduceScatter, tensor, op, 0, options, [&] {
      const int64_t rows = tensor.size(0) / size();
      std::vector<at::Tensor> parts;
      for (const Call& call : group_->calls) {
        parts.push_back(call.tensor.narrow(0, rows * rank(), rows).to(tensor.device()));
      }
      reduced = local_reduce(op, parts);
    });
    return reduced;
  }

  void do_broadcast(at::Tensor& tensor, int root, const CommunicationOptions& options) override {
    collective(kBroadcast, tensor, ReduceOp::kSum, root, options, [&] {
      if (rank() != root) tensor.copy_(call_of(root).tensor);
    });
  }

  void do_barrier(const CommunicationOptions& options) override {
    group_->rendezvous->meet(rank(), {"barrier", nullptr, num_calls()}, options.timeout());
    group_->rendezvous->leave(rank(), options.timeout());
  }

  void do_abort(std::string_view reason) override { group_->rendezvous->abort(reason); }

  std::shared_ptr<Group> group_;
  // Kept between calls, which then need no memory.
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_in_process_group(
    std::shared_ptr<Rendezvous> rendezvous) {
  const auto shared = std::make_shared<Group>(std::move(rendezvous));
  std::vector<std::unique_ptr<Communicator>> group;
  for (int rank = 0; rank < shared->rendezvous->size(); ++rank) {
    group.push_back(std::make_unique<InProcessCommunicator>(rank, shared));
  }
  return group;
}

std::vector<std::unique_ptr<Communicator>> make_in_process_group(int size) {
  return make_in_process_group(std::make_shared<Rendezvous>(size));
}

}  // namespace tutti::collectives
