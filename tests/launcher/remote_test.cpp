// Other machines: ssh and Slurm, played by small programs first in PATH, and the two examples.

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/launched.h"
#include "launcher/ports.h"

namespace tutti::launcher {
namespace {

using Json = nlohmann::json;

class LauncherRemote : public InFolder {
 protected:
  LauncherRemote() {
    // The far end has a session of its own and nothing of this environment.
    write_program("ssh",
                  cat("#!/bin/sh\necho \"$*\" >> ", path("ssh_calls"), "\n",
                      "while :; do case $1 in -T) shift;; -o) shift 2;; *) break;; esac; done\n"
                      "export REMOTE_HOST=$1\nshift\ncd /\n"
                      "exec env -i PATH=\"$PATH\" REMOTE_HOST=$REMOTE_HOST setsid --wait "
                      "/bin/sh -c \"$*\"\n"));
    write_program("srun", cat("#!/bin/sh\n(IFS='|'; echo \"$*\" >> ", path("srun_calls"), ")\n",
                              "while :; do case $1 in --*) shift;; *) break;; esac; done\n"
                              "exec setsid --wait \"$@\"\n"));
    write_program("scontrol",
                  cat("#!/bin/sh\necho \"$*\" >> ", path("scontrol_calls"), "\n",
                      "case \"$1 $2 $3\" in 'show hostnames n[1-2]') echo n1; echo n2;; "
                      "'requeue 77 ') ;; *) exit 1;; esac\n"));
  }
  Environment here() const { return {path_here()}; }
  Environment allocation() const {
    return {path_here(),
            {"SLURM_JOB_ID", "77"},
            {"SLURM_JOB_NODELIST", "n[1-2]"},
            {"SLURM_TASKS_PER_NODE", "2,1"}};
  }
};

// --- ssh -----------------------------------------------------------------------------------------

TEST_F(LauncherRemote, TasksRunOnTheirHostsInTheSameFolderWithTheirVariables) {
  Environment environment = here();
  environment.push_back({"TUTTI_SEEN", "it's carried"});
  environment.push_back({"NOT_CARRIED", "x"});
  const Result result = run_launcher(
      shell({"--hosts", "hosta:2,me@hostb", "--env", "A=b c", "--threads", "3"},
            "echo \"$REMOTE_HOST $(pwd) $A $TUTTI_SEEN [$NOT_CARRIED] $OMP_NUM_THREADS "
            "$TUTTI_TASK_INDEX $TUTTI_LOCAL_INDEX/$TUTTI_LOCAL_COUNT\"; echo config $TF_CONFIG"),
      environment);
  EXPECT_EQ(result.code, 0) << result.err;
  const std::string folder = std::filesystem::current_path().string();
  EXPECT_NE(result.out.find(cat("[worker 0] hosta ", folder, " b c it's carried [] 3 0 0/2\n")),
            std::string::npos)
      << result.out << result.err;
  EXPECT_NE(result.out.find(cat("[worker 1] hosta ", folder, " b c it's carried [] 3 1 1/2\n")),
            std::string::npos);
  EXPECT_NE(result.out.find(cat("[worker 2] me@hostb ", folder, " b c it's carried [] 3 2 0/1\n")),
            std::string::npos);
  const std::size_t at = result.out.find("[worker 2] config ") + 18;
  const Json config = Json::parse(result.out.substr(at, result.out.find('\n', at) - at));
  std::set<std::string> addresses;
  for (const std::string address : config["cluster"]["worker"]) addresses.insert(address);
  EXPECT_EQ(addresses.size(), 3u);
  EXPECT_TRUE(
      std::regex_match(std::string(config["cluster"]["worker"][2]), std::regex("hostb:2[0-9]{4}")))
      << config;
}

TEST_F(LauncherRemote, SshIsCalledForNoPasswordAndFindsDeadMachines) {
  EXPECT_EQ(run_launcher({"--hosts", "hosta", "--port", "2222", "--", "true"}, here()).code, 0);
  const std::string calls = bytes_of(path("ssh_calls"));
  EXPECT_EQ(calls.find("-T -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o "
                       "ServerAliveCountMax=3 hosta exec /bin/sh -c 'cd "),
            0u)
      << calls;
  EXPECT_NE(calls.find("hosta:2222"), std::string::npos);
}

TEST_F(LauncherRemote, AnotherSshCommandMayBeNamed) {
  write_program("other-ssh", cat("#!/bin/sh\n[ \"$1 $2\" = '-p 22' ] && shift 2 && exec ",
                                 path("ssh"), " \"$@\"\n"));
  EXPECT_EQ(run_launcher({"--ssh", "other-ssh  -p 22", "--hosts", "hosta", "--", "/bin/echo", "x"},
                         here())
                .out,
            "[worker 0] x\n");
}

TEST_F(LauncherRemote, CoresOfTheFarMachineAreDealtOut) {
  write_program("nproc", "#!/bin/sh\necho 9\n");
  const Result result =
      run_launcher(shell({"--hosts", "hosta:4"}, "echo $OMP_NUM_THREADS"), here());
  EXPECT_EQ(count_of(result.out, "] 2\n"), 4u) << result.out << result.err;
}

TEST_F(LauncherRemote, AFailureFarAwayGivesItsCodeAndNamesTheMachine) {
  const Result result =
      run_launcher(shell({"--hosts", "hosta,hostb", "--notice", "0"},
                         "[ $TUTTI_TASK_INDEX = 1 ] || exec sleep 1000; echo boom >&2; exit 3"),
                   here());
  EXPECT_EQ(result.code, 3);
  EXPECT_NE(result.err.find("first failure: worker 1 on hostb"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("| boom"), std::string::npos);
  EXPECT_EQ(result.err.find("then: "), std::string::npos) << result.err;
}

TEST_F(LauncherRemote, ADeathBySignalFarAwayIs128AndTheSignal) {
  const Result result = run_launcher(shell({"--hosts", "hosta"}, "kill -9 $$"), here());
  EXPECT_EQ(result.code, 137);
  EXPECT_NE(result.err.find("exit code 137 (128 + SIGKILL)"), std::string::npos) << result.err;
}

TEST_F(LauncherRemote, SignalsReachTheFarTasks) {
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    const std::string name = sigabbrev_np(number);
    Launched launched(
        shell({"--hosts", "hosta,hostb"}, cat("trap 'echo got ", name, "; exit 42' ", name,
                                              "; echo ready; while :; do sleep 0.01; done")),
        here());
    ASSERT_TRUE(launched.prints("[worker 0] ready"));
    ASSERT_TRUE(launched.prints("[worker 1] ready"));
    launched.send(number);
    const Result result = launched.finish();
    EXPECT_EQ(count_of(result.out, cat("got ", name)), 2u) << result.out << result.err;
    EXPECT_EQ(result.code, 42);
  }
}

TEST_F(LauncherRemote, WhoIgnoresSignalsFarAwayIsKilledWithItsChildren) {
  Launched launched(shell({"--hosts", "hosta", "--grace", "0.05"},
                          "trap '' TERM; sh -c 'echo pid $$; exec sleep 1000' & echo pid $$; wait"),
                    here());
  const auto pids = launched.pids_after("pid ", 2);
  launched.send(SIGTERM);
  const Result result = launched.finish();
  EXPECT_EQ(result.code, 128 + SIGTERM);
  EXPECT_NE(result.err.find("did not end in time and is killed"), std::string::npos) << result.err;
  EXPECT_TRUE(all_end(pids));
}

TEST_F(LauncherRemote, FarTasksDieWithTheLauncher) {
  Launched launched(shell({"--hosts", "hosta,hostb"},
                          "trap '' TERM; sh -c 'echo pid $$; exec sleep 1000' & echo pid $$; wait"),
                    here());
  const auto pids = launched.pids_after("pid ", 4);
  launched.send(SIGKILL);
  EXPECT_TRUE(all_end(pids));
}

TEST_F(LauncherRemote, FarTasksDieWhenTheirConnectionEnds) {
  // Both processes of the launcher and ssh at once: only the end of standard input is left.
  Launched launched(shell({"--hosts", "hosta"},
                          "trap '' TERM; sh -c 'echo pid $$; exec sleep 1000' & echo pid $$; wait"),
                    here());
  const auto pids = launched.pids_after("pid ", 2);
  // The far shell's parent is the waiting setsid, whose parent is the launcher's second process.
  const auto parent = [](pid_t pid) {
    std::ifstream file(cat("/proc/", pid, "/stat"));
    std::string text;
    std::getline(file, text);
    return static_cast<pid_t>(std::atoi(text.c_str() + text.rfind(") ") + 4));
  };
  pid_t runner = pids[1];
  while (runner > 1 && parent(runner) != launched.pid()) runner = parent(runner);
  ASSERT_GT(runner, 1);
  launched.send(SIGSTOP);
  kill(runner, SIGKILL);
  launched.send(SIGKILL);
  EXPECT_TRUE(all_end(pids));
}

TEST_F(LauncherRemote, AMachineThatDoesNotAnswerIsCutOff) {
  write_program("ssh", "#!/bin/sh\ntrap '' TERM\necho pid $$\nexec sleep 1000\n");
  Launched launched({"--hosts", "hosta", "--grace", "0", "--", "true"}, here());
  const auto pids = launched.pids_after("pid ", 1);
  launched.send(SIGTERM);
  EXPECT_EQ(launched.finish().code, 128 + SIGTERM);
  EXPECT_TRUE(all_end(pids));
}

TEST_F(LauncherRemote, ASshThatFailsIsAFailure) {
  write_program("ssh", "#!/bin/sh\necho 'no route to host' >&2\nexit 255\n");
  const Result result = run_launcher({"--hosts", "hosta", "--", "true"}, here());
  EXPECT_EQ(result.code, 255);
  EXPECT_NE(result.err.find("| no route to host"), std::string::npos) << result.err;
}

TEST_F(LauncherRemote, FarPortsAreDrawnAnewForEachStart) {
  const Result result =
      run_launcher(shell({"--hosts", "hosta", "--max-restarts", "3", "--backoff", "0"},
                         "echo $TF_CONFIG; [ $TUTTI_RESTART_COUNT = 3 ]"),
                   here());
  EXPECT_EQ(result.code, 0) << result.err;
  const auto lines = lines_of(result.out);
  EXPECT_GT(std::set<std::string>(lines.begin(), lines.end()).size(), 1u) << result.out;
}

TEST_F(LauncherRemote, ADryRunShowsTheSshCommands) {
  const Result result = run_launcher(
      shell({"--hosts", "hosta,hostb", "--port", "2222", "--dry-run"}, "echo there"), here());
  const auto lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "# worker 0 at hosta:2222, by ssh on hosta");
  EXPECT_EQ(lines[2], "# worker 1 at hostb:2222, by ssh on hostb");
  EXPECT_EQ(lines[3].find("ssh -T -o BatchMode=yes"), 0u) << lines[3];
  EXPECT_FALSE(std::filesystem::exists(path("ssh_calls")));
  // As it stands it can be given to a shell.
  EXPECT_EQ(Launched::program({"/bin/sh", "-c", lines[3] + " </dev/zero"}, here()).finish().out,
            "there\n");
}

TEST_F(LauncherRemote, OneTaskOfAClusterRunsHereAlone) {
  int port;
  {
    HeldPorts held;
    port = held.hold("hosta");
  }
  const Result result = run_launcher(
      shell({"--hosts", "hosta,hostb", "--only", "worker:1", "--port", std::to_string(port)},
            "echo $TF_CONFIG"),
      here());
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, cat("[worker 1] {\"cluster\":{\"worker\":[\"hosta:", port, "\",\"hostb:",
                            port, "\"]},\"task\":{\"type\":\"worker\",\"index\":1}}\n"));
  EXPECT_FALSE(std::filesystem::exists(path("ssh_calls")));
}

