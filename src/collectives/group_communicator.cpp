// A Communicator over bytes: agreement first, then little data that came with the announcement, or
// the group's way for more.

#include <cstring>

#include "collectives/byte_group.h"
#include "collectives/host_communicator.h"
#include "collectives/shm/shm.h"
#include "tutti/base/text.h"

namespace tutti::collectives {

namespace {

class GroupCommunicator : public HostCommunicator {
 public:
  GroupCommunicator(std::string backend, std::shared_ptr<ByteGroup> group, bool in_background)
      : HostCommunicator(std::move(backend), group->rank(), group->size(), in_background),
        group_(std::move(group)),
        where_(where()) {
    set_aborter([group = group_](std::string_view reason) { abort_group(*group, reason); });
    inputs_.reserve(static_cast<std::size_t>(size()));
    outputs_.resize(1);
    bounds_.resize(static_cast<std::size_t>(size()) + 1);
  }

  ~GroupCommunicator() override {
    if (is_background_busy()) group_->close();
    join_background();
  }
  std::shared_ptr<SharedArena> arena() const { return group_->arena(); }

 private:
  static void abort_group(ByteGroup& group, std::string_view reason) {
    group.fail(ErrorCode::kAborted, cat("aborted, ", reason));
  }
  bool is_small(int64_t bytes) const { return bytes <= static_cast<int64_t>(group_->flat_bytes()); }

  /// Announces, throws on every rank when calls differ, then runs `work`.
  template <class Function>
  void collective(const CallRecord& call, const void* payload, std::chrono::milliseconds timeout,
                  Function work) {
    const bool small = payload != nullptr && is_small(call.num_bytes());
    std::string difference;
    const auto bytes = small ? static_cast<std::size_t>(call.num_bytes()) : 0;
    if (!group_->announce(where_, call, payload, bytes, timeout, &difference)) {
      throw InvalidArgument(difference);
    }
    try {
      work();
    } catch (const std::exception& error) {  // the others would wait for this rank
      group_->fail(ErrorCode::kAborted, cat("aborted, ", to_string(call.verb), " failed on rank ",
                                            rank(), ": ", error.what()));
      throw;
    }
  }

  void host_all_reduce(at::Tensor& tensor, const CallRecord& call,
                       const CommunicationOptions& options) override {
    CallRecord mine = call;
    const bool small = is_small(call.num_bytes());
    if (!small) mine.arena_offset = group_->arena_offset(tensor);
    const at::ScalarType dtype = call.scalar_type();
    auto* data = static_cast<std::byte*>(tensor.mutable_data_ptr());
    collective(mine, data, options.timeout(), [&] {
      if (size() == 1) return;
      const ReduceOp op = has_reduce_loop(dtype) ? call.reduce_op() : ReduceOp::kSum;
      if (small) {
        add_payloads(dtype, op, 0, call.numel, data);
      } else {
        group_->all_reduce(data, mine, op);
      }
      if (op != call.reduce_op()) tensor.div_(size());
    });
  }

  /// Entries [begin, begin + numel) of what came with the announcements.
  void add_payloads(at::ScalarType dtype, ReduceOp op, int64_t begin, int64_t numel, void* to) {
    const auto element = static_cast<int64_t>(c10::elementSize(dtype));
    inputs_.clear();
    for (int rank = 0; rank < size(); ++rank) {
      inputs_.push_back(static_cast<const std::byte*>(group_->payload_of(rank)) + begin * element);
    }
    outputs_[0] = to;
    reduce_buffers(op, dtype, inputs_, outputs_, numel);
  }

