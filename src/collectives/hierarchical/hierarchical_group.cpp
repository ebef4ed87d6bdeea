// A tensor is reduced in blocks, and of each block rank j of every host owns the j-th part. The
// sum of a part is made on its way along the hosts: host 0 adds its ranks' entries, host 1 adds its
// own to what comes, and so on; the last host has the sum and sends it back. So the entries are
// added in rank order, if the ranks of a host follow one another. Blocks follow one another along
// the chain, so that both directions of all connections are used.

#include <algorithm>
#include <map>

#include "collectives/gloo/gloo_group.h"
#include "collectives/hierarchical/hierarchical.h"
#include "collectives/host_communicator.h"
#include "collectives/loops.h"
#include "collectives/shm/shm_group.h"
#include "tutti/base/text.h"

namespace tutti::collectives {
namespace {

constexpr int64_t kPartBytes = int64_t{1} << 19;  // of a block, for each owner
constexpr int kMostAhead = 16;

/// Which ranks are on which host, hosts in the order of their first rank.
struct Topology {
  std::vector<std::vector<int>> ranks;  // by host
  int host = 0;                         // this rank's
  int local_rank = 0;
  int num_owners = 0;  // ranks that every host has

  int num_hosts() const { return static_cast<int>(ranks.size()); }
  int peer_on(int which) const {
    return ranks[static_cast<std::size_t>(which)][static_cast<std::size_t>(local_rank)];
  }
};

Topology topology_of(const GroupOptions& options) {
  const std::vector<std::string> names =
      exchange(options, "hosts", options.host.empty() ? host_identity() : options.host);
  Topology topology;
  std::map<std::string, std::size_t> known;
  for (int rank = 0; rank < options.size; ++rank) {
    const auto [entry, is_new] =
        known.try_emplace(names[static_cast<std::size_t>(rank)], topology.ranks.size());
    if (is_new) topology.ranks.emplace_back();
    std::vector<int>& on_host = topology.ranks[entry->second];
    if (rank == options.rank) {
      topology.host = static_cast<int>(entry->second);
      topology.local_rank = static_cast<int>(on_host.size());
    }
    on_host.push_back(rank);
  }
  std::size_t fewest = topology.ranks[0].size();
  for (const auto& on_host : topology.ranks) fewest = std::min(fewest, on_host.size());
  topology.num_owners = static_cast<int>(fewest);
  return topology;
}

GroupOptions options_on_host(const GroupOptions& options, const Topology& topology) {
  GroupOptions local = options;
  local.prefix = options.key(cat("host", topology.host));
  local.generation = 0;
  local.rank = topology.local_rank;
  local.size = static_cast<int>(topology.ranks[static_cast<std::size_t>(topology.host)].size());
  local.arena_bytes = 0;
  return local;
}

class HierarchicalGroup : public ByteGroup {
  class Chain;

  /// What one of the two groups fails by is what both fail by, and what all ranks say.
  template <class Function>
  auto tell_both(Function&& work) {
    try {
      return work();
    } catch (const std::exception&) {
      if (!wide_.failure() && local_.has_failed()) {
        const auto [code, reason] = local_.failure();
        wide_.fail(code, reason);
      }
      const auto failure = wide_.failure();
      if (!failure) throw;
      local_.fail(failure->code, failure->reason);
      throw_error(failure->code, call_head(where_, call_) + failure->reason);
    }
  }

 public:
  HierarchicalGroup(const GroupOptions& options, const Topology& topology)
      : topology_(topology), wide_(options), local_(options_on_host(options, topology)) {
    local_.be_part(topology.ranks[static_cast<std::size_t>(topology.host)],
                   [this](const std::vector<int>& ranks) {
                     const GlooGroup::Failure failure = wide_.fail_at_deadline(ranks);
                     return std::pair(failure.code, failure.reason);
                   });
  }

  int rank() const override { return wide_.rank(); }
  int size() const override { return wide_.size(); }
  bool announce(std::string_view where, const CallRecord& call, const void* payload,
                std::size_t bytes, std::chrono::milliseconds timeout,
                std::string* difference) override {
    where_ = where;
    call_ = call;
    return tell_both([&] {
      const bool agreed = wide_.announce(where, call, payload, bytes, timeout, difference);
      local_.begin(where, call, timeout, wide_.deadline());
      return agreed;
    });
  }
  std::size_t flat_bytes() const override { return wide_.flat_bytes(); }
  const CallRecord& call_of(int rank) const override { return wide_.call_of(rank); }
  const void* payload_of(int rank) const override { return wide_.payload_of(rank); }

