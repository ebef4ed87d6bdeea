#include "coordination/grpc_link.h"

#include <set>

#include "rpc/channel.h"
#include "rpc/status.h"
#include "tutti/base/text.h"
#include "tutti/coordination.grpc.pb.h"

namespace tutti::coordination {
namespace {

/// The calls under way, so that close() can end them and wait for the last.
///
/// A context holds the channel. Were it the last to do so, the channel would end on the thread of
/// gRPC's that destroys the context, and wait there for that same thread. So a call counts until
/// its context is gone: forget(), then destroy it, then done().
class CallsUnderWay {
 public:
  /// False once closed.
  bool add(grpc::ClientContext* context) {
    MutexLock lock(mutex_);
    ++count_;
    if (closed_) return false;
    contexts_.insert(context);
    return true;
  }
  void forget(grpc::ClientContext* context) {
    MutexLock lock(mutex_);
    contexts_.erase(context);
  }
  void done() {
    MutexLock lock(mutex_);
    --count_;
    // Under the lock: close() may return, and this go, as soon as no call is left.
    changed_.notify_all();
  }
  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
    while (count_ > 0) changed_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  std::set<grpc::ClientContext*> contexts_ TUTTI_GUARDED_BY(mutex_);
  int count_ TUTTI_GUARDED_BY(mutex_) = 0;
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
    calls.forget(&context_);
    delete this;
    calls.done();
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
    auto* const call = new UnaryCall;
    call->request = request;
    call->done = std::move(done);
    channel_.prepare(call->context, timeout);
    if (!calls_.add(&call->context)) {
      call->done(false, reply_of(make_failure(ErrorCode::kCancelled, "the link is closed")));
      delete call;
      calls_.done();
      return;
    }
    stub_->async()->Call(&call->context, &call->request, &call->reply,
                         [this, call](const grpc::Status& status) {
                           if (status.ok()) {
                             call->done(true, std::move(call->reply));
                           } else {
                             call->done(false, reply_of(failure_of(channel_.address(), status)));
                           }
                           calls_.forget(&call->context);
                           delete call;
                           calls_.done();
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
