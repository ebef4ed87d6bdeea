#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cluster/host_list.h"
#include "cluster/surroundings.h"
#include "support/message_checks.h"
#include "support/temporary_folder.h"
#include "tutti/base/error.h"

namespace tutti::distribute::cluster_resolver {
namespace {

using cluster::expand_host_list;
using cluster::expand_tasks_per_node;
using testing::throws_saying;
using train::ClusterSpec;
using Strings = std::vector<std::string>;
using Numbers = std::vector<int64_t>;

TEST(SlurmLists, HostsExpandInOrderAndKeepZeros) {
  EXPECT_EQ(expand_host_list("x", "n1"), Strings{"n1"});
  EXPECT_EQ(expand_host_list("x", "n[1,3]"), (Strings{"n1", "n3"}));
  EXPECT_EQ(expand_host_list("x", "n[1-3]"), (Strings{"n1", "n2", "n3"}));
  EXPECT_EQ(expand_host_list("x", "n[1-2],m5,o[3-4,6,7-9]"),
            (Strings{"n1", "n2", "m5", "o3", "o4", "o6", "o7", "o8", "o9"}));
  EXPECT_EQ(expand_host_list("x", "n[0001-0003],m5,o[009-011]"),
            (Strings{"n0001", "n0002", "n0003", "m5", "o009", "o010", "o011"}));
  EXPECT_EQ(expand_host_list("x", "n[9-11]"), (Strings{"n9", "n10", "n11"}));
}

TEST(SlurmLists, SeveralBracketsCountFromTheLast) {
  EXPECT_EQ(expand_host_list("x", "r[1-2]n[1-2]-ib,a"),
            (Strings{"r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib", "a"}));
}

TEST(SlurmLists, HostsThatCannotBeReadAreRefused) {
  for (const char* bad :
       {"", ",", "n1,", ",n1", "n[1", "n1]", "n[[1]]", "n[]", "n[a]", "n[1-]", "n[-1]", "n[2-1]",
        "n[1-2-3]", "n[1,]", "n[0-99999]", "n[0-9999999999]", "a b", "n[0-300]m[0-300]"}) {
    EXPECT_TRUE(
        throws_saying<InvalidArgument>([&] { expand_host_list("LIST", bad); }, {"LIST [hosts]: "}))
        << bad;
  }
}

TEST(SlurmLists, TasksPerNodeExpand) {
  EXPECT_EQ(expand_tasks_per_node("x", "2"), Numbers{2});
  EXPECT_EQ(expand_tasks_per_node("x", "2,1,3"), (Numbers{2, 1, 3}));
  EXPECT_EQ(expand_tasks_per_node("x", "3(x2),2,1"), (Numbers{3, 3, 2, 1}));
  EXPECT_EQ(expand_tasks_per_node("x", "3(x2),2,11(x4)"), (Numbers{3, 3, 2, 11, 11, 11, 11}));
  EXPECT_EQ(expand_tasks_per_node("x", "13(x10)"), Numbers(10, 13));
}

TEST(SlurmLists, TasksThatCannotBeReadAreRefused) {
  for (const char* bad : {"", ",", "a", "2,", "2(x", "2(x)", "2(x0)", "2(3)", "2(x3", "-1", "2x3",
                          "(x2)", "1(x65537)", "1(x99999999999999999999)", "2 "}) {
    EXPECT_TRUE(throws_saying<InvalidArgument>([&] { expand_tasks_per_node("LIST", bad); },
                                               {"LIST [tasks per node]: "}))
        << bad;
  }
}

TEST(SlurmLists, NamesAreComparedWithTheirNumbersByValue) {
  EXPECT_TRUE(cluster::natural_less("n9", "n10"));
  EXPECT_FALSE(cluster::natural_less("n10", "n9"));
  EXPECT_TRUE(cluster::natural_less("n09", "n10"));
  EXPECT_TRUE(cluster::natural_less("a", "b1"));
  EXPECT_TRUE(cluster::natural_less("n1", "n1a"));
  EXPECT_TRUE(cluster::natural_less("n1-2", "n1-10"));
  EXPECT_FALSE(cluster::natural_less("n1", "n1"));
  EXPECT_NE(cluster::natural_less("n1", "n01"), cluster::natural_less("n01", "n1"));
}

EnvironmentVariables three_hosts() {
  return {{"SLURM_PROCID", "0"},
          {"SLURM_STEP_NUM_TASKS", "3"},
          {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
          {"SLURM_STEP_NODELIST", "t02n13,t02n41,t02n43"},
          {"CUDA_VISIBLE_DEVICES", "0"}};
}

EnvironmentVariables five_tasks() {
  return {{"SLURM_PROCID", "1"},
          {"SLURM_STEP_NUM_TASKS", "5"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
          {"SLURM_STEP_NODELIST", "t02n[13,41,43]"},
          {"CUDA_VISIBLE_DEVICES", ""}};
}

TEST(Slurm, EverythingComesFromTheEnvironment) {
  const auto surroundings = variables(three_hosts());
  const SlurmClusterResolver resolver({.variables = surroundings});
  EXPECT_EQ(resolver.get_task_info().first, std::nullopt);
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"worker", {"t02n13:8888", "t02n41:8888", "t02n43:8888"}}}));
  EXPECT_EQ(resolver.master("worker", 0, "grpc"), "grpc://t02n13:8888");
  EXPECT_EQ(resolver.num_accelerators().at("GPU"), 1);
  EXPECT_EQ(surroundings->at("CUDA_VISIBLE_DEVICES"), "0");
  EXPECT_EQ(resolver.get_task_info().first, "worker");
  EXPECT_EQ(resolver.get_task_info().second, 0);
}

