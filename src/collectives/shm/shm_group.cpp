// A call is one announcement: each rank writes what it calls (and little data at once) into its own
// memory, then a word with the call's number and a hash of what must agree, and waits until every
// rank's word shows that number. Announcements use two places in turn: a rank that announces call k
// has finished call k - 1, so when all have announced k, what belongs to k - 1 may be overwritten.
//
// More data moves in chunks through slots. Chunks are numbered through all calls. "Produced" says
// how many chunks a rank has laid out in its in-slots, "consumed" how many it has read from those
// of all others; a slot is free again when all ranks have consumed its chunk.

#include "collectives/shm/shm_group.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <thread>

#include "collectives/host_communicator.h"
#include "collectives/local_reduce.h"
#include "collectives/shm/shm_arena.h"
#include "collectives/spin.h"
#include "tutti/base/text.h"

namespace tutti::collectives {

namespace {
constexpr std::size_t kLinePayload = 56;
constexpr std::size_t kFlatBytes = 4096;
}  // namespace

/// What belongs to all ranks.
struct ShmHeader {
  alignas(64) uint32_t state;  // a State
  uint32_t code;
  uint32_t reason_size;
  char reason[1024];
  alignas(64) uint32_t sleepers;
};

/// What one rank writes and the others read; each part in lines of its own.
struct ShmRank {
  struct alignas(64) Line {
    uint64_t word;  // bits 0-15: the call's number, 16: in the arena, 17-63: what must agree
    std::byte payload[kLinePayload];
  };
  Line lines[2];
  CallRecord calls[2];
  alignas(64) uint32_t produced;
  alignas(64) uint32_t consumed;
  alignas(64) uint32_t joined;  // 0: not yet, 1: here, 2: has left
  int32_t process;
  alignas(64) std::byte flat[2][kFlatBytes];
};

namespace {

using Clock = std::chrono::steady_clock;
enum State : uint32_t { kOpen = 0, kFailing = 1, kFailed = 2 };

constexpr uint32_t kSlots = 4;  // three suffice: see all_reduce
constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kHugePage = std::size_t{1} << 21;
constexpr int64_t kShareBytes = 65536;  // 64 to 256 KB are equal, less or more is slower
constexpr uint64_t kArenaBit = 1U << 16;
constexpr int kIdentityShift = 17;
// How soon a death is seen; a wake-up costs nothing at this rate.
constexpr std::chrono::milliseconds kSlice{20};
constexpr std::chrono::seconds kReasonTime{1};

std::size_t rounded_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

template <class T>
T load(T& word) {
  return std::atomic_ref<T>(word).load(std::memory_order_acquire);
}

/// The low half of an announcement, which changes with every call. Little-endian machines.
uint32_t& low_half(uint64_t& word) { return reinterpret_cast<uint32_t&>(word); }
static_assert(std::endian::native == std::endian::little);

void futex_wait(uint32_t& word, uint32_t seen, std::chrono::nanoseconds time) {
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(time.count() / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(time.count() % 1'000'000'000);
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake(uint32_t& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::size_t flat_bytes_of(int size) {
  // Every rank reads all ranks' bytes: with many ranks that is a lot.
  return size <= 8 ? kFlatBytes : std::max<std::size_t>(kLinePayload, 8 * kFlatBytes / size);
}

int64_t chunk_bytes_of(int size) {
  const int64_t lines = std::max<int64_t>(kShareBytes * std::min(size, 4), int64_t{8192} * size);
  return lines;
}

}  // namespace

ShmGroup::ShmGroup(const GroupOptions& options)
    : rank_(options.rank),
      size_(options.size),
      may_spin_(options.size <= num_cores()),
      flat_bytes_(flat_bytes_of(options.size)),
      chunk_bytes_(chunk_bytes_of(options.size)),
      arena_bytes_(static_cast<int64_t>(
          rounded_up(static_cast<std::size_t>(options.arena_bytes), kHugePage))),
      timeout_(options.timeout) {
  const auto n = static_cast<std::size_t>(size_);
  staging_at_ = rounded_up(rounded_up(sizeof(ShmHeader), kLine) + n * sizeof(ShmRank), kPage);
  const std::size_t out = rounded_up(static_cast<std::size_t>(chunk_bytes_) / n + kLine, kLine);
  staging_stride_ = rounded_up(kSlots * (static_cast<std::size_t>(chunk_bytes_) + out), kPage);
  const std::size_t committed = staging_at_ + n * staging_stride_;
  arena_at_ = rounded_up(committed, kHugePage);
  segment_ = std::make_shared<Segment>(
      options, Segment::Sizes{committed, arena_at_ + n * static_cast<std::size_t>(arena_bytes_)});
  header_ = reinterpret_cast<ShmHeader*>(segment_->data());
  arena_ = make_arena(segment_, arena_of(rank_), arena_bytes_);
  shared(rank_).process = static_cast<int32_t>(getpid());
  std::atomic_ref<uint32_t>(shared(rank_).joined).store(1, std::memory_order_seq_cst);
  try {
    wait_for_all(Stage::kJoined, 1);
  } catch (...) {
    std::atomic_ref<uint32_t>(shared(rank_).joined).store(2, std::memory_order_seq_cst);
    throw;
  }
}

ShmGroup::~ShmGroup() {
  std::atomic_ref<uint32_t>(shared(rank_).joined).store(2, std::memory_order_seq_cst);
  wake_all();  // whoever waits for this rank looks at once
}

ShmRank& ShmGroup::shared(int rank) const {
  std::byte* first = segment_->data() + rounded_up(sizeof(ShmHeader), kLine);
  return reinterpret_cast<ShmRank*>(first)[rank];
}

std::byte* ShmGroup::in_slot(int rank, uint32_t chunk) const {
  return segment_->data() + staging_at_ + static_cast<std::size_t>(rank) * staging_stride_ +
         (chunk % kSlots) * static_cast<std::size_t>(chunk_bytes_);
}

std::byte* ShmGroup::out_slot(int rank, uint32_t chunk) const {
  const std::size_t out = rounded_up(
      static_cast<std::size_t>(chunk_bytes_) / static_cast<std::size_t>(size_) + kLine, kLine);
  return in_slot(rank, 0) + kSlots * static_cast<std::size_t>(chunk_bytes_) +
         (chunk % kSlots) * out;
}

std::byte* ShmGroup::arena_of(int rank) const {
  return segment_->data() + arena_at_ +
         static_cast<std::size_t>(rank) * static_cast<std::size_t>(arena_bytes_);
}

int64_t ShmGroup::arena_offset(const at::Tensor& tensor) const {
  return offset_in(*arena_, tensor);
}

const CallRecord& ShmGroup::call_of(int rank) const { return shared(rank).calls[sequence_ & 1]; }

const void* ShmGroup::payload_of(int rank) const {
  const ShmRank& other = shared(rank);
  const int64_t bytes = other.calls[sequence_ & 1].num_bytes();
  return bytes <= static_cast<int64_t>(kLinePayload) ? other.lines[sequence_ & 1].payload
                                                     : other.flat[sequence_ & 1];
}

// ---- Waiting -----------------------------------------------------------------------------------

uint32_t& ShmGroup::word_of(Stage stage, int rank, uint32_t target) const {
  ShmRank& other = shared(rank);
  switch (stage) {
    case Stage::kJoined:
      return other.joined;
    case Stage::kAnnounced:
      return low_half(other.lines[target & 1].word);
    case Stage::kProduced:
      return other.produced;
    case Stage::kConsumed:
      break;
  }
  return other.consumed;
}

bool ShmGroup::has_reached(Stage stage, int rank, uint32_t target) const {
  if (stage == Stage::kAnnounced) {
    return static_cast<uint16_t>(load(shared(rank).lines[target & 1].word)) ==
           static_cast<uint16_t>(target);
  }
  const uint32_t value = load(word_of(stage, rank, target));
  return static_cast<int32_t>(value - target) >= 0;  // the count may have wrapped round
}

void ShmGroup::wait_for_all(Stage stage, uint32_t target) {
  for (int other = 0; other < size_; ++other) {
    if (other != rank_) wait_for(stage, other, target);
  }
}

void ShmGroup::wait_for(Stage stage, int rank, uint32_t target) {
  if (has_reached(stage, rank, target)) return;
  if (may_spin_) {
    const auto end = Clock::now() + kSpinTime;
    do {
      for (int i = 0; i < kSpinsBetweenChecks; ++i) {
        if (has_reached(stage, rank, target)) return;
        pause_cpu();
      }
      // The system may have put the other rank on this core: let it run.
      sched_yield();
    } while (!has_failed() && Clock::now() < end);
  }
  sleep_for(stage, rank, target);
}

void ShmGroup::sleep_for(Stage stage, int rank, uint32_t target) {
  std::atomic_ref<uint32_t> sleepers(header_->sleepers);
  // Sequentially consistent with publish(): either it sees the sleeper, or we see the new word.
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  struct Awake {
    std::atomic_ref<uint32_t> sleepers;
    ~Awake() { sleepers.fetch_sub(1, std::memory_order_seq_cst); }
  } awake{sleepers};
  const auto end = std::min(Clock::now() + timeout_, end_);
  uint32_t& word = word_of(stage, rank, target);
  for (;;) {
    const uint32_t seen = std::atomic_ref<uint32_t>(word).load(std::memory_order_seq_cst);
    if (has_reached(stage, rank, target)) return;
    check_open();
    look_for_dead(stage, target);
    const auto now = Clock::now();
    if (now >= end) break_for_deadline(stage, target);
    futex_wait(word, seen, std::min<std::chrono::nanoseconds>(kSlice, end - now));
  }
}

void ShmGroup::publish(Stage stage, uint32_t value) {
  uint32_t& word = word_of(stage, rank_, value);
  std::atomic_ref<uint32_t>(word).store(value, std::memory_order_seq_cst);
  if (std::atomic_ref<uint32_t>(header_->sleepers).load(std::memory_order_seq_cst) != 0) {
    futex_wake(word);
  }
}

void ShmGroup::wake_all() const {
  for (int rank = 0; rank < size_; ++rank) {
    ShmRank& other = shared(rank);
    for (auto& line : other.lines) futex_wake(low_half(line.word));
    futex_wake(other.produced);
    futex_wake(other.consumed);
    futex_wake(other.joined);
  }
}

// ---- Failing -----------------------------------------------------------------------------------

bool ShmGroup::has_failed() const { return load(header_->state) != kOpen; }

void ShmGroup::check_open() const {
  if (has_failed()) throw_failure();
}

void ShmGroup::fail(ErrorCode code, std::string_view reason) {
  uint32_t expected = kOpen;
  std::atomic_ref<uint32_t> state(header_->state);
  if (!state.compare_exchange_strong(expected, kFailing, std::memory_order_seq_cst)) return;
  header_->code = static_cast<uint32_t>(code);
  header_->reason_size = static_cast<uint32_t>(std::min(reason.size(), sizeof(header_->reason)));
  std::memcpy(header_->reason, reason.data(), header_->reason_size);
  state.store(kFailed, std::memory_order_seq_cst);
  wake_all();
}

std::pair<ErrorCode, std::string> ShmGroup::failure() const {
  const auto end = Clock::now() + kReasonTime;
  while (load(header_->state) == kFailing && Clock::now() < end) std::this_thread::yield();
  if (load(header_->state) != kFailed) {  // whoever failed died before it could say why
    return {ErrorCode::kUnavailable, "a rank died while it told that it had failed"};
  }
  const std::size_t size = std::min<std::size_t>(header_->reason_size, sizeof(header_->reason));
  return {static_cast<ErrorCode>(header_->code), std::string(header_->reason, size)};
}

void ShmGroup::throw_failure() const {
  const auto [code, reason] = failure();
  throw_error(code, call_head(where_, call_) + reason);
}

/// Of the ranks that are waited for.
void ShmGroup::look_for_dead(Stage stage, uint32_t target) {
  for (int other = 0; other < size_; ++other) {
    if (other == rank_ || has_reached(stage, other, target)) continue;
    const uint32_t joined = load(shared(other).joined);
    if (joined == 0 || (joined == 1 && segment_->is_held(other))) continue;
    if (has_reached(stage, other, target)) continue;  // it came, and then it went
    const std::string who = cat("rank ", name_of(other), " (process ", shared(other).process, ")");
    if (joined == 1 && load(shared(other).joined) == 1) {
      fail(ErrorCode::kUnavailable,
           cat(who,
               " has died, expected it to make this call; build a new group without it, or "
               "start all ranks again"));
    } else {
      fail(ErrorCode::kUnavailable,
           cat(who,
               " has left the group without making this call, expected the same calls on "
               "every rank; see why its program ended first"));
    }
    check_open();
  }
}

std::vector<int> ShmGroup::ranks_not_at(Stage stage, uint32_t target) const {
  std::vector<int> ranks;
  // Who has not even produced is the cause of the others not having consumed.
  if (stage == Stage::kConsumed) ranks = ranks_not_at(Stage::kProduced, target);
  if (!ranks.empty()) return ranks;
  for (int other = 0; other < size_; ++other) {
    if (other != rank_ && !has_reached(stage, other, target)) ranks.push_back(other);
  }
  return ranks;
}

int ShmGroup::name_of(int rank) const {
  return names_.empty() ? rank : names_[static_cast<std::size_t>(rank)];
}

void ShmGroup::break_for_deadline(Stage stage, uint32_t target) {
  std::vector<int> missing = ranks_not_at(stage, target);
  if (missing.empty()) return;  // the last one came with the deadline
  for (int& rank : missing) rank = name_of(rank);
  if (at_deadline_) {
    const auto [code, reason] = at_deadline_(missing);
    fail(code, reason);
  } else {
    fail(ErrorCode::kDeadlineExceeded, missing_text(missing, size_, timeout_));
  }
  check_open();
}

// ---- Announcing --------------------------------------------------------------------------------

void ShmGroup::be_part(std::vector<int> names, Judge at_deadline) {
  names_ = std::move(names);
  at_deadline_ = std::move(at_deadline);
}

void ShmGroup::begin(std::string_view where, const CallRecord& call,
                     std::chrono::milliseconds timeout, Clock::time_point end) {
  where_ = where;
  call_ = call;
  timeout_ = timeout;
  end_ = end;
  check_open();
}

bool ShmGroup::announce(std::string_view where, const CallRecord& call, const void* payload,
                        std::size_t bytes, std::chrono::milliseconds timeout,
                        std::string* difference) {
  begin(where, call, timeout, Clock::time_point::max());
  ++sequence_;
  const std::size_t turn = sequence_ & 1;
  ShmRank& mine = shared(rank_);
  mine.calls[turn] = call;
  ShmRank::Line& line = mine.lines[turn];
  if (bytes > 0) {
    std::memcpy(bytes <= kLinePayload ? line.payload : mine.flat[turn], payload, bytes);
  }
  const uint64_t word = static_cast<uint16_t>(sequence_) |
                        (call.arena_offset >= 0 ? kArenaBit : 0) | identity(call) << kIdentityShift;
  std::atomic_ref<uint64_t>(line.word).store(word, std::memory_order_seq_cst);
  if (std::atomic_ref<uint32_t>(header_->sleepers).load(std::memory_order_seq_cst) != 0) {
    futex_wake(low_half(line.word));
  }
  wait_for_all(Stage::kAnnounced, sequence_);

  all_in_arena_ = true;
  const uint64_t first = load(shared(0).lines[turn].word);
  for (int other = 0; other < size_; ++other) {
    const uint64_t theirs = load(shared(other).lines[turn].word);
    all_in_arena_ = all_in_arena_ && (theirs & kArenaBit) != 0;
    if ((theirs ^ first) >> kIdentityShift == 0) continue;
    *difference = difference_text(where, call, call_of(0), other, call_of(other));
    return false;
  }
  return true;
}

void ShmGroup::meet() {
  publish(Stage::kProduced, chunks_done_ + 1);
  publish(Stage::kConsumed, chunks_done_ + 1);
  wait_for_all(Stage::kConsumed, chunks_done_ + 1);
  ++chunks_done_;
}

// ---- Moving ------------------------------------------------------------------------------------

/// Cut at cache lines, so that no two ranks write one.
std::pair<int64_t, int64_t> ShmGroup::share_of(int rank, int64_t numel, int64_t element) const {
  const int64_t in_line = static_cast<int64_t>(kLine) / element;
  const int64_t lines = (numel + in_line - 1) / in_line;
  return {std::min(numel, lines * rank / size_ * in_line),
          std::min(numel, lines * (rank + 1) / size_ * in_line)};
}

void ShmGroup::add_part(const Part& part, uint32_t chunk, at::ScalarType dtype, ReduceOp op) {
  if (part.numel == 0) return;
  inputs_.clear();
  outputs_.clear();
  if (part.seed != nullptr) inputs_.push_back(part.seed);
  for (int rank = 0; rank < size_; ++rank) {
    inputs_.push_back(rank == rank_ ? part.mine : in_slot(rank, chunk) + part.offset);
  }
  outputs_.push_back(part.to);
  if (part.also_to != nullptr) outputs_.push_back(part.also_to);
  reduce_buffers(op, dtype, inputs_, outputs_, part.numel);
}

void ShmGroup::all_reduce(std::byte* data, const CallRecord& call, ReduceOp op) {
  if (all_in_arena_ && has_reduce_loop(call.scalar_type())) {
    all_reduce_in_place(call.numel, call.scalar_type(), op);
  } else {
    all_reduce_through_slots(data, call.numel, call.scalar_type(), op);
  }
}

void ShmGroup::all_reduce_through_slots(std::byte* data, int64_t numel, at::ScalarType dtype,
                                        ReduceOp op) {
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t in_chunk = chunk_bytes_ / element;
  const auto num_chunks = static_cast<uint32_t>((numel + in_chunk - 1) / in_chunk);
  const auto length = [&](uint32_t c) { return std::min(in_chunk, numel - c * in_chunk); };
  // Three chunks are under way at a time. When this rank reuses an in-slot, it has copied in the
  // chunk three before, so all ranks have consumed that one; when it reuses an out-slot, all ranks
  // have produced its chunk, after they copied in the one three before.
  for (uint32_t turn = 0; turn < num_chunks + 2; ++turn) {
    if (turn < num_chunks) {
      const auto [begin, end] = share_of(rank_, length(turn), element);
      const std::byte* from = data + turn * in_chunk * element;
      std::byte* slot = in_slot(rank_, chunks_done_ + turn);
      std::memcpy(slot, from, static_cast<std::size_t>(begin * element));
      std::memcpy(slot + end * element, from + end * element,
                  static_cast<std::size_t>((length(turn) - end) * element));
      publish(Stage::kProduced, chunks_done_ + turn + 1);
    }
    if (turn >= 1 && turn <= num_chunks) {
      const uint32_t c = turn - 1;
      const auto [begin, end] = share_of(rank_, length(c), element);
      std::byte* mine = data + (c * in_chunk + begin) * element;
      wait_for_all(Stage::kProduced, chunks_done_ + c + 1);
      add_part({.mine = mine,
                .offset = begin * element,
                .numel = end - begin,
                .to = mine,
                .also_to = out_slot(rank_, chunks_done_ + c)},
               chunks_done_ + c, dtype, op);
      publish(Stage::kConsumed, chunks_done_ + c + 1);
    }
    if (turn >= 2) {
      const uint32_t c = turn - 2;
      for (int other = 0; other < size_; ++other) {
        if (other == rank_) continue;
        const auto [begin, end] = share_of(other, length(c), element);
        wait_for(Stage::kConsumed, other, chunks_done_ + c + 1);
        std::memcpy(data + (c * in_chunk + begin) * element, out_slot(other, chunks_done_ + c),
                    static_cast<std::size_t>((end - begin) * element));
      }
    }
  }
  chunks_done_ += num_chunks;
}

void ShmGroup::all_reduce_in_place(int64_t numel, at::ScalarType dtype, ReduceOp op) {
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const auto [begin, end] = share_of(rank_, numel, element);
  inputs_.clear();
  outputs_.clear();
  for (int rank = 0; rank < size_; ++rank) {
    std::byte* data = arena_of(rank) + call_of(rank).arena_offset;
    inputs_.push_back(data);
    outputs_.push_back(data);
  }
  reduce_range(op, dtype, inputs_, outputs_, begin, end);
  meet();
}

void ShmGroup::reduce_scatter_onto(const std::byte* seed, const std::byte* data,
                                   const std::vector<int64_t>& bounds, std::byte* result,
                                   at::ScalarType dtype, ReduceOp op) {
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t part_bytes = chunk_bytes_ / size_ / static_cast<int64_t>(kLine) * kLine;
  const int64_t in_part = part_bytes / element;
  const auto length = [&](int rank, uint32_t c) {
    const auto at = static_cast<std::size_t>(rank);
    return std::clamp<int64_t>(bounds[at + 1] - bounds[at] - c * in_part, 0, in_part);
  };
  uint32_t num_chunks = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    num_chunks = std::max(
        num_chunks, static_cast<uint32_t>((bounds[at + 1] - bounds[at] + in_part - 1) / in_part));
  }
  for (uint32_t turn = 0; turn < num_chunks + 1; ++turn) {
    if (turn < num_chunks) {
      wait_for_all(Stage::kConsumed, chunks_done_ + turn + 1 - kSlots);
      for (int other = 0; other < size_; ++other) {
        if (other == rank_) continue;
        const int64_t from = bounds[static_cast<std::size_t>(other)] + turn * in_part;
        const int64_t bytes = length(other, turn) * element;
        if (bytes == 0) continue;
        std::memcpy(in_slot(rank_, chunks_done_ + turn) + other * part_bytes, data + from * element,
                    static_cast<std::size_t>(bytes));
      }
      publish(Stage::kProduced, chunks_done_ + turn + 1);
    }
    if (turn >= 1) {
      const uint32_t c = turn - 1;
      const int64_t done = c * in_part * element;
      const int64_t own = bounds[static_cast<std::size_t>(rank_)] * element;
      wait_for_all(Stage::kProduced, chunks_done_ + c + 1);
      add_part({.seed = seed == nullptr ? nullptr : seed + done,
                .mine = data + own + done,
                .offset = rank_ * part_bytes,
                .numel = length(rank_, c),
                .to = result + done},
               chunks_done_ + c, dtype, op);
      publish(Stage::kConsumed, chunks_done_ + c + 1);
    }
  }
  chunks_done_ += num_chunks;
}

void ShmGroup::all_gather(const std::byte* mine, std::byte* data,
                          const std::vector<int64_t>& bounds) {
  uint32_t num_chunks = 0;
  for (std::size_t rank = 0; rank + 1 < bounds.size(); ++rank) {
    num_chunks = std::max(
        num_chunks,
        static_cast<uint32_t>((bounds[rank + 1] - bounds[rank] + chunk_bytes_ - 1) / chunk_bytes_));
  }
  const auto length = [&](int rank, uint32_t c) {
    const auto at = static_cast<std::size_t>(rank);
    return std::clamp<int64_t>(bounds[at + 1] - bounds[at] - c * chunk_bytes_, 0, chunk_bytes_);
  };
  const auto copy = [](std::byte* to, const std::byte* from, int64_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  };
  for (uint32_t c = 0; c < num_chunks; ++c) {
    const uint32_t chunk = chunks_done_ + c;
    wait_for_all(Stage::kConsumed, chunk + 1 - kSlots);
    copy(in_slot(rank_, chunk), mine + c * chunk_bytes_, length(rank_, c));
    publish(Stage::kProduced, chunk + 1);
    for (int other = 0; other < size_; ++other) {
      std::byte* to = data + bounds[static_cast<std::size_t>(other)] + c * chunk_bytes_;
      if (other == rank_) {
        copy(to, mine + c * chunk_bytes_, length(rank_, c));
        continue;
      }
      wait_for(Stage::kProduced, other, chunk + 1);
      copy(to, in_slot(other, chunk), length(other, c));
    }
    publish(Stage::kConsumed, chunk + 1);
  }
  chunks_done_ += num_chunks;
}

void ShmGroup::broadcast(std::byte* data, int64_t bytes, int root) {
  const auto num_chunks = static_cast<uint32_t>((bytes + chunk_bytes_ - 1) / chunk_bytes_);
  for (uint32_t c = 0; c < num_chunks; ++c) {
    const uint32_t chunk = chunks_done_ + c;
    const auto length = static_cast<std::size_t>(std::min(chunk_bytes_, bytes - c * chunk_bytes_));
    if (rank_ == root) {
      wait_for_all(Stage::kConsumed, chunk + 1 - kSlots);
      std::memcpy(in_slot(root, chunk), data + c * chunk_bytes_, length);
    } else {
      wait_for(Stage::kProduced, root, chunk + 1);
      std::memcpy(data + c * chunk_bytes_, in_slot(root, chunk), length);
    }
    publish(Stage::kProduced, chunk + 1);
    publish(Stage::kConsumed, chunk + 1);
  }
  chunks_done_ += num_chunks;
}

std::unique_ptr<Communicator> make_shm(const GroupOptions& options) {
  options.check();
  return make_group_communicator("shm", std::make_shared<ShmGroup>(options),
                                 /*in_background=*/false);
}

}  // namespace tutti::collectives
