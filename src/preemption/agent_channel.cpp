#include "coordination/agent.h"
#include "preemption/channel.h"
#include "tutti/base/text.h"

namespace tutti::preemption {
namespace {

using coordination::CoordinationAgent;

class AgentChannel final : public PreemptionChannel {
 public:
  AgentChannel(std::shared_ptr<CoordinationAgent> agent, int worker, int num_workers,
               const std::string& name)
      : PreemptionChannel(worker, num_workers),
        agent_(std::move(agent)),
        prefix_(cat("tutti/preemption/", name, "/")) {}

  std::string name_of(int worker) const override {
    return worker == this->worker() ? agent_->task() : cat("worker of rank ", worker);
  }
  void report_error(ErrorCode code, const std::string& message) override {
    agent_->report_error(code, message);
  }

 private:
  bool put(const std::string& key, const std::string& value) override {
    try {
      agent_->set(prefix_ + key, value, /*overwrite=*/false);
      return true;
    } catch (const AlreadyExists&) {
      agent_->check("preemption");  // the job may have ended by an error of that code
      return false;
    }
  }
  std::optional<std::string> find(const std::string& key) override {
    return agent_->try_get(prefix_ + key);
  }
  std::vector<std::pair<std::string, std::string>> list(const std::string& prefix) override {
    auto entries = agent_->list(prefix_ + prefix);
    for (auto& [key, value] : entries) key.erase(0, prefix_.size());
    return entries;
  }
  void announce(const std::string& why) override {
    try {
      agent_->set(kNoticeKey, why, /*overwrite=*/false);
    } catch (const AlreadyExists&) {  // an earlier notice stays
    }
  }

  const std::shared_ptr<CoordinationAgent> agent_;
  const std::string prefix_;
};

}  // namespace

std::unique_ptr<PreemptionChannel> agent_channel(std::shared_ptr<CoordinationAgent> agent,
                                                 int worker, int num_workers,
                                                 const std::string& name) {
  return std::make_unique<AgentChannel>(std::move(agent), worker, num_workers, name);
}

}  // namespace tutti::preemption
