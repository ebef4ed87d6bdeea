// When a job is done, and how it is started again.

#include <set>

#include "launcher/launched.h"

namespace tutti::launcher {
namespace {

class LauncherRestart : public InFolder {};

// Shell text: by type and index.
std::string by_name(const std::vector<std::pair<std::string, std::string>>& cases) {
  std::string text = "case $TUTTI_TASK_TYPE$TUTTI_TASK_INDEX in ";
  for (const auto& [name, script] : cases) text += cat(name, ") ", script, ";; ");
  return text + "esac";
}

// --- the end of a job ----------------------------------------------------------------------------

TEST_F(LauncherRestart, TheChiefOfAParameterServerJobEndsItWithZero) {
  Launched launched(
      shell({"--chief", "1", "--workers", "1", "--ps", "2", "--evaluator", "1", "--notice", "0"},
            by_name({{"chief0", wait_for("go")}, {"*", "echo pid $$; exec sleep 1000"}})));
  const auto pids = launched.pids_after("pid ", 4);
  write("go", "");
  const Result result = launched.finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_TRUE(all_end(pids));
}

TEST_F(LauncherRestart, WithoutAChiefAllWorkersEndAParameterServerJob) {
  Launched launched(shell({"--workers", "2", "--ps", "1", "--notice", "0"},
                          by_name({{"worker0", "echo pid $$; exit 0"},
                                   {"worker1", cat(wait_for("go"), "echo worker 1 goes on")},
                                   {"ps0", "exec sleep 1000"}})));
  EXPECT_TRUE(all_end(launched.pids_after("pid ", 1)));
  write("go", "");
  const Result result = launched.finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("worker 1 goes on"), std::string::npos);
}

TEST_F(LauncherRestart, WithoutParameterServersTheChiefIsOneOfTheWorkers) {
  Launched launched(shell({"--chief", "1", "--workers", "1", "--notice", "0"},
                          by_name({{"chief0", "echo pid $$; exit 0"},
                                   {"worker0", cat(wait_for("go"), "echo worker 0 goes on")}})));
  EXPECT_TRUE(all_end(launched.pids_after("pid ", 1)));
  write("go", "");
  const Result result = launched.finish();
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.out.find("worker 0 goes on"), std::string::npos);
}

TEST_F(LauncherRestart, TheEvaluatorMayFinishWhenItIsWaitedFor) {
  const Result result = run_launcher(shell(
      {"--workers", "1", "--evaluator", "1", "--evaluator-wait", "50"},
      by_name({{"worker0",
                cat("echo $$ > ", path("pid.new"), "; mv ", path("pid.new"), " ", path("pid"))},
               {"evaluator0", cat(wait_for("pid"), "while kill -0 $(cat ", path("pid"),
                                  ") 2>/dev/null; do sleep 0.01; done; echo the last one")}})));
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.out.find("[evaluator 0] the last one"), std::string::npos) << result.err;
}

TEST_F(LauncherRestart, AParameterServerThatFailsEndsTheJob) {
  const Result result =
      run_launcher(shell({"--chief", "1", "--workers", "1", "--ps", "1", "--notice", "0"},
                         by_name({{"ps0", "exit 4"}, {"*", "exec sleep 1000"}})));
  EXPECT_EQ(result.code, 4);
  EXPECT_NE(result.err.find("first failure: ps 0"), std::string::npos);
}

TEST_F(LauncherRestart, AFailureAfterTheEndIsToldAndCountsNot) {
  const Result result =
      run_launcher(shell({"--chief", "1", "--workers", "1", "--ps", "1", "--notice", "50"},
                         by_name({{"chief0", cat("echo $$ > ", path("pid.new"), "; mv ",
                                                 path("pid.new"), " ", path("pid"))},
                                  {"ps0", cat(wait_for("pid"), "while kill -0 $(cat ", path("pid"),
                                              ") 2>/dev/null; do sleep 0.01; done; exit 6")}})));
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.err.find("after training was done: ps 0"), std::string::npos) << result.err;
}

// --- restarts ------------------------------------------------------------------------------------

