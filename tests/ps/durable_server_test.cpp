// A server that dies and comes back: nothing that was answered is lost, nothing counts twice.

#include "ps/durable_server.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "ps/dying_process.h"
#include "ps/folder.h"
#include "ps/remote_server.h"
#include "rpc/address.h"
#include "support/child_process.h"
#include "support/comes_true.h"
#include "support/cutting_proxy.h"
#include "support/expect.h"

namespace tutti::ps {
namespace {

using testing::ChildProcess;
using testing::DyingProcess;

constexpr const char* kSgd = R"({"learning_rate": 1.0, "momentum": 0.5})";

/// Variable 0, `a`, of eight zeros under optimizer 0.
void fill(ParameterServer& server, const char* config = R"({"learning_rate": 1.0})") {
  const int64_t a = server.create({"a", {{8}, at::kFloat}}, at::zeros({8}));
  server.create_optimizer({.name = "sgd", .class_name = "SGD", .config = config, .variables = {a}});
}
Applied push(ParameterServer& server, uint64_t sequence, const std::string& worker = "w") {
  return server.push({worker, 1, sequence}, 0, {{0, at::full({8}, -1.0)}});
}
Tensor value(ParameterServer& server) { return server.read({0}).values[0]; }

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(DurableServer, ComesBackAsItWasWithItsSlotsAndTags) {
  const testing::Folder folder;
  LocalServer oracle;
  fill(oracle, kSgd);
  {
    DurableServer server(folder.path("ps"));
    fill(server, kSgd);
    for (uint64_t i = 1; i <= 3; ++i) push(server, i);
    server.commit();
    for (uint64_t i = 4; i <= 5; ++i) push(server, i);
    EXPECT_EQ(server.logged(), 2);
  }
  for (uint64_t i = 1; i <= 5; ++i) push(oracle, i);
  for (int restart = 0; restart < 2; ++restart) {
    DurableServer server(folder.path("ps"));
    EXPECT_EQ(server.logged(), 0);
    EXPECT_TENSOR_EQ(value(server), value(oracle));
    EXPECT_TRUE(push(server, 5).repeated);
    EXPECT_EQ(server.logged(), 0);  // a repeated change is no change
  }
  DurableServer server(folder.path("ps"));
  push(server, 6);
  push(oracle, 6);
  EXPECT_TENSOR_EQ(value(server), value(oracle));  // the momentum too
  EXPECT_EQ(server.iterations(0), 6);
}

TEST(DurableServer, TakesUpALogThatWasCutAnywhere) {
  const testing::Folder folder;
  std::filesystem::path log, state;
  {
    DurableServer server(folder.path("ps"));
    fill(server);
    server.commit();
    for (uint64_t i = 1; i <= 3; ++i) push(server, i);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path("ps"))) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("log-", 0) == 0) log = entry.path();
      if (name.rfind("state-", 0) == 0) state = entry.path();
    }
  }
  const std::string whole = bytes_of(log), commit = bytes_of(state);
  float last = 0;
  for (std::size_t cut = 0; cut <= whole.size(); cut += 7) {
    const std::string other = folder.path(cat("cut-", cut));
    std::filesystem::create_directories(other);
    write_bytes(std::filesystem::path(other) / state.filename(), commit);
    write_bytes(std::filesystem::path(other) / log.filename(), whole.substr(0, cut));
    DurableServer server(other);
    const Tensor found = value(server);
    EXPECT_TENSOR_EQ(found, found[0].expand({8}));
    EXPECT_GE(found[0].item<float>(), last);
    last = found[0].item<float>();
    // What was lost is repeated, what was not counts once.
    for (uint64_t i = 1; i <= 3; ++i) push(server, i);
    EXPECT_TENSOR_EQ(value(server), at::full({8}, 3.0));
  }
  // What no cut explains is damage, and later changes would be lost: any byte of any record.
  for (std::size_t at = 0; at < whole.size(); at += 5) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    const std::string other = folder.path(cat("damaged-", at));
    std::filesystem::create_directories(other);
    write_bytes(std::filesystem::path(other) / state.filename(), commit);
    write_bytes(std::filesystem::path(other) / log.filename(), damaged);
    EXPECT_ERROR(DurableServer{other}, DataLoss, "log-");
  }
}

