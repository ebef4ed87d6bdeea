// What an agent must do, over each link: in the process, over gRPC, over gRPC with TLS and a token.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "coordination/agent.h"
#include "coordination/coordinator.h"
#include "coordination/service.h"
#include "support/certificates.h"
#include "support/expect_error.h"
#include "tutti/base/text.h"

namespace tutti::coordination {
namespace {

using Agents = std::vector<std::unique_ptr<CoordinationAgent>>;

constexpr Milliseconds kSoon{5000};  // a deadline, not a time that is waited

Cluster workers(int count) {
  Cluster cluster;
  for (int i = 0; i < count; ++i) cluster["worker"].push_back(cat("host", i, ":1"));
  return cluster;
}

/// A cluster's leader, and a way for its tasks to join.
class Leader {
 public:
  virtual ~Leader() = default;
  virtual std::unique_ptr<CoordinationAgent> join(AgentOptions options) = 0;
  virtual void stop() = 0;
};

struct Setting {
  Cluster cluster;
  Limits limits;
};

class InProcessLeader final : public Leader {
 public:
  explicit InProcessLeader(const Setting& setting)
      : coordinator_({.cluster = setting.cluster, .limits = setting.limits}) {}
  std::unique_ptr<CoordinationAgent> join(AgentOptions options) override {
    return std::make_unique<CoordinationAgent>(options, coordinator_);
  }
  void stop() override { coordinator_.stop("the test says so"); }

 private:
  Coordinator coordinator_;
};

class GrpcLeader : public Leader {
 public:
  explicit GrpcLeader(const Setting& setting, const rpc::Security& security = {})
      : security_(security),
        service_(std::make_unique<CoordinationService>(ServiceOptions{.cluster = setting.cluster,
                                                                      .address = "127.0.0.1:0",
                                                                      .security = security,
                                                                      .limits = setting.limits})) {}
  std::unique_ptr<CoordinationAgent> join(AgentOptions options) override {
    options.leader_address = service_->address();
    options.security = security_;
    return std::make_unique<CoordinationAgent>(options);
  }
  void stop() override { service_.reset(); }

 private:
  rpc::Security security_;
  std::unique_ptr<CoordinationService> service_;
};

const testing::Certificates& certificates() {
  static const testing::Certificates made;
  return made;
}

struct Maker {
  const char* name;
  std::function<std::unique_ptr<Leader>(const Setting&)> make;
};
void PrintTo(const Maker& maker, std::ostream* out) { *out << maker.name; }

class AgentContract : public ::testing::TestWithParam<Maker> {
 protected:
  /// `count` workers that have joined.
  Agents start(int count, Limits limits = {.heartbeat_interval = Milliseconds(20)}) {
    cluster_ = workers(count);
    leader_ = GetParam().make({cluster_, limits});
    Agents agents;
    for (int i = 0; i < count; ++i) agents.push_back(join(task_name("worker", i)));
    return agents;
  }
  std::unique_ptr<CoordinationAgent> join(const std::string& task) {
    return leader_->join({.cluster = cluster_, .task = task, .join_timeout = kSoon});
  }
  /// `body` for each agent, each in a thread of its own.
  static void on_all(Agents& agents, const std::function<void(CoordinationAgent&, int)>& body) {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < agents.size(); ++i)
      threads.emplace_back([&, i] { body(*agents[i], static_cast<int>(i)); });
  }