// --- Slurm ---------------------------------------------------------------------------------------

TEST_F(LauncherRemote, SlurmsNodesAndPlacesMakeTheCluster) {
  const Result result =
      run_launcher(shell({"--slurm", "--chief", "1"},
                         "echo \"$TUTTI_TASK_TYPE $TUTTI_TASK_INDEX\"; echo config $TF_CONFIG"),
                   allocation());
  EXPECT_EQ(result.code, 0) << result.err;
  const std::size_t at = result.out.find("[chief 0] config ") + 17;
  const Json cluster =
      Json::parse(result.out.substr(at, result.out.find('\n', at) - at))["cluster"];
  const auto host = [](const std::string& address) { return address.substr(0, address.find(':')); };
  ASSERT_EQ(cluster["worker"].size(), 2u);
  EXPECT_EQ(host(cluster["chief"][0]), "n1");
  EXPECT_EQ(host(cluster["worker"][0]), "n1");
  EXPECT_EQ(host(cluster["worker"][1]), "n2");
  EXPECT_NE(cluster["chief"][0], cluster["worker"][0]);
  EXPECT_NE(result.out.find("[worker 1] worker 1\n"), std::string::npos) << result.out;

  std::set<std::string> heads;
  for (const std::string& line : lines_of(bytes_of(path("srun_calls")))) {
    heads.insert(line.substr(0, line.find("|/bin/sh|-c|")));
  }
  const auto head = [](const std::string& node, const std::string& name) {
    return cat("--nodes=1|--ntasks=1|--nodelist=", node,
               "|--overlap|--unbuffered|--export=ALL|--job-name=", name);
  };
  EXPECT_EQ(heads, (std::set<std::string>{head("n1", "chief-0"), head("n1", "worker-0"),
                                          head("n2", "worker-1")}));
}