TEST_F(LauncherRestart, TheWholeGroupIsStartedAgainWithTheSameCluster) {
  const Result result = run_launcher(
      shell({"--workers", "2", "--max-restarts", "2", "--backoff", "0.01", "--notice", "0"},
            "echo count $TUTTI_RESTART_COUNT; echo cluster $TF_CONFIG; "
            "[ $TUTTI_RESTART_COUNT = 2 ] && exit 0; "
            "[ $TUTTI_TASK_INDEX = 0 ] && exec sleep 1000; echo no luck; exit 3"));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(count_of(result.out, "[worker 1] count "), 3u) << result.out;
  EXPECT_NE(result.out.find("[worker 0] count 2"), std::string::npos) << result.out;
  std::set<std::string> configurations;
  for (const std::string& line : lines_of(result.out)) {
    if (line.find("[worker 1] cluster ") == 0) configurations.insert(line);
  }
  EXPECT_EQ(configurations.size(), 1u);
  EXPECT_EQ(count_of(result.err, "first failure: worker 1"), 2u) << result.err;
}

TEST_F(LauncherRestart, ATaskThatDiesAtEveryStartStopsAfterTheLimitWithEverLongerWaits) {
  const Result result =
      run_launcher(shell({"--max-restarts", "3", "--backoff", "0.01"}, "echo cannot work; exit 3"));
  EXPECT_EQ(result.code, 3);
  std::size_t at = 0;
  for (const std::string text :
       {"first failure: worker 0 (pid ", "| cannot work", "restart 1 of 3 in 0.01 s",
        "start 1), exit code 3", "restart 2 of 3 in 0.02 s", "restart 3 of 3 in 0.04 s",
        "first failure: worker 0 (pid ", "| cannot work",
        "no restart is left of 3; all failures so far:\n[tutti-run]   worker 0 (pid "}) {
    at = result.err.find(text, at);
    ASSERT_NE(at, std::string::npos) << text << "\n" << result.err;
  }
  EXPECT_EQ(lines_of(result.out).size(), 4u);
}

TEST_F(LauncherRestart, ALongRunResetsTheWait) {
  const Result result =
      run_launcher(shell({"--max-restarts", "3", "--backoff", "0.01", "--settled", "0"}, "exit 3"));
  EXPECT_EQ(count_of(result.err, " in 0.01 s"), 3u) << result.err;
}

TEST_F(LauncherRestart, APreemptedRunIsStartedAgainWithoutCounting) {
  const Result result = run_launcher(
      shell({"--workers", "2", "--max-restarts", "1", "--settled", "0", "--notice", "50"},
            "[ $TUTTI_RESTART_COUNT = 4 ] || exit 42"));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(count_of(result.err, "; state is saved; restarted at once, not counted\n"), 4u)
      << result.err;
}

// The words of the one that was told first are PreemptionCheckpointHandler's.
constexpr const char* kWorker1WasTold =
    "[ $TUTTI_RESTART_COUNT = 1 ] && exit 0; echo my last line; "
    "[ $TUTTI_TASK_INDEX = 0 ] || echo 5 preempted: this task was told first > $TUTTI_ERROR_FILE; "
    "exit 42";

TEST_F(LauncherRestart, APreemptionIsToldInOneLineAndIsNoFailure) {
  const Result result = run_launcher(
      shell({"--workers", "2", "--max-restarts", "1", "--settled", "0", "--notice", "50"},
            kWorker1WasTold));
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err,
            "[tutti-run] preempted: worker 1 (told first), worker 0; state is saved; "
            "restarted at once, not counted\n");
}

TEST_F(LauncherRestart, AFailureAfterAPreemptionIsToldBehindIt) {
  const Result result = run_launcher(
      shell({"--workers", "2", "--max-restarts", "1", "--settled", "0", "--notice", "50"},
            cat("[ $TUTTI_RESTART_COUNT = 1 ] && exit 0; ",
                by_name({{"worker0", cat("echo $$ > ", path("pid.new"), "; mv ", path("pid.new"),
                                         " ", path("pid"), "; exit 42")},
                         {"worker1", cat(wait_for("pid"), "while kill -0 $(cat ", path("pid"),
                                         ") 2>/dev/null; do sleep 0.01; done; exit 3")}}))));
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(std::regex_match(
      result.err,
      std::regex("\\[tutti-run\\] preempted: worker 0; state is saved; restarted at "
                 "once, not counted\n\\[tutti-run\\] then: worker 1 .*exit code 3.*\n")))
      << result.err;
}