  Cluster cluster_;
  std::unique_ptr<Leader> leader_;
};

TEST_P(AgentContract, AllTasksShareTheGenerationAndHaveTheirOwnIncarnations) {
  Agents agents = start(2);
  EXPECT_GT(agents[0]->generation(), 0u);
  EXPECT_EQ(agents[0]->generation(), agents[1]->generation());
  EXPECT_NE(agents[0]->incarnation(), 0u);
}

TEST_P(AgentContract, EightTasksPassABarrierOfOneNameAHundredTimesInStep) {
  Agents agents = start(8);
  std::atomic<int> entered{0};
  on_all(agents, [&](CoordinationAgent& agent, int) {
    for (int round = 1; round <= 100; ++round) {
      ++entered;
      agent.barrier("step", {.timeout = kSoon});
      EXPECT_GE(entered, 8 * round);
      agent.barrier("read", {.timeout = kSoon});
    }
  });
  EXPECT_EQ(entered, 800);
}

TEST_P(AgentContract, ABarrierOfSomeTasksDoesNotWaitForTheOthers) {
  Agents agents = start(3);
  std::jthread other([&] { agents[1]->barrier("pair", {kSoon, {"worker:0", "worker:1"}}); });
  agents[0]->barrier("pair", {kSoon, {"worker:0", "worker:1"}});
}

TEST_P(AgentContract, ABarrierNamesTheTaskThatIsMissing) {
  Agents agents = start(2);
  EXPECT_ERROR(
      agents[0]->barrier("lonely", {.timeout = Milliseconds(50)}), DeadlineExceeded,
      "barrier \"lonely\" [worker:0]: barrier \"lonely\": 1 of 2 tasks in time, missing worker:1");
  EXPECT_ERROR(agents[1]->barrier("lonely", {.timeout = kSoon}), DeadlineExceeded,
               "missing worker:1");
  on_all(agents, [](CoordinationAgent& agent, int) { agent.barrier("next", {.timeout = kSoon}); });
}

TEST_P(AgentContract, ABarrierOfATaskThatDoesNotExistIsTheCallersMistake) {
  Agents agents = start(1);
  EXPECT_ERROR(agents[0]->barrier("b", {kSoon, {"worker:0", "ps:0"}}), InvalidArgument,
               "task ps:0 is not of this cluster");
  EXPECT_ERROR(agents[0]->barrier("", {}), InvalidArgument, "expected 1 to 256 bytes");
}

TEST_P(AgentContract, WhatOneTaskSetsAnotherGets) {
  Agents agents = start(2);
  const std::string bytes("\0\xff any bytes", 12);
  agents[0]->set("k", bytes);
  EXPECT_EQ(agents[1]->get("k", kSoon), bytes);
  EXPECT_EQ(agents[1]->try_get("k"), bytes);
  EXPECT_EQ(agents[1]->try_get("other"), std::nullopt);
  agents[1]->set("k", "again");
  EXPECT_EQ(agents[0]->get("k", kSoon), "again");
  EXPECT_ERROR(agents[0]->set("k", "mine", false), AlreadyExists, "has a value already");
}

TEST_P(AgentContract, GetWaitsUntilTheKeyIsSet) {
  Agents agents = start(2);
  std::atomic<bool> set{false};
  std::jthread getter([&] {
    EXPECT_EQ(agents[1]->get("late", kSoon), "value");
    EXPECT_TRUE(set);
  });
  EXPECT_EQ(agents[0]->try_get("late"), std::nullopt);
  set = true;
  agents[0]->set("late", "value");
}

TEST_P(AgentContract, GetEndsAtItsDeadline) {
  Agents agents = start(1);
  EXPECT_ERROR(agents[0]->get("never", Milliseconds(30)), DeadlineExceeded,
               "get \"never\" [worker:0]: no task set it within 30 ms");
}

TEST_P(AgentContract, ListAndErase) {
  Agents agents = start(1);
  for (const char* key : {"a/2", "a/1", "b"}) agents[0]->set(key, key);
  using Entries = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(agents[0]->list("a/"), (Entries{{"a/1", "a/1"}, {"a/2", "a/2"}}));
  EXPECT_EQ(agents[0]->erase("b"), 1);
  EXPECT_EQ(agents[0]->erase("a/", true), 2);
  EXPECT_EQ(agents[0]->list(""), Entries{});
}

TEST_P(AgentContract, CountersAddUpOverTasksAndAreNoValues) {
  Agents agents = start(4);
  std::atomic<int64_t> greatest{0};
  on_all(agents, [&](CoordinationAgent& agent, int) {
    for (int i = 0; i < 25; ++i) {
      const int64_t sum = agent.add("tickets", 2);
      int64_t seen = greatest.load();
      while (seen < sum && !greatest.compare_exchange_weak(seen, sum)) {
      }
    }
  });
  EXPECT_EQ(greatest, 200);
  EXPECT_EQ(agents[0]->add("tickets", -200), 0);
  EXPECT_EQ(agents[1]->try_get("tickets"), std::nullopt);
  EXPECT_TRUE(agents[1]->list("").empty());
  EXPECT_EQ(agents[2]->add("tickets", 7), 7);
  EXPECT_EQ(agents[3]->erase("tickets"), 1);
  EXPECT_EQ(agents[0]->add("tickets", 1), 1);
  EXPECT_ERROR(agents[0]->add("tickets", INT64_MAX), OutOfRange, "tickets");
  EXPECT_ERROR(agents[0]->add("", 1), InvalidArgument, "a key of 0 bytes");
}

TEST_P(AgentContract, TooLargeAValueIsRefusedAndTheJobGoesOn) {
  Agents agents = start(1);
  EXPECT_ERROR(agents[0]->set("k", std::string((16 << 20) + 1, 'x')), ResourceExhausted,
               "expected at most 16777216");
  EXPECT_ERROR(agents[0]->set(std::string(1025, 'k'), "v"), InvalidArgument, "expected 1 to 1024");
  agents[0]->set("k", std::string(16 << 20, 'x'));
  EXPECT_EQ(agents[0]->get("k", kSoon).size(), std::size_t{16} << 20);
}

TEST_P(AgentContract, TheFirstErrorReachesAllThatWaitAndAllThatCallLater) {
  Agents agents = start(3);
  std::jthread waiting([&] {
    EXPECT_ERROR(agents[0]->barrier("b", {.timeout = kSoon}), InvalidArgument,
                 "barrier \"b\" [worker:0]: worker:2 failed first: worker:2 (joined): a bad label");
  });
  std::jthread getting(
      [&] { EXPECT_ERROR(agents[1]->get("k", kSoon), InvalidArgument, "worker:2 failed first"); });
  const JobFailure first = agents[2]->report_error(ErrorCode::kInvalidArgument, "a bad label");
  EXPECT_EQ(first.task, "worker:2");
  waiting.join();
  getting.join();
  for (auto& agent : agents) {
    EXPECT_ERROR(agent->set("k", "v"), InvalidArgument, "worker:2 failed first");
    EXPECT_ERROR(agent->check("step"), InvalidArgument, "step [worker:");
    EXPECT_EQ(agent->report_error(ErrorCode::kInternal, "mine").task, "worker:2");
  }
}

TEST_P(AgentContract, OfTwoErrorsAllHearTheSame) {
  Agents agents = start(4);
  std::vector<JobFailure> heard(4);
  on_all(agents, [&](CoordinationAgent& agent, int i) {
    heard[i] = agent.report_error(ErrorCode::kInternal, cat("error of ", i));
  });
  for (const JobFailure& failure : heard) EXPECT_EQ(failure.message, heard[0].message);
}

TEST_P(AgentContract, AnActionRunsOnceWhenTheJobEndsAlsoWhenItComesLate) {
  Agents agents = start(2);
  std::atomic<int> early{0}, late{0};
  agents[0]->on_failure([&](const JobFailure& failure) {
    EXPECT_EQ(failure.task, "worker:1");
    ++early;
    early.notify_all();
  });
  agents[1]->report_error(ErrorCode::kInternal, "x");
  early.wait(0);
  agents[0]->on_failure([&](const JobFailure&) {
    ++late;
    late.notify_all();
  });
  late.wait(0);
  EXPECT_EQ(early, 1);
}

TEST_P(AgentContract, ATaskThatGoesWithoutLeavingIsLost) {
  Agents agents = start(2);
  agents[1].reset();
  const auto failure = agents[0]->wait_for_failure(Milliseconds(1000));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->task, "worker:1");
  EXPECT_EQ(failure->code, ErrorCode::kUnavailable);
  EXPECT_NE(failure->message.find("closed before it left"), std::string::npos) << failure->message;
}