  at::Tensor host_all_gather(const at::Tensor& tensor, const CallRecord& call,
                             const CommunicationOptions& options) override {
    at::Tensor joined;
    const auto* mine = static_cast<const std::byte*>(tensor.const_data_ptr());
    // An empty tensor has no address, and its rank has nothing to say but that.
    const void* payload = mine == nullptr ? &call : static_cast<const void*>(mine);
    collective(call, payload, options.timeout(), [&] {
      std::vector<int64_t> sizes = tensor.sizes().vec();
      sizes[0] = 0;
      bool all_small = true;
      bounds_[0] = 0;
      for (int rank = 0; rank < size(); ++rank) {
        const CallRecord& theirs = group_->call_of(rank);
        sizes[0] += theirs.sizes[0];
        all_small = all_small && is_small(theirs.num_bytes());
        const auto at = static_cast<std::size_t>(rank);
        bounds_[at + 1] = bounds_[at] + theirs.num_bytes();
      }
      joined = at::empty(sizes, tensor.options().requires_grad(false));
      auto* data = static_cast<std::byte*>(joined.mutable_data_ptr());
      if (!all_small) {
        group_->all_gather(mine, data, bounds_);
        return;
      }
      for (int rank = 0; rank < size(); ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        const auto bytes = static_cast<std::size_t>(bounds_[at + 1] - bounds_[at]);
        if (bytes > 0) std::memcpy(data + bounds_[at], group_->payload_of(rank), bytes);
      }
    });
    return joined;
  }

  at::Tensor host_reduce_scatter(const at::Tensor& tensor, const CallRecord& call,
                                 const CommunicationOptions& options) override {
    at::Tensor part;
    collective(call, tensor.const_data_ptr(), options.timeout(), [&] {
      std::vector<int64_t> sizes = tensor.sizes().vec();
      sizes[0] /= size();
      part = at::empty(sizes, tensor.options().requires_grad(false));
      const at::ScalarType dtype = call.scalar_type();
      const ReduceOp op = has_reduce_loop(dtype) ? call.reduce_op() : ReduceOp::kSum;
      const int64_t share = part.numel();
      auto* result = static_cast<std::byte*>(part.mutable_data_ptr());
      if (is_small(call.num_bytes())) {
        if (share > 0) add_payloads(dtype, op, share * rank(), share, result);
      } else {
        for (std::size_t at = 0; at < bounds_.size(); ++at) {
          bounds_[at] = share * static_cast<int64_t>(at);
        }
        group_->reduce_scatter(static_cast<const std::byte*>(tensor.const_data_ptr()), bounds_,
                               result, dtype, op);
      }
      if (op != call.reduce_op()) part.div_(size());
    });
    return part;
  }

  void host_broadcast(at::Tensor& tensor, const CallRecord& call,
                      const CommunicationOptions& options) override {
    auto* data = static_cast<std::byte*>(tensor.mutable_data_ptr());
    const bool small = is_small(call.num_bytes());
    collective(call, rank() == call.root ? data : nullptr, options.timeout(), [&] {
      if (!small) {
        group_->broadcast(data, call.num_bytes(), call.root);
      } else if (rank() != call.root && call.numel > 0) {
        std::memcpy(data, group_->payload_of(call.root),
                    static_cast<std::size_t>(call.num_bytes()));
      }
    });
  }

  void host_barrier(const CallRecord& call, const CommunicationOptions& options) override {
    collective(call, nullptr, options.timeout(), [] {});
  }

  void do_abort(std::string_view reason) override { abort_group(*group_, reason); }

  std::shared_ptr<ByteGroup> group_;
  const std::string where_;
  // Kept between calls, which then need no memory.
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<int64_t> bounds_;
};

}  // namespace

std::unique_ptr<Communicator> make_group_communicator(std::string backend,
                                                      std::shared_ptr<ByteGroup> group,
                                                      bool in_background) {
  return std::make_unique<GroupCommunicator>(std::move(backend), std::move(group), in_background);
}

std::shared_ptr<SharedArena> shared_arena(Communicator& communicator) {
  const auto* group = dynamic_cast<const GroupCommunicator*>(&communicator);
  return group == nullptr ? nullptr : group->arena();
}

}  // namespace tutti::collectives
