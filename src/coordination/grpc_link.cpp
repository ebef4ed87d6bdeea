#include "coordination/grpc_link.h"

#include <set>

#include "rpc/channel.h"
#include "rpc/status.h"
#include "tutti/base/text.h"
#include "tutti/coordination.grpc.pb.h"

namespace tutti::coordination {
namespace {

/// The calls under way, so that close() can end them and wait for the last.
class CallsUnderWay {
 public:
  /// False once closed.
  bool add(grpc::ClientContext* context) {
    MutexLock lock(mutex_);
    if (closed_) return false;
    contexts_.insert(context);
    return true;
  }
  void remove(grpc::ClientContext* context) {
    MutexLock lock(mutex_);
    contexts_.erase(context);
    // Under the lock: close() may return, and this go, as soon as the set is empty.
    empty_.notify_all();
  }
  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
    while (!contexts_.empty()) empty_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  ConditionVariable empty_;
  std::set<grpc::ClientContext*> contexts_ TUTTI_GUARDED_BY(mutex_);
  bool closed_ TUTTI_GUARDED_BY(mutex_) = false;
};

v1::Failure failure_of(const std::string& address, const grpc::Status& status) {
  std::string text = cat(address, ": ", status.error_message());
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    text +=
        "; another service listens there, expected Tutti's coordination; compare the leader's "
        "address";
  }
  return make_failure(rpc::code_of(status), text);
}

/// The stream of one Join; deletes itself when gRPC is done with it.
class JoinStream final : public grpc::ClientReadReactor<v1::Event> {
 public:
  JoinStream(const rpc::Channel& channel, v1::Coordination::Stub& stub,
             const v1::JoinRequest& request, Listener& listener, CallsUnderWay& calls)
      : address_(channel.address()), listener_(listener), calls_(calls), request_(request) {
    channel.prepare_stream(context_);
    if (!calls_.add(&context_)) context_.TryCancel();
    stub.async()->Join(&context_, &request_, this);
    StartRead(&event_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    listener_.on_event(event_);
    StartRead(&event_);
  }
  void OnDone(const grpc::Status& status) override {
    const v1::Failure failure = failure_of(address_, status);
    listener_.on_end(status.ok() ? nullptr : &failure);
    CallsUnderWay& calls = calls_;
    grpc::ClientContext* key = &context_;
    calls.remove(key);
    delete this;
  }

 private:
  const std::string address_;
  Listener& listener_;
  CallsUnderWay& calls_;
  grpc::ClientContext context_;
  v1::JoinRequest request_;
  v1::Event event_;
};

struct UnaryCall {
  grpc::ClientContext context;
  v1::Request request;
  v1::Reply reply;
  Link::Done done;
};

class GrpcLink final : public Link {
 public:
  GrpcLink(const std::string& address, const rpc::Security& security)
      : channel_(address, security), stub_(v1::Coordination::NewStub(channel_.grpc())) {}
  ~GrpcLink() override { close(); }

  void join(const v1::JoinRequest& request, Listener& listener) override {
    new JoinStream(channel_, *stub_, request, listener, calls_);
  }

  void call(const v1::Request& request, Milliseconds timeout, Done done) override {
    auto call = std::make_shared<UnaryCall>();
    call->request = request;
    call->done = std::move(done);
    channel_.prepare(call->context, timeout);
    if (!calls_.add(&call->context)) {
      call->done(false, reply_of(make_failure(ErrorCode::kCancelled, "the link is closed")));
      return;
    }
    stub_->async()->Call(&call->context, &call->request, &call->reply,
                         [this, call](const grpc::Status& status) {
                           if (status.ok()) {
                             call->done(true, std::move(call->reply));
                           } else {
                             call->done(false, reply_of(failure_of(channel_.address(), status)));
                           }
                           calls_.remove(&call->context);
                         });
  }

  void close() override { calls_.close(); }
  std::string address() const override { return channel_.address(); }

 private:
  const rpc::Channel channel_;
  const std::unique_ptr<v1::Coordination::Stub> stub_;
  CallsUnderWay calls_;
};

}  // namespace

std::unique_ptr<Link> make_grpc_link(const std::string& address, const rpc::Security& security) {
  return std::make_unique<GrpcLink>(address, security);
}

}  // namespace tutti::coordination
