#pragma once
// How workers agree on the step after which all save: the seam between the handler and whatever
// connects the processes.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tutti/base/error.h"

namespace tutti::coordination {
class CoordinationAgent;
}

namespace tutti::preemption {

/// Save after so many steps. `last`: and end then.
struct Decision {
  int64_t step = 0;
  bool last = true;
  friend bool operator==(const Decision&, const Decision&) = default;
};
/// The step of a decision that nothing is saved: a worker had already ended its training.
constexpr int64_t kNever = -1;

/// One worker's end of a table that all workers of a job see. Rounds are 0, the save after the
/// notice, and 1, that at the end of the grace period. Any thread may call; errors are those of
/// what connects the workers.
class PreemptionChannel {
 public:
  PreemptionChannel(int worker, int num_workers) : worker_(worker), num_workers_(num_workers) {}
  virtual ~PreemptionChannel() = default;
  PreemptionChannel(const PreemptionChannel&) = delete;
  PreemptionChannel& operator=(const PreemptionChannel&) = delete;

  int worker() const { return worker_; }
  int num_workers() const { return num_workers_; }
  /// "worker:1", for messages.
  virtual std::string name_of(int worker) const;

  /// True for the first worker that asks, and for no other: it leads all rounds. `why` is its
  /// notice.
  bool lead(const std::string& why);
  /// The leader says that no worker is to begin a step until it has decided.
  void hold(int round);
  bool is_held(int round);
  /// This worker has begun `begun` steps and begins no other before the decision.
  void acknowledge(int round, int64_t begun);
  /// By worker; nothing of those that did not acknowledge.
  std::vector<std::optional<int64_t>> acknowledgements(int round);
  void decide(int round, const Decision& decision);
  std::optional<Decision> decided(int round);
  /// This worker has saved what the last round decided.
  void say_saved();
  std::vector<std::optional<int64_t>> saved();
  /// This worker will begin no step any more.
  void say_gone(int64_t steps);
  std::vector<std::optional<int64_t>> gone();

  /// Tells all workers of an error that ends the job.
  virtual void report_error(ErrorCode code, const std::string& message) {}

 private:
  /// False when the key has a value already, which stays.
  virtual bool put(const std::string& key, const std::string& value) = 0;
  virtual std::optional<std::string> find(const std::string& key) = 0;
  virtual std::vector<std::pair<std::string, std::string>> list(const std::string& prefix) = 0;
  virtual void announce(const std::string& why) {}

  std::vector<std::optional<int64_t>> numbers(const std::string& name);

  const int worker_;
  const int num_workers_;
};

/// A table in this process: of one worker, or of workers that are threads.
class InProcessTable {
 public:
  bool put(const std::string& key, const std::string& value);
  std::optional<std::string> find(const std::string& key);
  std::vector<std::pair<std::string, std::string>> list(const std::string& prefix);

 private:
  Mutex mutex_;
  std::map<std::string, std::string> values_ TUTTI_GUARDED_BY(mutex_);
};

std::unique_ptr<PreemptionChannel> in_process_channel(std::shared_ptr<InProcessTable> table,
                                                      int worker, int num_workers);
/// Of the only worker.
std::unique_ptr<PreemptionChannel> sole_channel();
/// Over the table of the workers' coordination. `worker` is the rank among them. `name` tells the
/// handlers of a job apart: all workers give the same one.
std::unique_ptr<PreemptionChannel> agent_channel(
    std::shared_ptr<coordination::CoordinationAgent> agent, int worker, int num_workers,
    const std::string& name);

/// Where the agent channel writes the notice that PreemptionWatcher reads.
inline constexpr const char* kNoticeKey = "tutti/preemption/notice";

}  // namespace tutti::preemption
