#include "tutti/coordination/server.h"

#include <gtest/gtest.h>

#include <thread>

#include "coordination/agent.h"
#include "rpc/channel.h"
#include "support/certificates.h"
#include "support/expect_error.h"
#include "tutti/coordination.grpc.pb.h"

namespace tutti::distribute {
namespace {

using Map = Server::ClusterMap;

coordination::v1::Description described(const std::string& target) {
  const rpc::Channel channel(target.substr(std::string("grpc://").size()), {});
  grpc::ClientContext context;
  channel.prepare(context, std::chrono::seconds(5));
  coordination::v1::Description description;
  const auto stub = coordination::v1::Task::NewStub(channel.grpc());
  EXPECT_TRUE(stub->Describe(&context, {}, &description).ok());
  return description;
}

TEST(Server, ALocalServerIsAClusterOfItsOwnAtAFreePort) {
  const Server server = Server::create_local_server();
  EXPECT_EQ(server.target().rfind("grpc://localhost:", 0), 0u) << server.target();
  EXPECT_EQ(server.server_def().job_name, "local");
  EXPECT_EQ(server.server_def().task_index, 0);
  EXPECT_EQ(described(server.target()).task(), "local:0");
}

TEST(Server, TheJobMayBeLeftOutWhenThereIsOne) {
  const Server server(Map{{"worker", {"localhost:0", "localhost:0"}}},
                      {.task_index = 1, .start = false});
  EXPECT_EQ(server.server_def().job_name, "worker");
  EXPECT_EQ(server.server_def().task_index, 1);
}

TEST(Server, TheJobMustBeNamedWhenThereAreSeveral) {
  const Map cluster{{"ps", {"localhost:0"}}, {"worker", {"localhost:0"}}};
  EXPECT_ERROR(Server(cluster, {.start = false}), InvalidArgument,
               "Server [ps 1, worker 1]: no job name for a cluster of 2 jobs");
  EXPECT_ERROR(Server(cluster, {.job_name = "chief", .start = false}), InvalidArgument,
               "no job \"chief\"");
  EXPECT_EQ(Server(cluster, {.job_name = "ps", .start = false}).server_def().task_index, 0);
}

TEST(Server, TheTaskMustBeNamedWhenThereAreSeveral) {
  const Map cluster{{"worker", {"localhost:0", "localhost:0"}}};
  EXPECT_ERROR(Server(cluster, {.start = false}), InvalidArgument, "no task index");
  for (int index : {-1, 2}) {
    EXPECT_ERROR(Server(cluster, {.task_index = index, .start = false}), InvalidArgument,
                 "which has 2");
  }
}

TEST(Server, AnotherProtocolIsRefused) {
  EXPECT_ERROR(Server(Map{{"worker", {"localhost:0"}}}, {.protocol = "grpc+gdr"}), InvalidArgument,
               "expected \"grpc\"");
}

TEST(Server, AServerDefMakesTheSameServer) {
  const ServerDef def{
      .cluster = {{"a", {"localhost:0"}}, {"worker", {"localhost:0", "localhost:0"}}},
      .job_name = "worker",
      .task_index = 1};
  const Server server(def);
  EXPECT_EQ(described(server.target()).task(), "worker:1");
  EXPECT_EQ(server.server_def().cluster, def.cluster);
}

TEST(Server, StartsWhenAskedAndOnce) {
  Server server(Map{{"worker", {"localhost:0"}}}, {.start = false});
  EXPECT_ERROR(server.join(), FailedPrecondition, "not started");
  EXPECT_EQ(server.target(), "grpc://localhost:0");
  server.start();
  const std::string target = server.target();
  server.start();
  EXPECT_EQ(server.target(), target);
  EXPECT_EQ(described(target).task(), "worker:0");
}

TEST(Server, APortInUseIsRefused) {
  const Server first = Server::create_local_server();
  const std::string address = first.target().substr(std::string("grpc://").size());
  EXPECT_ERROR(Server(Map{{"worker", {address}}}), AlreadyExists, "is in use");
}

TEST(Server, OffLoopbackWithoutCredentialsDoesNotStart) {
  EXPECT_ERROR(Server(Map{{"worker", {"0.0.0.0:0"}}}), FailedPrecondition,
               "without TLS and a token");
}

TEST(Server, JoinReturnsWhenStopped) {
  Server server = Server::create_local_server();
  std::jthread stopper([&] { server.stop(); });
  server.join();
  EXPECT_ERROR(server.start(), FailedPrecondition, "stopped before");
}

TEST(Server, ThatOfTheLeaderLetsTasksMeet) {
  const Map cluster{{"worker", {"localhost:0", "localhost:0"}}};
  const Server leader(cluster, {.task_index = 0});
  const Server other(cluster, {.task_index = 1});
  coordination::AgentOptions options{.cluster = cluster, .task = "worker:0"};
  options.leader_address = leader.target().substr(std::string("grpc://").size());
  coordination::CoordinationAgent zero(options);
  options.task = "worker:1";
  coordination::CoordinationAgent one(options);
  std::jthread meeting([&] { one.barrier("b"); });
  zero.barrier("b");
  options.leader_address = other.target().substr(std::string("grpc://").size());
  EXPECT_ERROR(coordination::CoordinationAgent{options}, Unimplemented,
               "expected Tutti's coordination");
}

}  // namespace
}  // namespace tutti::distribute
