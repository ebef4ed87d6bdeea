// Trainings in processes of their own that get SIGTERM (scoreboard R5): one worker, two, and a job
// of tutti-run.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "support/child_process.h"
#include "support/temporary_folder.h"

namespace tutti::distribute {
namespace {

using testing::beside_this_program;
using testing::ChildProcess;
using Clock = std::chrono::steady_clock;

constexpr int kSteps = 60;
constexpr double kGrace = 5;  // seconds within which all must be out

constexpr int kPatience = 60;  // seconds for a line: the first comes when all are there

int free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(listener, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(listener);
  return ntohs(address.sin_port);
}

/// The rest of the first line that begins with `word`, reading to it; "" when the program ends.
std::string rest_of(ChildProcess& process, const std::string& word) {
  for (;;) {
    const std::string line = process.line(kPatience);
    if (line.empty()) return "";
    if (line.compare(0, word.size() + 1, word + " ") == 0) return line.substr(word.size() + 1);
  }
}

/// Returns when it has taken that many steps, or has ended.
void await_step(ChildProcess& process, int step) {
  for (std::string now = "0"; !now.empty() && std::stoi(now) < step;)
    now = rest_of(process, "step");
}

class PreemptedProcesses : public testing::TemporaryFolder {
 protected:
  using Job = std::vector<std::unique_ptr<ChildProcess>>;

  static std::vector<std::string> command(const std::string& folder, int milliseconds,
                                          double grace) {
    return {beside_this_program("preemptible_training"), folder, std::to_string(kSteps),
            std::to_string(milliseconds), std::to_string(grace)};
  }
  Job start(int workers, const std::string& folder, int milliseconds, double grace = 0) {
    Job job;
    std::string addresses;
    for (int i = 0; i < workers; ++i)
      addresses += cat(i == 0 ? "" : ",", "\"127.0.0.1:", free_port(), "\"");
    for (int i = 0; i < workers; ++i) {
      std::map<std::string, std::string> variables{{"TUTTI_LOG", "info"}, {"OMP_NUM_THREADS", "1"}};
      if (workers > 1) {
        variables["TF_CONFIG"] = cat("{\"cluster\": {\"worker\": [", addresses,
                                     "]}, \"task\": {\"type\": \"worker\", \"index\": ", i, "}}");
      }
      job.push_back(
          std::make_unique<ChildProcess>(command(path(folder), milliseconds, grace), variables));
    }
    return job;
  }
  /// Where each worker went on.
  static std::vector<std::string> resumed(Job& job) {
    std::vector<std::string> steps;
    for (auto& process : job) steps.push_back(rest_of(*process, "resumed"));
    return steps;
  }
  /// The bits at the end of a training that nobody ends.
  std::string undisturbed(int workers) {
    Job job = start(workers, "undisturbed", 0);
    return finished(job);
  }
  static std::string finished(Job& job) {
    std::string bits;
    for (auto& process : job) bits = rest_of(*process, "done");
    for (auto& process : job) EXPECT_EQ(process->wait(), 0) << process->log();
    return bits;
  }
  /// Two workers, of which some get SIGTERM at a step, are to save one common step, end with 42 and
  /// go on there to the bits of an undisturbed training; at several steps.
  void end_both(const std::vector<std::size_t>& told) {
    const std::string bits = undisturbed(2);
    const char* const dose = std::getenv("TUTTI_TEST_DOSE");
    const int rounds = dose != nullptr && std::string(dose) == "full" ? 10 : 1;
    for (int round = 0; round < rounds; ++round) {
      const std::string folder = cat("state", round);
      Job job = start(2, folder, 10);
      const int at = 4 + 4 * round;
      await_step(*job[1], at);
      for (const std::size_t worker : told) job[worker]->signal(SIGTERM);
      expect_all_out_with_42_within(job, kGrace);
      for (auto& process : job)
        EXPECT_EQ(process->log().find("failed first"), std::string::npos) << process->log();

      Job again = start(2, folder, 0);
      const std::vector<std::string> steps = resumed(again);
      EXPECT_EQ(steps[0], steps[1]);
      EXPECT_GT(std::stoi("0" + steps[0]), at);
      EXPECT_LT(std::stoi("0" + steps[0]), kSteps);
      EXPECT_EQ(finished(again), bits) << "round " << round;
    }
  }
  static void expect_all_out_with_42_within(Job& job, double seconds) {
    const auto start = Clock::now();
    for (auto& process : job) EXPECT_EQ(process->wait(), 42) << process->log();
    EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), seconds);
  }
};

