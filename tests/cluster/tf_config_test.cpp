#include <gtest/gtest.h>

#include <cstdlib>

#include "cluster/surroundings.h"
#include "support/message_checks.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::distribute::cluster_resolver {
namespace {

using testing::throws_saying;
using train::ClusterSpec;

const char* const kCluster = R"("cluster": {"ps": ["ps0:2222", "ps1:2222"],
  "worker": ["worker0:2222", "worker1:2222", "worker2:2222"]})";

/// The cluster above and `more`, which begins with a comma.
std::string config(const std::string& more) { return cat("{", kCluster, more, "}"); }

TEST(TfConfig, TheClusterIsRead) {
  EXPECT_EQ(of_tf_config(config("")).cluster_spec(),
            ClusterSpec({{"ps", {"ps0:2222", "ps1:2222"}},
                         {"worker", {"worker0:2222", "worker1:2222", "worker2:2222"}}}));
}

TEST(TfConfig, NothingAndEmptinessAreAnEmptyCluster) {
  for (const char* text : {"", "  \n", "{}", R"({"cluster": {}})"}) {
    const auto resolver = of_tf_config(text);
    EXPECT_FALSE(resolver.cluster_spec());
    EXPECT_EQ(resolver.master(), "");
    EXPECT_EQ(resolver.task_type(), std::nullopt);
    EXPECT_EQ(resolver.task_id(), std::nullopt);
    EXPECT_EQ(resolver.rpc_layer(), "");
  }
  EXPECT_FALSE(TFConfigClusterResolver({.variables = variables({})}).cluster_spec());
}

TEST(TfConfig, TheTaskAndTheProtocolAreRead) {
  const auto resolver =
      of_tf_config(config(R"(, "rpc_layer": "grpc", "task": {"type": "ps", "index": 1})"));
  EXPECT_EQ(resolver.task_type(), "ps");
  EXPECT_EQ(resolver.task_id(), 1);
  EXPECT_EQ(resolver.rpc_layer(), "grpc");
  EXPECT_EQ(resolver.master(), "grpc://ps1:2222");
  EXPECT_EQ(resolver.master("worker", 1), "grpc://worker1:2222");
}

TEST(TfConfig, TheIndexMayBeAString) {
  EXPECT_EQ(of_tf_config(config(R"(, "task": {"type": "ps", "index": "1"})")).task_id(), 1);
}

