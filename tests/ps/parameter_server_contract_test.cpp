// Each way to a parameter server enters the contract suite here, by one line.

#include "contract/parameter_server_contract.h"

#include "ps/durable_server.h"
#include "ps/folder.h"
#include "ps/local_server.h"
#include "ps/remote_server.h"

namespace tutti::ps {
namespace {

ServerWorld make_in_process() { return {nullptr, std::make_shared<LocalServer>()}; }

/// Over a connection, from this process to itself.
ServerWorld make_remote() {
  struct Serving {
    LocalServer local;
    remote::MethodServer server{methods_of(local), {.address = "127.0.0.1:0"}};
  };
  auto serving = std::make_shared<Serving>();
  std::shared_ptr<ParameterServer> client =
      make_remote_server({.address = serving->server.address()});
  return {serving, client};
}

/// Whose changes are written down.
ServerWorld make_durable() {
  auto folder = std::make_shared<testing::Folder>();
  return {folder, std::make_shared<DurableServer>(folder->path("ps"))};
}

TEST_P(ParameterServerContract, ARefusedChangesTagIsThatOfTheNextChangeAndLeavesNoHole) {
  const int64_t a = create("a", at::zeros({1}));
  const auto add = [&](const Tag& tag, int64_t size) {
    server_.write(tag, Write::kAdd, {a}, {at::ones({size})});
  };
  for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
    EXPECT_ERROR(add({"w", 1, sequence}, 2), InvalidArgument, "ps write [a]");
    add({"w", 1, sequence}, 1);
  }
  EXPECT_EQ(read(a).item<float>(), 20);
  add({"w", 1, 20 + 4096}, 1);  // numbers up to 20 are all seen
  EXPECT_ERROR(add({"w", 1, 21 + 4096}, 1), ResourceExhausted,
               "number 21 is missing, expected at most 4096 ahead; wait for it or make it under "
               "its number, or begin a new incarnation");
  // What was given up is made good by a new incarnation, to which the old one yields.
  add({"w", 2, 1}, 1);
  EXPECT_ERROR(add({"w", 1, 21}, 1), Aborted, "incarnation 1");
  EXPECT_EQ(read(a).item<float>(), 22);
}

INSTANTIATE_TEST_SUITE_P(InProcess, ParameterServerContract,
                         ::testing::Values(ServerMaker{"in_process", make_in_process}), name_of);
INSTANTIATE_TEST_SUITE_P(Remote, ParameterServerContract,
                         ::testing::Values(ServerMaker{"remote", make_remote}), name_of);

INSTANTIATE_TEST_SUITE_P(Durable, ParameterServerContract,
                         ::testing::Values(ServerMaker{"durable", make_durable}), name_of);

}  // namespace
}  // namespace tutti::ps
