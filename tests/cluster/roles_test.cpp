#include "cluster/roles.h"

#include <gtest/gtest.h>

#include "support/message_checks.h"
#include "tutti/base/error.h"

namespace tutti::cluster {
namespace {

using testing::throws_saying;
using train::ClusterSpec;

ClusterSpec with_chief() {
  return ClusterSpec({{"chief", {"c:1"}},
                      {"worker", {"w0:1", "w1:1", "w2:1"}},
                      {"ps", {"p0:1", "p1:1"}},
                      {"evaluator", {"e:1"}}});
}
ClusterSpec without_chief() { return ClusterSpec({{"worker", {"w0:1", "w1:1"}}}); }

TEST(Roles, TheChiefLeadsElseWorkerZero) {
  EXPECT_EQ(collective_leader(with_chief(), "worker", 2), (Task{"chief", 0}));
  EXPECT_EQ(collective_leader(without_chief(), "worker", 1), (Task{"worker", 0}));
  EXPECT_EQ(collective_leader(with_chief(), "evaluator", 0), std::nullopt);
  EXPECT_EQ(collective_leader(ClusterSpec(), "worker", 0), std::nullopt);
}

TEST(Roles, WhoIsChief) {
  EXPECT_TRUE(is_chief(with_chief(), "chief", 0));
  EXPECT_FALSE(is_chief(with_chief(), "worker", 0));
  EXPECT_FALSE(is_chief(with_chief(), "ps", 0));
  EXPECT_TRUE(is_chief(with_chief(), "evaluator", 0));
  EXPECT_TRUE(is_chief(without_chief(), "worker", 0));
  EXPECT_FALSE(is_chief(without_chief(), "worker", 1));
  EXPECT_TRUE(is_chief(without_chief(), "evaluator", 0));
  EXPECT_TRUE(is_chief(ClusterSpec(), "", 0));
}

TEST(Roles, TheChiefIsAWorkerToo) {
  EXPECT_EQ(worker_count(with_chief(), "worker"), 4);
  EXPECT_EQ(worker_count(with_chief(), "chief"), 4);
  EXPECT_EQ(worker_count(without_chief(), "worker"), 2);
  EXPECT_EQ(id_in_cluster(with_chief(), "chief", 0), 0);
  EXPECT_EQ(id_in_cluster(with_chief(), "worker", 2), 3);
  EXPECT_EQ(id_in_cluster(without_chief(), "worker", 1), 1);
}

TEST(Roles, AnEvaluatorIsByItself) {
  EXPECT_EQ(worker_count(with_chief(), "evaluator"), 1);
  EXPECT_EQ(worker_count(without_chief(), "evaluator"), 1);
  EXPECT_EQ(id_in_cluster(with_chief(), "evaluator", 0), 0);
}

TEST(Roles, AParameterServerIsNoWorker) {
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { worker_count(with_chief(), "ps"); },
                                             {"worker_count [task_type]", "\"ps\""}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { id_in_cluster(with_chief(), "ps", 0); },
                                             {"id_in_cluster [task_type]", "\"ps\""}));
}

TEST(Roles, ClustersAndTasksThatCannotBeAreRefused) {
  const auto refused = [](const ClusterSpec& cluster, std::optional<std::string> type,
                          std::optional<int64_t> id, std::initializer_list<const char*> parts) {
    return throws_saying<InvalidArgument>([&] { check_cluster("check", cluster, type, id); },
                                          parts);
  };
  EXPECT_TRUE(refused(ClusterSpec({{"gpu", {"a:1"}}}), {}, {},
                      {"check [cluster_spec]", "the task type \"gpu\""}));
  EXPECT_TRUE(refused(ClusterSpec({{"chief", {"a:1", "b:1"}}}), {}, {},
                      {"check [cluster_spec.chief]", "2 tasks", "at most one"}));
  EXPECT_TRUE(refused(ClusterSpec({{"evaluator", {"a:1", "b:1"}}}), {}, {},
                      {"check [cluster_spec.evaluator]"}));
  EXPECT_TRUE(refused(without_chief(), "gpu", 0, {"check [task_type]"}));
  EXPECT_TRUE(refused(without_chief(), "chief", 0, {"check [task_type]", "a job of the cluster"}));
  EXPECT_TRUE(refused(without_chief(), "worker", 2, {"no task with index 2"}));
  check_cluster("check", without_chief(), "evaluator", 0);
  check_cluster("check", without_chief(), std::nullopt, std::nullopt);
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] {
        collective_leader(ClusterSpec({{"ps", {"a:1"}}}), "ps", 0);
      },
      {"neither chief nor workers"}));
}

}  // namespace
}  // namespace tutti::cluster
