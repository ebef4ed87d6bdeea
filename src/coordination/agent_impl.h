#pragma once
// The state of an agent: what it heard, and its heartbeat.

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "coordination/agent.h"
#include "coordination/link.h"

namespace tutti::coordination {

class CoordinationAgent::Impl final : public Listener {
 public:
  Impl(const AgentOptions& options, std::unique_ptr<Link> link);
  ~Impl() override;

  /// A call that takes no time of its own. Throws what ended the job, or the reply's failure.
  v1::Reply call(std::string_view operation, v1::Request request);
  /// One that waits: asked again in slices, saying for whom, until `timeout` is over. Returns
  /// nothing then.
  std::optional<v1::Reply> wait(const std::string& operation, v1::Request request,
                                Milliseconds timeout);

  void report_progress(int64_t step, std::string_view phase, bool waiting);
  void count_as_moving(bool on);
  uint64_t next_round(const std::string& barrier);
  JobFailure report_error(ErrorCode code, const std::string& message);
  void leave(Milliseconds timeout, bool together);
  std::optional<JobFailure> failure() const;
  [[noreturn]] void throw_failure(std::string_view operation, const JobFailure& failure) const;
  void check(std::string_view operation) const;
  std::optional<JobFailure> wait_for_failure(Milliseconds timeout) const;
  void on_failure(std::function<void(const JobFailure&)> action);

  const AgentOptions& options() const { return options_; }
  uint64_t generation() const { return generation_; }
  uint64_t incarnation() const { return incarnation_; }

 private:
  struct Pending {
    bool done = false;
    bool reached = false;
    v1::Reply reply;
  };

  void on_event(const v1::Event& event) override;
  void on_end(const v1::Failure* failure) override;

  void join();
  bool try_to_join(const v1::JoinRequest& request, std::chrono::steady_clock::time_point end);
  v1::Caller caller();
  v1::Reply ask(std::string_view operation, v1::Request& request, Milliseconds timeout);
  void end_job(JobFailure failure) TUTTI_REQUIRES(mutex_);
  void leader_is_lost(const std::string& how) TUTTI_REQUIRES(mutex_);
  void beat(std::stop_token stop);
  void send_heartbeat();
  bool stood_still() TUTTI_REQUIRES(mutex_);
  v1::Progress progress() TUTTI_REQUIRES(mutex_);

  const AgentOptions options_;
  const std::string leader_;
  const uint64_t hash_;
  uint64_t incarnation_;
  uint64_t generation_ = 0;  // since the admission
  Limits limits_;            // since the admission
  std::unique_ptr<Link> link_;
  std::atomic<uint64_t> sequence_{0};

  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  std::optional<v1::Admission> admission_ TUTTI_GUARDED_BY(mutex_);
  std::optional<v1::Failure> refusal_ TUTTI_GUARDED_BY(mutex_);
  bool join_under_way_ TUTTI_GUARDED_BY(mutex_) = false;
  bool stream_ended_ TUTTI_GUARDED_BY(mutex_) = false;
  std::string leader_process_ TUTTI_GUARDED_BY(mutex_);
  bool leaving_ TUTTI_GUARDED_BY(mutex_) = false;
  std::optional<JobFailure> failure_ TUTTI_GUARDED_BY(mutex_);
  std::vector<std::function<void(const JobFailure&)>> actions_ TUTTI_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> rounds_ TUTTI_GUARDED_BY(mutex_);
  bool heartbeat_under_way_ TUTTI_GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point last_beat_ TUTTI_GUARDED_BY(mutex_);
  int lost_heartbeats_ TUTTI_GUARDED_BY(mutex_) = 0;  // one after another
  int waits_ TUTTI_GUARDED_BY(mutex_) = 0;            // calls of this task that wait for others
  int moves_ TUTTI_GUARDED_BY(mutex_) = 0;            // works that count as moving
  bool watched_ TUTTI_GUARDED_BY(mutex_) = false;
  int64_t step_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::array<char, 32> phase_ TUTTI_GUARDED_BY(mutex_){};
  bool phase_waits_ TUTTI_GUARDED_BY(mutex_) = false;
  uint64_t reports_ TUTTI_GUARDED_BY(mutex_) = 0;

  std::jthread heart_;
};

}  // namespace tutti::coordination
