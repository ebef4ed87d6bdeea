// Tasks in processes of their own: killed, stopped, late, absent, refused, ended in order.
#include <gtest/gtest.h>

#include <memory>

#include "support/certificates.h"
#include "support/child_process.h"

namespace tutti::coordination {
namespace {

using testing::beside_this_program;
using testing::ChildProcess;

using Variables = std::map<std::string, std::string>;

const testing::Certificates& certificates() {
  static const testing::Certificates made;
  return made;
}

Variables secured(const rpc::Security& security) {
  return {{"TUTTI_TLS_CA", security.ca_file},
          {"TUTTI_TLS_CERTIFICATE", security.certificate_file},
          {"TUTTI_TLS_KEY", security.key_file},
          {"TUTTI_TOKEN_FILE", security.token_file}};
}

::testing::AssertionResult says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
}

class Processes : public ::testing::Test {
 protected:
  ChildProcess& add(Variables variables = {}) {
    variables["TUTTI_LOG"] = "info";
    tasks_.push_back(std::make_unique<ChildProcess>(
        std::vector<std::string>{beside_this_program("coordination_task"), std::to_string(size_)},
        variables));
    return *tasks_.back();
  }
  /// A cluster of `size` workers, the first of which serves; all but the last `absent` join.
  void start(int size, int absent = 0, const std::string& limits = "50 15000 60000",
             const Variables& variables = {}) {
    size_ = size;
    ChildProcess& leader = add(variables);
    const std::string answer = leader.ask("serve " + limits);
    ASSERT_TRUE(says(answer, "ok 127.0.0.1:")) << leader.log();
    address_ = answer.substr(3);
    for (int i = 1; i < size - absent; ++i) add(variables);
    for (std::size_t i = 0; i < tasks_.size(); ++i) tasks_[i]->send(joining(cat("worker:", i)));
    for (auto& task : tasks_) {
      generation_ = task->line();
      ASSERT_TRUE(says(generation_, "ok ")) << task->log();
    }
  }
  std::string joining(const std::string& task, int timeout = 5000) const {
    return cat("join ", task, " ", address_, " ", timeout, " 200");
  }
  void send_all(const std::string& line) {
    for (auto& task : tasks_) task->send(line);
  }
  void expect_all(const std::string& answer) {
    for (auto& task : tasks_) EXPECT_EQ(task->line(), answer);
  }