TEST(Slurm, JobsAndNumbersMayBeSaid) {
  const SlurmClusterResolver resolver({.jobs = {{"worker", 2}, {"ps", 1}},
                                       .port_base = 9000,
                                       .gpus_per_node = 1,
                                       .gpus_per_task = 1,
                                       .tasks_per_node = 1,
                                       .auto_set_gpu = false,
                                       .rpc_layer = "ab",
                                       .variables = variables(three_hosts())});
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"ps", {"t02n13:9000"}}, {"worker", {"t02n41:9000", "t02n43:9000"}}}));
  resolver.set_task_type("worker");
  resolver.set_task_id(1);
  EXPECT_EQ(resolver.master(), "ab://t02n43:9000");
  EXPECT_EQ(resolver.master("ps", 0, "test"), "test://t02n13:9000");
}

TEST(Slurm, TasksOfAHostHavePortsAndGpusOneAfterAnother) {
  const auto surroundings = variables(five_tasks());
  const SlurmClusterResolver resolver({.jobs = {{"ps", 1}, {"worker", 4}},
                                       .gpus_per_node = 4,
                                       .gpus_per_task = 2,
                                       .variables = surroundings});
  EXPECT_EQ(
      resolver.cluster_spec(),
      ClusterSpec({{"ps", {"t02n13:8888"}},
                   {"worker", {"t02n13:8889", "t02n41:8888", "t02n41:8889", "t02n43:8888"}}}));
  EXPECT_EQ(surroundings->at("CUDA_VISIBLE_DEVICES"), "2,3");
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.task_id(), 0);
}

TEST(Slurm, TasksOfHostsMayBeSaidByName) {
  const SlurmClusterResolver resolver(
      {.gpus_per_node = 0,
       .tasks_of_host = {{"b", 1}, {"a", 2}},
       .variables = variables({{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "3"}})});
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker", {"a:8888", "a:8889", "b:8888"}}}));
  EXPECT_EQ(resolver.task_id(), 2);
}

TEST(Slurm, EachRankIsAnotherTask) {
  std::vector<std::string> found;
  for (int rank = 0; rank < 5; ++rank) {
    auto environment = five_tasks();
    environment["SLURM_PROCID"] = std::to_string(rank);
    const SlurmClusterResolver resolver(
        {.jobs = {{"ps", 1}, {"worker", 4}}, .variables = variables(environment)});
    found.push_back(resolver.cluster_spec().task_address(*resolver.get_task_info().first,
                                                         *resolver.get_task_info().second));
  }
  EXPECT_EQ(found,
            (Strings{"t02n13:8888", "t02n13:8889", "t02n41:8888", "t02n41:8889", "t02n43:8888"}));
}

TEST(Slurm, HostsAreSortedWithTheirNumbersByValue) {
  auto environment = three_hosts();
  environment["SLURM_STEP_NODELIST"] = "n10,n9,m11";
  EXPECT_EQ(SlurmClusterResolver({.variables = variables(environment)}).cluster_spec(),
            ClusterSpec({{"worker", {"m11:8888", "n9:8888", "n10:8888"}}}));
}

TEST(Slurm, SharesAreOfTheGpusThatSlurmGave) {
  auto environment = five_tasks();
  environment["CUDA_VISIBLE_DEVICES"] = "4,5,6,7";
  const auto surroundings = variables(environment);
  const SlurmClusterResolver resolver({.variables = surroundings});
  EXPECT_EQ(resolver.num_accelerators().at("GPU"), 2);
  resolver.cluster_spec();
  EXPECT_EQ(surroundings->at("CUDA_VISIBLE_DEVICES"), "6,7");
  resolver.cluster_spec();
  EXPECT_EQ(surroundings->at("CUDA_VISIBLE_DEVICES"), "6,7");
}

TEST(Slurm, WithoutGpusTheVariableStays) {
  auto environment = five_tasks();
  environment.erase("CUDA_VISIBLE_DEVICES");
  environment["PATH"] = "/nowhere";
  const auto surroundings = variables(environment);
  const SlurmClusterResolver resolver({.variables = surroundings});
  EXPECT_EQ(resolver.cluster_spec().num_tasks("worker"), 5);
  EXPECT_EQ(resolver.num_accelerators().at("GPU"), 0);
  EXPECT_EQ(surroundings->count("CUDA_VISIBLE_DEVICES"), 0U);
}

