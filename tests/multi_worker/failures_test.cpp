// Jobs in which something goes wrong: all processes end, each names what came first.
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>

#include "launcher/ports.h"
#include "multi_worker/launched_job.h"

namespace tutti::testing {
namespace {

// ---- a worker dies, stands still or fails while others work

struct Case {
  std::string task;  // "worker:1"
  int step;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.task << " at " << one.step; }

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name = cat(info.param.task, "_step_", info.param.step);
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

std::string spaced(const std::string& task) {
  std::string text = task;
  std::replace(text.begin(), text.end(), ':', ' ');
  return text;
}

class Killed : public ::testing::TestWithParam<Case> {};

TEST_P(Killed, AWorkerIsNamedByAllAndItsDeathIsTheExitCode) {
  const auto& [task, step] = GetParam();
  const Result result = run_job({"--workers", "3"}, {"6", cat(task, "@", step, "=kill")});
  EXPECT_EQ(result.code, 128 + SIGKILL) << result.err;
  EXPECT_TRUE(all_blame(task, result));
  EXPECT_TRUE(says(result.err, cat("first failure: ", spaced(task))));
  for (const char* other : {"worker:0", "worker:1", "worker:2"}) {
    if (other == task) continue;
    EXPECT_EQ(blamed_by(spaced(other), result), task) << result.err;
    const auto losses = losses_of(result)[spaced(other)];
    EXPECT_EQ(losses.size(), static_cast<std::size_t>(step)) << "no step is made without it";
  }
}
INSTANTIATE_TEST_SUITE_P(Sampled, Killed,
                         ::testing::Values(Case{"worker:1", 0}, Case{"worker:1", 3},
                                           Case{"worker:2", 5}, Case{"worker:0", 0},
                                           Case{"worker:0", 1}, Case{"worker:0", 4}),
                         name_of);

class StandsStill : public ::testing::TestWithParam<Case> {};

TEST_P(StandsStill, AStoppedProcessIsNamedWithinThePingLimit) {
  const auto& [task, step] = GetParam();
  const Result result =
      run_job({"--workers", "2"}, {"6", "--timeout", "50", cat(task, "@", step, "=stop")});
  EXPECT_NE(result.code, 124) << "all end";
  EXPECT_NE(result.code, 0);
  EXPECT_TRUE(all_blame(task, result));
  EXPECT_TRUE(says(result.err, cat("first failure: ", spaced(task))));
  EXPECT_TRUE(says(result.err, task == "worker:0" ? "no answer to a heartbeat" : "no heartbeat"));
  EXPECT_EQ(blamed_by(task == "worker:0" ? "worker 1" : "worker 0", result), task);
}

TEST_P(StandsStill, Issue37_AStuckThreadIsNamedWithinTheProgressLimit) {
  const auto& [task, step] = GetParam();
  const Result result =
      run_job({"--workers", "2"}, {"6", "--timeout", "50", cat(task, "@", step, "=hang")});
  EXPECT_NE(result.code, 124) << "all end";
  EXPECT_NE(result.code, 0);
  EXPECT_TRUE(all_blame(task, result));
  EXPECT_TRUE(says(result.err, "stuck: heartbeats, but no progress for"));
  EXPECT_EQ(blamed_by(task == "worker:0" ? "worker 1" : "worker 0", result), task);
}
INSTANTIATE_TEST_SUITE_P(Sampled, StandsStill,
                         ::testing::Values(Case{"worker:1", 2}, Case{"worker:0", 2}), name_of);

class Fails : public ::testing::TestWithParam<Case> {};

TEST_P(Fails, AnExceptionThatNobodyCatchesIsHeardByAll) {
  const auto& [task, step] = GetParam();
  const Result result = run_job({"--workers", "2"}, {"6", cat(task, "@", step, "=throw")});
  EXPECT_EQ(result.code, 128 + SIGABRT) << result.err;
  EXPECT_TRUE(all_blame(task, result));
  EXPECT_EQ(blamed_by(task == "worker:0" ? "worker 1" : "worker 0", result), task);
  EXPECT_TRUE(says(result.err, cat("first failure: ", spaced(task))));
  EXPECT_GE(launcher::count_of(result.err, "the disk is full"), 3u) << result.err;
}

TEST_P(Fails, AnErrorInAStepIsHeardByAll) {
  const auto& [task, step] = GetParam();
  const Result result = run_job({"--workers", "2"}, {"6", cat(task, "@", step, "=fail")});
  EXPECT_EQ(result.code, 128 + SIGABRT) << result.err;
  EXPECT_TRUE(all_blame(task, result));
  EXPECT_EQ(blamed_by(task == "worker:0" ? "worker 1" : "worker 0", result), task);
  EXPECT_GE(launcher::count_of(result.err, "a batch is damaged"), 3u) << result.err;
}

TEST_P(Fails, AnExceptionThatMainCatchesIsHeardByTheOthersAndTheExitCodeIsMains) {
  const auto& [task, step] = GetParam();
  const Result result = run_job({"--workers", "2"}, {"6", cat(task, "@", step, "=catch")});
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_TRUE(all_blame(task, result));
  EXPECT_TRUE(says(result.err, "an exception left its strategy"));
  EXPECT_TRUE(says(result.err, cat("[", spaced(task), "] caught: the disk is full")));
}

TEST_P(Fails, AWorkerThatEndsEarlyIsNamedAtOnce) {
  const auto& [task, step] = GetParam();
  const Result result = run_job({"--workers", "2"}, {"6", cat(task, "@", step, "=leave")});
  EXPECT_NE(result.code, 0) << result.err;
  EXPECT_NE(result.code, 124) << result.err;
  EXPECT_TRUE(all_blame(task, result));
  EXPECT_TRUE(says(result.err, "must take the same number of steps"));
}

TEST_P(Fails, Issue36_WorkersThatMakeDifferentCallsAllSaySo) {
  const auto& [task, step] = GetParam();
  const Result result = run_job({"--workers", "2"}, {"6", cat(task, "@", step, "=wander")});
  EXPECT_EQ(result.code, 128 + SIGABRT) << result.err;
  for (const char* worker : {"[worker 0]", "[worker 1]"})
    EXPECT_TRUE(says(result.err, cat(worker, "   what():  workers make different calls")));
}
INSTANTIATE_TEST_SUITE_P(Sampled, Fails,
                         ::testing::Values(Case{"worker:1", 2}, Case{"worker:0", 3}), name_of);

// ---- a job that does not begin

/// Tasks without a launcher, at ports that nobody else gets.
class NoBegin : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 2; ++i) ports_.push_back(held_.hold("127.0.0.1", 0));
  }
  std::string config(int index, const std::vector<int>& ports) const {
    std::vector<std::string> addresses;
    for (const int port : ports) addresses.push_back(cat("\"127.0.0.1:", port, "\""));
    return cat(R"({"cluster": {"worker": [)", join(addresses, ", "),
               R"(]}, "task": {"type": "worker", "index": )", index, "}}");
  }
  std::unique_ptr<ChildProcess> start(int index, const std::vector<int>& ports,
                                      const std::string& timeout = "3") {
    std::map<std::string, std::string> variables{{"TF_CONFIG", config(index, ports)},
                                                 {"TUTTI_LOG", "info"}};
    for (const auto& [name, value] : short_limits()) variables[name] = value;
    return std::make_unique<ChildProcess>(
        std::vector<std::string>{task_program(), "2", "--timeout", timeout}, variables);
  }

  launcher::HeldPorts held_;
  std::vector<int> ports_;
};

