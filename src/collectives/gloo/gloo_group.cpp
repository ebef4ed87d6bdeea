// A call is one announcement of a kilobyte to every other rank, which also carries small tensors.
// More data goes straight to who needs it: each rank owns 1/n of the entries, gets that part of
// all ranks' tensors, adds them in rank order, and sends the sum to everybody. As many bytes as a
// ring moves, in two steps instead of 2 (n - 1), and the order of adding is that of the ranks.

#include "collectives/gloo/gloo_group.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

#include "collectives/gloo/gloo.h"
#include "collectives/host_communicator.h"
#include "collectives/loops.h"
#include "tutti/base/text.h"

namespace tutti::collectives {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;
constexpr int64_t kLine = 64;
constexpr int64_t kShareBytes = int64_t{1} << 20;  // of each rank in a chunk
constexpr int64_t kMuchBytes = 65536;              // may still be under way when it counts as sent
// How long whoever decides at a deadline looks for those who wait, and how long the others wait for
// its reason.
constexpr Milliseconds kLeastTelling{50};
constexpr Milliseconds kMostTelling{500};
constexpr Milliseconds kLookAgain{10};
constexpr Milliseconds kReasonTime{2500};
constexpr Milliseconds kGoodbyeTime{100};

}  // namespace

GlooGroup::GlooGroup(const GroupOptions& options)
    : options_(options),
      rank_(options.rank),
      size_(options.size),
      announcements_(static_cast<std::size_t>(options.size)) {
  exchange(options, "gloo", options.address);  // names those that do not come
  if (size_ > 1) mesh_ = make_mesh(options);
}

GlooGroup::~GlooGroup() {
  if (mesh_ != nullptr && has_sent_much_ && !failure()) say_goodbye();
}

/// Who says it too has received all that this rank has sent.
void GlooGroup::say_goodbye() {
  std::vector<char> byes(static_cast<std::size_t>(size_), 0);
  end_ = Clock::now() + kGoodbyeTime;
  try {
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      messages_.push_back(receive(other, &byes[static_cast<std::size_t>(other)], 1, kGoodbye));
      messages_.push_back(send(other, &byes[static_cast<std::size_t>(rank_)], 1, kGoodbye));
    }
    for (const Message& message : messages_) {
      if (message.received) message.transfer->wait(time_left());
    }
  } catch (const std::exception&) {  // it waits for a call, or has gone
  }
  messages_.clear();
}

std::size_t GlooGroup::flat_bytes() const { return sizeof(Announcement::payload); }

const CallRecord& GlooGroup::call_of(int rank) const {
  return announcements_[static_cast<std::size_t>(rank)].call;
}

const void* GlooGroup::payload_of(int rank) const {
  return announcements_[static_cast<std::size_t>(rank)].payload;
}

// ---- Messages and failures ---------------------------------------------------------------------

Milliseconds GlooGroup::time_left() const {
  return std::max(std::chrono::ceil<Milliseconds>(end_ - Clock::now()), Milliseconds(1));
}

GlooGroup::Message GlooGroup::send(int to, const void* data, int64_t bytes, Tag tag) {
  has_sent_much_ = has_sent_much_ || bytes > kMuchBytes;
  return {to, false, mesh_->send(to, data, static_cast<std::size_t>(bytes), tag)};
}

GlooGroup::Message GlooGroup::receive(int from, void* data, int64_t bytes, Tag tag) {
  return {from, true, mesh_->receive(from, data, static_cast<std::size_t>(bytes), tag)};
}

void GlooGroup::wait_for(std::vector<Message>* messages, std::size_t at) {
  std::string error;
  try {
    if ((*messages)[at].transfer->wait_until(end_)) return;
  } catch (const std::exception& closed) {
    error = closed.what();
  }
  failed_at(messages, at, error);
}

void GlooGroup::finish(std::vector<Message>* messages) {
  for (std::size_t i = 0; i < messages->size(); ++i) wait_for(messages, i);
  messages->clear();
}

