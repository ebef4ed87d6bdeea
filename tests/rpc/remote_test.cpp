// Remote calls as bytes, between a server and a channel on loopback.
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <fstream>
#include <future>
#include <thread>

#include "base/mutex.h"
#include "rpc/channel.h"
#include "rpc/remote_channel.h"
#include "rpc/remote_server.h"
#include "support/certificates.h"
#include "support/expect_error.h"
#include "tutti/remote.pb.h"

namespace tutti::rpc {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSoon{10'000};

const testing::Certificates& files() {
  static const testing::Certificates made;
  return made;
}

std::string text_of(const Pieces& pieces) {
  std::string text;
  for (const Piece& piece : pieces) text.append(piece.data, piece.size);
  return text;
}

/// A server whose calls wait in a queue until the test answers them.
class HeldServer {
 public:
  explicit HeldServer(const Security& security = {}, const std::string& address = "127.0.0.1:0")
      : server_(std::make_unique<RemoteServer>(address, security,
                                               [this](std::shared_ptr<IncomingCall> call) {
                                                 MutexLock lock(mutex_);
                                                 if (ended_) return;  // dropped: an answer too
                                                 ++count_;
                                                 calls_.push_back(std::move(call));
                                                 came_.notify_all();
                                               })) {}
  /// A server ends when each call has its answer.
  ~HeldServer() {
    MutexLock lock(mutex_);
    ended_ = true;
    calls_.clear();
  }
  std::shared_ptr<IncomingCall> next() {
    MutexLock lock(mutex_);
    while (calls_.empty()) came_.wait(mutex_);
    auto call = std::move(calls_.front());
    calls_.pop_front();
    return call;
  }
  int count() {
    MutexLock lock(mutex_);
    return count_;
  }
  RemoteServer& server() { return *server_; }
  std::string address() const { return server_->address(); }