TEST_F(LauncherRemote, SignalsAndFailuresPassThroughSrun) {
  Launched launched(
      shell({"--slurm"}, "trap 'exit 42' TERM; echo ready; while :; do sleep 0.01; done"),
      allocation());
  for (const char* task : {"[worker 0]", "[worker 1]", "[worker 2]"}) {
    ASSERT_TRUE(launched.prints(cat(task, " ready")));
  }
  launched.send(SIGTERM);
  EXPECT_EQ(launched.finish().code, 42);
  const Result result = run_launcher(
      shell({"--slurm", "--notice", "0"}, "[ $TUTTI_TASK_INDEX = 2 ] && exit 9; sleep 1000"),
      allocation());
  EXPECT_EQ(result.code, 9);
  EXPECT_NE(result.err.find("first failure: worker 2 on n2"), std::string::npos) << result.err;
}

TEST_F(LauncherRemote, SlurmWithoutAnAllocationSaysHowToGetOne) {
  const Result none = run_launcher({"--slurm", "--", "true"}, {path_here(), {"SLURM_JOB_ID", ""}});
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("salloc --nodes 2 tutti-run --slurm"), std::string::npos) << none.err;
  Environment several = allocation();
  several.push_back({"SLURM_STEP_NUM_TASKS", "3"});
  const Result step = run_launcher({"--slurm", "--", "true"}, several);
  EXPECT_EQ(step.code, 1);
  EXPECT_NE(step.err.find("leave out srun"), std::string::npos) << step.err;
  Environment unknown = allocation();
  unknown.push_back({"SLURM_JOB_NODELIST", "other"});
  EXPECT_NE(
      run_launcher({"--slurm", "--", "true"}, unknown).err.find("scontrol show hostnames other"),
      std::string::npos);
  Environment unequal = allocation();
  unequal.push_back({"SLURM_TASKS_PER_NODE", "2(x3)"});
  EXPECT_NE(
      run_launcher({"--slurm", "--", "true"}, unequal).err.find("3 counts, expected one for each"),
      std::string::npos);
}

