// Ranks are threads and see each other's memory. An all-reduce is: meet, each rank reduces its share of the entries from all ranks'
// buffers and writes it into all of them, leave. Shares are disjoint, so nobody reads what another writes.

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/collectives/in_process.h"
#include "tutti/collectives/local_reduce.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::collectives {
namespace {

constexpr int64_t kLine = 64;        // entries; a multiple of a cache line for every dtype
constexpr int64_t kSmall = 1024;     // entries; below, one rank does it all

/// What a rank tells the others of its call.
struct CallData {
  at::Tensor tensor;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int64_t number = 0;
  at::Tensor result;
};

class InProcessCommunicator : public Communicator {
 public:
  InProcessCommunicator(int rank, std::shared_ptr<Rendezvous> rendezvous)
      : Communicator("in_process", rank, rendezvous->size()), rendezvous_(std::move(rendezvous)) {}

 private:
  /// The work is done at wait(): in one process there is nobody else to do it meanwhile.
  class ReduceWork : public Work {
   public:
    ReduceWork(InProcessCommunicator& owner, at::Tensor tensor, ReduceOp op, std::chrono::milliseconds timeout)
        : owner_(owner), tensor_(std::move(tensor)), op_(op), timeout_(timeout) {}
    void wait() override {
      if (done_) return;
      done_ = true;
      owner_.reduce_now(tensor_, op_, timeout_);
    }

   private:
    InProcessCommunicator& owner_;
    at::Tensor tensor_;
    ReduceOp op_;
    std::chrono::milliseconds timeout_;
    bool done_ = false;
  };

  std::unique_ptr<Work> do_start_all_reduce(at::Tensor& tensor, ReduceOp op, const CommunicationOptions& options) override {
    return std::make_unique<ReduceWork>(*this, tensor, op, options.timeout());
  }
  void do_all_reduce(at::Tensor& tensor, ReduceOp op, const CommunicationOptions& options) override {
    reduce_now(tensor, op, options.timeout());
  }

  const CallData& data_of(int rank) const { return *static_cast<const CallData*>(rendezvous_->call_of(rank).payload); }

  std::string call_text(const char* operation, int rank, bool with_sizes) const {
    const CallData& call = data_of(rank);
    return cat("rank ", rank, ": ", operation, " ", to_string(call.op), " ", dtype_name(call.tensor.scalar_type()), " ",
               shape_text(call.tensor.sizes()), ", root ", call.root, ", call ", call.number, with_sizes ? "" : " (sizes may differ in dimension 0)");
  }

  /// Meets, and throws on every rank when the calls do not fit one another. `exact`: sizes agree in dimension 0 too.
  void meet(const char* operation, CallData& mine, std::chrono::milliseconds timeout, bool exact) {
    mine.number = ++calls_;
    rendezvous_->meet(rank(), {operation, &mine}, timeout);
    for (int other = 1; other < size(); ++other) {
      const CallData& a = data_of(0);
      const CallData& b = data_of(other);
      bool fits = a.op == b.op && a.root == b.root && a.tensor.scalar_type() == b.tensor.scalar_type() && a.tensor.dim() == b.tensor.dim();
      for (int64_t dim = exact ? 0 : 1; fits && dim < a.tensor.dim(); ++dim) fits = a.tensor.size(dim) == b.tensor.size(dim);
      if (fits) continue;
      const std::string message = cat(operation, " [", where(), "]: ", call_text(operation, 0, exact), "; ",
                                      call_text(operation, other, exact), ", expected the same on every rank; make the calls in one order "
                                      "and with one shape");
      rendezvous_->leave(rank(), timeout);
      throw InvalidArgument(message);
    }
  }