/// No error: the deadline has come.
void GlooGroup::failed_at(std::vector<Message>* messages, std::size_t first,
                          const std::string& error) {
  Failure failure;
  {
    MutexLock lock(mutex_);
    const bool first_to_fail = decides();
    // From here on whoever sees a closed connection asks for the reason.
    const std::vector<int> missing = close_and_list(*messages, first);
    if (!failed_) tell_for_whom_it_waits(missing);
    Failure cause;
    if (error.empty()) {
      cause = deadline_failure(missing, first_to_fail);
    } else {
      cause = {ErrorCode::kUnavailable,
               cat("rank ", missing[0], " has closed its connection (",
                   error.substr(0, error.find('\n')),
                   "), expected it to make this call; see whether its process has ended, "
                   "build a new group without it, or start all ranks again")};
    }
    failure = settle(first_to_fail, cause);
  }
  messages->clear();
  throw_error(failure.code, call_head(where_, call_) + failure.reason);
}

/// Closes all connections. The peers of the messages from `first` on that have not come.
std::vector<int> GlooGroup::close_and_list(const std::vector<Message>& messages,
                                           std::size_t first) {
  mesh_->close();
  std::vector<int> missing{messages[first].peer};
  for (std::size_t i = first + 1; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (!message.received ||
        std::find(missing.begin(), missing.end(), message.peer) != missing.end()) {
      continue;
    }
    try {
      message.transfer->wait(Milliseconds(1));
    } catch (const std::exception&) {
      missing.push_back(message.peer);
    }
  }
  return missing;
}

void GlooGroup::tell_for_whom_it_waits(const std::vector<int>& ranks) {
  try {
    options_.store->set(options_.key(cat("waiting/", rank_)), join(ranks, " "));
  } catch (const std::exception&) {  // see settle()
  }
}

/// If those for whom this rank waits wait themselves, it is they for whom they wait that stand
/// still: whoever decides finds them.
GlooGroup::Failure GlooGroup::deadline_failure(const std::vector<int>& ranks, bool decides) {
  if (!decides) return {ErrorCode::kDeadlineExceeded, missing_text(ranks, size_, timeout_)};
  const auto end = Clock::now() + std::clamp(timeout_ / 4, kLeastTelling, kMostTelling);
  std::set<int> asked(ranks.begin(), ranks.end());
  std::set<int> waiting{rank_};
  const auto ask = [&] {
    for (const int rank : std::set<int>(asked)) {
      if (waiting.count(rank) != 0) continue;
      try {
        std::istringstream text(
            options_.store->get(options_.key(cat("waiting/", rank)), Milliseconds(0)));
        waiting.insert(rank);
        for (int next = 0; text >> next;) asked.insert(next);
      } catch (const std::exception&) {  // nothing yet
      }
    }
    return std::includes(waiting.begin(), waiting.end(), asked.begin(), asked.end());
  };
  while (!ask() && Clock::now() < end) std::this_thread::sleep_for(kLookAgain);
  std::vector<int> still;
  std::set_difference(asked.begin(), asked.end(), waiting.begin(), waiting.end(),
                      std::back_inserter(still));
  return {ErrorCode::kDeadlineExceeded,
          missing_text(still.empty() ? ranks : still, size_, timeout_)};
}

/// Whoever is the first to ask decides what all ranks say that the group failed by.
bool GlooGroup::decides() {
  if (failed_) return false;
  try {
    return options_.store->add(options_.key("failures"), 1) == 1;
  } catch (const std::exception&) {  // the store is gone with the first rank, perhaps
    return true;
  }
}

GlooGroup::Failure GlooGroup::settle(bool decides, const Failure& cause) {
  if (failed_) return failure_;
  failure_ = cause;
  try {
    if (decides) {
      options_.store->set(options_.key("failure"),
                          cat(static_cast<int>(cause.code), " ", cause.reason));
    } else {
      const std::string text = options_.store->get(options_.key("failure"), kReasonTime);
      std::size_t used = 0;
      const int number = std::stoi(text, &used);
      failure_ = {static_cast<ErrorCode>(number), text.substr(std::min(used + 1, text.size()))};
    }
  } catch (const std::exception&) {  // then every rank says what it has seen
  }
  failed_ = true;
  return failure_;
}

