#include "distribute/agent_store.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::distribute {
namespace {

std::string place_of(const std::string& key) { return cat("store/", key); }

}  // namespace

std::shared_ptr<coordination::CoordinationAgent> AgentStore::agent() const {
  if (auto agent = agent_.lock()) return agent;
  throw Unavailable("Store: this worker has left its job, expected to be in it");
}

void AgentStore::set(const std::string& key, const std::string& value) {
  agent()->set(place_of(key), value);
}

std::string AgentStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  if (timeout.count() > 0) return agent()->get(place_of(key), timeout);
  if (auto value = agent()->try_get(place_of(key))) return std::move(*value);
  throw DeadlineExceeded(cat("Store::get: \"", key, "\" is not set, expected another rank to set ",
                             "it; see whether that rank runs"));
}

int64_t AgentStore::add(const std::string& key, int64_t delta) {
  return agent()->add(place_of(key), delta);
}

void AgentStore::remove(const std::string& key) { agent()->erase(place_of(key)); }

}  // namespace tutti::distribute
