// Who is one of several workers, as far as no other process is needed to say so; and the store in
// which workers find one another.
#include <gtest/gtest.h>

#include <thread>

#include "coordination/service.h"
#include "distribute/agent_store.h"
#include "distribute/worker_group.h"
#include "support/expect_error.h"
#include "tutti/cluster/cluster_resolver.h"
#include "tutti/coordination/server.h"

namespace tutti::distribute {
namespace {

using cluster_resolver::EnvironmentVariables;
using cluster_resolver::SimpleClusterResolver;
using cluster_resolver::TFConfigClusterResolver;
using coordination::Milliseconds;
using train::ClusterSpec;

std::shared_ptr<WorkerGroup> workers(const ClusterSpec& spec, std::optional<std::string> type,
                                     std::optional<int64_t> id) {
  return workers_from_environment(SimpleClusterResolver(spec, {.task_type = type, .task_id = id}),
                                  {});
}

const ClusterSpec kTwo{{"worker", {"a:1", "b:1"}}};

TEST(WorkersFromEnvironment, NobodyElseWithoutAClusterAndInAClusterOfOne) {
  EXPECT_EQ(workers({}, {}, {}), nullptr);
  EXPECT_EQ(workers({{"worker", {"a:1"}}}, "worker", 0), nullptr);
  EXPECT_EQ(workers({{"chief", {"a:1"}}}, "chief", 0), nullptr);
  EXPECT_EQ(workers({{"chief", {"a:1"}}, {"ps", {"b:1"}}}, "chief", 0), nullptr);
}

TEST(WorkersFromEnvironment, AnEvaluatorWorksAlone) {
  EXPECT_EQ(workers(kTwo, "evaluator", 0), nullptr);
  EXPECT_EQ(workers({{"worker", {"a:1", "b:1"}}, {"evaluator", {"c:1"}}}, "evaluator", 0), nullptr);
}

TEST(WorkersFromEnvironment, WhoItIsMustBeKnownAndInTheCluster) {
  EXPECT_ERROR(workers(kTwo, {}, 0), InvalidArgument, "no task type");
  EXPECT_ERROR(workers(kTwo, "worker", {}), InvalidArgument, "no task id");
  EXPECT_ERROR(workers(kTwo, "chief", 0), InvalidArgument, "chief");
  EXPECT_ERROR(workers(kTwo, "worker", 2), InvalidArgument, "2");
  EXPECT_ERROR(workers({{"worker", {"a:1", "b:1"}}, {"ps", {"c:1"}}}, "ps", 0), InvalidArgument,
               "parameter servers are no workers");
  EXPECT_ERROR(workers({{"chief", {"a:1", "b:1"}}}, "chief", 0), InvalidArgument, "at most one");
  EXPECT_ERROR(workers({{"loner", {"a:1", "b:1"}}}, "loner", 0), InvalidArgument, "loner");
}

TEST(WorkersFromEnvironment, AJobWithAGapIsRefused) {
  const ClusterSpec spec{
      {"worker", train::JobTasks(std::map<int64_t, std::string>{{0, "a:1"}, {2, "c:1"}})}};
  EXPECT_ERROR(workers(spec, "worker", 0), InvalidArgument, "tasks 0, 2, expected all from 0 on");
}

TEST(WorkersFromEnvironment, OffLoopbackCredentialsAreRequired) {
  EXPECT_ERROR(workers({{"worker", {"192.0.2.1:5", "192.0.2.2:5"}}}, "worker", 1),
               FailedPrecondition, "192.0.2.1:5");
}

TEST(MultiWorkerMirroredStrategyResolver, IsTheOneOfTheOptionsElseThatOfTheVariable) {
  const TFConfigClusterResolver own({.variables = std::make_shared<EnvironmentVariables>(
                                         EnvironmentVariables{{"TF_CONFIG", R"({"cluster":
      {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})"}})});
  const MultiWorkerMirroredStrategy strategy({.cluster_resolver = own, .devices = {"cpu:0"}});
  EXPECT_EQ(strategy.cluster_resolver().task_type(), "worker");
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
  const MultiWorkerMirroredStrategy alone({.devices = {"cpu:0"}});
  EXPECT_FALSE(alone.cluster_resolver().cluster_spec());
}

TEST(ServerOfAClusterSpec, IsThatOfItsMap) {
  const ClusterSpec spec{{"worker", {"localhost:0"}}, {"ps", {"localhost:0", "localhost:0"}}};
  Server server(spec, {.job_name = "ps", .task_index = 1, .start = false});
  EXPECT_EQ(server.server_def().cluster.at("ps").size(), 2u);
  EXPECT_ERROR(server.join(), FailedPrecondition, "not started");
}

// ---- the store

struct Agents {
  explicit Agents(int count) : service({.cluster = cluster(count), .address = "127.0.0.1:0"}) {
    for (int i = 0; i < count; ++i)
      agents.push_back(std::make_shared<coordination::CoordinationAgent>(
          coordination::AgentOptions{.cluster = cluster(count),
                                     .task = coordination::task_name("worker", i),
                                     .leader_address = service.address()}));
  }
  static coordination::Cluster cluster(int count) {
    coordination::Cluster made;
    for (int i = 0; i < count; ++i) made["worker"].push_back(cat("host", i, ":1"));
    return made;
  }
  coordination::CoordinationService service;
  std::vector<std::shared_ptr<coordination::CoordinationAgent>> agents;
};

TEST(AgentStore, IsAStoreForAllTasks) {
  Agents job(2);
  AgentStore first(job.agents[0]);
  AgentStore second(job.agents[1]);
  std::string got;
  std::thread waiting([&] { got = second.get("a/b", Milliseconds(5000)); });
  first.set("a/b", std::string("x\0y", 3));
  waiting.join();
  EXPECT_EQ(got, std::string("x\0y", 3));
  EXPECT_EQ(first.add("a/b", 3), 3) << "a counter beside the value";
  EXPECT_EQ(second.add("a/b", 4), 7);
  second.remove("a/b");
  EXPECT_ERROR(first.get("a/b", Milliseconds(0)), DeadlineExceeded, "a/b");
  EXPECT_ERROR(first.get("a/b", Milliseconds(20)), DeadlineExceeded, "a/b");
  EXPECT_EQ(first.add("a/b", 1), 1);
}

TEST(AgentStore, EndsWithTheJob) {
  Agents job(2);
  AgentStore store(job.agents[0]);
  std::thread waiting([&] {
    EXPECT_ERROR(store.get("never", Milliseconds(60'000)), Unavailable, "worker:1 failed first");
  });
  job.agents[1].reset();
  waiting.join();
}

TEST(AgentStore, OfAWorkerThatHasLeftIsUnavailable) {
  Agents job(2);
  AgentStore store(job.agents[0]);
  store.set("a", "b");
  job.agents[0].reset();
  EXPECT_ERROR(store.get("a", Milliseconds(10)), Unavailable, "has left its job");
  EXPECT_ERROR(store.set("a", "c"), Unavailable, "has left its job");
}

}  // namespace
}  // namespace tutti::distribute
