// SageMaker, torchrun and MPI.

#include <gtest/gtest.h>

#include "cluster/surroundings.h"
#include "support/message_checks.h"
#include "support/temporary_folder.h"
#include "tutti/base/error.h"

namespace tutti::distribute::cluster_resolver {
namespace {

using testing::throws_saying;
using train::ClusterSpec;

SageMakerClusterResolver sage_maker(const std::string& hosts, const std::string& current) {
  return SageMakerClusterResolver(
      {.variables = variables({{"SM_HOSTS", hosts}, {"SM_CURRENT_HOST", current}})});
}

TEST(SageMaker, HostsAreSortedAndTheCurrentOneIsFound) {
  const auto resolver = sage_maker(R"(["algo-2", "algo-1", "algo-3"])", "algo-2");
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"worker", {"algo-1:2223", "algo-2:2223", "algo-3:2223"}}}));
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.master(), "algo-2:2223");
  EXPECT_EQ(resolver.master("worker", 2, "grpc"), "grpc://algo-3:2223");
}

TEST(SageMaker, ThePortMayBeSaid) {
  const SageMakerClusterResolver resolver(
      {.port = 99,
       .task_id = 0,
       .rpc_layer = "grpc",
       .environment = "cloud",
       .variables = variables({{"SM_HOSTS", R"(["a", "b"])"}, {"SM_CURRENT_HOST", "b"}})});
  EXPECT_EQ(resolver.master(), "grpc://a:99");
  EXPECT_EQ(resolver.environment(), "cloud");
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { SageMakerClusterResolver({.port = 0}); },
                                             {"SageMakerClusterResolver [port]"}));
}

TEST(SageMaker, AHostThatIsNotInTheListIsAlone) {
  const auto resolver = sage_maker(R"(["a", "b"])", "c");
  EXPECT_FALSE(resolver.cluster_spec());
  EXPECT_EQ(resolver.task_id(), std::nullopt);
  EXPECT_EQ(resolver.master(), "");
  EXPECT_EQ(sage_maker(R"(["a"])", "a").master(), "");
}

TEST(SageMaker, WhatIsMissingOrBadIsNamed) {
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [] { SageMakerClusterResolver({.variables = variables({})}).cluster_spec(); },
      {"SageMakerClusterResolver [SM_CURRENT_HOST]", "not on SageMaker"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>([] { sage_maker("", "a").cluster_spec(); },
                                                {"[SM_HOSTS]"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { sage_maker("{}", "a").cluster_spec(); },
                                             {"SM_HOSTS [$]", "an object, expected a list"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { sage_maker("[\"a\"", "a").cluster_spec(); },
                                             {"SM_HOSTS [$", "no JSON"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { sage_maker("[1]", "a").cluster_spec(); },
                                             {"SM_HOSTS [$[0]]", "1, expected a string"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] { sage_maker(R"(["a", "b c"])", "a").cluster_spec(); }, {"SM_HOSTS [$[1]]"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] { sage_maker(R"(["a", "a"])", "a").cluster_spec(); }, {"SM_HOSTS [$[1]]", "already"}));
}

// --- torchrun ------------------------------------------------------------------------------------

/// As torchrun sets it for rank `rank` of `hosts` times `local` workers.
EnvironmentVariables torchrun(int rank, int hosts, int local) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(hosts * local)},
          {"LOCAL_RANK", std::to_string(rank % local)},
          {"LOCAL_WORLD_SIZE", std::to_string(local)},
          {"GROUP_RANK", std::to_string(rank / local)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", "29500"}};
}

TEST(Torchrun, OneHostNeedsNothingElse) {
  const TorchrunClusterResolver resolver({.variables = variables(torchrun(1, 1, 2))});
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"worker", {"127.0.0.1:29501", "127.0.0.1:29502"}}}));
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.master(), "127.0.0.1:29502");
}

TEST(Torchrun, SeveralHostsAreNamed) {
  const TorchrunClusterResolver resolver({.hosts = {"a", "b"},
                                          .port_base = 5000,
                                          .rpc_layer = "grpc",
                                          .variables = variables(torchrun(2, 2, 2))});
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"worker", {"a:5000", "a:5001", "b:5000", "b:5001"}}}));
  EXPECT_EQ(resolver.master(), "grpc://b:5000");
}