  void reduce_now(at::Tensor& tensor, ReduceOp op, std::chrono::milliseconds timeout) {
    mine_.tensor = tensor;
    mine_.op = op;
    mine_.root = 0;
    meet("all_reduce", mine_, timeout, /*exact=*/true);
    inputs_.clear();
    outputs_.clear();
    for (int r = 0; r < size(); ++r) {
      inputs_.push_back(data_of(r).tensor.const_data_ptr());
      outputs_.push_back(const_cast<void*>(data_of(r).tensor.const_data_ptr()));
    }
    const auto [begin, end] = share(tensor.numel());
    bool done = tensor.is_cpu() && (size() == 1 && op == ReduceOp::kSum);
    if (!done) done = tensor.is_cpu() && reduce_range(op, tensor.scalar_type(), inputs_, outputs_, begin, end);
    if (!done && rank() == 0) reduce_by_tensors(op);
    rendezvous_->leave(rank(), timeout);
    mine_.tensor.reset();
    // Written through pointers: autograd is told, as it is of every in-place operator.
    tensor.unsafeGetTensorImpl()->bump_version();
  }

  void reduce_by_tensors(ReduceOp op) {
    std::vector<at::Tensor> all;
    for (int r = 0; r < size(); ++r) all.push_back(data_of(r).tensor);
    const at::Tensor sum = local_reduce(op, all);
    at::NoGradGuard no_grad;
    for (at::Tensor& tensor : all) tensor.copy_(sum);
  }

  /// The entries that this rank reduces.
  std::pair<int64_t, int64_t> share(int64_t numel) const {
    if (numel <= kSmall) return rank() == 0 ? std::pair<int64_t, int64_t>{0, numel} : std::pair<int64_t, int64_t>{0, 0};
    const int64_t lines = (numel + kLine - 1) / kLine;
    return {std::min(numel, lines * rank() / size() * kLine), std::min(numel, lines * (rank() + 1) / size() * kLine)};
  }

  at::Tensor do_all_gather(const at::Tensor& tensor, const CommunicationOptions& options) override {
    CallData mine{tensor, ReduceOp::kSum, 0, 0, {}};
    meet("all_gather", mine, options.timeout(), /*exact=*/false);
    std::vector<at::Tensor> parts;
    for (int r = 0; r < size(); ++r) parts.push_back(data_of(r).tensor.to(tensor.device()));
    at::Tensor joined = at::cat(parts);
    rendezvous_->leave(rank(), options.timeout());
    return joined;
  }

  at::Tensor do_reduce_scatter(const at::Tensor& tensor, ReduceOp op, const CommunicationOptions& options) override {
    CallData mine{tensor, op, 0, 0, {}};
    meet("reduce_scatter", mine, options.timeout(), /*exact=*/true);
    const int64_t rows = tensor.size(0) / size();
    std::vector<at::Tensor> parts;
    for (int r = 0; r < size(); ++r) parts.push_back(data_of(r).tensor.narrow(0, rows * rank(), rows).to(tensor.device()));
    at::Tensor reduced = local_reduce(op, parts);
    rendezvous_->leave(rank(), options.timeout());
    return reduced;
  }

  void do_broadcast(at::Tensor& tensor, int root, const CommunicationOptions& options) override {
    CallData mine{tensor, ReduceOp::kSum, root, 0, {}};
    meet("broadcast", mine, options.timeout(), /*exact=*/true);
    at::NoGradGuard no_grad;
    if (rank() != root) tensor.copy_(data_of(root).tensor);
    rendezvous_->leave(rank(), options.timeout());
  }

  void do_barrier(const CommunicationOptions& options) override {
    rendezvous_->meet(rank(), {"barrier", nullptr}, options.timeout());
    rendezvous_->leave(rank(), options.timeout());
  }

  void do_abort(std::string_view reason) override { rendezvous_->abort(reason); }

  std::shared_ptr<Rendezvous> rendezvous_;
  int64_t calls_ = 0;
  CallData mine_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_in_process_group(std::shared_ptr<Rendezvous> rendezvous) {
  std::vector<std::unique_ptr<Communicator>> group;
  for (int rank = 0; rank < rendezvous->size(); ++rank) group.push_back(std::make_unique<InProcessCommunicator>(rank, rendezvous));
  return group;
}

std::vector<std::unique_ptr<Communicator>> make_in_process_group(int size) {
  return make_in_process_group(std::make_shared<Rendezvous>(size));
}

}  // namespace tutti::collectives
