// Which tasks there are, and what they are told.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "launcher/capture.h"
#include "launcher/hosts.h"
#include "launcher/launched.h"
#include "launcher/plan.h"
#include "launcher/ports.h"
#include "launcher/start.h"
#include "tutti/base/error.h"

namespace tutti::launcher {
namespace {

using Json = nlohmann::json;

class LauncherCluster : public InFolder {};

// What each task printed behind its prefix, one line each.
std::map<std::string, std::string> by_task(const std::string& out) {
  std::map<std::string, std::string> result;
  for (const std::string& line : lines_of(out)) {
    const std::size_t close = line.find("] ");
    result[line.substr(1, close - 1)] = line.substr(close + 2);
  }
  return result;
}

TEST_F(LauncherCluster, TfConfigNamesTheClusterAndTheTask) {
  const Result result =
      run_launcher(shell({"--chief", "1", "--workers", "2", "--ps", "2", "--evaluator", "1",
                          "--notice", "50", "--evaluator-wait", "50"},
                         "echo \"$TF_CONFIG\""));
  EXPECT_EQ(result.code, 0) << result.err;
  const auto printed = by_task(result.out);
  ASSERT_EQ(printed.size(), 6u) << result.out;
  const Json cluster = Json::parse(printed.at("chief 0"))["cluster"];
  EXPECT_EQ(cluster.size(), 3u);
  std::set<std::string> addresses;
  for (const auto& [type, count] :
       std::map<std::string, int>{{"chief", 1}, {"worker", 2}, {"ps", 2}}) {
    ASSERT_EQ(cluster[type].size(), static_cast<std::size_t>(count));
    for (const std::string address : cluster[type]) {
      EXPECT_TRUE(std::regex_match(address, std::regex("127\\.0\\.0\\.1:[0-9]+"))) << address;
      addresses.insert(address);
    }
    for (int i = 0; i < count; ++i) {
      const Json config = Json::parse(printed.at(cat(type, " ", i)));
      EXPECT_EQ(config["cluster"], cluster);
      EXPECT_EQ(config["task"], (Json{{"type", type}, {"index", i}}));
    }
  }
  EXPECT_EQ(addresses.size(), 5u);

  Json evaluator = Json::parse(printed.at("evaluator 0"));
  EXPECT_EQ(evaluator["task"], (Json{{"type", "evaluator"}, {"index", 0}}));
  EXPECT_EQ(evaluator["cluster"]["evaluator"].size(), 1u);
  evaluator["cluster"].erase("evaluator");
  EXPECT_EQ(evaluator["cluster"], cluster);
}

TEST_F(LauncherCluster, WithoutOptionsThereIsOneWorker) {
  const Json config =
      Json::parse(by_task(run_launcher(shell({}, "echo $TF_CONFIG")).out)["worker 0"]);
  EXPECT_EQ(config["cluster"]["worker"].size(), 1u);
  EXPECT_EQ(config["cluster"].size(), 1u);
}

TEST_F(LauncherCluster, TasksKnowTheirPlaceAndTheJob) {
  const auto printed =
      by_task(run_launcher(shell({"--chief", "1", "--workers", "2"},
                                 "echo $TUTTI_TASK_TYPE $TUTTI_TASK_INDEX $TUTTI_LOCAL_INDEX "
                                 "$TUTTI_LOCAL_COUNT $TUTTI_RESTART_COUNT $TUTTI_JOB_ID"))
                  .out);
  const std::string id = printed.at("chief 0").substr(printed.at("chief 0").rfind(' ') + 1);
  EXPECT_EQ(id.size(), 16u);
  EXPECT_EQ(printed.at("chief 0"), cat("chief 0 0 3 0 ", id));
  EXPECT_EQ(printed.at("worker 0"), cat("worker 0 1 3 0 ", id));
  EXPECT_EQ(printed.at("worker 1"), cat("worker 1 2 3 0 ", id));
}

TEST_F(LauncherCluster, VariablesAreSetAndPassedOn) {
  EXPECT_EQ(run_launcher(shell({"--env", "A=x=y z", "--env", "B"}, "echo $A; echo $B"),
                         {{"A", "old"}, {"B", "here"}})
                .out,
            "[worker 0] x=y z\n[worker 0] here\n");
  const Result missing = run_launcher({"--env", "TUTTI_NO_SUCH", "--", "true"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_NE(missing.err.find("--env TUTTI_NO_SUCH]: not set here"), std::string::npos)
      << missing.err;
}

TEST_F(LauncherCluster, ThreadsAreDealtOutUnlessSomebodySaysHowMany) {
  const auto threads = [](const std::vector<std::string>& options, const std::string& set) {
    return by_task(
        run_launcher(shell(options, "echo \"[$OMP_NUM_THREADS]\""), {{"OMP_NUM_THREADS", set}})
            .out)["worker 0"];
  };
  EXPECT_EQ(threads({"--workers", "3", "--dry-run"}, ""), "");  // starts nothing
  EXPECT_EQ(threads({}, ""), "[]");
  EXPECT_EQ(threads({"--workers", "2", "--threads", "3"}, ""), "[3]");
  EXPECT_EQ(threads({"--workers", "2", "--threads", "0"}, ""), "[]");
  EXPECT_EQ(threads({"--workers", "2"}, "7"), "[7]");
  EXPECT_TRUE(std::regex_match(threads({"--workers", "2"}, ""), std::regex("\\[[1-9][0-9]*\\]")));
}

TEST_F(LauncherCluster, GpusAreDealtOutToWhoTrains) {
  const std::vector<std::string> options = {"--workers",       "2", "--ps",     "1",
                                            "--gpus-per-task", "2", "--notice", "50"};
  const auto gpus = [&](const std::string& shown) {
    return by_task(run_launcher(shell(options, "echo \"[$CUDA_VISIBLE_DEVICES]\""),
                                {{"CUDA_VISIBLE_DEVICES", shown}})
                       .out);
  };
  EXPECT_EQ(gpus(""), (std::map<std::string, std::string>{
                          {"worker 0", "[0,1]"}, {"worker 1", "[2,3]"}, {"ps 0", "[]"}}));
  EXPECT_EQ(gpus("7,5,3,1")["worker 1"], "[3,1]");
  const Result few = run_launcher(shell(options, "true"), {{"CUDA_VISIBLE_DEVICES", "0,1,2"}});
  EXPECT_EQ(few.code, 2);
  EXPECT_NE(few.err.find("expected at least 4"), std::string::npos) << few.err;
}

// --- ports ---------------------------------------------------------------------------------------

// A server's socket at 127.0.0.1; the errno of what failed, 0 when it listens.
int listen_at(int port, bool reuse, Descriptor& server) {
  server = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = reuse;
  setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return errno;
  return listen(server.get(), 1) == 0 ? 0 : errno;
}

TEST_F(LauncherCluster, AHeldPortIsOpenToTheServerThatAsksForItAndToNobodyElse) {
  HeldPorts held;
  const int port = held.hold("127.0.0.1");
  Descriptor server, other;
  EXPECT_EQ(listen_at(port, /*reuse=*/true, server), 0);
  EXPECT_EQ(listen_at(port, /*reuse=*/true, other), EADDRINUSE);  // one server only
  server.reset();
  EXPECT_EQ(listen_at(port, /*reuse=*/true, server), 0);  // and again after a restart
}

TEST_F(LauncherCluster, TheKernelGivesAHeldPortToNobodyWhoAsksForAny) {
  HeldPorts held;
  std::set<int> ports;
  for (int i = 0; i < 200; ++i) ports.insert(held.hold("127.0.0.1"));
  EXPECT_EQ(ports.size(), 200u);
  std::vector<Descriptor> others(200);
  for (Descriptor& other : others) {
    ASSERT_EQ(listen_at(0, /*reuse=*/true, other), 0);
    sockaddr_in address = {};
    socklen_t size = sizeof address;
    getsockname(other.get(), reinterpret_cast<sockaddr*>(&address), &size);
    EXPECT_EQ(ports.count(ntohs(address.sin_port)), 0u);
  }
}

TEST_F(LauncherCluster, APortHeldOrServedAlreadyIsRefused) {
  HeldPorts first, second;
  const int port = first.hold("127.0.0.1");
  try {
    second.hold("127.0.0.1", port);
    FAIL() << "held twice";
  } catch (const Unavailable& error) {
    EXPECT_EQ(std::string(error.what()), cat("hold a port [127.0.0.1:", port,
                                             "]: held by another tutti-run, expected it free; "
                                             "leave out --port, or give another"));
  }
  Descriptor server;
  ASSERT_EQ(listen_at(0, true, server), 0);
  sockaddr_in address = {};
  socklen_t size = sizeof address;
  getsockname(server.get(), reinterpret_cast<sockaddr*>(&address), &size);
  EXPECT_THROW(second.hold("127.0.0.1", ntohs(address.sin_port)), Unavailable);
  EXPECT_THROW(second.hold("203.0.113.1"), InvalidArgument);  // not of this machine
}

TEST_F(LauncherCluster, TwoLaunchersAtOnceGetDifferentPorts) {
  const auto arguments = shell({"--workers", "8"}, cat("echo ports $TF_CONFIG; ", wait_for("go")));
  Launched a(arguments), b(arguments);
  std::set<std::string> ports;
  for (Launched* launched : {&a, &b}) {
    ASSERT_TRUE(launched->prints("}\n"));
    const std::size_t begin = launched->out().find('{'), end = launched->out().find('\n');
    const Json config = Json::parse(launched->out().substr(begin, end - begin));
    for (const std::string address : config["cluster"]["worker"]) {
      ports.insert(address);
    }
  }
  EXPECT_EQ(ports.size(), 16u);
  write("go", "");
  EXPECT_EQ(a.finish().code, 0);
  EXPECT_EQ(b.finish().code, 0);
}

TEST_F(LauncherCluster, DrawnPortsAreDistinctAndBelowTheKernelsOwn) {
  std::set<int> taken;
  for (int i = 0; i < 10000; ++i) {
    const int port = draw_port(taken);
    ASSERT_TRUE(port >= 20000 && port < 30000);
  }
  EXPECT_EQ(taken.size(), 10000u);
  EXPECT_THROW(draw_port(taken), ResourceExhausted);
}

// --- placement -----------------------------------------------------------------------------------

std::string placed(const Options& options) {
  std::vector<std::string> texts;
  for (const Task& task : place_tasks(options, hosts_of(options))) {
    texts.push_back(cat(task.type[0], task.index, "@", task.address, ":", task.local_index));
  }
  return join(texts, " ");
}

TEST_F(LauncherCluster, WorkersFillTheHostsInOrder) {
  EXPECT_EQ(placed({.hosts = {"a:2", "b:1"}}), "w0@a:0 w1@a:1 w2@b:0");
  EXPECT_EQ(placed({.workers = 2, .hosts = {"a:2", "b:2"}}), "w0@a:0 w1@a:1");
  EXPECT_EQ(placed({.workers = 3, .hosts = {"a", "b"}}), "w0@a:0 w1@a:1 w2@b:0");
  EXPECT_EQ(placed({.chief = 1, .hosts = {"a", "b", "[fe80::1]"}}), "c0@a:0 w0@b:0 w1@fe80::1:0");
  EXPECT_EQ(placed({.workers = 2, .ps = 3, .evaluator = 1, .hosts = {"a", "u@b"}}),
            "w0@a:0 w1@b:0 p0@a:-1 p1@b:-1 p2@a:-1 e0@b:-1");
}

TEST_F(LauncherCluster, HostNamesThatAreNoneAreRefused) {
  for (const std::string text :
       {"", "a:0", "a:x", "a:", "-oProxyCommand=x", "a b", "a;b", "[::1", "a:2:3"}) {
    EXPECT_THROW(hosts_of({.hosts = {text}}), InvalidArgument) << text;
  }
  EXPECT_THROW(hosts_of({.hosts = {"a", "b", "a:2"}}), InvalidArgument);
  EXPECT_THROW(hosts_of({.hosts = {"localhost", "b"}}), InvalidArgument);
  EXPECT_TRUE(hosts_of({.hosts = {"localhost:3"}})[0].here);
}

TEST_F(LauncherCluster, AddressesOfVersionSixGetBrackets) {
  EXPECT_EQ(address_text("::1", 22), "[::1]:22");
  EXPECT_EQ(address_text("node", 22), "node:22");
}

// --- dry run and wrong use -----------------------------------------------------------------------

TEST_F(LauncherCluster, ADryRunPrintsLinesThatAShellCanRun) {
  const Result result = run_launcher(
      shell({"--workers", "2", "--dry-run", "--threads", "1"}, "echo \"it's $TUTTI_TASK_INDEX\""));
  EXPECT_EQ(result.code, 0);
  const std::vector<std::string> lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 4u) << result.out;
  EXPECT_TRUE(std::regex_match(lines[2], std::regex("# worker 1 at 127\\.0\\.0\\.1:[0-9]+")));
  EXPECT_TRUE(std::regex_match(
      lines[3],
      std::regex(
          "TF_CONFIG='\\{\"cluster\":\\{\"worker\":\\[\"127\\.0\\.0\\.1:[0-9]+\","
          "\"127\\.0\\.0\\.1:[0-9]+\"\\]\\},\"task\":\\{\"type\":\"worker\",\"index\":1\\}\\}' "
          "TUTTI_JOB_ID=[0-9a-f]+ TUTTI_TASK_TYPE=worker TUTTI_TASK_INDEX=1 "
          "TUTTI_RESTART_COUNT=0 TUTTI_LOCAL_INDEX=1 TUTTI_LOCAL_COUNT=2 OMP_NUM_THREADS=1 "
          "/bin/sh -c 'echo \"it'\\\\''s \\$TUTTI_TASK_INDEX\"'")))
      << lines[3];
  EXPECT_EQ(capture({"/bin/sh", "-c", lines[3]}, 20), "it's 1\n");
}

TEST_F(LauncherCluster, WrongUseSaysWhatIsRight) {
  const auto refused = [](const std::vector<std::string>& arguments) {
    const Result result = run_launcher(arguments);
    EXPECT_EQ(result.code, 2) << result.out;
    return result.err;
  };
  EXPECT_EQ(
      refused({}),
      "tutti-run: no program, expected one after --; say tutti-run --workers 2 -- ./program\n");
  EXPECT_EQ(refused({"--workers", "2", "./program"}),
            "tutti-run: \"./program\", expected options of tutti-run; the program comes after --, "
            "see tutti-run --help\n");
  EXPECT_NE(refused({"--wrokers", "2", "--", "true"}).find("\"--wrokers 2\""), std::string::npos);
  EXPECT_NE(refused({"--workers", "0", "--", "true"}).find("--workers"), std::string::npos);
  EXPECT_NE(refused({"--chief", "2", "--", "true"}).find("--chief"), std::string::npos);
  EXPECT_NE(refused({"--grace", "soon", "--", "true"}).find("--grace"), std::string::npos);
  EXPECT_NE(refused({"--slurm", "--hosts", "a", "--", "true"}).find("one of them"),
            std::string::npos);
  EXPECT_NE(refused({"--only", "worker:0", "--", "true"}).find("--port 2222"), std::string::npos);
  EXPECT_NE(refused({"--workers", "2", "--only", "worker:2", "--port", "2222", "--", "true"})
                .find("worker:0, worker:1"),
            std::string::npos);
  EXPECT_NE(refused({"--port", "65535", "--workers", "2", "--", "true"}).find("at most 65535"),
            std::string::npos);
}

TEST_F(LauncherCluster, HelpAndVersionAreAnswers) {
  const Result help = run_launcher({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("Usage: tutti-run [OPTIONS] -- PROGRAM"), std::string::npos);
  EXPECT_NE(help.out.find("--max-restarts"), std::string::npos);
  for (const std::string& line : lines_of(help.out)) EXPECT_LE(line.size(), 110u) << line;
  const Result version = run_launcher({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(std::regex_match(version.out, std::regex("tutti-run [0-9]+\\.[0-9]+\\.[0-9]+\n")));
}

TEST_F(LauncherCluster, TheProgramsOwnOptionsAreLeftAlone) {
  EXPECT_EQ(run_launcher({"--", "/bin/echo", "--workers", "7", "--", "--help"}).out,
            "[worker 0] --workers 7 -- --help\n");
}

// --- other machines' words -----------------------------------------------------------------------

TEST_F(LauncherCluster, WordsAreQuotedForShells) {
  EXPECT_EQ(quoted("a-b_c./:=,+@%9"), "a-b_c./:=,+@%9");
  EXPECT_EQ(quoted(""), "''");
  EXPECT_EQ(quoted("a b"), "'a b'");
  EXPECT_EQ(quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(quoted("$HOME~"), "'$HOME~'");
}

TEST_F(LauncherCluster, SlurmsCountsAreExpanded) {
  EXPECT_EQ(slurm_counts("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(slurm_counts("4"), (std::vector<int>{4}));
  for (const std::string text : {"", "x", "2(x)", "2(x3", "2(3)", "0", "2,,1", "2(x3)4"}) {
    EXPECT_THROW(slurm_counts(text), InvalidArgument) << text;
  }
}

TEST_F(LauncherCluster, ACommandsOutputIsCapturedWithinItsTime) {
  EXPECT_EQ(capture({"/bin/sh", "-c", "echo a; echo b"}, 20), "a\nb\n");
  EXPECT_THROW(capture({"/bin/sh", "-c", "exit 3"}, 20), FailedPrecondition);
  EXPECT_THROW(capture({"/nowhere/at/all"}, 20), FailedPrecondition);
  EXPECT_THROW(capture({"yes"}, 20), FailedPrecondition);  // too much
  EXPECT_THROW(capture({"sleep", "1000"}, 0.05), DeadlineExceeded);
  EXPECT_THROW(capture({"/bin/sh", "-c", "exec >&-; exec sleep 1000"}, 0.05), DeadlineExceeded);
}

}  // namespace
}  // namespace tutti::launcher