TEST_F(LauncherRestart, AProgramThatIsPreemptedRightAtItsStartCannotGoOnForEver) {
  const Result result = run_launcher(
      shell({"--max-restarts", "2", "--backoff", "0", "--settled", "1000"}, "exit 42"));
  EXPECT_EQ(result.code, 42);
  EXPECT_EQ(count_of(result.err, "first failure"), 0u) << result.err;
  EXPECT_EQ(count_of(result.err, " s, counted after so short a run (--settled)"), 2u) << result.err;
  EXPECT_NE(result.err.find("no restart is left of 2; all failures so far:"), std::string::npos);
  EXPECT_TRUE(result.err.ends_with("run the same command again (exit code 42)\n")) << result.err;
}

TEST_F(LauncherRestart, WithoutRestartsAPreemptionIsPassedOn) {
  const Result result = run_launcher(shell({"--workers", "2", "--notice", "50"}, kWorker1WasTold));
  EXPECT_EQ(result.code, 42);
  EXPECT_EQ(result.err,
            "[tutti-run] worker 1 (told first), worker 0: saved and ended\n"
            "[tutti-run] preempted: state is saved; run the same command again (exit code 42)\n");
}

TEST_F(LauncherRestart, ToldToEndItSaysThatTheSameCommandGoesOn) {
  Launched launched(shell({"--workers", "2", "--max-restarts", "3"},
                          "trap 'exit 42' TERM; echo ready; while :; do sleep 0.01; done"));
  ASSERT_TRUE(launched.prints("[worker 0] ready"));
  ASSERT_TRUE(launched.prints("[worker 1] ready"));
  launched.send(SIGTERM);
  const Result result = launched.finish();
  EXPECT_EQ(result.code, 42);
  EXPECT_EQ(lines_of(result.err).back(),
            "[tutti-run] preempted: state is saved; run the same command again (exit code 42)");
  EXPECT_EQ(result.err.find("failure"), std::string::npos) << result.err;
}

TEST_F(LauncherRestart, NothingOfTheOldGroupRunsWhenTheNewOneStarts) {
  const Result result = run_launcher(
      shell({"--workers", "2", "--max-restarts", "1", "--backoff", "0", "--notice", "0", "--grace",
             "0.05"},
            cat("if [ $TUTTI_RESTART_COUNT = 1 ]; then for pid in $(cat ", path("pids"),
                "); do kill -0 $pid 2>/dev/null && echo alive; done; exit 0; fi; ",
                "trap '' TERM; setsid sh -c 'echo $$ >> ", path("pids"), "; echo > ", path("there"),
                "$TUTTI_TASK_INDEX; exec sleep 1000' & ", "sh -c 'exec sleep 1000' & echo $! >> ",
                path("pids"), "; ", wait_for("there0"), wait_for("there1"),
                "[ $TUTTI_TASK_INDEX = 0 ] || exit 3; wait")));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(lines_of(bytes_of(path("pids"))).size(), 4u);
  EXPECT_EQ(result.out.find("alive"), std::string::npos) << result.out;
}

TEST_F(LauncherRestart, ASignalDuringTheWaitEndsTheJobWithTheFailuresCode) {
  Launched launched(shell({"--max-restarts", "1", "--backoff", "1000"}, "exit 3"));
  ASSERT_TRUE(launched.prints("restart 1 of 1 in 60 s"));  // the longest
  launched.send(SIGTERM);
  const Result result = launched.finish();
  EXPECT_EQ(result.code, 3);
  EXPECT_NE(result.err.find("SIGTERM: no restart"), std::string::npos);
}

TEST_F(LauncherRestart, TheTimeLimitHoldsDuringTheWait) {
  EXPECT_EQ(run_launcher(
                shell({"--max-restarts", "1", "--backoff", "1000", "--timeout", "0.3"}, "exit 3"))
                .code,
            124);
}

// --- one task alone ------------------------------------------------------------------------------

