// The way to a worker's process: who else may be at its address, and what its errors are here.

#include "ps/remote_worker.h"

#include <future>

#include "support/comes_true.h"
#include "support/expect.h"

namespace tutti::ps {
namespace {

std::shared_ptr<FunctionTable> table() {
  auto made = std::make_shared<FunctionTable>();
  made->functions["seven"] = [](const WorkerContext&, const FunctionTable::Call&) {
    return Nest(at::scalar_tensor(7, at::kLong));
  };
  made->functions["pull"] = [](const WorkerContext&, const FunctionTable::Call&) -> Nest {
    throw ServerLost(1, "ps:1 does not answer");
  };
  made->makers["table"] = [](const WorkerContext&) -> Resource {
    throw ServerLost(2, "ps:2 does not answer");
  };
  return made;
}

TEST(RemoteWorker, IsWaitedForWhileAnotherServiceHasItsPort) {
  std::string address;
  std::shared_ptr<WorkerLink> link;
  {
    WorkerHost host(0, table());
    remote::MethodServer serving(host.methods(), {.address = "127.0.0.1:0"});
    address = serving.address();
    link = make_remote_worker({.address = address});
    EXPECT_EQ(link->run("seven", {}).leaf().item<int64_t>(), 7);
  }
  EXPECT_ERROR(link->run("seven", {}), WorkerLost, "seven");
  std::atomic<int> asked{0};
  std::future<bool> back;
  {  // one that has no such method
    remote::MethodServer stranger({}, {.address = address});
    back =
        std::async(std::launch::async, [&] { return link->wait_until_back([] { return false; }); });
    EXPECT_EQ(back.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  }
  {  // one that says something else, or fails
    const auto hello = [&](const remote::CallContext&, const Nest&) -> Nest {
      if (++asked == 1) return StringTensor(std::string("hello"));
      throw Unimplemented("hello");
    };
    remote::MethodServer stranger({{"worker.hello", hello}}, {.address = address});
    EXPECT_TRUE(testing::comes_true([&] { return asked >= 3; }));
    EXPECT_NE(back.wait_for(std::chrono::milliseconds(0)), std::future_status::ready);
  }
  WorkerHost host(0, table());
  remote::MethodServer serving(host.methods(), {.address = address});
  EXPECT_TRUE(back.get());
  EXPECT_EQ(link->run("seven", {}).leaf().item<int64_t>(), 7);
}

TEST(RemoteWorker, TheWaitEndsWhenItIsToldThoughAnotherServiceAnswers) {
  remote::MethodServer stranger({}, {.address = "127.0.0.1:0"});
  const auto link = make_remote_worker({.address = stranger.address()});
  int asked = 0;
  EXPECT_FALSE(link->wait_until_back([&] { return ++asked > 2; }));
}

TEST(RemoteWorker, AServerThatAMakerMissesIsLostAsOneThatAFunctionMisses) {
  WorkerHost host(0, table());
  remote::MethodServer serving(host.methods(), {.address = "127.0.0.1:0"});
  const auto link = make_remote_worker({.address = serving.address()});
  link->incarnation();
  const auto lost = [](const auto& call) -> int64_t {
    try {
      call();
    } catch (const ServerLost& error) {
      return error.server();
    } catch (const Error&) {
    }
    return -1;
  };
  EXPECT_EQ(lost([&] { link->run("pull", {}); }), 1);
  EXPECT_EQ(lost([&] { link->make(0, "table"); }), 2);
  EXPECT_ERROR(link->make(0, "table"), ServerLost, "ps:2 does not answer");
}

}  // namespace
}  // namespace tutti::ps
