#pragma once
// The store by which collectives find one another, in the table that the coordination keeps.

#include <memory>
#include <utility>

#include "collectives/store.h"
#include "coordination/agent.h"

namespace tutti::distribute {

/// Ends with the job: from then on every call throws what ended it. Keys begin with "store/" in the
/// agent's table.
class AgentStore : public collectives::Store {
 public:
  /// Once the agent is gone every call is Unavailable.
  explicit AgentStore(std::weak_ptr<coordination::CoordinationAgent> agent)
      : agent_(std::move(agent)) {}
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  int64_t add(const std::string& key, int64_t delta) override;
  void remove(const std::string& key) override;

 private:
  std::shared_ptr<coordination::CoordinationAgent> agent() const;
  std::weak_ptr<coordination::CoordinationAgent> agent_;
};

}  // namespace tutti::distribute
