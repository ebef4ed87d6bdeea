// Servers and channels against each other and against strangers.
#include "rpc/server.h"

#include <arpa/inet.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

#include "rpc/channel.h"
#include "rpc/credentials.h"
#include "support/certificates.h"
#include "support/expect_error.h"
#include "tutti/coordination.grpc.pb.h"

namespace tutti::rpc {
namespace {

using coordination::v1::Coordination;
using coordination::v1::DescribeRequest;
using coordination::v1::Description;
using coordination::v1::Event;
using coordination::v1::JoinRequest;
using coordination::v1::Reply;
using coordination::v1::Request;
using coordination::v1::Task;

constexpr std::chrono::milliseconds kSoon{5000};

const testing::Certificates& files() {
  static const testing::Certificates made;
  return made;
}

/// Answers everything, and counts: what authentication lets through arrives here.
class Everything final : public Coordination::CallbackService {
 public:
  grpc::ServerWriteReactor<Event>* Join(grpc::CallbackServerContext*, const JoinRequest*) override {
    ++calls;
    struct Reactor final : grpc::ServerWriteReactor<Event> {
      Reactor() { Finish(grpc::Status::OK); }
      void OnDone() override { delete this; }
    };
    return new Reactor;
  }
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const Request*,
                                 Reply*) override {
    ++calls;
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  std::atomic<int> calls{0};
};

class Describing final : public Task::CallbackService {
 public:
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context, const DescribeRequest*,
                                     Description* reply) override {
    ++calls;
    reply->set_task("worker:0");
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  std::atomic<int> calls{0};
};

class RpcServerTest : public ::testing::Test {
 protected:
  void serve(const Security& security = {}) {
    server_ = std::make_unique<RpcServer>("127.0.0.1:0", security,
                                          std::vector<grpc::Service*>{&everything_, &describing_});
  }
  grpc::Status call(const Security& security = {}, std::chrono::milliseconds timeout = kSoon) {
    return call(server_->address(), security, timeout);
  }
  static grpc::Status call(const std::string& address, const Security& security,
                           std::chrono::milliseconds timeout = kSoon) {
    const Channel channel(address, security);
    grpc::ClientContext context;
    channel.prepare(context, timeout);
    Description reply;
    return Task::NewStub(channel.grpc())->Describe(&context, {}, &reply);
  }
  int calls() const { return everything_.calls + describing_.calls; }

  Everything everything_;
  Describing describing_;
  std::unique_ptr<RpcServer> server_;
};

/// A socket connected to the port, which says `bytes`.
class Stranger {
 public:
  Stranger(int port, const std::string& bytes) {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  ~Stranger() { ::close(socket_); }
  /// True when the server hangs up in time.
  bool is_hung_up_on() {
    char block[4096];
    for (;;) {
      pollfd file{socket_, POLLIN, 0};
      if (::poll(&file, 1, 5000) <= 0) return false;
      if (::recv(socket_, block, sizeof block, 0) <= 0) return true;
    }
  }

 private:
  int socket_;
};

TEST_F(RpcServerTest, TakesAFreePortAndTellsIt) {
  serve();
  EXPECT_GT(server_->port(), 0);
  EXPECT_EQ(server_->address(), "127.0.0.1:" + std::to_string(server_->port()));
  EXPECT_TRUE(call().ok());
}

TEST_F(RpcServerTest, ASecondServerOnThePortIsRefusedWithItsOwner) {
  serve();
  Describing other;
  EXPECT_ERROR(RpcServer(server_->address(), {}, {&other}), AlreadyExists,
               "is in use by pid " + std::to_string(::getpid()));
}

TEST_F(RpcServerTest, APortThatAnotherProgramSharesIsRefusedToo) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(socket, 1), 0);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  Describing service;
  EXPECT_ERROR(RpcServer("127.0.0.1:" + std::to_string(ntohs(address.sin_port)), {}, {&service}),
               AlreadyExists, "is in use");
  ::close(socket);
}

TEST_F(RpcServerTest, AnAddressOfAnotherHostIsRefused) {
  Describing service;
  EXPECT_ERROR(RpcServer("192.0.2.1:0", files().security(), {&service}), Unavailable,
               "expected an address of this host");
}

TEST_F(RpcServerTest, OffLoopbackWithoutCredentialsIsAnErrorAtOnce) {
  Describing service;
  EXPECT_ERROR(RpcServer("0.0.0.0:0", {}, {&service}), FailedPrecondition,
               "without TLS and a token");
}

TEST_F(RpcServerTest, ACallToAServerThatDoesNotAnswerEndsAtItsDeadline) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(socket, 1), 0);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  const auto status = call("127.0.0.1:" + std::to_string(ntohs(address.sin_port)), {},
                           std::chrono::milliseconds(200));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  ::close(socket);
}

