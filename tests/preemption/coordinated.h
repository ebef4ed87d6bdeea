#pragma once
// Workers of one process that share a coordination.

#include <memory>
#include <vector>

#include "coordination/agent.h"
#include "coordination/service.h"
#include "tutti/base/text.h"

namespace tutti::testing {

/// A leader's service, and the agents of its workers.
struct Coordinated {
  coordination::Cluster cluster;
  std::unique_ptr<coordination::CoordinationService> service;
  std::vector<std::shared_ptr<coordination::CoordinationAgent>> agents;

  ~Coordinated() {
    for (auto& agent : agents) {
      if (agent) agent->leave(coordination::Milliseconds(1000), /*together=*/false);
    }
  }
  explicit Coordinated(int count) {
    for (int i = 0; i < count; ++i) cluster["worker"].push_back(cat("host", i, ":1"));
    service = std::make_unique<coordination::CoordinationService>(coordination::ServiceOptions{
        .cluster = cluster,
        .address = "127.0.0.1:0",
        .limits = {.heartbeat_interval = coordination::Milliseconds(20)}});
    for (int i = 0; i < count; ++i) {
      agents.push_back(std::make_shared<coordination::CoordinationAgent>(
          coordination::AgentOptions{.cluster = cluster,
                                     .task = coordination::task_name("worker", i),
                                     .leader_address = service->address()}));
    }
  }
};

}  // namespace tutti::testing