// --- the examples --------------------------------------------------------------------------------

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

std::string folder_of_launcher() {
  return std::filesystem::path(TUTTI_RUN_PROGRAM).parent_path().string();
}

TEST_F(LauncherRemote, TheKubernetesExampleStartsThePodsTask) {
  const std::string yaml = bytes_of(TUTTI_EXAMPLES "/kubernetes/multi_worker.yaml");
  // The folded text below args.
  std::string command;
  std::size_t at = yaml.find("- >-\n");
  ASSERT_NE(at, std::string::npos);
  for (const std::string& line : lines_of(yaml.substr(at + 5))) {
    const std::size_t indent = line.find_first_not_of(' ');
    if (indent < 14) break;
    command += cat(command.empty() ? "" : " ", line.substr(indent));
  }
  int port;
  {
    HeldPorts held;
    port = held.hold("trainer");
  }
  command = replaced(command, "--port 2222", cat("--port ", port));
  command = replaced(command, "/app/preemptible", "/bin/sh -c 'echo $TF_CONFIG'");
  const Result result = Launched::program({"/bin/sh", "-c", command},
                                          {{"PATH", cat(folder_of_launcher(), ":", getenv("PATH"))},
                                           {"JOB_COMPLETION_INDEX", "1"}})
                            .finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.out, cat("{\"cluster\":{\"worker\":[\"trainer-0.trainer:", port,
                            "\",\"trainer-1.trainer:", port,
                            "\"]},\"task\":{\"type\":\"worker\",\"index\":1}}\n"));
}