TEST_F(RpcServerTest, AProxyInTheEnvironmentIsNotUsed) {
  ::setenv("http_proxy", "http://127.0.0.1:1", 1);
  serve();
  EXPECT_TRUE(call().ok());
  ::unsetenv("http_proxy");
}

TEST_F(RpcServerTest, AMessageOverTheCapIsRefusedAndTheServerLives) {
  serve();
  const Channel channel(server_->address(), {});
  auto stub = Coordination::NewStub(channel.grpc());
  Request request;
  Reply reply;
  request.mutable_set()->set_value(std::string(kMostMessageBytes, 'x'));
  {
    grpc::ClientContext context;
    channel.prepare(context, kSoon);
    EXPECT_EQ(stub->Call(&context, request, &reply).error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  // A client that does not hold itself to the cap.
  grpc::ChannelArguments unlimited;
  unlimited.SetMaxSendMessageSize(-1);
  auto rude = Coordination::NewStub(
      grpc::CreateCustomChannel(server_->address(), channel_credentials({}), unlimited));
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kSoon);
    EXPECT_EQ(rude->Call(&context, request, &reply).error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  EXPECT_EQ(everything_.calls, 0);
  EXPECT_TRUE(call().ok());
}

TEST_F(RpcServerTest, ADamagedMessageIsRefusedAndTheServerLives) {
  serve();
  const Channel channel(server_->address(), {});
  grpc::GenericStub stub(channel.grpc());
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff", 4), std::string("\x0a\xff\xff\xff\xff\x7f", 6),
        std::string("\x0a\x05"
                    "ab",
                    4)}) {
    grpc::ClientContext context;
    channel.prepare(context, kSoon);
    grpc::Slice slice(bytes);
    grpc::ByteBuffer request(&slice, 1), reply;
    std::promise<grpc::Status> promise;
    stub.UnaryCall(&context, "/tutti.coordination.v1.Coordination/Call", {}, &request, &reply,
                   [&](grpc::Status status) { promise.set_value(status); });
    EXPECT_FALSE(promise.get_future().get().ok());
  }
  EXPECT_EQ(everything_.calls, 0);
  EXPECT_TRUE(call().ok());
}

TEST_F(RpcServerTest, StrangersThatSpeakNoHttp2AreHungUpOnAndTheServerLives) {
  for (const Security& security : {Security{}, files().security()}) {
    serve(security);
    for (const std::string& bytes :
         {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(64, '\0'),
          std::string("\x7f\xff\xff\xff garbage with a huge length", 32),
          std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 half of a hello"
                      "...............................................................",
                      80)}) {
      Stranger stranger(server_->port(), bytes);
      if (!security.has_tls() || bytes[0] != '\x16') EXPECT_TRUE(stranger.is_hung_up_on());
    }
    EXPECT_TRUE(call(security).ok());
    server_.reset();
  }
}

TEST_F(RpcServerTest, AHundredHalfOpenConnectionsDoNotKeepOthersOut) {
  serve(files().security());
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 100; ++i)
    strangers.push_back(std::make_unique<Stranger>(server_->port(), "\x16\x03\x01"));
  EXPECT_TRUE(call(files().security()).ok());
}

// --- who is let in -----------------------------------------------------------------------------

struct Case {
  const char* name;
  Security server;
  Security client;
  grpc::StatusCode code;
};

