// What becomes of the tasks' output.

#include <stdlib.h>
#include <termios.h>

#include <algorithm>

#include "launcher/launched.h"

namespace tutti::launcher {
namespace {

class LauncherOutput : public InFolder {};

TEST_F(LauncherOutput, EveryLineCarriesItsTask) {
  const Result result = run_launcher(shell({"--workers", "2"}, "echo seen; echo wrong >&2"));
  EXPECT_EQ(result.code, 0) << result.err;
  std::vector<std::string> out = lines_of(result.out), err = lines_of(result.err);
  std::sort(out.begin(), out.end());
  std::sort(err.begin(), err.end());
  EXPECT_EQ(out, (std::vector<std::string>{"[worker 0] seen", "[worker 1] seen"}));
  EXPECT_EQ(err, (std::vector<std::string>{"[worker 0] wrong", "[worker 1] wrong"}));
}

TEST_F(LauncherOutput, LinesOfTasksThatWriteInPiecesDoNotMix) {
  const Result result = run_launcher(
      shell({"--workers", "3"},
            "i=0; while [ $i -lt 300 ]; do printf 'be'; printf 'gin '; printf '%s' $i; "
            "printf ' end\\n'; i=$((i+1)); done"));
  EXPECT_EQ(result.code, 0);
  const std::vector<std::string> lines = lines_of(result.out);
  EXPECT_EQ(lines.size(), 900u);
  const std::regex whole("\\[worker [012]\\] begin [0-9]+ end");
  for (const std::string& line : lines) EXPECT_TRUE(std::regex_match(line, whole)) << line;
}

TEST_F(LauncherOutput, BothStreamsInOnePlaceKeepTheirLines) {
  Launched launched(
      shell({"--workers", "2"},
            "i=0; while [ $i -lt 2000 ]; do echo a long enough line to standard output $i; "
            "echo and another one to standard error $i >&2; i=$((i+1)); done"),
      {}, /*together=*/true);
  const Result result = launched.finish();
  const std::vector<std::string> lines = lines_of(result.out);
  EXPECT_EQ(lines.size(), 8000u);
  const std::regex whole(
      "\\[worker [01]\\] (a long enough line to standard output|and another one to standard "
      "error) [0-9]+");
  for (const std::string& line : lines) ASSERT_TRUE(std::regex_match(line, whole)) << line;
}

TEST_F(LauncherOutput, ALastLineWithoutEndGetsOne) {
  EXPECT_EQ(run_launcher(shell({}, "printf 'no end'")).out, "[worker 0] no end\n");
}

TEST_F(LauncherOutput, ALineOf64KiBStaysWholeAndALongerOneIsShownInPieces) {
  EXPECT_EQ(run_launcher(shell({}, "head -c 65536 /dev/zero | tr '\\0' x; echo; echo next")).out,
            cat("[worker 0] ", std::string(65536, 'x'), "\n[worker 0] next\n"));
  const Result result = run_launcher(shell({}, "head -c 200000 /dev/zero | tr '\\0' x"));
  EXPECT_EQ(count_of(result.out, "x"), 200000u);
  EXPECT_EQ(lines_of(result.out).size(), 4u);
}

TEST_F(LauncherOutput, BytesThatAreNoTextPassUnchanged) {
  const std::string script = "printf '\\000\\377\\r\\033\\001\\n\\200\\n'";
  const std::string bytes("\0\xff\r\x1b\x01\n\x80\n", 8);
  EXPECT_EQ(run_launcher(shell({"--no-prefix"}, script)).out, bytes);
  EXPECT_EQ(run_launcher(shell({}, script)).out,
            cat("[worker 0] ", bytes.substr(0, 6), "[worker 0] ", bytes.substr(6)));
}

TEST_F(LauncherOutput, AHundredMegabytesArrive) {
  const Result result = run_launcher(
      shell({"--workers", "2", "--no-prefix"},
            "yes 0123456789012345678901234567890123456789012345678 | head -c 50000000"));
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out.size(), 100000000u);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 2000000);
}

TEST_F(LauncherOutput, ATaskThatClosesItsOutputIsStillLookedAfter) {
  Launched launched(shell({}, cat("echo there; exec >&- 2>&-; ", wait_for("go"), "exit 3")));
  EXPECT_TRUE(launched.prints("there"));
  write("go", "");
  EXPECT_EQ(launched.finish().code, 3);
}