TEST(Torchrun, WhatDoesNotFitIsRefused) {
  const auto made = [](EnvironmentVariables environment, std::vector<std::string> hosts = {}) {
    return [environment = std::move(environment), hosts = std::move(hosts)] {
      TorchrunClusterResolver({.hosts = hosts, .variables = variables(environment)});
    };
  };
  const auto with = [](EnvironmentVariables environment, const char* name, const char* value) {
    environment[name] = value;
    return environment;
  };
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      made({}), {"TorchrunClusterResolver [RANK]", "not started by torchrun"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(made(torchrun(2, 2, 2)), {"[hosts]", "2 hosts"}));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>(made(torchrun(2, 2, 2), {"a"}), {"[hosts]", "1 host"}));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>(made(torchrun(2, 2, 2), {"a", "b c"}), {"[hosts]", "b c"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(made(with(torchrun(0, 1, 2), "RANK", "x")),
                                             {"[RANK]", "\"x\""}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(made(with(torchrun(0, 1, 2), "RANK", "2")),
                                             {"[rank]", "rank 2 of 2"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(made(with(torchrun(0, 1, 2), "RANK", "1")),
                                             {"[RANK]", "rank 1"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(made(with(torchrun(0, 2, 2), "WORLD_SIZE", "5")),
                                             {"[LOCAL_WORLD_SIZE]", "--nproc-per-node"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(made(with(torchrun(0, 1, 2), "MASTER_ADDR", "a b")),
                                             {"[MASTER_ADDR]"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(made(with(torchrun(0, 1, 2), "MASTER_PORT", "65535")),
                                             {"[port]", "65536"}));
}

// --- MPI -----------------------------------------------------------------------------------------

EnvironmentVariables open_mpi(int rank, int size, int local_rank, int local_size) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(local_rank)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(local_size)}};
}

TEST(Mpi, OneHostNeedsNothingElse) {
  const MPIClusterResolver resolver({.variables = variables(open_mpi(1, 2, 1, 2))});
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"worker", {"localhost:8888", "localhost:8889"}}}));
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.master({}, {}, "grpc"), "grpc://localhost:8889");
}

TEST(Mpi, HydraAndMvapichAreKnown) {
  const EnvironmentVariables hydra = {
      {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_EQ(MPIClusterResolver({.hosts = {"a", "b"}, .variables = variables(hydra)}).master(),
            "b:8888");
  const EnvironmentVariables mvapich = {{"MV2_COMM_WORLD_RANK", "3"},
                                        {"MV2_COMM_WORLD_SIZE", "4"},
                                        {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                                        {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ(MPIClusterResolver({.hosts = {"a", "b"}, .variables = variables(mvapich)}).master(),
            "b:8889");
}

TEST(Mpi, HostsMayHaveSlots) {
  const MPIClusterResolver resolver({.hosts = {"a:3", "b:2"},
                                     .port_base = 100,
                                     .rpc_layer = "grpc",
                                     .variables = variables(open_mpi(3, 4, 0, 1))});
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"worker", {"a:100", "a:101", "a:102", "b:100"}}}));
  EXPECT_EQ(resolver.master(), "grpc://b:100");
}

class MpiHostFile : public testing::TemporaryFolder {};

TEST_F(MpiHostFile, OpenMpisFormIsRead) {
  const std::string file =
      write("hosts", "# ours\na slots=2\n\n  b\tslots=1 max-slots=4 # last\r\n");
  const MPIClusterResolver resolver(
      {.hostfile = file, .variables = variables(open_mpi(2, 3, 0, 1))});
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker", {"a:8888", "a:8889", "b:8888"}}}));
}

TEST_F(MpiHostFile, SchedulersNameAHostOnceASlot) {
  const std::string file = write("nodes", "a\na\nb\n");
  for (const char* name : {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE"}) {
    auto environment = open_mpi(2, 3, 0, 1);
    environment[name] = file;
    EXPECT_EQ(MPIClusterResolver({.variables = variables(environment)}).cluster_spec(),
              ClusterSpec({{"worker", {"a:8888", "a:8889", "b:8888"}}}));
  }
}

TEST_F(MpiHostFile, SlurmsListIsRead) {
  auto environment = open_mpi(2, 4, 0, 2);
  environment["SLURM_STEP_NODELIST"] = "n[1-2]";
  EXPECT_EQ(MPIClusterResolver({.variables = variables(environment)}).cluster_spec(),
            ClusterSpec({{"worker", {"n1:8888", "n1:8889", "n2:8888", "n2:8889"}}}));
}

TEST_F(MpiHostFile, WhatDoesNotFitIsRefused) {
  const auto made = [](EnvironmentVariables environment, std::vector<std::string> hosts,
                       std::string file = "") {
    return [=] {
      MPIClusterResolver({.hosts = hosts, .hostfile = file, .variables = variables(environment)});
    };
  };
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      made({}, {}), {"MPIClusterResolver [OMPI_COMM_WORLD_RANK]", "not started by mpirun"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(made(open_mpi(0, 4, 0, 2), {}),
                                                {"[hosts]", "no list of hosts"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(made(open_mpi(0, 4, 0, 2), {"a"}),
                                                {"[hosts]", "room for 2 ranks", "the 4"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(made(open_mpi(1, 4, 0, 2), {"a", "b"}),
                                                {"[local rank]", "rank 1 is number 0"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(made(open_mpi(4, 4, 0, 2), {"a"}), {"[rank]"}));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>(made(open_mpi(0, 2, 0, 2), {"a:x"}), {"[hosts]", "a:x"}));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>(made(open_mpi(0, 2, 0, 2), {"a_/b"}), {"[hosts]", "a_/b"}));
  EXPECT_TRUE(throws_saying<NotFound>(made(open_mpi(0, 2, 0, 2), {}, path("none")),
                                      {"none", "cannot be read"}));
  const std::string bad = write("bad", "a\nb slots=many\n");
  EXPECT_TRUE(throws_saying<InvalidArgument>(made(open_mpi(0, 2, 0, 2), {}, bad), {"bad line 2"}));
  const std::string huge = write("huge", std::string(std::size_t{2} << 20, 'a'));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>(made(open_mpi(0, 2, 0, 2), {}, huge), {"more than 1 MiB"}));
}

}  // namespace
}  // namespace tutti::distribute::cluster_resolver