  void all_reduce(std::byte* data, const CallRecord& call, ReduceOp op) override;
  void broadcast(std::byte* data, int64_t bytes, int root) override;
  void reduce_scatter(const std::byte* data, const std::vector<int64_t>& bounds, std::byte* result,
                      at::ScalarType dtype, ReduceOp op) override {
    tell_both([&] { wide_.reduce_scatter(data, bounds, result, dtype, op); });
  }
  void all_gather(const std::byte* mine, std::byte* data,
                  const std::vector<int64_t>& bounds) override {
    tell_both([&] { wide_.all_gather(mine, data, bounds); });
  }
  void fail(ErrorCode code, std::string_view reason) override {
    local_.fail(code, reason);
    wide_.fail(code, reason);
  }
  void close() override { fail(ErrorCode::kUnavailable, cat("rank ", rank(), " has left")); }

 private:
  const Topology topology_;
  GlooGroup wide_;
  ShmGroup local_;
  std::string_view where_;
  CallRecord call_;
  std::vector<std::byte> staging_;  // kept between calls
};

/// The blocks of one all_reduce.
class HierarchicalGroup::Chain {
 public:
  Chain(HierarchicalGroup* group, std::byte* data, const CallRecord& call, ReduceOp op)
      : group_(*group),
        topology_(group->topology_),
        data_(data),
        call_(call),
        op_(op),
        wire_(static_cast<WireDtype>(call.wire)),
        element_(call.element_size),
        in_part_(kPartBytes / element_),
        in_block_(in_part_ * topology_.num_owners),
        // A block comes back to this host after it has gone through those behind it.
        ahead_(std::min(2 * (topology_.num_hosts() - 1 - topology_.host) + 1, kMostAhead)),
        owns_(topology_.local_rank < topology_.num_owners),
        bounds_(static_cast<std::size_t>(group->local_.size()) + 1),
        sent_(static_cast<std::size_t>(ahead_) + 1) {
    const auto needed = static_cast<std::size_t>((ahead_ + 1) * kStrideBytes);
    if (owns_ && group_.staging_.size() < needed) group_.staging_.resize(needed);
  }

  void run() {
    const int64_t num_blocks = (call_.numel + in_block_ - 1) / in_block_;
    for (int64_t turn = 0; turn < num_blocks + ahead_ - 1; ++turn) {
      if (turn < num_blocks) forward(turn);
      if (turn >= ahead_ - 1) backward(turn - ahead_ + 1);
    }
    for (auto& messages : sent_) group_.wide_.finish(&messages);
  }

 private:
  // A block in this rank's memory: what came, the sum, and both as they travel.
  static constexpr int64_t kStrideBytes = 3 * kPartBytes;

  bool narrow() const { return wire_ != WireDtype::kSame; }
  bool is_first() const { return topology_.host == 0; }
  bool is_last() const { return topology_.host + 1 == topology_.num_hosts(); }
  Float16 kind() const {
    return wire_ == WireDtype::kBFloat16 ? Float16::kBFloat16 : Float16::kHalf;
  }
  std::byte* seed_of(int64_t block) const {
    return group_.staging_.data() + block % (ahead_ + 1) * kStrideBytes;
  }
  std::byte* sum_of(int64_t block) const { return seed_of(block) + kPartBytes; }
  std::byte* wire_of(int64_t block) const { return seed_of(block) + 2 * kPartBytes; }
  std::byte* data_of(int64_t block) const { return data_ + block * in_block_ * element_; }

  /// Where each local rank's part of the block begins; ranks that own nothing have empty ones.
  void cut(int64_t block, int64_t unit) {
    const int64_t length = std::min(in_block_, call_.numel - block * in_block_);
    for (std::size_t i = 0; i < bounds_.size(); ++i) {
      const int64_t before = std::min<int64_t>(static_cast<int64_t>(i), topology_.num_owners);
      bounds_[i] = length * before / topology_.num_owners * unit;
    }
  }
  int64_t own_numel(int64_t block) {
    cut(block, 1);
    const auto at = static_cast<std::size_t>(topology_.local_rank);
    return bounds_[at + 1] - bounds_[at];
  }