TEST(DurableServer, CommitsAreTheFilesOfExactlyTheirNames) {
  const testing::Folder folder;
  {
    DurableServer server(folder.path("ps"));
    fill(server);
    for (uint64_t i = 1; i <= 2; ++i) push(server, i);
  }
  // What a death between a temporary file and its name leaves, and what people leave.
  for (const char* name : {"state-6.tutti.tmp.123", "state-7.tutti.old", "state-08.tutti",
                           "state-9", "state--9.tutti", "state-.tutti", "state-9x.tutti"})
    write_bytes(folder.path(std::string("ps/") + name), "half a commit");
  for (uint64_t start = 0; start < 8; ++start) {
    DurableServer server(folder.path("ps"));
    EXPECT_TENSOR_EQ(value(server), at::full({8}, 2.0 + static_cast<double>(start)));
    push(server, 3 + start);
  }
}

/// Of a server that could not write: it serves nothing, and one that is made of its folder has what
/// was answered.
void expect_serves_nothing(DurableServer& server) {
  const std::string why = "expected one that is whole; restart the server";
  EXPECT_ERROR(push(server, 9), DataLoss, why);
  EXPECT_ERROR(server.read({0}), DataLoss, why);
  EXPECT_ERROR(server.gather(0, at::zeros({1}, at::kLong)), DataLoss, why);
  EXPECT_ERROR(server.variables(), DataLoss, why);
  EXPECT_ERROR(server.iterations(0), DataLoss, why);
  EXPECT_ERROR(server.state(), DataLoss, why);
  EXPECT_ERROR(server.commit(), DataLoss, why);
}

TEST(DurableServer, AfterALogThatCannotBeWrittenServesNothing) {
  const testing::Folder folder;
  const std::string log = folder.path("ps/log-2");
  {
    DurableServer server(folder.path("ps"));
    fill(server);
    push(server, 1);
    std::filesystem::create_symlink("/dev/full", log);
    server.commit();
    EXPECT_TENSOR_EQ(value(server), at::ones({8}));
    EXPECT_ERROR(push(server, 2), ResourceExhausted, "log-2");
    expect_serves_nothing(server);
  }
  std::filesystem::remove(log);
  DurableServer server(folder.path("ps"));
  EXPECT_TENSOR_EQ(value(server), at::ones({8}));
  EXPECT_FALSE(push(server, 2).repeated);
}

TEST(DurableServer, AfterACommitThatFailsServesNothing) {
  const testing::Folder folder;
  const auto put_in_the_way = [&](int commit) {
    const std::filesystem::path path = folder.path(cat("ps/state-", commit, ".tutti"));
    std::filesystem::create_directories(path / "folder");
    return path;
  };
  std::filesystem::path in_the_way;
  {
    DurableServer server(folder.path("ps"));
    fill(server);
    push(server, 1);
    in_the_way = put_in_the_way(2);
    EXPECT_ERROR(server.commit(), Error, "state-2.tutti");
    expect_serves_nothing(server);
  }
  std::filesystem::remove_all(in_the_way);
  {
    DurableServer server(folder.path("ps"));  // writes commit 2
    EXPECT_TENSOR_EQ(value(server), at::ones({8}));
    EXPECT_TRUE(push(server, 1).repeated);
    LocalServer other;
    fill(other);
    push(other, 1, "other");
    in_the_way = put_in_the_way(3);
    EXPECT_ERROR(server.set_state(other.state()), Error, "state-3.tutti");
    expect_serves_nothing(server);
  }
  std::filesystem::remove_all(in_the_way);
  DurableServer server(folder.path("ps"));
  EXPECT_TRUE(push(server, 1).repeated);  // the state that was not taken is not there
  EXPECT_FALSE(push(server, 1, "other").repeated);
}

TEST(DurableServer, AChangeThatNoRecordHoldsIsRefusedAndNotMade) {
  const testing::Folder folder;
  DurableServer server(folder.path("ps"));
  fill(server);
  const int64_t most = 64 << 20;  // bytes of a message
  const VariableDescription large{"large", {{most}, at::kByte}, /*trainable=*/false};
  EXPECT_ERROR(server.create(large, at::zeros({most}, at::kByte)), ResourceExhausted, "ps.create");
  EXPECT_EQ(server.variables().size(), 1u);
  EXPECT_FALSE(push(server, 1).repeated);
  EXPECT_TENSOR_EQ(value(server), at::ones({8}));
}