GlooGroup::Failure GlooGroup::fail_at_deadline(const std::vector<int>& ranks) {
  MutexLock lock(mutex_);
  const bool first_to_fail = decides();
  if (!failed_) tell_for_whom_it_waits(ranks);
  if (mesh_ != nullptr) mesh_->close();  // those who wait for this rank tell so
  return settle(first_to_fail, deadline_failure(ranks, first_to_fail));
}

std::optional<GlooGroup::Failure> GlooGroup::failure() {
  MutexLock lock(mutex_);
  if (!failed_) return std::nullopt;
  return failure_;
}

void GlooGroup::check_open() {
  if (const auto known = failure()) {
    throw_error(known->code, call_head(where_, call_) + known->reason);
  }
}

void GlooGroup::fail(ErrorCode code, std::string_view reason) {
  {
    MutexLock lock(mutex_);
    settle(decides(), {code, std::string(reason)});
  }
  if (mesh_ != nullptr) mesh_->close();
}

void GlooGroup::close() {
  if (mesh_ != nullptr) mesh_->close();
}

// ---- Announcing --------------------------------------------------------------------------------

bool GlooGroup::announce(std::string_view where, const CallRecord& call, const void* payload,
                         std::size_t bytes, std::chrono::milliseconds timeout,
                         std::string* difference) {
  where_ = where;
  call_ = call;
  timeout_ = timeout;
  end_ = Clock::now() + timeout;
  check_open();
  Announcement& mine = announcements_[static_cast<std::size_t>(rank_)];
  mine.call = call;
  if (bytes > 0) std::memcpy(mine.payload, payload, bytes);
  constexpr auto kSize = static_cast<int64_t>(sizeof(Announcement));
  try {
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      Announcement& theirs = announcements_[static_cast<std::size_t>(other)];
      messages_.push_back(receive(other, &theirs, kSize, kAnnouncement));
    }
    for (int other = 0; other < size_; ++other) {
      if (other != rank_) messages_.push_back(send(other, &mine, kSize, kAnnouncement));
    }
  } catch (const std::exception& error) {  // a connection that was closed between the calls
    const int peer = messages_.empty() ? (rank_ == 0 ? 1 : 0) : messages_.back().peer;
    messages_.clear();
    messages_.push_back({peer, false, nullptr});
    failed_at(&messages_, 0, error.what());
  }
  finish(&messages_);
  end_ = Clock::now() + timeout;  // the same on all ranks, who may have come at different times
  has_sent_much_ = false;
  for (int other = 1; other < size_; ++other) {
    if (agree(call_of(0), call_of(other))) continue;
    *difference = difference_text(where, call, call_of(0), other, call_of(other));
    return false;
  }
  return true;
}

// ---- Moving ------------------------------------------------------------------------------------

/// The chunks of one all_reduce. Two are under way: while one's sums are gathered, the parts of the
/// next are scattered.
class GlooGroup::Reduction {
 public:
  Reduction(GlooGroup* group, std::byte* data, const CallRecord& call, ReduceOp op)
      : group_(*group),
        data_(data),
        numel_(call.numel),
        dtype_(call.scalar_type()),
        op_(op),
        wire_(static_cast<WireDtype>(call.wire)),
        element_(call.element_size),
        in_chunk_(std::min(kShareBytes / element_ * group->size_, call.numel)),
        share_bytes_((in_chunk_ / group->size_ + kLine) * (narrow() ? 2 : element_) / kLine *
                         kLine +
                     kLine) {
    // Narrow values are converted into memory of their own, for both ways.
    const int64_t areas = 2 * group->size_ * (narrow() ? 3 : 1);
    const auto needed = static_cast<std::size_t>(areas * share_bytes_);
    if (group_.staging_.size() < needed) group_.staging_.resize(needed);
  }

  void run() {
    const int64_t num_chunks = (numel_ + in_chunk_ - 1) / in_chunk_;
    for (int64_t turn = 0; turn < num_chunks + 2; ++turn) {
      if (turn < num_chunks) scatter(turn);
      if (turn >= 1 && turn <= num_chunks) add(turn - 1);
      if (turn >= 2) gather(turn - 2);
    }
  }