TEST(TfConfig, ArgumentsOverrideTheVariable) {
  const TFConfigClusterResolver resolver(
      {.task_type = "ps",
       .task_id = 0,
       .rpc_layer = "other",
       .environment = "cloud",
       .variables = variables({{"TF_CONFIG", config(R"(, "rpc_layer": "grpc", "task":
         {"type": "worker", "index": 1})")}})});
  EXPECT_EQ(resolver.master(), "other://ps0:2222");
  EXPECT_EQ(resolver.environment(), "cloud");
  resolver.set_task_type("worker");
  resolver.set_task_id(2);
  resolver.set_rpc_layer("test");
  EXPECT_EQ(resolver.master(), "test://worker2:2222");
}

TEST(TfConfig, AnIdAloneOverridesTheIdAlone) {
  const TFConfigClusterResolver resolver(
      {.task_id = 2,
       .variables =
           variables({{"TF_CONFIG", config(R"(, "task": {"type": "worker", "index": 0})")}})});
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_EQ(resolver.master(), "worker2:2222");
}

TEST(TfConfig, ASessionMasterIsTheMaster) {
  const auto resolver = of_tf_config(config(R"(, "rpc_layer": "grpc", "session_master":
      "sessionmaster:2222", "task": {"type": "ps", "index": 0})"));
  EXPECT_EQ(resolver.master(), "sessionmaster:2222");
  EXPECT_EQ(resolver.master("worker", 1), "sessionmaster:2222");
}

TEST(TfConfig, ALoneTaskHasNoMaster) {
  EXPECT_EQ(of_tf_config(R"({"cluster": {"worker": ["a:2222"]}})").master(), "");
}

TEST(TfConfig, ASparseJobIsRead) {
  EXPECT_EQ(of_tf_config(R"({"cluster": {"worker": {"1": "b:1", "3": "d:1"}},
                             "task": {"type": "worker", "index": 3}})")
                .cluster_spec(),
            ClusterSpec({{"worker", {{1, "b:1"}, {3, "d:1"}}}}));
}

TEST(TfConfig, AnEvaluatorMayBeMissingFromTheCluster) {
  const auto resolver = of_tf_config(config(R"(, "task": {"type": "evaluator", "index": 0})"));
  EXPECT_EQ(resolver.task_type(), "evaluator");
}

TEST(TfConfig, ATaskMayStandWithoutACluster) {
  const auto resolver = of_tf_config(R"({"task": {"type": "worker", "index": 0}})");
  EXPECT_EQ(resolver.task_type(), "worker");
  EXPECT_FALSE(resolver.cluster_spec());
}

TEST(TfConfig, WhatPlatformsAddIsTaken) {
  EXPECT_EQ(of_tf_config(config(R"(, "environment": "cloud", "job": {"args": [1, {"a": null}]},
      "task": {"type": "worker", "index": 0, "trial": "1", "cloud": "x"})"))
                .task_id(),
            0);
}

TEST(TfConfig, TheLenientReaderTakesUnknownKeysJobsAndNumbers) {
  const auto resolver = of_tf_config(R"({"cluster": {"123456": ["a:1"], "mine": ["b:1"]},
      "model_dir": "/tmp", "task": {"type": 123456, "index": 0, "color": "red"}})",
                                     false);
  EXPECT_EQ(resolver.task_type(), "123456");
  EXPECT_EQ(resolver.cluster_spec().jobs(), (std::vector<std::string>{"123456", "mine"}));
}

TEST(TfConfig, TheLenientReaderTakesNoAddressThatCannotBe) {
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] { of_tf_config(R"({"cluster": {"mine": ["b:0"]}})", false).cluster_spec(); },
      {"TF_CONFIG [$.cluster.mine[0]]", "port \"0\""}));
}

TEST(TfConfig, WithoutVariablesOfItsOwnItReadsTheProcesss) {
  const TFConfigClusterResolver resolver;
  setenv("TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:1"]}})", 1);
  EXPECT_EQ(resolver.cluster_spec().num_tasks("worker"), 2);
  setenv("TF_CONFIG", R"({"cluster": {"worker": ["a:1"]}})", 1);
  EXPECT_EQ(resolver.cluster_spec().num_tasks("worker"), 1);
  unsetenv("TF_CONFIG");
  EXPECT_FALSE(resolver.cluster_spec());
}

TEST(TfConfig, EveryQuestionMeetsABadText) {
  const auto resolver = of_tf_config("{\"cluster\": []}");
  const std::initializer_list<const char*> parts = {"TF_CONFIG [$.cluster]: a list"};
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { resolver.cluster_spec(); }, parts));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { resolver.task_type(); }, parts));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { resolver.task_id(); }, parts));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { resolver.rpc_layer(); }, parts));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { resolver.master(); }, parts));
}

TEST(TfConfig, ArgumentsThatCannotBeAreRefused) {
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { TFConfigClusterResolver({.task_type = "a b"}); },
                                             {"TFConfigClusterResolver [task_type]", "\"a b\""}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { TFConfigClusterResolver({.task_id = -1}); },
                                             {"TFConfigClusterResolver [task_id]", "-1"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { TFConfigClusterResolver({.rpc_layer = "://"}); },
                                             {"TFConfigClusterResolver [rpc_layer]"}));
}

TEST(ClusterResolver, AHandleWithoutAResolverSaysSo) {
  const ClusterResolver none;
  EXPECT_FALSE(none.defined());
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { none.cluster_spec(); },
                                                {"cluster_spec [ClusterResolver]"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { none.set_task_id(0); },
                                                {"set_task_id [ClusterResolver]"}));
}

TEST(ClusterResolver, OnesOwnIsUsedAsTheOthers) {
  class Own : public ClusterResolver::Impl {
   public:
    Own() : Impl("Own") {}

   private:
    ClusterSpec read_cluster_spec() override { return ClusterSpec({{"worker", {"a:1", "b:1"}}}); }
    std::optional<std::string> read_task_type() const override { return "worker"; }
    std::optional<int64_t> read_task_id() const override { return 1; }
  };
  const ClusterResolver resolver(std::make_shared<Own>());
  EXPECT_EQ(resolver.master(), "b:1");
  EXPECT_EQ(resolver.master("worker", 0, "grpc"), "grpc://a:1");
}

}  // namespace
}  // namespace tutti::distribute::cluster_resolver
