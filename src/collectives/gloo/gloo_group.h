#pragma once
// Ranks that are connected by Gloo: calls are announced and compared, then bytes move.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "collectives/byte_group.h"
#include "collectives/gloo/mesh.h"

namespace tutti::collectives {

/// One rank's side. The first failure of any rank is written into the store and is everybody's:
/// whoever notices says that it decides, then closes its connections, which the others notice, and
/// they read what it was.
///
/// At a deadline the rank that waits may wait for one that waits itself. So every rank that a
/// failure finds waiting writes for whom, and whoever decides goes from one to the next until it
/// comes to those that have written nothing: they stand still.
///
/// The destructor waits for nobody, but for a tenth of a second at most when this rank has just
/// sent much: Gloo throws away what a connection still holds when it is closed.
class GlooGroup : public ByteGroup {
 public:
  explicit GlooGroup(const GroupOptions& options);
  ~GlooGroup() override;
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool announce(std::string_view where, const CallRecord& call, const void* payload,
                std::size_t bytes, std::chrono::milliseconds timeout,
                std::string* difference) override;
  std::size_t flat_bytes() const override;
  const CallRecord& call_of(int rank) const override;
  const void* payload_of(int rank) const override;
  void all_reduce(std::byte* data, const CallRecord& call, ReduceOp op) override;
  void reduce_scatter(const std::byte* data, const std::vector<int64_t>& bounds, std::byte* result,
                      at::ScalarType dtype, ReduceOp op) override;
  void all_gather(const std::byte* mine, std::byte* data,
                  const std::vector<int64_t>& bounds) override;
  void broadcast(std::byte* data, int64_t bytes, int root) override;
  void fail(ErrorCode code, std::string_view reason) override;
  void close() override;

  // For a group that has other ways too. Messages of one kind between two ranks keep their order.
  enum Tag { kAnnouncement = 1, kScattered, kGathered, kForward, kBackward, kGoodbye };
  struct Failure {
    ErrorCode code = ErrorCode::kAborted;
    std::string reason;
  };
  struct Message {
    int peer = 0;
    bool received = false;
    std::unique_ptr<Transfer> transfer;
  };
  Message send(int to, const void* data, int64_t bytes, Tag tag);
  Message receive(int from, void* data, int64_t bytes, Tag tag);
  /// What the group failed by, if it has.
  std::optional<Failure> failure();
  /// When this call's waits end.
  std::chrono::steady_clock::time_point deadline() const { return end_; }
  /// What the group fails by when this rank has waited for `ranks` until the deadline elsewhere.
  Failure fail_at_deadline(const std::vector<int>& ranks);
  /// Until all are done; throws when one fails, with what failed the group. Clears the list.
  void finish(std::vector<Message>* messages);

 private:
  /// What every rank sends to every other first, of one size whatever is called.
  struct Announcement {
    CallRecord call;
    std::byte payload[896];
  };
  class Reduction;

  void check_open();
  [[noreturn]] void failed_at(std::vector<Message>* messages, std::size_t first,
                              const std::string& error);
  void wait_for(std::vector<Message>* messages, std::size_t at);
  bool decides() TUTTI_REQUIRES(mutex_);
  Failure settle(bool decides, const Failure& cause) TUTTI_REQUIRES(mutex_);
  std::vector<int> close_and_list(const std::vector<Message>& messages, std::size_t first);
  void tell_for_whom_it_waits(const std::vector<int>& ranks);
  Failure deadline_failure(const std::vector<int>& ranks, bool decides);
  std::chrono::milliseconds time_left() const;
  void say_goodbye();

  const GroupOptions options_;
  const int rank_;
  const int size_;
  std::unique_ptr<Mesh> mesh_;  // null when there is nobody else
  // Kept between calls.
  std::vector<Announcement> announcements_;
  std::vector<Message> messages_;
  std::vector<Message> scattered_[2];  // of two chunks in turn
  std::vector<Message> gathered_[2];
  std::vector<std::byte> staging_;

  std::string_view where_ = "gloo";
  CallRecord call_;
  std::chrono::milliseconds timeout_{0};
  std::chrono::steady_clock::time_point end_;
  bool has_sent_much_ = false;

  Mutex mutex_;
  bool failed_ TUTTI_GUARDED_BY(mutex_) = false;
  Failure failure_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::collectives