TEST_F(RpcServerTest, OnlyTheRightTokenOverTheRightConnectionIsLetIn) {
  const Security right = files().security();
  Security no_token = right, other_token = right, token_only{}, other_token_only{};
  no_token.token_file = "";
  other_token.token_file = files().path("other_token");
  token_only.token_file = files().path("token");
  other_token_only.token_file = files().path("other_token");
  Security named = files().security("elsewhere");
  Security by_name = right;
  by_name.server_name = "elsewhere.example";
  using enum grpc::StatusCode;
  const std::vector<Case> cases{
      {"all is right", right, right, OK},
      {"no token", right, no_token, UNAUTHENTICATED},
      {"another cluster's token", right, other_token, UNAUTHENTICATED},
      {"no TLS", right, token_only, UNAVAILABLE},
      {"nothing", right, {}, UNAVAILABLE},
      {"a certificate of another authority", right, files().security("stranger"), UNAVAILABLE},
      {"an expired certificate", right, files().security("expired"), UNAVAILABLE},
      {"a client that trusts another authority", right, files().security("task", "other_ca"),
       UNAVAILABLE},
      {"a server with an expired certificate", files().security("expired"), right, UNAVAILABLE},
      {"a server with another host's name", named, right, UNAVAILABLE},
      {"a server with the name that is expected", named, by_name, OK},
      {"TLS to a server without", {}, right, UNAVAILABLE},
      {"loopback with a token", token_only, token_only, OK},
      {"loopback without the token", token_only, {}, UNAUTHENTICATED},
      {"loopback with another token", token_only, other_token_only, UNAUTHENTICATED},
  };
  for (const Case& one : cases) {
    serve(one.server);
    const int before = calls();
    EXPECT_EQ(call(one.client).error_code(), one.code) << one.name;
    EXPECT_EQ(calls() - before, one.code == OK ? 1 : 0) << one.name;
    server_.reset();
  }
}

TEST_F(RpcServerTest, NoMethodOfAnyServiceIsReachedWithoutTheToken) {
  Security secured;
  secured.token_file = files().path("token");
  serve(secured);
  const auto* file = google::protobuf::DescriptorPool::generated_pool()->FindFileByName(
      "tutti/coordination.proto");
  ASSERT_NE(file, nullptr);
  int methods = 0;
  for (int i = 0; i < file->service_count(); ++i) {
    for (int j = 0; j < file->service(i)->method_count(); ++j, ++methods) {
      const auto* method = file->service(i)->method(j);
      const std::string path = "/" + method->service()->full_name() + "/" + method->name();
      for (const Security& security :
           {Security{}, Security{.token_file = files().path("other_token")}}) {
        const Channel channel(server_->address(), security);
        grpc::GenericStub stub(channel.grpc());
        grpc::ClientContext context;
        channel.prepare(context, kSoon);
        grpc::ByteBuffer request, reply;
        grpc::Slice empty;
        request = grpc::ByteBuffer(&empty, 1);
        std::promise<grpc::Status> promise;
        stub.UnaryCall(&context, path, {}, &request, &reply,
                       [&](grpc::Status status) { promise.set_value(status); });
        const grpc::Status status = promise.get_future().get();
        EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << path;
        EXPECT_EQ(status.error_message().find(testing::Certificates::kToken), std::string::npos);
      }
    }
  }
  EXPECT_GE(methods, 3);
  EXPECT_EQ(calls(), 0);
}

TEST_F(RpcServerTest, ATokenIsExchangedWithoutAStop) {
  const std::string at_server = files().token("rotating_server", "the-old-token-0123\n");
  const std::string at_client = files().token("rotating_client", "the-old-token-0123\n");
  serve({.token_file = at_server});
  const Security client{.token_file = at_client};
  EXPECT_TRUE(call(client).ok());
  files().token("rotating_server", "the-new-token-01234\nthe-old-token-0123\n");
  EXPECT_TRUE(call(client).ok());
  files().token("rotating_client", "the-new-token-01234\n");
  EXPECT_TRUE(call(client).ok());
  files().token("rotating_server", "the-new-token-01234\n");
  EXPECT_TRUE(call(client).ok());
  files().token("rotating_client", "the-old-token-0123\n");
  EXPECT_EQ(call(client).error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(RpcServerTest, FilesThatAreMissingOrOpenToOthersAreErrorsAtOnce) {
  Describing service;
  Security security = files().security();
  security.ca_file = files().path("nowhere");
  EXPECT_ERROR(RpcServer("127.0.0.1:0", security, {&service}), NotFound, "certificate file");
  security = files().security();
  files().write("open.key", "key");
  ::chmod(files().path("open.key").c_str(), 0644);
  security.key_file = files().path("open.key");
  EXPECT_ERROR(RpcServer("127.0.0.1:0", security, {&service}), PermissionDenied, "expected 0600");
}

}  // namespace
}  // namespace tutti::rpc