 private:
  struct Share {
    std::byte* data = nullptr;  // in the tensor
    int64_t numel = 0;
  };
  enum Area { kIn = 0, kOut = 1, kSum = 2 };

  bool narrow() const { return wire_ != WireDtype::kSame; }
  Float16 kind() const {
    return wire_ == WireDtype::kBFloat16 ? Float16::kBFloat16 : Float16::kHalf;
  }
  int64_t wire_bytes(const Share& share) const { return share.numel * (narrow() ? 2 : element_); }

  Share share_of(int64_t chunk, int rank) const {
    const int64_t length = std::min(in_chunk_, numel_ - chunk * in_chunk_);
    const int64_t in_line = kLine / element_;
    const int64_t lines = (length + in_line - 1) / in_line;
    const int64_t begin = std::min(length, lines * rank / group_.size_ * in_line);
    const int64_t end = std::min(length, lines * (rank + 1) / group_.size_ * in_line);
    return {data_ + (chunk * in_chunk_ + begin) * element_, end - begin};
  }
  std::byte* area(Area which, int64_t chunk, int rank) const {
    const int64_t number = (static_cast<int64_t>(which) * 2 + chunk % 2) * group_.size_ + rank;
    return group_.staging_.data() + number * share_bytes_;
  }
  uint16_t* narrow_area(Area which, int64_t chunk, int rank) const {
    return reinterpret_cast<uint16_t*>(area(which, chunk, rank));
  }

  void scatter(int64_t chunk) {
    std::vector<Message>& messages = group_.scattered_[chunk % 2];
    const Share own = share_of(chunk, group_.rank_);
    for (int other = 0; other < group_.size_; ++other) {
      if (other == group_.rank_ || own.numel == 0) continue;
      messages.push_back(
          group_.receive(other, area(kIn, chunk, other), wire_bytes(own), kScattered));
    }
    for (int other = 0; other < group_.size_; ++other) {
      const Share theirs = share_of(chunk, other);
      if (other == group_.rank_ || theirs.numel == 0) continue;
      const std::byte* from = theirs.data;
      if (narrow()) {
        to_16(kind(), reinterpret_cast<const float*>(theirs.data), narrow_area(kOut, chunk, other),
              theirs.numel);
        from = area(kOut, chunk, other);
      }
      messages.push_back(group_.send(other, from, wire_bytes(theirs), kScattered));
    }
  }

  void add(int64_t chunk) {
    const Share own = share_of(chunk, group_.rank_);
    group_.finish(&group_.scattered_[chunk % 2]);
    const std::byte* sum = own.data;
    if (narrow()) {
      add_narrow(chunk, own);
      sum = area(kSum, chunk, group_.rank_);
    } else if (own.numel > 0) {
      inputs_.clear();
      for (int rank = 0; rank < group_.size_; ++rank) {
        inputs_.push_back(rank == group_.rank_ ? own.data : area(kIn, chunk, rank));
      }
      outputs_.assign(1, own.data);
      reduce_buffers(op_, dtype_, inputs_, outputs_, own.numel);
    }
    std::vector<Message>& messages = group_.gathered_[chunk % 2];
    for (int other = 0; other < group_.size_; ++other) {
      const Share theirs = share_of(chunk, other);
      if (other == group_.rank_ || theirs.numel == 0) continue;
      std::byte* to = narrow() ? area(kSum, chunk, other) : theirs.data;
      messages.push_back(group_.receive(other, to, wire_bytes(theirs), kGathered));
    }
    for (int other = 0; other < group_.size_; ++other) {
      if (other == group_.rank_ || own.numel == 0) continue;
      messages.push_back(group_.send(other, sum, wire_bytes(own), kGathered));
    }
  }

