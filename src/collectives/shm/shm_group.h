#pragma once
// Ranks that share memory: calls are announced and compared, then bytes move.

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/byte_group.h"
#include "collectives/call.h"
#include "collectives/group.h"
#include "collectives/shm/segment.h"
#include "tutti/base/error.h"

namespace tutti::collectives {

struct ShmHeader;
struct ShmRank;

/// One rank's side. Of a call every rank does the same: announce(), then at most one of the calls
/// that move bytes. Waits spin for 70 us where there are as many cores as ranks, letting others run
/// on theirs, then sleep on a futex; a sleeper looks every 20 ms whether the others still live.
///
/// A failure is written into the shared memory and is everybody's: waiting ranks wake up and throw
/// it. Nobody is waited for by the destructor.
class ShmGroup : public ByteGroup {
 public:
  /// Blocks until all ranks are there.
  explicit ShmGroup(const GroupOptions& options);
  ~ShmGroup() override;
  ShmGroup(const ShmGroup&) = delete;
  ShmGroup& operator=(const ShmGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  bool announce(std::string_view where, const CallRecord& call, const void* payload,
                std::size_t bytes, std::chrono::milliseconds timeout,
                std::string* difference) override;
  std::size_t flat_bytes() const override { return flat_bytes_; }
  const CallRecord& call_of(int rank) const override;
  const void* payload_of(int rank) const override;
  /// In place when all ranks' tensors lie in their arenas, else through slots.
  void all_reduce(std::byte* data, const CallRecord& call, ReduceOp op) override;
  void reduce_scatter(const std::byte* data, const std::vector<int64_t>& bounds, std::byte* result,
                      at::ScalarType dtype, ReduceOp op) override {
    reduce_scatter_onto(nullptr, data, bounds, result, dtype, op);
  }
  void all_gather(const std::byte* mine, std::byte* data,
                  const std::vector<int64_t>& bounds) override;
  void broadcast(std::byte* data, int64_t bytes, int root) override;
  void fail(ErrorCode code, std::string_view reason) override;
  std::shared_ptr<SharedArena> arena() const override { return arena_; }
  int64_t arena_offset(const at::Tensor& tensor) const override;

  // For a group that goes on beyond this machine: its calls are not announced here.
  /// What a rank of this group is called in messages, and what the group fails by when it has
  /// waited for ranks of these names until the deadline. Before the first call.
  using Judge = std::function<std::pair<ErrorCode, std::string>(const std::vector<int>& names)>;
  void be_part(std::vector<int> names, Judge at_deadline);
  /// Sets what waits say and how long they take: each `timeout`, and none beyond `end`.
  void begin(std::string_view where, const CallRecord& call, std::chrono::milliseconds timeout,
             std::chrono::steady_clock::time_point end);
  /// `seed` (or null) holds as many entries as `result`, to which the ranks' are added.
  void reduce_scatter_onto(const std::byte* seed, const std::byte* data,
                           const std::vector<int64_t>& bounds, std::byte* result,
                           at::ScalarType dtype, ReduceOp op);
  bool has_failed() const;
  /// What the first failure was. Only when has_failed().
  std::pair<ErrorCode, std::string> failure() const;

 private:
  /// How far a rank is: its target is 1, the number of a call, or a number of chunks.
  enum class Stage { kJoined, kAnnounced, kProduced, kConsumed };

  ShmRank& shared(int rank) const;
  std::byte* in_slot(int rank, uint32_t chunk) const;
  std::byte* out_slot(int rank, uint32_t chunk) const;
  std::byte* arena_of(int rank) const;
  void all_reduce_through_slots(std::byte* data, int64_t numel, at::ScalarType dtype, ReduceOp op);
  void all_reduce_in_place(int64_t numel, at::ScalarType dtype, ReduceOp op);
  /// Returns when all ranks have come.
  void meet();

  uint32_t& word_of(Stage stage, int rank, uint32_t target) const;
  bool has_reached(Stage stage, int rank, uint32_t target) const;
  void wait_for(Stage stage, int rank, uint32_t target);
  void wait_for_all(Stage stage, uint32_t target);
  void sleep_for(Stage stage, int rank, uint32_t target);
  void publish(Stage stage, uint32_t value);
  void wake_all() const;
  void check_open() const;
  void look_for_dead(Stage stage, uint32_t target);
  void break_for_deadline(Stage stage, uint32_t target);
  std::vector<int> ranks_not_at(Stage stage, uint32_t target) const;
  int name_of(int rank) const;
  [[noreturn]] void throw_failure() const;

  std::pair<int64_t, int64_t> share_of(int rank, int64_t numel, int64_t element) const;
  /// Entries that this rank adds: its own lie at `mine`, the others' at `offset` of their slots.
  struct Part {
    const std::byte* seed = nullptr;
    const std::byte* mine = nullptr;
    int64_t offset = 0;  // bytes
    int64_t numel = 0;
    std::byte* to = nullptr;
    std::byte* also_to = nullptr;
  };
  void add_part(const Part& part, uint32_t chunk, at::ScalarType dtype, ReduceOp op);

  const int rank_;
  const int size_;
  bool may_spin_;
  std::size_t flat_bytes_;
  int64_t chunk_bytes_;
  int64_t arena_bytes_;
  std::size_t staging_at_;
  std::size_t staging_stride_;
  std::size_t arena_at_;
  std::shared_ptr<Segment> segment_;
  std::shared_ptr<SharedArena> arena_;
  ShmHeader* header_;

  std::vector<int> names_;  // empty: the ranks' own numbers
  Judge at_deadline_;

  // The call under way.
  std::string_view where_ = "shm";
  CallRecord call_;
  std::chrono::milliseconds timeout_{0};
  std::chrono::steady_clock::time_point end_ = std::chrono::steady_clock::time_point::max();
  uint32_t sequence_ = 0;  // announced calls
  bool all_in_arena_ = false;
  uint32_t chunks_done_ = 0;  // of all calls; every rank counts the same
  // Kept between calls, which then need no memory.
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace tutti::collectives