 private:
  Mutex mutex_;
  ConditionVariable came_;
  int count_ TUTTI_GUARDED_BY(mutex_) = 0;
  bool ended_ TUTTI_GUARDED_BY(mutex_) = false;
  std::deque<std::shared_ptr<IncomingCall>> calls_ TUTTI_GUARDED_BY(mutex_);
  std::unique_ptr<RemoteServer> server_;  // ends first
};

struct Asked {
  std::future<RemoteReply> reply;
  std::function<void()> cancel;
};
Asked ask(RemoteChannel& channel, Pieces message, RemoteCallOptions options = {.timeout = kSoon}) {
  auto promise = std::make_shared<std::promise<RemoteReply>>();
  Asked asked;
  asked.reply = promise->get_future();
  asked.cancel = channel.call(std::move(message), options, [promise](RemoteReply reply) {
    promise->set_value(std::move(reply));
  });
  return asked;
}

TEST(RemoteCalls, CarryBytesBothWays) {
  HeldServer server;
  RemoteChannel channel(server.address(), {});
  auto asked = ask(channel, {piece_of("question "), piece_of(std::string(1 << 22, 'q'))});
  const auto call = server.next();
  EXPECT_EQ(text_of(call->request()), "question " + std::string(1 << 22, 'q'));
  EXPECT_GT(call->time_left(), milliseconds(1000));
  EXPECT_LT(call->time_left(), kSoon + milliseconds(1000));  // two clocks
  EXPECT_NE(call->peer().find("127.0.0.1"), std::string::npos);
  call->reply({piece_of("ans"), piece_of("wer")});
  call->reply({piece_of("the first counts")});
  const RemoteReply reply = asked.reply.get();
  EXPECT_FALSE(reply.failure.has_value());
  EXPECT_EQ(text_of(reply.message), "answer");
}

TEST(RemoteCalls, KeepWhatTheySendUntilItIsSentAndNoLonger) {
  HeldServer server;
  RemoteChannel channel(server.address(), {});
  auto bytes = std::make_shared<const std::string>(1 << 20, 'x');
  const std::weak_ptr<const std::string> watched = bytes;
  Piece piece{bytes->data(), bytes->size(), bytes};
  bytes.reset();
  auto asked = ask(channel, {std::move(piece)});
  EXPECT_EQ(size_of(server.next()->request()), std::size_t{1} << 20);  // dropped: an answer too
  EXPECT_EQ(asked.reply.get().failure->code, ErrorCode::kInternal);
  for (int i = 0; i < 1000 && !watched.expired(); ++i) std::this_thread::yield();
  channel.close();
  EXPECT_TRUE(watched.expired());
}

TEST(RemoteCalls, ThatAreDroppedGetAnAnswerThatSaysSo) {
  HeldServer server;
  RemoteChannel channel(server.address(), {});
  auto asked = ask(channel, {piece_of("x")});
  server.next().reset();
  const RemoteReply reply = asked.reply.get();
  EXPECT_EQ(reply.failure->code, ErrorCode::kInternal);
  EXPECT_NE(reply.failure->message.find("dropped without an answer"), std::string::npos);
}

TEST(RemoteCalls, EndAtTheirDeadlineOnBothSides) {
  HeldServer server;
  RemoteChannel channel(server.address(), {});
  auto asked = ask(channel, {piece_of("x")}, {.timeout = milliseconds(300)});
  const auto call = server.next();
  EXPECT_EQ(asked.reply.get().failure->code, ErrorCode::kDeadlineExceeded);
  while (!call->is_cancelled()) std::this_thread::yield();
  EXPECT_EQ(call->time_left(), milliseconds(0));
  call->reply({piece_of("too late")});
}

TEST(RemoteCalls, ThatTheCallerCancelsAreCancelledAtTheServer) {
  HeldServer server;
  RemoteChannel channel(server.address(), {});
  auto asked = ask(channel, {piece_of("x")});
  const auto call = server.next();
  EXPECT_FALSE(call->is_cancelled());
  asked.cancel();
  EXPECT_EQ(asked.reply.get().failure->code, ErrorCode::kCancelled);
  while (!call->is_cancelled()) std::this_thread::yield();
  asked.cancel();  // again, and after the end, does nothing
}

TEST(RemoteCalls, UnderWayEndWhenTheirChannelIsClosed) {
  HeldServer server;
  RemoteChannel channel(server.address(), {});
  auto asked = ask(channel, {piece_of("x")});
  const auto call = server.next();
  channel.close();
  EXPECT_EQ(asked.reply.get().failure->code, ErrorCode::kCancelled);
  EXPECT_EQ(ask(channel, {piece_of("y")}).reply.get().failure->code, ErrorCode::kCancelled);
  EXPECT_EQ(server.count(), 1);
}

TEST(RemoteCalls, OfManyClientsThatEndAtOnceLeaveNothingBehind) {
  HeldServer server;
  for (int round = 0; round < 50; ++round) {
    RemoteChannel channel(server.address(), {});
    std::vector<Asked> asked;
    for (int i = 0; i < 8; ++i) asked.push_back(ask(channel, {piece_of("x")}));
    for (int i = 0; i < 4; ++i) server.next()->reply({piece_of("y")});
  }
}

TEST(RemoteCalls, UnderWayAreCancelledWhenTheirServerEnds) {
  auto server = std::make_unique<HeldServer>();
  RemoteChannel channel(server->address(), {});
  auto asked = ask(channel, {piece_of("x")});
  auto call = server->next();
  std::thread ending([&] { server->server().shutdown(); });
  while (!call->is_cancelled()) std::this_thread::yield();
  call.reset();  // the server waits for the answer
  ending.join();
  EXPECT_NE(asked.reply.get().failure, std::nullopt);
}

TEST(RemoteCalls, WaitForAServerThatComesLaterOrFailAtOnceAsAsked) {
  std::string address;
  {
    HeldServer soon_gone;
    address = soon_gone.address();
  }
  RemoteChannel channel(address, {});
  const RemoteReply at_once =
      ask(channel, {piece_of("x")}, {.timeout = kSoon, .wait_for_ready = false}).reply.get();
  EXPECT_EQ(at_once.failure->code, ErrorCode::kUnavailable);
  EXPECT_NE(at_once.failure->message.find(address), std::string::npos);
  EXPECT_EQ(ask(channel, {piece_of("x")}, {.timeout = milliseconds(50)}).reply.get().failure->code,
            ErrorCode::kDeadlineExceeded);
  auto asked = ask(channel, {piece_of("x")});
  HeldServer server({}, address);
  server.next()->reply({piece_of("here")});
  EXPECT_EQ(text_of(asked.reply.get().message), "here");
}

TEST(RemoteCalls, OverTheCapAreRefusedAndTheServerLives) {
  HeldServer server;
  RemoteChannel channel(server.address(), {});
  const RemoteReply reply =
      ask(channel, {piece_of(std::string(kMostMessageBytes + 1, 'x'))}).reply.get();
  EXPECT_EQ(reply.failure->code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(server.count(), 0);
  auto asked = ask(channel, {piece_of("x")});
  server.next()->reply({piece_of("y")});
  EXPECT_EQ(text_of(asked.reply.get().message), "y");
}

TEST(RemoteCalls, WithoutTheTokenReachNoMethod) {
  const Security secured{.token_file = files().path("token")};
  HeldServer server(secured);
  const auto* file =
      google::protobuf::DescriptorPool::generated_pool()->FindFileByName("tutti/remote.proto");
  ASSERT_NE(file, nullptr);
  int methods = 0;
  for (int i = 0; i < file->service_count(); ++i) {
    for (int j = 0; j < file->service(i)->method_count(); ++j, ++methods) {
      const auto* method = file->service(i)->method(j);
      const std::string path = "/" + method->service()->full_name() + "/" + method->name();
      for (const Security& security :
           {Security{}, Security{.token_file = files().path("other_token")}}) {
        const Channel channel(server.address(), security);
        grpc::GenericStub stub(channel.grpc());
        grpc::ClientContext context;
        channel.prepare(context, kSoon);
        grpc::Slice empty;
        grpc::ByteBuffer request(&empty, 1), reply;
        std::promise<grpc::Status> promise;
        stub.UnaryCall(&context, path, {}, &request, &reply,
                       [&](grpc::Status status) { promise.set_value(status); });
        EXPECT_EQ(promise.get_future().get().error_code(), grpc::StatusCode::UNAUTHENTICATED)
            << path;
      }
    }
  }
  EXPECT_GE(methods, 1);
  EXPECT_EQ(server.count(), 0);
  RemoteChannel channel(server.address(), secured);
  auto asked = ask(channel, {piece_of("x")});
  server.next()->reply({piece_of("y")});
  EXPECT_EQ(text_of(asked.reply.get().message), "y");
}

TEST(RemoteCalls, AcrossTlsCarryBytes) {
  HeldServer server(files().security());
  RemoteChannel channel(server.address(), files().security());
  auto asked = ask(channel, {piece_of("x")});
  server.next()->reply({piece_of(std::string(1 << 20, 'y'))});
  EXPECT_EQ(text_of(asked.reply.get().message), std::string(1 << 20, 'y'));
}

}  // namespace
}  // namespace tutti::rpc