TEST(DurableServer, HasItsFolderAlone) {
  const testing::Folder folder;
  const DurableServer server(folder.path("ps"));
  EXPECT_ERROR(DurableServer{folder.path("ps")}, FailedPrecondition, "another process has it");
}

// --- processes ---------------------------------------------------------------------------------

std::unique_ptr<ChildProcess> pusher(const std::string& address, const std::string& worker,
                                     int incarnation, int count) {
  return std::make_unique<ChildProcess>(
      std::vector<std::string>{testing::beside_this_program("ps_task"), "push", address, worker,
                               std::to_string(incarnation), std::to_string(count)});
}

TEST(DurableServerInProcesses, KilledAndRestartedLosesNoPushAndCountsNoneTwice) {
  const testing::Folder folder;
  DyingProcess server({}, {folder.path("ps")});
  const auto client = make_remote_server({.address = server.address()});
  fill(*client);
  constexpr int kPushes = 60;
  const auto a = pusher(server.address(), "a", 1, kPushes);
  const auto b = pusher(server.address(), "b", 1, kPushes);
  for (int death = 1; death <= 3; ++death) {
    while (a->line() != std::to_string(death * 12)) {
    }
    if (death == 2) server.process().ask("commit");
    server.kill_and_restart();
  }
  EXPECT_EQ(a->wait(), 0);
  EXPECT_EQ(b->wait(), 0);
  EXPECT_TENSOR_EQ(value(*client), at::full({8}, 2.0 * kPushes));
  EXPECT_EQ(client->iterations(0), 2 * kPushes);
}

TEST(DurableServerInProcesses, AKilledWorkersPushesCountAsOftenAsTheServerSawThem) {
  const testing::Folder folder;
  DyingProcess server({}, {folder.path("ps")});
  const auto client = make_remote_server({.address = server.address()});
  fill(*client);
  int64_t answered = 0;
  for (int incarnation = 1; incarnation <= 5; ++incarnation) {
    const auto worker = pusher(server.address(), "a", incarnation, 1'000'000);
    for (int i = 0; i < 10 * incarnation; ++i) worker->line();
    worker->signal(SIGKILL);
    worker->wait();
    // Its last push may come after its death, and counts then.
    const auto counts = [&] { return static_cast<double>(client->iterations(0)); };
    EXPECT_TRUE(testing::comes_true(
        [&] { return at::equal(value(*client), at::full({8}, counts(), at::kFloat)); }));
    EXPECT_GE(client->iterations(0), answered + 10 * incarnation);
    answered = client->iterations(0);
  }
}

TEST(RemoteServer, ACallThatIsCutAfterAnyByteCountsOnce) {
  LocalServer local;
  fill(local);
  remote::MethodServer serving(methods_of(local), {.address = "127.0.0.1:0"});
  const int port = tutti::rpc::parse_address(serving.address()).port;
  int64_t exchange = 0;
  {
    testing::CuttingProxy whole(port, -1);
    push(*make_remote_server({.address = whole.address()}), 1, "whole");
    exchange = whole.passed();
  }
  ASSERT_GT(exchange, 200);
  int64_t pushes = 1;
  for (int64_t after = 0; after <= exchange; after += 23) {
    testing::CuttingProxy proxy(port, after);
    const auto server = make_remote_server({.address = proxy.address(),
                                            .timeout = std::chrono::milliseconds(20'000),
                                            .attempt_timeout = std::chrono::milliseconds(2000)});
    push(*server, 1, cat("cut after ", after));
    ++pushes;
    ASSERT_EQ(local.iterations(0), pushes) << "cut after " << after << " of " << exchange;
  }
  EXPECT_TENSOR_EQ(value(local), at::full({8}, static_cast<double>(pushes)));
}

TEST(RemoteServer, AServerThatNeverComesIsDeadlineExceededWithItsAddress) {
  std::string address;
  {
    LocalServer local;
    address = remote::MethodServer(methods_of(local), {.address = "127.0.0.1:0"}).address();
  }
  const auto server = make_remote_server({.address = address,
                                          .timeout = std::chrono::milliseconds(200),
                                          .attempt_timeout = std::chrono::milliseconds(100)});
  EXPECT_ERROR(server->read({0}), DeadlineExceeded,
               "ps.read at " + address + ": no answer in 200 ms");
}

}  // namespace
}  // namespace tutti::ps