TEST_F(LauncherRemote, TheKubernetesExampleMountsTheCertificatesAndTheTokenThatItNames) {
  const std::string yaml = bytes_of(TUTTI_EXAMPLES "/kubernetes/multi_worker.yaml");
  for (const auto& [name, file] : Environment{{"TUTTI_TLS_CA", "ca.pem"},
                                              {"TUTTI_TLS_CERTIFICATE", "task.pem"},
                                              {"TUTTI_TLS_KEY", "task.key"},
                                              {"TUTTI_TOKEN_FILE", "token"}}) {
    EXPECT_EQ(count_of(yaml, cat("{name: ", name, ", value: /credentials/", file, "}")), 1u);
    EXPECT_EQ(count_of(yaml, cat("--from-file=", file)), 1u) << "the Secret has " << file;
  }
  EXPECT_EQ(count_of(yaml, "{name: credentials, mountPath: /credentials, readOnly: true}"), 1u);
  EXPECT_EQ(count_of(yaml, "secretName: trainer-credentials"), 1u);
}

class SlurmExample : public LauncherRemote {
 protected:
  Environment environment() const {
    Environment result = allocation();
    result[0].second = cat(path(""), ":", folder_of_launcher(), ":", getenv("PATH"));
    result.push_back({"SLURM_CPUS_PER_TASK", "5"});
    return result;
  }
  std::vector<std::string> command(const std::string& script) const {
    return {"/bin/sh", TUTTI_EXAMPLES "/slurm/multi_worker.sbatch", "/bin/sh", "-c", script};
  }
};

TEST_F(SlurmExample, StartsTheProgramOnTheNodes) {
  const Result result =
      Launched::program(command("echo $TUTTI_TASK_INDEX $OMP_NUM_THREADS"), environment()).finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("[worker 2] 2 5\n"), std::string::npos) << result.out;
  EXPECT_EQ(bytes_of(path("srun_calls")).find("--cpus-per-task=5|--nodes=1"), 0u);
}

TEST_F(SlurmExample, GivesTheWorkersTheCertificatesAndTheToken) {
  Environment there = environment();
  there.push_back({"TLS_FOLDER", "/keys"});
  there.push_back({"TUTTI_TLS_KEY", "/mine/task.key"});  // set by the user: stays
  const Result result = Launched::program(command("echo $TUTTI_TLS_CA $TUTTI_TLS_CERTIFICATE "
                                                  "$TUTTI_TLS_KEY $TUTTI_TOKEN_FILE"),
                                          there)
                            .finish();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("[worker 1] /keys/ca.pem /keys/task.pem /mine/task.key /keys/token\n"),
            std::string::npos)
      << result.out;
}

TEST_F(SlurmExample, PassesTheSignalOnAndGoesBackIntoTheQueueWhenPreempted) {
  Launched launched = Launched::program(
      command("trap 'exit 42' TERM; echo ready; while :; do sleep 0.01; done"), environment());
  for (const char* task : {"[worker 0]", "[worker 1]", "[worker 2]"}) {
    ASSERT_TRUE(launched.prints(cat(task, " ready")));
  }
  launched.send(SIGTERM);
  EXPECT_EQ(launched.finish().code, 0);
  EXPECT_NE(bytes_of(path("scontrol_calls")).find("requeue 77\n"), std::string::npos);
}

}  // namespace
}  // namespace tutti::launcher
