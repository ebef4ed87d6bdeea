// Failures, signals, and that nothing is left behind.

#include "launcher/launched.h"
#include "launcher/report.h"

namespace tutti::launcher {
namespace {

class LauncherFailure : public InFolder {};

TEST_F(LauncherFailure, TheFirstFailureIsToldFirstWithItsLastLines) {
  const Result result =
      run_launcher(shell({"--workers", "3", "--notice", "0"},
                         "echo start; [ $TUTTI_TASK_INDEX = 1 ] || exec sleep 1000; "
                         "seq 30; echo boom >&2; printf 'no end'; exit 3"));
  EXPECT_EQ(result.code, 3);
  const std::regex report(
      "\\[tutti-run\\] first failure: worker 1 \\(pid [0-9]+, start 0\\), exit code 3 after "
      "[0-9.e-]+ s\n\\[tutti-run\\]   its last lines:\n(\\[tutti-run\\]   \\| .*\n){20}");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(result.err, found, report)) << result.err;
  EXPECT_EQ(found.suffix(), "");  // the others were ended by tutti-run: no failures
  for (const std::string line : {"30", "boom", "no end"}) {
    EXPECT_NE(result.err.find(cat("[tutti-run]   | ", line, "\n")), std::string::npos) << line;
  }
}

TEST_F(LauncherFailure, ADeathBySignalIs128AndTheSignal) {
  const Result result =
      run_launcher(shell({"--workers", "2", "--notice", "0"},
                         "[ $TUTTI_TASK_INDEX = 1 ] || exec sleep 1000; kill -SEGV $$"));
  EXPECT_EQ(result.code, 128 + SIGSEGV);
  EXPECT_NE(result.err.find("start 0), SIGSEGV after"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("it printed nothing"), std::string::npos) << result.err;
}

// A worker that ends when the launcher has seen another one's end: its process is gone then.
std::string when_gone(const std::string& pid_file, const std::string& then) {
  return cat("until [ -s ", pid_file, " ]; do sleep 0.01; done; ", "while kill -0 $(cat ", pid_file,
             ") 2>/dev/null; do sleep 0.01; done; ", then);
}

TEST_F(LauncherFailure, PeersThatNoticeComeAfterTheCause) {
  const Result result = run_launcher(
      shell({"--workers", "2", "--notice", "50"},
            cat("if [ $TUTTI_TASK_INDEX = 1 ]; then echo $$ > ", path("pid.new"), "; mv ",
                path("pid.new"), " ", path("pid"), "; echo cause; kill -9 $$; fi; ",
                when_gone(path("pid"), "echo a peer died >&2; exit 7"))));
  EXPECT_EQ(result.code, 128 + SIGKILL);
  const std::size_t told = result.err.find("worker 1 (pid"),
                    noticed = result.err.find("a peer died"),
                    first = result.err.find("first failure: worker 1"),
                    then = result.err.find("then: worker 0");
  EXPECT_LT(told, noticed) << result.err;
  EXPECT_LT(noticed, first) << result.err;
  EXPECT_LT(first, then) << result.err;
  EXPECT_NE(result.err.find("then: worker 0 (pid"), std::string::npos);
  EXPECT_EQ(result.err.find("asked to end"), std::string::npos) << result.err;
}

TEST_F(LauncherFailure, TheEarliestRecordedErrorIsTheCauseWhoeverEndsFirst) {
  const Result result = run_launcher(
      shell({"--workers", "2", "--notice", "50"},
            cat("if [ $TUTTI_TASK_INDEX = 1 ]; then echo $$ > ", path("pid.new"), "; mv ",
                path("pid.new"), " ", path("pid"),
                "; echo '200.5 the other one told me' > $TUTTI_ERROR_FILE; exit 9; fi; ",
                "printf '100.25 out of memory\\nat step 7\\n' > $TUTTI_ERROR_FILE; ",
                when_gone(path("pid"), "exit 5"))));
  EXPECT_EQ(result.code, 5);
  EXPECT_TRUE(std::regex_search(
      result.err,
      std::regex("first failure: worker 0 .*exit code 5.*\n\\[tutti-run\\]   error: out of "
                 "memory\n\\[tutti-run\\]   error: at step 7\n")))
      << result.err;
  EXPECT_NE(result.err.find("then: worker 1"), std::string::npos) << result.err;
}

TEST_F(LauncherFailure, ARecordedErrorCountsThoughItsTaskHadToBeEnded) {
  const Result result = run_launcher(
      shell({"--workers", "2", "--notice", "0"},
            cat("if [ $TUTTI_TASK_INDEX = 0 ]; then echo '100 stuck' > $TUTTI_ERROR_FILE; echo > ",
                path("written"), "; exec sleep 1000; fi; ", wait_for("written"), "exit 9")));
  EXPECT_EQ(result.code, 9);  // nobody knows what worker 0 would have returned
  EXPECT_TRUE(std::regex_search(
      result.err,
      std::regex("first failure: worker 0 .*SIGTERM.*\n\\[tutti-run\\]   error: stuck\n")))
      << result.err;
}

TEST_F(LauncherFailure, AnErrorFileOfAnotherFormIsNotBelieved) {
  for (const std::string text : {"", "x", "12", "12x y", "nan y", "inf y", "\0 1"}) {
    write("error", text);
    EXPECT_FALSE(read_error_file(path("error"))) << text;
  }
  write("error", "12.5 what\nhappened\n\n");
  const auto error = read_error_file(path("error"));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->time, 12.5);
  EXPECT_EQ(error->text, "what\nhappened");
  EXPECT_FALSE(read_error_file(path("none")));
}

TEST_F(LauncherFailure, AProgramThatIsNotThereOrCannotRunIsToldAtOnce) {
  const Result missing = run_launcher({"--", path("none")});
  EXPECT_EQ(missing.code, 127);
  EXPECT_EQ(missing.err, cat("tutti-run: start [", path("none"),
                             "]: no such file, expected a program; mind the "
                             "current folder\n"));
  EXPECT_EQ(run_launcher({"--", "tutti-no-such-program"}).code, 127);
  write("text", "x");
  EXPECT_EQ(run_launcher({"--", path("text")}).code, 126);
  write_program("damaged", "#!/no/such/interpreter\n");
  const Result damaged = run_launcher({"--", path("damaged")});
  EXPECT_EQ(damaged.code, 127);
  EXPECT_NE(damaged.err.find("[worker 0] cannot start"), std::string::npos) << damaged.err;
}

TEST_F(LauncherFailure, ATaskThatIgnoresSigtermIsKilledAfterTheGrace) {
  Launched launched(
      shell({"--workers", "2", "--notice", "0", "--grace", "0.05"},
            cat("[ $TUTTI_TASK_INDEX = 0 ] || { ", wait_for("ready"), "exit 3; }; ",
                "trap '' TERM; echo pid $$; echo > ", path("ready"), "; exec sleep 1000")));
  const auto pids = launched.pids_after("pid ", 1);
  const Result result = launched.finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_NE(result.err.find("worker 0 did not end in time and is killed"), std::string::npos)
      << result.err;
  EXPECT_TRUE(all_end(pids));
}

TEST_F(LauncherFailure, AStoppedTaskIsEndedToo) {
  Launched launched(shell({"--workers", "2", "--notice", "0"},
                          cat("[ $TUTTI_TASK_INDEX = 0 ] || { ", wait_for("ready"), "exit 3; }; ",
                              "echo pid $$; exec sleep 1000")));
  const auto pids = launched.pids_after("pid ", 1);
  kill(pids[0], SIGSTOP);
  write("ready", "");
  EXPECT_EQ(launched.finish().code, 3);
  EXPECT_TRUE(all_end(pids));
}

TEST_F(LauncherFailure, TheTimeLimitEndsTheJobWith124) {
  const Result result =
      run_launcher(shell({"--timeout", "0.05", "--workers", "2"}, "exec sleep 1000"));
  EXPECT_EQ(result.code, 124);
  EXPECT_NE(result.err.find("--timeout 0.05 s is over"), std::string::npos) << result.err;
}

// --- signals -------------------------------------------------------------------------------------

class LauncherSignal : public InFolder, public ::testing::WithParamInterface<int> {};

TEST_P(LauncherSignal, IsPassedToAllTasksAndGivesTheExitCode) {
  const std::string name = sigabbrev_np(GetParam());
  Launched launched(shell({"--workers", "2"}, cat("trap 'echo got ", name, "; exit 0' ", name,
                                                  "; echo ready; while :; do sleep 0.01; done")));
  ASSERT_TRUE(launched.prints("[worker 0] ready"));
  ASSERT_TRUE(launched.prints("[worker 1] ready"));
  launched.send(GetParam());
  const Result result = launched.finish();
  EXPECT_EQ(result.code, 128 + GetParam());
  EXPECT_EQ(count_of(result.out, cat("got ", name)), 2u) << result.out;
}

INSTANTIATE_TEST_SUITE_P(Each, LauncherSignal, ::testing::Values(SIGINT, SIGTERM, SIGHUP, SIGQUIT));

TEST_F(LauncherFailure, ASecondSignalKills) {
  Launched launched(shell({"--workers", "2"}, "trap '' INT TERM; echo pid $$; exec sleep 1000"));
  const auto pids = launched.pids_after("pid ", 2);
  launched.send(SIGINT);
  ASSERT_TRUE(launched.prints("SIGINT: passed to all tasks; they have 30 s"));
  const Result result = launched.wait([&] { launched.send(SIGTERM); });
  EXPECT_EQ(result.code, 128 + SIGTERM);
  EXPECT_TRUE(all_end(pids));
}

TEST_F(LauncherFailure, TwoSignalsAtOnceAreOne) {
  Launched launched(shell({}, cat("trap 'echo saving; ", wait_for("saved"),
                                  "exit 42' TERM INT; echo ready; "
                                  "while :; do sleep 0.01; done")));
  ASSERT_TRUE(launched.prints("ready"));
  launched.send(SIGSTOP);  // both are there when it goes on
  launched.send(SIGTERM);
  launched.send(SIGINT);
  launched.send(SIGCONT);
  ASSERT_TRUE(launched.prints("saving"));
  write("saved", "");
  const Result result = launched.finish();
  EXPECT_EQ(result.code, 42);
  EXPECT_EQ(result.err.find("SIGINT again"), std::string::npos) << result.err;
}

TEST_F(LauncherFailure, WorkersThatSavedWhenToldToEndMake42) {
  Launched launched(shell({"--workers", "2", "--max-restarts", "5"},
                          "trap 'exit 42' TERM; echo ready; while :; do sleep 0.01; done"));
  ASSERT_TRUE(launched.prints("[worker 0] ready"));
  ASSERT_TRUE(launched.prints("[worker 1] ready"));
  launched.send(SIGTERM);
  EXPECT_EQ(launched.finish().code, 42);
}

TEST_F(LauncherFailure, UserSignalsArePassedOnAndEndNothing) {
  Launched launched(
      shell({"--workers", "2"},
            "trap 'echo got; exit 0' USR1; echo ready; while :; do sleep 0.01; done"));
  ASSERT_TRUE(launched.prints("[worker 0] ready"));
  ASSERT_TRUE(launched.prints("[worker 1] ready"));
  launched.send(SIGUSR1);
  const Result result = launched.finish();
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(count_of(result.out, "got"), 2u);
}

TEST_F(LauncherFailure, ASignalIgnoredFromTheStartIsNotHeard) {
  auto command = shell({}, cat("echo ready; ", wait_for("go")));
  command.insert(command.begin(),
                 {"/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh", TUTTI_RUN_PROGRAM});
  Launched launched = Launched::program(command);
  ASSERT_TRUE(launched.prints("ready"));
  launched.send(SIGHUP);
  write("go", "");
  EXPECT_EQ(launched.finish().code, 0);
}

// --- orphans -------------------------------------------------------------------------------------

// A task with a child in its group and one in a session of its own; all ignore SIGTERM.
const char* const kFamily =
    "trap '' TERM; echo pid $$; sh -c 'echo pid $$; exec sleep 1000' & "
    "setsid sh -c 'echo pid $$; exec sleep 1000' & echo parent $PPID; wait";

TEST_F(LauncherFailure, KillingTheLauncherLeavesNothing) {
  Launched launched(shell({"--workers", "2"}, kFamily));
  auto pids = launched.pids_after("pid ", 6);
  const auto runner = launched.pids_after("parent ", 1);
  launched.send(SIGKILL);
  pids.push_back(runner[0]);
  EXPECT_TRUE(all_end(pids));
  EXPECT_EQ(launched.finish().code, 128 + SIGKILL);
}

TEST_F(LauncherFailure, KillingItsSecondProcessLeavesNothingEither) {
  Launched launched(shell({"--workers", "2"}, kFamily));
  const auto pids = launched.pids_after("pid ", 6);
  const auto runner = launched.pids_after("parent ", 1);
  ASSERT_NE(runner[0], launched.pid());
  kill(runner[0], SIGKILL);
  const Result result = launched.finish();
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_NE(result.err.find("killed by SIGKILL; all that it started is killed too"),
            std::string::npos);
  EXPECT_TRUE(all_end(pids));
}

TEST_F(LauncherFailure, TasksDieEvenWhenBothAreKilledAtOnce) {
  Launched launched(
      shell({"--workers", "2"}, "trap '' TERM; echo pid $$; echo parent $PPID; exec sleep 1000"));
  const auto pids = launched.pids_after("pid ", 2);
  const auto runner = launched.pids_after("parent ", 1);
  launched.send(SIGSTOP);
  kill(runner[0], SIGSTOP);
  kill(runner[0], SIGKILL);
  launched.send(SIGKILL);
  EXPECT_TRUE(all_end(pids));
}

TEST_F(LauncherFailure, WhatATaskLeavesBehindIsKilled) {
  Launched launched(shell({},
                          "sh -c 'echo pid $$; exec sleep 1000' & "
                          "setsid sh -c 'echo pid $$; exec sleep 1000' & " +
                              wait_for("go")));
  const auto pids = launched.pids_after("pid ", 2);
  write("go", "");
  EXPECT_EQ(launched.finish().code, 0);
  EXPECT_TRUE(all_end(pids));
}

TEST_F(LauncherFailure, AChildOfATaskMaySaveDuringTheGraceThoughItsParentIsDead) {
  Launched launched(shell({}, cat("sh -c \"trap '", wait_for("go"),
                                  "echo saved; exit 0' TERM; echo ready; "
                                  "while :; do sleep 0.01; done\" & wait")));
  ASSERT_TRUE(launched.prints("ready"));
  launched.send(SIGTERM);
  ASSERT_TRUE(launched.prints("passed to all tasks"));
  write("go", "");
  EXPECT_NE(launched.finish().out.find("saved"), std::string::npos);
}

TEST_F(LauncherFailure, NoFileIsLeftInTheTemporaryFolder) {
  std::filesystem::create_directory(path("tmp"));
  EXPECT_EQ(
      run_launcher(shell({}, "[ -d $(dirname $TUTTI_ERROR_FILE) ]"), {{"TMPDIR", path("tmp")}})
          .code,
      0);
  EXPECT_TRUE(std::filesystem::is_empty(path("tmp")));
}

}  // namespace
}  // namespace tutti::launcher