  int size_ = 1;
  std::string address_, generation_;
  std::vector<std::unique_ptr<ChildProcess>> tasks_;
};

TEST_F(Processes, EightTasksMeetShareAndLeaveInOrder) {
  start(8);
  tasks_[3]->send("set weights 1 2 3");
  EXPECT_EQ(tasks_[3]->line(), "ok");
  send_all("get weights 5000");
  expect_all("ok 1 2 3");
  send_all("barrier start 5000");
  expect_all("ok");
  send_all("leave 5000");
  expect_all("ok");
  EXPECT_EQ(tasks_[0]->ask("shutdown 5000"), "ok all left");
}

TEST_F(Processes, AKilledWorkerIsNamedToAllWithinASecond) {
  start(3);
  tasks_[1]->ask("progress 12 train");
  tasks_[0]->send("barrier b 5000");
  tasks_[2]->send("wait_failure 1000");
  tasks_[1]->signal(SIGKILL);
  const std::string heard = tasks_[2]->line();
  EXPECT_TRUE(says(heard, "ok worker:1 UNAVAILABLE worker:1 failed first"));
  EXPECT_TRUE(says(heard, "its connection closed before it left"));
  EXPECT_TRUE(
      says(tasks_[0]->line(), "error UNAVAILABLE barrier \"b\" [worker:0]: worker:1 failed first"));
  EXPECT_TRUE(
      says(tasks_[2]->ask("set k v"), "error UNAVAILABLE set [worker:2]: worker:1 failed first"));
}

TEST_F(Processes, AWorkerThatExitsWithoutLeavingIsNamed) {
  start(2);
  tasks_[1]->send("exit 3");
  EXPECT_EQ(tasks_[1]->wait(), 3);
  EXPECT_TRUE(says(tasks_[0]->ask("wait_failure 1000"), "ok worker:1 UNAVAILABLE"));
}

TEST_F(Processes, TheDeathOfTheLeaderIsNamedByAllWithinASecond) {
  start(3);
  tasks_[1]->send("wait_failure 1000");
  tasks_[2]->send("barrier b 5000");
  tasks_[0]->signal(SIGKILL);
  EXPECT_TRUE(says(tasks_[1]->line(),
                   "ok worker:0 UNAVAILABLE worker:0 failed first: leader at 127.0.0.1:"));
  EXPECT_TRUE(
      says(tasks_[2]->line(), "error UNAVAILABLE barrier \"b\" [worker:2]: worker:0 failed first"));
}

TEST_F(Processes, AFrozenWorkerIsExpelledAfterThePingLimit) {
  start(3, 0, "50 1200 60000");
  tasks_[1]->signal(SIGSTOP);
  const std::string heard = tasks_[2]->ask("wait_failure 5000");
  EXPECT_TRUE(says(heard, "ok worker:1 DEADLINE_EXCEEDED worker:1 failed first"));
  EXPECT_TRUE(says(heard, "frozen: no heartbeat for"));
  tasks_[1]->signal(SIGCONT);
  EXPECT_TRUE(says(tasks_[1]->ask("set k v"), "frozen: no heartbeat for")) << "and hears of it";
}

TEST_F(Processes, AShortFreezeIsSurvived) {
  start(2, 0, "50 3000 60000");
  tasks_[1]->signal(SIGSTOP);
  tasks_[0]->send("wait_failure 300");
  EXPECT_EQ(tasks_[0]->line(), "ok none");
  tasks_[1]->signal(SIGCONT);
  send_all("barrier b 5000");
  expect_all("ok");
}

TEST_F(Processes, AFrozenLeaderIsNamedAfterThePingLimit) {
  start(2, 0, "50 1000 60000");
  tasks_[0]->signal(SIGSTOP);
  EXPECT_TRUE(says(tasks_[1]->ask("wait_failure 5000"),
                   "ok worker:0 UNAVAILABLE worker:0 failed first: leader at"));
  tasks_[0]->signal(SIGCONT);
}

TEST_F(Processes, ALeaderThatWasFrozenForAShortTimeBlamesNobody) {
  start(2, 0, "50 2400 60000");
  tasks_[0]->signal(SIGSTOP);
  EXPECT_EQ(tasks_[1]->ask("wait_failure 1300"), "ok none");
  tasks_[0]->signal(SIGCONT);
  send_all("barrier b 5000");
  expect_all("ok");
}

TEST_F(Processes, AStuckWorkerIsNamedAfterTheProgressLimit) {
  start(2, 0, "50 15000 400");
  tasks_[1]->ask("progress 5 input");
  tasks_[0]->ask("await 6 all_reduce");
  EXPECT_TRUE(says(tasks_[0]->ask("wait_failure 5000"),
                   "worker:1 failed first: worker:1 (step 5, phase \"input\")"));
}

TEST_F(Processes, ABarrierWaitsForALateTaskAndSaysSo) {
  start(3, 1);
  tasks_[0]->send("barrier start 9000");
  tasks_[1]->send("barrier start 9000");
  ChildProcess& late = add();
  EXPECT_TRUE(tasks_[0]->logs("barrier \"start\" [worker:0]: waiting for 0 s, missing "));
  EXPECT_TRUE(tasks_[0]->logs("worker:2 (never joined)"));
  EXPECT_TRUE(says(late.ask(joining("worker:2")), "ok"));
  late.send("barrier start 5000");
  expect_all("ok");
}

TEST_F(Processes, ATaskThatNeverStartsIsNamedAtTheDeadline) {
  start(3, 1);
  send_all("barrier start 300");
  for (auto& task : tasks_) {
    EXPECT_TRUE(says(task->line(), "2 of 3 tasks in time, missing worker:2 (never joined)"));
  }
}

TEST_F(Processes, ALeaderThatComesLateIsWaitedFor) {
  size_ = 1;
  ChildProcess& first = add();
  const std::string answer = first.ask("serve 50 15000 60000");
  address_ = answer.substr(3);  // a port that is free once this one is gone
  first.signal(SIGKILL);
  first.wait();
  tasks_.clear();
  size_ = 2;
  ChildProcess& worker = add();
  worker.send(joining("worker:1"));
  EXPECT_TRUE(worker.logs("join [worker:1]: waiting for leader worker:0 at"));
  ChildProcess& leader = add();
  EXPECT_TRUE(says(leader.ask("serve 50 15000 60000 " + address_), "ok 127.0.0.1:"));
  EXPECT_TRUE(says(worker.line(), "ok "));
}

TEST_F(Processes, ALeaderThatNeverComesIsNamedAtTheDeadline) {
  size_ = 2;
  address_ = "127.0.0.1:1";
  const std::string answer = add().ask(joining("worker:1", 400));
  EXPECT_TRUE(says(answer,
                   "error DEADLINE_EXCEEDED join [worker:1]: leader worker:0 at 127.0.0.1:1 "
                   "did not let this task in within 400 ms"));
  EXPECT_TRUE(says(answer, "Connection refused"));
}

TEST_F(Processes, AnotherClusterIsRefusedAndTheJobGoesOn) {
  start(2);
  size_ = 3;
  const std::string answer = add().ask(joining("worker:2"));
  EXPECT_TRUE(says(answer, "error FAILED_PRECONDITION join [worker:2"));
  EXPECT_TRUE(says(answer, "(worker 2), expected the same"));
  EXPECT_TRUE(says(answer, "the task's has worker 3"));
  tasks_.pop_back();
  send_all("barrier b 5000");
  expect_all("ok");
}

TEST_F(Processes, ASecondHolderOfATaskIsRefusedAndTheJobGoesOn) {
  start(2);
  const std::string answer = add().ask(joining("worker:1"));
  EXPECT_TRUE(says(answer, "error ALREADY_EXISTS"));
  EXPECT_TRUE(says(answer, cat("pid ", tasks_[1]->pid(), " on ")));
  EXPECT_TRUE(says(answer, cat("pid ", tasks_[2]->pid(), " on ")));
  tasks_.pop_back();
  send_all("barrier b 5000");
  expect_all("ok");
}

TEST_F(Processes, ATaskThatRestartsByItselfDoesNotJoinTheJobThatItEnded) {
  start(2);
  tasks_[1]->signal(SIGKILL);
  tasks_[0]->ask("wait_failure 1000");
  EXPECT_TRUE(says(add().ask(joining("worker:1")),
                   "error UNAVAILABLE join [worker:1]: worker:1 failed first"));
}

TEST_F(Processes, ARestartedJobHasAGreaterGenerationAndRefusesTheOlder) {
  start(2);
  const std::string before = generation_.substr(3);
  tasks_[0]->signal(SIGKILL);
  tasks_[0]->wait();
  tasks_.clear();
  start(2);
  EXPECT_GT(std::stoull(generation_.substr(3)), std::stoull(before));
  EXPECT_TRUE(says(add().ask(joining("worker:1") + " " + before), "error FAILED_PRECONDITION"));
}

TEST_F(Processes, TheFirstErrorIsTheOneThatAllReport) {
  start(3);
  EXPECT_TRUE(says(tasks_[2]->ask("report 3 labels are strings"), "ok worker:2 failed first"));
  for (auto& task : tasks_) {
    EXPECT_TRUE(says(task->ask("report 13 mine"),
                     "worker:2 failed first: worker:2 (joined): labels are strings"));
    EXPECT_TRUE(task->logs("worker:2 failed first: worker:2 (joined): labels are strings"));
  }
}

TEST_F(Processes, AnErrorOfAPeersDeathGivesWayToThatDeath) {
  start(3);
  tasks_[1]->signal(SIGKILL);
  EXPECT_TRUE(
      says(tasks_[2]->ask("report 14 all_reduce: closed by peer"), "ok worker:1 failed first"));
}

TEST_F(Processes, Issue57_TwoServersCannotShareAPort) {
  start(1);
  const std::string answer = add().ask("serve 50 15000 60000 " + address_);
  EXPECT_TRUE(says(answer, cat("error ALREADY_EXISTS listen [", address_, "]: port")));
  EXPECT_TRUE(says(answer, cat("is in use by pid ", tasks_[0]->pid(), " (coordination_ta)")));
}

TEST_F(Processes, OffLoopbackWithoutCredentialsNothingListens) {
  EXPECT_TRUE(says(add().ask("serve 50 15000 60000 0.0.0.0:0"),
                   "error FAILED_PRECONDITION listen [0.0.0.0:0]: not on loopback and without TLS "
                   "and a token"));
  address_ = "10.0.0.1:1";
  EXPECT_TRUE(
      says(add().ask(joining("worker:0")), "error FAILED_PRECONDITION connect [10.0.0.1:1]"));
}

TEST_F(Processes, OffLoopbackWithCredentialsTasksMeet) {
  size_ = 1;
  ChildProcess& task = add(secured(certificates().security()));
  const std::string answer = task.ask("serve 50 15000 60000 0.0.0.0:0");
  ASSERT_TRUE(says(answer, "ok 0.0.0.0:"));
  address_ = cat("127.0.0.1:", answer.substr(answer.rfind(':') + 1));
  EXPECT_TRUE(says(task.ask(joining("worker:0")), "ok"));
}

TEST_F(Processes, WithoutTheRightTokenOrCertificateNoTaskIsLetInAndTheJobGoesOn) {
  start(2, 0, "50 15000 60000", secured(certificates().security()));
  rpc::Security other_token = certificates().security();
  other_token.token_file = certificates().path("other_token");
  EXPECT_TRUE(says(add(secured(other_token)).ask(joining("worker:1")), "error UNAUTHENTICATED"));
  for (const char* name : {"stranger", "expired"}) {
    EXPECT_TRUE(says(add(secured(certificates().security(name))).ask(joining("worker:1", 300)),
                     "error DEADLINE_EXCEEDED join [worker:1]"))
        << name;
  }
  EXPECT_TRUE(says(add().ask(joining("worker:1", 300)), "error DEADLINE_EXCEEDED")) << "no TLS";
  while (tasks_.size() > 2) tasks_.pop_back();
  send_all("barrier b 5000");
  expect_all("ok");
}

TEST_F(Processes, NoLogShowsTheToken) {
  start(2, 0, "50 15000 60000", secured(certificates().security()));
  rpc::Security other = certificates().security();
  other.token_file = certificates().path("other_token");
  Variables variables = secured(other);
  EXPECT_TRUE(says(add(variables).ask(joining("worker:1")), "error UNAUTHENTICATED"));
  for (auto& task : tasks_) {
    EXPECT_FALSE(says(task->log(), testing::Certificates::kToken));
    EXPECT_FALSE(says(task->log(), "another-token"));
  }
}

}  // namespace
}  // namespace tutti::coordination