  /// In float32. This rank's own values are rounded as the others' were, and its sum as theirs will
  /// be: all ranks end with the same bits.
  void add_narrow(int64_t chunk, const Share& own) {
    auto* sum = reinterpret_cast<float*>(own.data);
    to_16(kind(), sum, narrow_area(kIn, chunk, group_.rank_), own.numel);
    from_16(kind(), narrow_area(kIn, chunk, 0), sum, own.numel);
    for (int rank = 1; rank < group_.size_; ++rank) {
      accumulate_16(kind(), sum, narrow_area(kIn, chunk, rank), own.numel);
    }
    if (op_ == ReduceOp::kMean) divide(sum, own.numel, static_cast<float>(group_.size_));
    to_16(kind(), sum, narrow_area(kSum, chunk, group_.rank_), own.numel);
    from_16(kind(), narrow_area(kSum, chunk, group_.rank_), sum, own.numel);
  }

  void gather(int64_t chunk) {
    group_.finish(&group_.gathered_[chunk % 2]);
    if (!narrow()) return;
    for (int other = 0; other < group_.size_; ++other) {
      const Share theirs = share_of(chunk, other);
      if (other == group_.rank_ || theirs.numel == 0) continue;
      from_16(kind(), narrow_area(kSum, chunk, other), reinterpret_cast<float*>(theirs.data),
              theirs.numel);
    }
  }

  GlooGroup& group_;
  std::byte* data_;
  const int64_t numel_;
  const at::ScalarType dtype_;
  const ReduceOp op_;
  const WireDtype wire_;
  const int64_t element_;
  const int64_t in_chunk_;
  const int64_t share_bytes_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

void GlooGroup::all_reduce(std::byte* data, const CallRecord& call, ReduceOp op) {
  Reduction(this, data, call, op).run();
}

void GlooGroup::reduce_scatter(const std::byte* data, const std::vector<int64_t>& bounds,
                               std::byte* result, at::ScalarType dtype, ReduceOp op) {
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const auto begin = [&](int rank) { return bounds[static_cast<std::size_t>(rank)]; };
  const int64_t own = begin(rank_ + 1) - begin(rank_);
  const int64_t bytes = own * element;
  const std::unique_ptr<std::byte[]> parts(new std::byte[static_cast<std::size_t>(bytes * size_)]);
  std::vector<const void*> inputs;
  for (int other = 0; other < size_; ++other) {
    std::byte* part = parts.get() + bytes * other;
    inputs.push_back(other == rank_ ? data + begin(rank_) * element : part);
    if (other == rank_ || own == 0) continue;
    messages_.push_back(receive(other, part, bytes, kScattered));
  }
  for (int other = 0; other < size_; ++other) {
    const int64_t numel = begin(other + 1) - begin(other);
    if (other == rank_ || numel == 0) continue;
    messages_.push_back(send(other, data + begin(other) * element, numel * element, kScattered));
  }
  finish(&messages_);
  reduce_buffers(op, dtype, inputs, {result}, own);
}

void GlooGroup::all_gather(const std::byte* mine, std::byte* data,
                           const std::vector<int64_t>& bounds) {
  const auto begin = [&](int rank) { return bounds[static_cast<std::size_t>(rank)]; };
  const int64_t own = begin(rank_ + 1) - begin(rank_);
  for (int other = 0; other < size_; ++other) {
    const int64_t bytes = begin(other + 1) - begin(other);
    if (other == rank_ || bytes == 0) continue;
    messages_.push_back(receive(other, data + begin(other), bytes, kGathered));
  }
  for (int other = 0; other < size_; ++other) {
    if (other != rank_ && own > 0) messages_.push_back(send(other, mine, own, kGathered));
  }
  if (own > 0) std::memcpy(data + begin(rank_), mine, static_cast<std::size_t>(own));
  finish(&messages_);
}

void GlooGroup::broadcast(std::byte* data, int64_t bytes, int root) {
  if (rank_ != root) {
    messages_.push_back(receive(root, data, bytes, kGathered));
  } else {
    for (int other = 0; other < size_; ++other) {
      if (other != root) messages_.push_back(send(other, data, bytes, kGathered));
    }
  }
  finish(&messages_);
}

std::unique_ptr<Communicator> make_gloo(const GroupOptions& options) {
  options.check();
  return make_group_communicator("gloo", std::make_shared<GlooGroup>(options),
                                 /*in_background=*/true);
}

}  // namespace tutti::collectives