TEST_F(LauncherRestart, AWorkerOfAParameterServerJobIsRestartedAlone) {
  const Result result = run_launcher(
      shell({"--chief", "1", "--workers", "2", "--ps", "1", "--max-restarts", "2", "--backoff",
             "0.01", "--notice", "0"},
            cat("echo start $TUTTI_RESTART_COUNT; ",
                by_name({{"chief0", wait_for("second")},
                         {"worker1", cat("[ $TUTTI_RESTART_COUNT = 1 ] || exit 3; echo > ",
                                         path("second"), "; exec sleep 1000")},
                         {"*", "exec sleep 1000"}}))));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(count_of(result.out, "] start 0"), 4u) << result.out;
  EXPECT_EQ(count_of(result.out, "start 1"), 1u) << result.out;
  EXPECT_NE(result.err.find("first failure: worker 1"), std::string::npos);
  EXPECT_NE(result.err.find("worker 1: restart 1 of 2 in 0.01 s"), std::string::npos) << result.err;
}

TEST_F(LauncherRestart, AWorkerPreemptedAloneIsNoFailure) {
  const Result result = run_launcher(
      shell({"--chief", "1", "--workers", "1", "--ps", "1", "--max-restarts", "1", "--settled", "0",
             "--notice", "0"},
            by_name({{"chief0", wait_for("second")},
                     {"worker0", cat("[ $TUTTI_RESTART_COUNT = 1 ] || exit 42; echo > ",
                                     path("second"), "; exec sleep 1000")},
                     {"*", "exec sleep 1000"}})));
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err,
            "[tutti-run] preempted: worker 0; state is saved; restarted at once, not counted\n");
}

TEST_F(LauncherRestart, ItsChiefTakesAllWithIt) {
  const Result result =
      run_launcher(shell({"--chief", "1", "--workers", "1", "--ps", "1", "--max-restarts", "1",
                          "--backoff", "0", "--notice", "0"},
                         cat("echo start $TUTTI_RESTART_COUNT; echo > ",
                             path("$TUTTI_TASK_TYPE$TUTTI_RESTART_COUNT"), "; ",
                             by_name({{"chief0", cat(wait_for("worker$TUTTI_RESTART_COUNT"),
                                                     wait_for("ps$TUTTI_RESTART_COUNT"),
                                                     "[ $TUTTI_RESTART_COUNT = 1 ] || exit 3")},
                                      {"*", "exec sleep 1000"}}))));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(count_of(result.out, "start 0"), 3u) << result.out;
  EXPECT_EQ(count_of(result.out, "start 1"), 3u) << result.out;
}

TEST_F(LauncherRestart, RestartGroupHoldsForParameterServersToo) {
  const Result result =
      run_launcher(shell({"--workers", "1", "--ps", "1", "--restart", "group", "--max-restarts",
                          "1", "--backoff", "0", "--notice", "0"},
                         cat("echo > ", path("$TUTTI_TASK_TYPE$TUTTI_RESTART_COUNT"), "; ",
                             by_name({{"worker0", cat(wait_for("ps$TUTTI_RESTART_COUNT"),
                                                      "[ $TUTTI_RESTART_COUNT = 1 ] || exit 3")},
                                      {"ps0", "echo served; exec sleep 1000"}}))));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(std::filesystem::exists(path("ps1")));
}

TEST_F(LauncherRestart, ATaskRestartedAloneTooOftenEndsTheJob) {
  const Result result =
      run_launcher(shell({"--chief", "1", "--workers", "1", "--ps", "1", "--max-restarts", "2",
                          "--backoff", "0.01", "--notice", "0"},
                         by_name({{"worker0", "exit 5"}, {"*", "exec sleep 1000"}})));
  EXPECT_EQ(result.code, 5);
  EXPECT_NE(result.err.find("worker 0: restart 2 of 2 in 0.02 s"), std::string::npos) << result.err;
}

TEST_F(LauncherRestart, AnEvaluatorIsRestartedAlone) {
  const Result result = run_launcher(
      shell({"--workers", "1", "--evaluator", "1", "--max-restarts", "1", "--backoff", "0"},
            cat("echo start $TUTTI_RESTART_COUNT; ",
                by_name({{"worker0", wait_for("second")},
                         {"evaluator0", cat("[ $TUTTI_RESTART_COUNT = 1 ] || exit 3; echo > ",
                                            path("second"), "; exec sleep 1000")}}))));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(count_of(result.out, "[worker 0] start"), 1u);
}

}  // namespace
}  // namespace tutti::launcher