TEST(Slurm, MoreTasksThanGpusHaveNone) {
  auto environment = five_tasks();
  environment["CUDA_VISIBLE_DEVICES"] = "0";
  const auto surroundings = variables(environment);
  SlurmClusterResolver({.variables = surroundings}).cluster_spec();
  EXPECT_EQ(surroundings->at("CUDA_VISIBLE_DEVICES"), "");
}

TEST(Slurm, OutsideAStepItSaysWhichVariableIsMissing) {
  for (const char* name : {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST",
                           "SLURM_STEP_TASKS_PER_NODE"}) {
    auto environment = three_hosts();
    environment.erase(name);
    EXPECT_TRUE(throws_saying<FailedPrecondition>(
        [&] { SlurmClusterResolver({.variables = variables(environment)}); },
        {"SlurmClusterResolver [", name, "not inside a step of Slurm"}));
  }
}

TEST(Slurm, VariablesThatCannotBeReadAreRefused) {
  const std::vector<std::pair<const char*, const char*>> bad = {
      {"SLURM_PROCID", "one"},
      {"SLURM_PROCID", "-1"},
      {"SLURM_STEP_NUM_TASKS", "3x"},
      {"SLURM_STEP_NODELIST", "n[1"},
      {"SLURM_STEP_TASKS_PER_NODE", ","},
      {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
      {"SLURM_STEP_NODELIST", "a,a,b"},
      {"SLURM_NODEID", "x"}};
  for (const auto& [name, value] : bad) {
    auto environment = three_hosts();
    environment["SLURM_LOCALID"] = "0";
    environment["SLURM_NODEID"] = "0";
    environment[name] = value;
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] { SlurmClusterResolver({.variables = variables(environment)}); }, {name}))
        << name << "=" << value;
  }
}

TEST(Slurm, JobsMustBeAsManyTasksAsTheStep) {
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [] {
        SlurmClusterResolver({.jobs = {{"worker", 4}}, .variables = variables(three_hosts())});
      },
      {"[jobs]", "4 tasks", "the 3"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] {
        SlurmClusterResolver(
            {.jobs = {{"worker", 4}, {"ps", -1}}, .variables = variables(three_hosts())});
      },
      {"[jobs.ps]", "-1"}));
  auto environment = three_hosts();
  environment["SLURM_PROCID"] = "3";
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [&] { SlurmClusterResolver({.variables = variables(environment)}); },
      {"[SLURM_PROCID]", "0 to 2"}));
}

TEST(Slurm, MoreGpusThanAHostHasAreRefused) {
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [] {
        SlurmClusterResolver(
            {.gpus_per_node = 3, .gpus_per_task = 2, .variables = variables(five_tasks())});
      },
      {"[gpus_per_task]", "2 tasks of 2 GPUs", "3 GPUs"}));
}

TEST(Slurm, PortsEndAt65535) {
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] {
        SlurmClusterResolver({.port_base = 65535, .variables = variables(five_tasks())})
            .cluster_spec();
      },
      {"[port]", "65535 to 65536"}));
}

TEST(Slurm, ATaskThatSlurmPlacedElsewhereIsAnError) {
  auto environment = five_tasks();
  environment["SLURM_NODEID"] = "0";
  environment["SLURM_LOCALID"] = "1";
  EXPECT_EQ(SlurmClusterResolver({.variables = variables(environment)})
                .cluster_spec()
                .num_tasks("worker"),
            5);
  environment["SLURM_NODEID"] = "1";  // as --distribution=cyclic does
  environment["SLURM_LOCALID"] = "0";
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [&] { SlurmClusterResolver({.variables = variables(environment)}); },
      {"[SLURM_NODEID]", "number 0 of host 1", "--distribution=block"}));
}

class NvidiaSmi : public testing::TemporaryFolder {
 protected:
  /// A resolver that finds this program as nvidia-smi.
  SlurmClusterResolver with(const std::string& script) {
    write("nvidia-smi", "#!/bin/sh\n" + script);
    std::filesystem::permissions(path("nvidia-smi"), std::filesystem::perms::owner_all);
    auto environment = five_tasks();
    environment.erase("CUDA_VISIBLE_DEVICES");
    environment["PATH"] = "/nowhere:" + folder_.string();
    return SlurmClusterResolver({.variables = variables(environment)});
  }
};

TEST_F(NvidiaSmi, ItsListIsCounted) {
  const auto resolver = with(
      "test \"$1\" = --list-gpus && for i in 0 1 2 3; do echo \"GPU $i: H100 (UUID: x)\"; done\n");
  EXPECT_EQ(resolver.num_accelerators().at("GPU"), 2);
}

TEST_F(NvidiaSmi, ItsFailureIsOurs) {
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { with("echo GPU 0:; exit 9\n"); },
                                                {"nvidia-smi --list-gpus", "it failed"}));
}

}  // namespace
}  // namespace tutti::distribute::cluster_resolver