TEST_P(AgentContract, TasksThatLeaveTogetherEndNothing) {
  Agents agents = start(4);
  on_all(agents, [](CoordinationAgent& agent, int) { agent.leave(kSoon); });
  for (auto& agent : agents) EXPECT_FALSE(agent->failure());
}

TEST_P(AgentContract, WhoComesAfterAllHaveLeftDoesNotJoinTheJobThatEnds) {
  Agents agents = start(2);
  on_all(agents, [](CoordinationAgent& agent, int) { agent.leave(kSoon); });
  agents.clear();
  EXPECT_ERROR(
      leader_->join({.cluster = cluster_, .task = "worker:1", .join_timeout = Milliseconds(200)}),
      DeadlineExceeded, "the service has ended");
}

TEST_P(AgentContract, AgentsComeAndGoAHundredTimesAndNoThreadEndsItsOwnChannel) {
  cluster_ = workers(1);
  leader_ = GetParam().make({cluster_, {.heartbeat_interval = Milliseconds(1)}});
  for (int i = 0; i < 100; ++i) {
    const auto agent = join("worker:0");
    agent->set("k", "v");
    agent->leave(kSoon, /*together=*/false);
  }
}

TEST_P(AgentContract, ATaskThatLeavesAloneIsNotLostAndNotWaitedForAtTheEnd) {
  Agents agents = start(3);
  agents[2]->leave(kSoon, /*together=*/false);
  agents[2].reset();
  agents.pop_back();
  on_all(agents, [](CoordinationAgent& agent, int) { agent.leave(kSoon); });
  for (auto& agent : agents) EXPECT_FALSE(agent->failure());
}

