// tf.distribute.experimental.rpc, with its own tests' claims.
#include "tutti/remote/rpc.h"

#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "base/mutex.h"
#include "rpc/address.h"
#include "rpc/message.h"
#include "rpc/remote_channel.h"
#include "rpc/remote_server.h"
#include "support/child_process.h"
#include "support/expect.h"

namespace tutti::distribute::rpc {
namespace {

Tensor scalar(int64_t value) { return at::scalar_tensor(value, at::kInt); }

/// A server at a free port of loopback with the functions that `add` registers.
template <class Add>
Server serve(const Add& add, const ServerOptions& options = {}) {
  Server server = Server::create("grpc", "127.0.0.1:0", options);
  add(server);
  server.start();
  return server;
}
Server multiplying() {
  return serve([](Server& server) {
    server.register_function("multiply", [](Tensor a, Tensor b) { return a * b; });
    server.register_function("add", [](const Tensor& a, const Tensor& b) { return a + b; });
  });
}
Client connect(const Server& server, const ClientOptions& options = {}) {
  return Client::create("grpc", server.address(), options);
}

/// Blocks functions until the test opens it.
class Gate {
 public:
  void open() {
    MutexLock lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void pass() {
    MutexLock lock(mutex_);
    ++came_;
    changed_.notify_all();
    while (!is_open_) changed_.wait(mutex_);
  }
  void wait_for(int count) {
    MutexLock lock(mutex_);
    while (came_ < count) changed_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  bool is_open_ TUTTI_GUARDED_BY(mutex_) = false;
  int came_ TUTTI_GUARDED_BY(mutex_) = 0;
};

TEST(Rpc, ARegisteredFunctionIsCalledByName) {
  const Server server = multiplying();
  const Client client = connect(server, {.name = "test_client"});
  StatusOrResult result = client.call("multiply", std::vector<Tensor>{scalar(2), scalar(3)},
                                      {.output_specs = SpecNest(TensorSpec{{}, at::kInt})});
  EXPECT_TRUE(result.is_ok());
  EXPECT_EQ(result.get_error(), (std::pair<int, std::string>{0, ""}));
  EXPECT_EQ(result.get_value<Tensor>().item<int>(), 6);
  EXPECT_EQ(client.call("add", std::tuple(scalar(2), scalar(3))).get_value<Tensor>().item<int>(),
            5);
}

TEST(Rpc, AClientCallsTheFunctionsThatItAskedForAsItsOwn) {
  const Server server = multiplying();
  const Client client = connect(server);
  EXPECT_EQ(client.registered_methods(), (std::vector<std::string>{"add", "multiply"}));
  const RegisteredMethod multiply = client["multiply"];
  EXPECT_EQ(multiply(scalar(2), scalar(3)).get_value<Tensor>().item<int>(), 6);
  EXPECT_EQ(multiply.blocking(scalar(4), scalar(3)).leaf().item<int>(), 12);
  EXPECT_ERROR(client["divide"], NotFound, "expected one of add, multiply");
  EXPECT_ERROR(connect(server, {.list_registered_methods = false})["add"], NotFound, "add");
}

TEST(Rpc, ResultsKeepTheirStructure) {
  const Server server = serve([](Server& to) {
    to.register_function("test_dict", [](Tensor v) {
      return std::map<std::string, Tensor>{{"key", v}};
    });
    to.register_function("nested", [](Tensor v) {
      return std::map<std::string, std::pair<Tensor, std::vector<Tensor>>>{{"test", {v, {v, v}}}};
    });
    to.register_function("do_nothing", [] {});
    to.register_function("texts", [](std::string a, StringTensor b) {
      return StringTensor({a + b.values()[0], b.values()[1]});
    });
    to.register_function("whole", [](Nest nest) { return nest; });
  });
  const Client client = connect(server);
  EXPECT_EQ(client["test_dict"](scalar(2)).get_value()["key"].leaf().item<int>(), 2);
  const Nest nested = client["nested"](scalar(2)).get_value();
  EXPECT_EQ(nested.structure(), "{test: (*, [*, *])}");
  EXPECT_EQ(client["do_nothing"]().get_value().kind(), NestKind::kNone);
  EXPECT_EQ(client["texts"](std::string("a"), StringTensor({"b", "c"})).get_value<StringTensor>(),
            StringTensor({"ab", "c"}));
  EXPECT_EQ(client["whole"](nested).get_value().structure(), nested.structure());
}

TEST(Rpc, ArgumentsOfAnotherStructureAreRefused) {
  const Server server = serve([](Server& to) {
    to.register_function("sum", [](std::map<std::string, Tensor> v) { return v["a"] + v["b"]; });
    to.register_function(
        "row", [](Tensor a) { return a; },
        {.input_signature = SpecNest::tuple({SpecNest(TensorSpec{{-1, 2}, at::kFloat})})});
  });
  const Client client = connect(server);
  const std::map<std::string, Tensor> right{{"a", scalar(2)}, {"b", scalar(3)}};
  EXPECT_EQ(client["sum"](right).get_value<Tensor>().item<int>(), 5);
  EXPECT_ERROR(
      client["sum"].blocking(std::vector<Tensor>{scalar(2), scalar(3)}), InvalidArgument,
      "rpc function \"sum\", argument 0: element: found the structure [*, *], expected a map");
  EXPECT_ERROR(client["sum"].blocking(), InvalidArgument, "found the arguments (), expected 1");
  EXPECT_TENSOR_EQ(client["row"].blocking(at::ones({3, 2})).leaf(), at::ones({3, 2}));
  EXPECT_ERROR(client["row"].blocking(at::ones({3, 3})), InvalidArgument,
               "expected (TensorSpec(shape=(None, 2), dtype=float32");
}

TEST(Rpc, AResultThatTheSpecsDoNotDescribeIsRefused) {
  const Server server = multiplying();
  const Client client = connect(server);
  const std::vector<Tensor> args{scalar(2), scalar(3)};
  auto result = client.call("add", args, {.output_specs = SpecNest(TensorSpec{{}, at::kFloat})});
  EXPECT_TRUE(result.is_ok());
  EXPECT_ERROR(result.get_value(), InvalidArgument,
               "result: found TensorSpec(shape=(), dtype=int32)");
}

TEST(Rpc, ErrorsReachTheCallerWithTheirCode) {
  const Server server = serve([](Server& to) {
    to.register_function("end", [](Tensor) -> Tensor { throw OutOfRange("end of sequence"); });
    to.register_function("shapes", [] { return at::ones({2}) + at::ones({3}); });
    to.register_function("number", []() -> Tensor { throw 7; });
    to.register_function("undefined", [] { return Tensor(); });
    to.register_function("big", [] { return at::ones({20 << 20}); });
  });
  const Client client = connect(server);
  StatusOrResult result = client["end"](scalar(1));
  EXPECT_FALSE(result.is_ok());
  EXPECT_EQ(result.get_error(), (std::pair<int, std::string>{11, "end of sequence"}));
  EXPECT_ERROR(result.get_value(), OutOfRange, "[end at 127.0.0.1:");
  EXPECT_ERROR(client["shapes"].blocking(), Internal, "The size of tensor a (2) must match");
  EXPECT_ERROR(client["number"].blocking(), Internal, "threw what is no exception");
  EXPECT_ERROR(client["undefined"].blocking(), InvalidArgument, "an undefined tensor");
  EXPECT_ERROR(client["big"].blocking(), ResourceExhausted, "expected at most 67108864");
  EXPECT_ERROR(client.call("nowhere").get_value(), NotFound,
               "no method \"nowhere\", expected one of big, end");
  EXPECT_ERROR(client.call("end", std::vector<Tensor>{at::ones({20 << 20})}), ResourceExhausted,
               "expected at most 67108864");
  EXPECT_ERROR(client.call(""), InvalidArgument, "an empty name");
}

TEST(Rpc, CallsRunBesideEachOtherAndSeeTheSameState) {
  Gate gate;
  Mutex mutex;
  int64_t value = 0;
  const Server server = serve(
      [&](Server& to) {
        to.register_function("assign_add", [&](Tensor a) {
          gate.pass();
          MutexLock lock(mutex);
          value += a.item<int64_t>();
        });
        to.register_function("read", [&] {
          MutexLock lock(mutex);
          return at::scalar_tensor(value, at::kLong);
        });
      },
      {.threads = 3});
  const Client client = connect(server);
  std::vector<StatusOrResult> results;
  for (int i = 0; i < 10; ++i)
    results.push_back(client["assign_add"](at::scalar_tensor(2, at::kLong)));
  gate.wait_for(3);
  gate.open();
  for (const StatusOrResult& result : results) EXPECT_TRUE(result.is_ok());
  EXPECT_EQ(client["read"]().get_value<Tensor>().item<int64_t>(), 20);
}

TEST(Rpc, AClientMayBeThereBeforeItsServer) {
  std::string address;
  {
    const Server soon_gone = multiplying();
    address = soon_gone.address();
  }
  const Client early = Client::create("grpc", address, {.list_registered_methods = false});
  EXPECT_ERROR(Client::create("grpc", address, {.name = "client1", .timeout_in_ms = 1}),
               DeadlineExceeded, "rpc::Client \"client1\" [list of methods at " + address);
  auto waiting = early.call("add", std::vector<Tensor>{scalar(1), scalar(2)});
  EXPECT_FALSE(
      early.call("add", std::vector<Tensor>{scalar(1), scalar(2)}, {.timeout_in_ms = 30}).is_ok());
  Server server = Server::create("grpc", address);
  server.register_function("add", [](Tensor a, Tensor b) { return a + b; });
  server.start();
  server.start();  // does nothing
  EXPECT_EQ(waiting.get_value<Tensor>().item<int>(), 3);
  EXPECT_ERROR(server.register_function("late", [] {}), FailedPrecondition,
               "All methods must be registered before starting the server");
}

TEST(Rpc, AFunctionLearnsThatItsCallerHasGivenUp) {
  std::atomic<bool> was_cancelled{false};
  Gate started;
  started.open();
  const Server server = serve([&](Server& to) {
    to.register_function("forever", [&](const CallContext& context, Tensor a) {
      EXPECT_NE(context.peer().find("127.0.0.1"), std::string::npos);
      started.pass();
      while (!context.is_cancelled()) std::this_thread::yield();
      was_cancelled = true;
      return a;
    });
  });
  const Client client = connect(server);
  StatusOrResult cancelled = client["forever"](scalar(1));
  started.wait_for(1);
  cancelled.cancel();
  EXPECT_ERROR(cancelled.get_value(), Cancelled, "forever");
  while (!was_cancelled) std::this_thread::yield();
  was_cancelled = false;
  const auto late = client.call("forever", std::vector<Tensor>{scalar(1)}, {.timeout_in_ms = 100});
  EXPECT_ERROR(late.get_value(), DeadlineExceeded, "forever");
  while (!was_cancelled) std::this_thread::yield();
}

TEST(Rpc, CallsThatWaitWhenTheServerEndsAreNotRun) {
  Gate gate;
  std::atomic<int> ran{0};
  std::optional<Server> server = serve(
      [&](Server& to) {
        to.register_function("slow", [&](const CallContext& context) {
          ++ran;
          gate.pass();
          while (!context.is_cancelled()) std::this_thread::yield();
        });
      },
      {.threads = 1});
  const Client client = connect(*server);
  StatusOrResult first = client["slow"]();
  gate.wait_for(1);
  StatusOrResult second = client["slow"]();
  gate.open();
  server.reset();
  EXPECT_FALSE(first.is_ok());
  EXPECT_FALSE(second.is_ok());
  EXPECT_EQ(ran, 1);
}

TEST(Rpc, TheEndOfTheLastClientEndsItsCalls) {
  Gate gate;
  const Server server =
      serve([&](Server& to) { to.register_function("slow", [&] { gate.pass(); }); });
  std::optional<Client> client = connect(server);
  const StatusOrResult result = (*client)["slow"]();
  gate.wait_for(1);
  client.reset();
  EXPECT_ERROR(result.get_value(), Cancelled, "slow");
  gate.open();
}

TEST(Rpc, ArgumentsOutOfRangeAreRefusedAtOnce) {
  EXPECT_ERROR(Server::create("http", "127.0.0.1:0"), InvalidArgument, "expected \"grpc\"");
  EXPECT_ERROR(Client::create("http", "127.0.0.1:1"), InvalidArgument, "expected \"grpc\"");
  EXPECT_ERROR(Server::create("grpc", "127.0.0.1"), InvalidArgument, "127.0.0.1");
  EXPECT_ERROR(Server::create("grpc", "127.0.0.1:0", {.threads = -1}), InvalidArgument,
               "-1 threads");
  EXPECT_ERROR(Client::create("grpc", "127.0.0.1:1", {.timeout_in_ms = -1}), InvalidArgument, "-1");
  Server server = Server::create("grpc", "127.0.0.1:0");
  server.register_function("f", [] {});
  EXPECT_ERROR(server.register_function("f", [] {}), InvalidArgument, "registered already");
  EXPECT_ERROR(server.register_function("", [] {}), InvalidArgument, "an empty name");
  EXPECT_ERROR(server.register_nest_function("g", nullptr), InvalidArgument, "no function");
  EXPECT_ERROR(Server::create("grpc", "0.0.0.0:0").start(), FailedPrecondition,
               "without TLS and a token");
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

TEST(Rpc, MalformedMessagesAreCleanErrorsInFlatMemory) {
  const Server server = multiplying();
  tutti::rpc::RemoteChannel channel(server.address(), {});
  const auto ask = [&](const std::string& bytes) {
    std::promise<tutti::rpc::RemoteReply> promise;
    channel.call({tutti::rpc::piece_of(bytes)}, {.timeout = std::chrono::seconds(20)},
                 [&](tutti::rpc::RemoteReply reply) { promise.set_value(std::move(reply)); });
    return promise.get_future().get();
  };
  tutti::rpc::Message huge;
  huge.method = "add";
  tutti::rpc::MessageNode node;
  node.kind = tutti::rpc::NodeKind::kTensor;
  node.dtype = "float32";
  node.shape = {int64_t{1} << 40};
  huge.nodes = {node};
  std::string says_a_lot;
  for (const auto& piece : tutti::rpc::encode_message(huge, "test"))
    says_a_lot.append(piece.data, piece.size);
  const std::vector<std::string> all{"",
                                     "x",
                                     std::string("\x0a\xff\xff\xff\xff\x07", 6),
                                     says_a_lot,
                                     std::string("\x0a\0\x12\0", 4),
                                     std::string(1 << 20, '\x0a'),
                                     std::string(1000, '\xff')};
  for (const std::string& bytes : all) (void)ask(bytes);
  const int64_t before = resident_bytes();
  for (int i = 0; i < 200; ++i) {
    for (const std::string& bytes : all) {
      const auto reply = ask(bytes);
      if (reply.failure) continue;
      const auto message = tutti::rpc::decode_message(reply.message);
      if (bytes.size() == 4) continue;  // an empty header and no data: the question for methods
      ASSERT_TRUE(message.failure.has_value());
      EXPECT_TRUE(message.failure->code == ErrorCode::kInvalidArgument ||
                  message.failure->code == ErrorCode::kResourceExhausted);
    }
  }
  EXPECT_LT(resident_bytes() - before, int64_t{64} << 20);
  EXPECT_EQ(connect(server)["add"](scalar(1), scalar(2)).get_value<Tensor>().item<int>(), 3);
}

TEST(Rpc, TheDeathOfTheServersProcessEndsItsCalls) {
  testing::ChildProcess child({testing::beside_this_program("remote_task")});
  const std::string address = child.line();
  const Client client = Client::create("grpc", address);
  EXPECT_EQ(client["add"](scalar(1), scalar(2)).get_value<Tensor>().item<int>(), 3);
  const Tensor large = at::arange(1 << 20, at::kFloat);
  EXPECT_TENSOR_EQ(client["add"](large, large).get_value<Tensor>(), large * 2);
  const StatusOrResult hanging = client["hang"]();
  EXPECT_EQ(child.line(), "hangs");
  child.signal(SIGKILL);
  EXPECT_FALSE(hanging.is_ok());
  EXPECT_EQ(hanging.get_error().first, static_cast<int>(ErrorCode::kUnavailable));
}

}  // namespace
}  // namespace tutti::distribute::rpc
