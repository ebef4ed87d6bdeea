#include "tutti/cluster/cluster_spec.h"

#include <gtest/gtest.h>

#include <sstream>

#include "support/message_checks.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::train {
namespace {

using testing::throws_saying;
using Strings = std::vector<std::string>;

ClusterSpec example() {
  return ClusterSpec({{"worker", {"w0:2222", "w1:2222", "w2:2222"}}, {"ps", {"p0:2222"}}});
}

TEST(ClusterSpec, AnswersByJobAndTask) {
  const ClusterSpec cluster = example();
  EXPECT_TRUE(cluster);
  EXPECT_EQ(cluster.jobs(), (Strings{"ps", "worker"}));
  EXPECT_EQ(cluster.num_tasks("worker"), 3);
  EXPECT_EQ(cluster.task_indices("worker"), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(cluster.task_address("worker", 1), "w1:2222");
  EXPECT_EQ(cluster.job_tasks("worker"), (Strings{"w0:2222", "w1:2222", "w2:2222"}));
  EXPECT_EQ(cluster.as_dict().at("ps"), JobTasks({"p0:2222"}));
  EXPECT_TRUE(cluster.has_job("ps"));
  EXPECT_FALSE(cluster.has_job("chief"));
}

TEST(ClusterSpec, ASparseJobKeepsItsIndices) {
  const ClusterSpec cluster({{"worker", {{1, "w1:1"}, {3, "w3:1"}}}});
  EXPECT_EQ(cluster.num_tasks("worker"), 2);
  EXPECT_EQ(cluster.task_indices("worker"), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(cluster.job_tasks("worker"), (Strings{"", "w1:1", "", "w3:1"}));
  EXPECT_EQ(cluster.task_address("worker", 3), "w3:1");
  EXPECT_FALSE(cluster.as_dict().at("worker").is_dense());
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { cluster.task_address("worker", 2); },
                                             {"no task with index 2", "one of its 2 tasks"}));
}

TEST(ClusterSpec, AMapWithoutGapsIsAList) {
  EXPECT_EQ(ClusterSpec({{"worker", {{0, "a:1"}, {1, "b:1"}}}}),
            ClusterSpec({{"worker", {"a:1", "b:1"}}}));
}

TEST(ClusterSpec, IsMadeOfMapsOfListsAndOfMaps) {
  const std::map<std::string, Strings> lists = {{"worker", {"a:1", "b:1"}}};
  const std::map<std::string, std::map<int64_t, std::string>> maps = {
      {"worker", {{0, "a:1"}, {1, "b:1"}}}};
  EXPECT_EQ(ClusterSpec(lists), ClusterSpec(maps));
}

TEST(ClusterSpec, WithoutJobsItIsFalse) {
  EXPECT_FALSE(ClusterSpec());
  EXPECT_EQ(ClusterSpec().jobs(), Strings());
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { ClusterSpec().num_tasks("worker"); },
                                             {"no job \"worker\"", "empty"}));
}

TEST(ClusterSpec, AJobMayBeEmpty) {
  const ClusterSpec cluster({{"worker", {}}});
  EXPECT_TRUE(cluster);
  EXPECT_EQ(cluster.num_tasks("worker"), 0);
  EXPECT_EQ(cluster.job_tasks("worker"), Strings());
}

TEST(ClusterSpec, EveryQuestionNamesAJobThatIsNotThere) {
  const ClusterSpec cluster = example();
  const std::initializer_list<const char*> parts = {"ClusterSpec [job]", "no job \"nobody\"",
                                                    "ps, worker"};
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { cluster.num_tasks("nobody"); }, parts));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { cluster.task_indices("nobody"); }, parts));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { cluster.task_address("nobody", 0); }, parts));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { cluster.job_tasks("nobody"); }, parts));
}

TEST(ClusterSpec, AnIndexThatIsNotThereIsRefused) {
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { example().task_address("worker", 3); },
                                             {"[worker]", "no task with index 3", "0 to 2"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { example().task_address("worker", -1); },
                                             {"no task with index -1"}));
}

TEST(ClusterSpec, EqualityLooksAtJobsIndicesAndAddresses) {
  EXPECT_EQ(example(), example());
  EXPECT_NE(example(), ClusterSpec({{"worker", {"w0:2222", "w1:2222"}}, {"ps", {"p0:2222"}}}));
  EXPECT_NE(ClusterSpec({{"worker", {"a:1"}}}), ClusterSpec({{"chief", {"a:1"}}}));
  EXPECT_NE(ClusterSpec({{"worker", {{1, "a:1"}}}}), ClusterSpec({{"worker", {"a:1"}}}));
}

TEST(ClusterSpec, PrintsAsPythonDoes) {
  std::ostringstream out;
  out << ClusterSpec({{"worker", {"a:1", "b:1"}}, {"ps", {{2, "c:1"}}}, {"chief", {}}});
  EXPECT_EQ(out.str(), "ClusterSpec({'chief': {}, 'ps': {2: 'c:1'}, 'worker': ['a:1', 'b:1']})");
}

TEST(ClusterSpec, JsonGoesThereAndBack) {
  const ClusterSpec cluster({{"worker", {"a:1", "[::1]:1"}}, {"ps", {{2, "c:0"}}}});
  EXPECT_EQ(cluster.to_json(), R"({"ps":{"2":"c:0"},"worker":["a:1","[::1]:1"]})");
  EXPECT_EQ(ClusterSpec::from_json(cluster.to_json()), cluster);
  EXPECT_EQ(ClusterSpec::from_json("{}"), ClusterSpec());
  EXPECT_EQ(ClusterSpec().to_json(), "{}");
}