  void send(int host, int64_t block, int64_t numel, GlooGroup::Tag tag) {
    const std::byte* from = narrow() ? wire_of(block) : sum_of(block);
    sent_[static_cast<std::size_t>(block % (ahead_ + 1))].push_back(
        group_.wide_.send(topology_.peer_on(host), from, numel * (narrow() ? 2 : element_), tag));
  }
  void receive(int host, int64_t block, int64_t numel, std::byte* to, GlooGroup::Tag tag) {
    std::byte* into = narrow() ? wire_of(block) : to;
    received_.push_back(group_.wide_.receive(topology_.peer_on(host), into,
                                             numel * (narrow() ? 2 : element_), tag));
    group_.wide_.finish(&received_);
    if (narrow()) {
      from_16(kind(), reinterpret_cast<const uint16_t*>(into), reinterpret_cast<float*>(to), numel);
    }
  }
  void round(int64_t block, int64_t numel, bool also_here) {
    auto* sum = reinterpret_cast<float*>(sum_of(block));
    auto* wire = reinterpret_cast<uint16_t*>(wire_of(block));
    to_16(kind(), sum, wire, numel);
    if (also_here) from_16(kind(), wire, sum, numel);
  }

  void forward(int64_t block) {
    const int64_t numel = own_numel(block);
    const bool travels = owns_ && numel > 0;
    group_.wide_.finish(&sent_[static_cast<std::size_t>(block % (ahead_ + 1))]);
    const std::byte* seed = nullptr;
    if (travels && !is_first()) {
      receive(topology_.host - 1, block, numel, seed_of(block), GlooGroup::kForward);
      seed = seed_of(block);
    }
    const at::ScalarType dtype = call_.scalar_type();
    group_.local_.reduce_scatter_onto(seed, data_of(block), bounds_,
                                      owns_ ? sum_of(block) : nullptr, dtype, ReduceOp::kSum);
    if (!travels) return;
    if (is_last() && op_ == ReduceOp::kMean) {
      at::from_blob(sum_of(block), {numel}, dtype).div_(group_.size());
    }
    if (narrow()) round(block, numel, is_last());
    if (!is_last()) {
      send(topology_.host + 1, block, numel, GlooGroup::kForward);
    } else if (!is_first()) {
      send(topology_.host - 1, block, numel, GlooGroup::kBackward);
    }
  }

  void backward(int64_t block) {
    const int64_t numel = own_numel(block);
    if (owns_ && numel > 0 && !is_last()) {
      // What was sent forward has arrived: the sum that comes back contains it.
      group_.wide_.finish(&sent_[static_cast<std::size_t>(block % (ahead_ + 1))]);
      receive(topology_.host + 1, block, numel, sum_of(block), GlooGroup::kBackward);
      if (!is_first()) send(topology_.host - 1, block, numel, GlooGroup::kBackward);
    }
    cut(block, element_);
    group_.local_.all_gather(owns_ ? sum_of(block) : nullptr, data_of(block), bounds_);
  }

  HierarchicalGroup& group_;
  const Topology& topology_;
  std::byte* data_;
  const CallRecord& call_;
  const ReduceOp op_;
  const WireDtype wire_;
  const int64_t element_;
  const int64_t in_part_;
  const int64_t in_block_;
  const int64_t ahead_;
  const bool owns_;
  std::vector<int64_t> bounds_;
  std::vector<std::vector<GlooGroup::Message>> sent_;  // by place in the staging memory
  std::vector<GlooGroup::Message> received_;
};

void HierarchicalGroup::all_reduce(std::byte* data, const CallRecord& call, ReduceOp op) {
  tell_both([&] { Chain(this, data, call, op).run(); });
}

/// From the root to its host and to one rank of each other host, which does the same there.
void HierarchicalGroup::broadcast(std::byte* data, int64_t bytes, int root) {
  tell_both([&] {
    const auto& mine = topology_.ranks[static_cast<std::size_t>(topology_.host)];
    const auto place = std::find(mine.begin(), mine.end(), root);
    const bool has_root = place != mine.end();
    std::vector<GlooGroup::Message> messages;
    if (rank() == root) {
      for (int host = 0; host < topology_.num_hosts(); ++host) {
        if (host == topology_.host) continue;
        const int leader = topology_.ranks[static_cast<std::size_t>(host)][0];
        messages.push_back(wide_.send(leader, data, bytes, GlooGroup::kGathered));
      }
    } else if (!has_root && topology_.local_rank == 0) {
      messages.push_back(wide_.receive(root, data, bytes, GlooGroup::kGathered));
      wide_.finish(&messages);
    }
    local_.broadcast(data, bytes, has_root ? static_cast<int>(place - mine.begin()) : 0);
    wide_.finish(&messages);
  });
}

}  // namespace

std::unique_ptr<Communicator> make_hierarchical(const GroupOptions& options) {
  options.check();
  return make_group_communicator("hierarchical",
                                 std::make_shared<HierarchicalGroup>(options, topology_of(options)),
                                 /*in_background=*/true);
}

}  // namespace tutti::collectives