TEST_F(NoBegin, Issue56_AWorkerThatNeverStartsIsNamedAtTheDeadline) {
  auto chief = start(0, ports_, "7");
  EXPECT_EQ(chief->wait(), -SIGABRT);
  EXPECT_TRUE(says(chief->log(), "waiting for 5 s, missing worker:1 (never joined)"));
  EXPECT_TRUE(says(chief->log(), "1 of 2 tasks in time, missing worker:1 (never joined)"));
}

TEST_F(NoBegin, AChiefThatNeverStartsIsNamedAtTheDeadline) {
  auto worker = start(1, ports_);
  EXPECT_EQ(worker->wait(), -SIGABRT);
  EXPECT_TRUE(says(worker->log(), cat("leader worker:0 at 127.0.0.1:", ports_[0],
                                      " did not let this task in within 3000 ms")));
}

TEST_F(NoBegin, AStrangerAtTheChiefsPortIsNamedByBothSides) {
  const int stranger = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(stranger, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(ports_[0]));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(stranger, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(stranger, 8), 0);
  auto chief = start(0, ports_);
  auto worker = start(1, ports_);
  EXPECT_EQ(chief->wait(), -SIGABRT);
  EXPECT_TRUE(says(chief->log(), cat("port ", ports_[0], " is in use by pid ")));
  EXPECT_EQ(worker->wait(), -SIGABRT);
  EXPECT_TRUE(says(worker->log(), "did not let this task in within 3000 ms"));
  ::close(stranger);
}

TEST_F(NoBegin, ATaskOfAnotherClusterIsRefusedAtOnceAndTheChiefNamesWhoIsMissing) {
  auto chief = start(0, ports_, "4");
  auto worker = start(1, {ports_[0], ports_[0] == 1024 ? 1025 : 1024}, "60");
  EXPECT_EQ(worker->wait(), -SIGABRT);
  EXPECT_TRUE(says(worker->log(), "compare their TF_CONFIG"));
  EXPECT_EQ(chief->wait(), -SIGABRT);
  EXPECT_TRUE(says(chief->log(), "missing worker:1 (never joined)"));
}

TEST_F(NoBegin, ATaskThatTheClusterLacksIsRefusedAtOnce) {
  auto worker = start(2, ports_);
  EXPECT_EQ(worker->wait(), -SIGABRT);
  EXPECT_TRUE(says(worker->log(), "TF_CONFIG"));
}

}  // namespace
}  // namespace tutti::testing