TEST_F(LauncherOutput, AReaderThatGoesAwayDoesNotEndTheJob) {
  Launched launched(
      shell({}, cat("echo there; ", wait_for("go"), "seq 100000; echo done > ", path("done"))));
  EXPECT_TRUE(launched.prints("there"));
  launched.stop_reading_out();
  write("go", "");
  EXPECT_EQ(launched.finish().code, 0);
  EXPECT_EQ(bytes_of(path("done")), "done\n");
}

TEST_F(LauncherOutput, SignalsAreHeardWhileNobodyReadsTheOutput) {
  Launched launched(shell({}, "echo there; exec yes"));
  EXPECT_TRUE(launched.prints("there"));
  const auto began = std::chrono::steady_clock::now();
  int sent = 0;  // the second one ends the wait for a reader
  const Result result = launched.wait([&] {
    if (std::chrono::steady_clock::now() - began < sent * std::chrono::milliseconds(500)) return;
    launched.send(SIGTERM);
    ++sent;
  });
  EXPECT_EQ(result.code, 128 + SIGTERM);
}

TEST_F(LauncherOutput, ColoursAreForTerminalsOrOnDemand) {
  EXPECT_EQ(run_launcher(shell({"--color", "always"}, "echo x")).out,
            "\x1b[36m[worker 0]\x1b[0m x\n");
  EXPECT_EQ(run_launcher(shell({}, "echo x"), {{"TERM", "xterm"}}).out, "[worker 0] x\n");
}

// What a program that runs tutti-run on a terminal of its own prints there.
std::string on_terminal(const std::vector<std::string>& arguments, const Environment& environment) {
  const Descriptor master(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  EXPECT_EQ(grantpt(master.get()), 0);
  EXPECT_EQ(unlockpt(master.get()), 0);
  Descriptor terminal(open(ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  std::vector<std::string> command = {TUTTI_RUN_PROGRAM};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const pid_t pid = spawn({command, environment}, {terminal.get(), terminal.get(), terminal.get()});
  terminal.reset();
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(master.get(), buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  waitpid(pid, nullptr, 0);
  return text;
}

TEST_F(LauncherOutput, ATerminalShowsColoursAndTheLastStateOfABar) {
  const std::vector<std::string> arguments =
      shell({}, "printf '1/3\\r2/3\\r3/3\\n'; printf 'dos\\r\\n'");
  EXPECT_EQ(on_terminal(arguments, {{"TERM", "xterm"}, {"NO_COLOR", ""}}),
            "\x1b[36m[worker 0]\x1b[0m 3/3\r\n\x1b[36m[worker 0]\x1b[0m dos\r\n");
  EXPECT_EQ(on_terminal(arguments, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}),
            "[worker 0] 3/3\r\n[worker 0] dos\r\n");
}

TEST_F(LauncherOutput, LogFilesTakeTheOutputAndGrowWithEveryStart) {
  const Result result = run_launcher(shell(
      {"--workers", "2", "--log-dir", path("logs/new"), "--max-restarts", "1", "--backoff", "0"},
      "echo count $TUTTI_RESTART_COUNT; echo wrong >&2; "
      "[ $TUTTI_TASK_INDEX$TUTTI_RESTART_COUNT != 10 ] || exit 3; "
      "[ $TUTTI_RESTART_COUNT = 1 ] || sleep 1000"));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  const std::regex starts(
      "=== worker 1, start 0, job [0-9a-f]{16}, [-0-9T:]+Z\ncount 0\nwrong\n"
      "=== worker 1, start 1, job [0-9a-f]{16}, [-0-9T:]+Z\ncount 1\nwrong\n");
  const std::string log = bytes_of(path("logs/new/worker-1.log"));
  EXPECT_TRUE(std::regex_match(log, starts)) << log;
  EXPECT_NE(bytes_of(path("logs/new/worker-0.log")), "");
  // The failure is told on standard error all the same.
  EXPECT_NE(result.err.find("[tutti-run]   | count 0\n[tutti-run]   | wrong\n"), std::string::npos)
      << result.err;
  EXPECT_EQ(result.err.find("==="), std::string::npos);
}

}  // namespace
}  // namespace tutti::launcher