TEST(ClusterSpec, JsonThatIsNoClusterIsRefusedWithItsPlace) {
  const auto refused = [](const char* json, std::initializer_list<const char*> parts) {
    return throws_saying<InvalidArgument>([&] { ClusterSpec::from_json(json); }, parts);
  };
  EXPECT_TRUE(refused("[]", {"ClusterSpec [$]", "a list", "an object"}));
  EXPECT_TRUE(refused("{\"worker\": \"a:1\"}", {"[$.worker]", "\"a:1\"", "a list of addresses"}));
  EXPECT_TRUE(refused("{\"worker\": [\"a:1\", 2]}", {"[$.worker[1]]", "2", "a string"}));
  EXPECT_TRUE(refused("{\"worker\": {\"-1\": \"a:1\"}}", {"[$.worker.-1]", "\"-1\""}));
  EXPECT_TRUE(refused("{\"worker\": [\"a:1\"], \"worker\": []}", {"[$.worker]", "already"}));
  EXPECT_TRUE(refused("{\"worker\": [\"a:1\"", {"[$.worker", "no JSON at byte"}));
}

TEST(ClusterSpec, AnAddressIsAHostAndAPort) {
  for (const char* good :
       {"localhost:1", "a:65535", "10.0.0.1:2222", "[::1]:2222", "[fe80::1]:80", "a_b-c.d:0",
        "algo-1:2223", "123abc.example.com:8", "xn--bcher-kva.example:80"}) {
    EXPECT_EQ(ClusterSpec({{"worker", {good}}}).task_address("worker", 0), good);
  }
  for (const char* bad : {"",
                          "a",
                          "a:",
                          ":1",
                          "a:65536",
                          "a:-1",
                          "a:+1",
                          "a:01",
                          "a: 1",
                          "a b:1",
                          "-a:1",
                          "a-:1",
                          "a..b:1",
                          ".a:1",
                          "::1:1",
                          "[::1]",
                          "[::1:1",
                          "[g::1]:1",
                          "[1.2.3.4]:1",
                          "1.2.3:1",
                          "256.1.1.1:1",
                          "1.2.3.4.5:1",
                          "grpc://a:1",
                          "a:1:1",
                          "a:1/",
                          "user@a:1",
                          "a\n:1",
                          "ä:1"}) {
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] {
          ClusterSpec({{"worker", JobTasks(Strings{bad})}});
        },
        {"ClusterSpec [worker:0]: ", ", expected ", "; "}))
        << bad;
  }
}

TEST(ClusterSpec, NoTwoTasksHaveOneAddressUnlessAServerChoosesIt) {
  const auto refused = [](std::map<std::string, JobTasks> jobs) {
    return throws_saying<InvalidArgument>([&] { ClusterSpec(std::move(jobs)); },
                                          {"[worker:1]", "an address of its own"});
  };
  EXPECT_TRUE(refused({{"worker", {"a:1", "a:1"}}}));
  EXPECT_TRUE(refused({{"worker", {"b.example:1", "B.Example:1"}}}));
  EXPECT_TRUE(refused({{"chief", {"b:1"}}, {"worker", {"a:1", "b:1"}}}));
  EXPECT_EQ(ClusterSpec({{"worker", {"a:0", "a:0"}}}).num_tasks("worker"), 2);
}

TEST(ClusterSpec, AJobsNameIsAWord) {
  EXPECT_TRUE(ClusterSpec({{"My-job_1.x", {"a:1"}}}));
  for (const std::string& bad : {std::string(), std::string("a b"), std::string("a/b"),
                                 std::string(65, 'a'), std::string("a\0b", 3)}) {
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] {
          ClusterSpec({{bad, {"a:1"}}});
        },
        {"ClusterSpec [job]", "the job"}))
        << bad;
  }
}

TEST(ClusterSpec, IndicesHaveALimit) {
  const auto of_index = [](int64_t index) { return ClusterSpec({{"worker", {{index, "a:1"}}}}); };
  EXPECT_EQ(of_index(ClusterSpec::kMostTasks - 1).job_tasks("worker").size(),
            static_cast<std::size_t>(ClusterSpec::kMostTasks));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>([&] { of_index(ClusterSpec::kMostTasks); }, {"indices"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { of_index(-1); }, {"indices"}));
}

TEST(ClusterSpec, TheHashIsTheSameInEveryVersion) {
  EXPECT_EQ(example().hash(), example().hash());
  EXPECT_EQ(ClusterSpec().hash(), 0x39beffafa5888830U);
  EXPECT_EQ(example().hash(), 0xf1108767950fc610U);
}

TEST(ClusterSpec, TheHashTellsClustersApart) {
  const std::vector<ClusterSpec> clusters = {
      {},
      example(),
      ClusterSpec({{"worker", {}}}),
      ClusterSpec({{"worker", {"a:1"}}}),
      ClusterSpec({{"worker", {"a:2"}}}),
      ClusterSpec({{"worker", {"b:1"}}}),
      ClusterSpec({{"worker", {{1, "a:1"}}}}),
      ClusterSpec({{"chief", {"a:1"}}}),
      ClusterSpec({{"worker", {"a:1", "b:1"}}}),
      ClusterSpec({{"worker", {"b:1", "a:1"}}}),
      ClusterSpec({{"chief", {"a:1"}}, {"worker", {"b:1"}}}),
  };
  for (std::size_t i = 0; i < clusters.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(clusters[i].hash(), clusters[j].hash());
  }
}

TEST(ClusterSpec, TheHashKnowsThatHostNamesHaveNoCase) {
  EXPECT_EQ(ClusterSpec({{"worker", {"A.example:1"}}}).hash(),
            ClusterSpec({{"worker", {"a.EXAMPLE:1"}}}).hash());
}

}  // namespace
}  // namespace tutti::train