TEST_F(PreemptedProcesses, AnOnlyWorkerEndsWith42AndGoesOnAtThatStepWithTheSameBits) {
  const std::string bits = undisturbed(1);
  Job job = start(1, "state", 20);
  await_step(*job[0], 7);
  job[0]->signal(SIGTERM);
  expect_all_out_with_42_within(job, kGrace);
  Job again = start(1, "state", 0);
  const int step = std::stoi("0" + resumed(again)[0]);
  EXPECT_GE(step, 8);
  EXPECT_LT(step, 20);
  EXPECT_EQ(finished(again), bits);
}

TEST_F(PreemptedProcesses, R5_BothSaveTheSameStepWhenTheOtherWorkerIsTold) { end_both({1}); }
TEST_F(PreemptedProcesses, R5_BothSaveTheSameStepWhenTheChiefIsTold) { end_both({0}); }
TEST_F(PreemptedProcesses, R5_BothSaveTheSameStepWhenBothAreTold) { end_both({1, 0}); }

TEST_F(PreemptedProcesses, WithAGracePeriodBothSaveTwiceAndTrainBetween) {
  Job job = start(2, "state", 20, 1.0);
  await_step(*job[0], 5);
  job[1]->signal(SIGTERM);
  std::vector<int> steps_between(2, 0);
  for (std::size_t i = 0; i < 2; ++i) {
    std::string line;
    while ((line = job[i]->line(kPatience)) != "saved" && !line.empty()) {
    }
    while ((line = job[i]->line(kPatience)) != "saved" && !line.empty()) ++steps_between[i];
  }
  EXPECT_GT(steps_between[0], 3);
  EXPECT_EQ(steps_between[0], steps_between[1]);
  expect_all_out_with_42_within(job, kGrace);
  Job again = start(2, "state", 0);
  const std::vector<std::string> steps = resumed(again);
  EXPECT_EQ(steps[0], steps[1]);
  EXPECT_GT(std::stoi("0" + steps[0]), 10);
  finished(again);
}

TEST_F(PreemptedProcesses, AJobOfTheLauncherThatIsToldToEndSavesAndPasses42On) {
  const std::vector<std::string> launcher{beside_this_program("tutti-run"), "--workers", "2", "--"};
  auto launched = [&](int milliseconds) {
    std::vector<std::string> arguments = launcher;
    for (const std::string& word : command(path("state"), milliseconds, 0))
      arguments.push_back(word);
    return std::make_unique<ChildProcess>(
        arguments, std::map<std::string, std::string>{{"OMP_NUM_THREADS", "1"}});
  };
  auto says = [](ChildProcess& process, const std::string& part) {
    for (std::string line; !(line = process.line(kPatience)).empty();) {
      if (line.find(part) != std::string::npos) return line;
    }
    return std::string();
  };
  auto job = launched(20);
  ASSERT_NE(says(*job, "step 5"), "");
  job->signal(SIGTERM);
  EXPECT_EQ(job->wait(), 42) << job->log();
  auto again = launched(0);
  const std::string resumed = says(*again, "resumed");
  EXPECT_EQ(resumed.find("resumed 0"), std::string::npos) << resumed;
  EXPECT_NE(says(*again, cat("done ", kSteps)), "");
  EXPECT_EQ(again->wait(), 0) << again->log();
}

}  // namespace
}  // namespace tutti::distribute