TEST_P(AgentContract, LeavingTogetherNamesWhoDoesNotCome) {
  Agents agents = start(2);
  EXPECT_ERROR(agents[0]->leave(Milliseconds(50)), DeadlineExceeded, "missing worker:1");
}

TEST_P(AgentContract, ASecondLiveHolderIsRefusedAndTheFirstGoesOn) {
  Agents agents = start(2);
  EXPECT_ERROR(join("worker:1"), AlreadyExists, "held by incarnation");
  on_all(agents, [](CoordinationAgent& agent, int) { agent.barrier("b", {.timeout = kSoon}); });
}

TEST_P(AgentContract, ProgressIsWhatTheOthersSeeOfATask) {
  Agents agents = start(2);
  agents[1]->report_progress(42, "a phase with a name that is longer than what is kept of it");
  for (;;) {
    const auto states = agents[0]->task_states();
    if (states[1].step != 42) continue;
    EXPECT_EQ(states[1].task, "worker:1");
    EXPECT_EQ(states[1].state, TaskState::kJoined);
    EXPECT_EQ(states[1].phase, "a phase with a name that is lon");
    break;
  }
}

TEST_P(AgentContract, AStuckTaskIsNamedAndOneThatWaitsForItIsNot) {
  Agents agents =
      start(2, {.heartbeat_interval = Milliseconds(20), .progress_limit = Milliseconds(300)});
  agents[0]->report_progress(7, "all_reduce", /*waiting=*/true);
  agents[1]->report_progress(6, "input");
  const auto failure = agents[0]->wait_for_failure(kSoon);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->task, "worker:1");
  EXPECT_NE(failure->message.find("(step 6, phase \"input\")"), std::string::npos);
  EXPECT_NE(failure->message.find("stuck"), std::string::npos) << failure->message;
}

TEST_P(AgentContract, WhoWaitsInABarrierIsNotStuck) {
  Agents agents =
      start(2, {.heartbeat_interval = Milliseconds(20), .progress_limit = Milliseconds(200)});
  agents[0]->report_progress(7, "train");
  EXPECT_ERROR(agents[0]->barrier("b", {.timeout = Milliseconds(600)}), DeadlineExceeded,
               "missing worker:1");
}

TEST_P(AgentContract, WhoCountsAsMovingIsNotStuckAndMayBeAfterwards) {
  Agents agents =
      start(2, {.heartbeat_interval = Milliseconds(20), .progress_limit = Milliseconds(200)});
  agents[0]->report_progress(7, "all_gather", /*waiting=*/true);
  agents[1]->report_progress(6, "own work");
  agents[1]->count_as_moving(true);
  EXPECT_FALSE(agents[0]->wait_for_failure(Milliseconds(800)));
  agents[1]->count_as_moving(false);
  const auto failure = agents[0]->wait_for_failure(kSoon);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->task, "worker:1");
}

TEST_P(AgentContract, AMessageThatIsNoTextReachesAllAsItIs) {
  Agents agents = start(2);
  const std::string name = "file \xff\xfe of \xc3";
  agents[1]->report_progress(1, "phase \xc3");
  agents[1]->report_error(ErrorCode::kDataLoss, name);
  const auto failure = agents[0]->wait_for_failure(kSoon);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::kDataLoss);
  EXPECT_NE(failure->message.find(name), std::string::npos) << failure->message;
}

TEST_P(AgentContract, TheEndOfTheLeadersServiceReachesAll) {
  Agents agents = start(2);
  leader_->stop();
  const auto failure = agents[1]->wait_for_failure(Milliseconds(1000));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->task, "worker:0");
  EXPECT_NE(failure->message.find("the leader's service stopped"), std::string::npos)
      << failure->message;
  agents.clear();
}

INSTANTIATE_TEST_SUITE_P(
    Links, AgentContract,
    ::testing::Values(
        Maker{"in_process",
              [](const Setting& setting) { return std::make_unique<InProcessLeader>(setting); }},
        Maker{"grpc", [](const Setting& setting) { return std::make_unique<GrpcLeader>(setting); }},
        Maker{"grpc_tls",
              [](const Setting& setting) {
                return std::make_unique<GrpcLeader>(setting, certificates().security());
              }}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tutti::coordination
