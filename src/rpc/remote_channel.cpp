#include "rpc/remote_channel.h"

#include <grpcpp/generic/generic_stub.h>

#include <set>

#include "base/mutex.h"
#include "rpc/byte_buffer.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "tutti/base/text.h"

namespace tutti::rpc {
namespace {

constexpr char kMethod[] = "/tutti.remote.v1.Remote/Call";

/// A call under way. Its context holds the channel, and a channel whose last holder is a thread of
/// gRPC's own aborts the process (that thread would have to wait for itself): so the context goes
/// before close() can return.
struct OneCall {
  grpc::ByteBuffer request;
  grpc::ByteBuffer response;
  std::function<void(RemoteReply)> done;

  void cancel() {
    MutexLock lock(mutex);
    if (context) context->TryCancel();
  }
  void end() {
    MutexLock lock(mutex);
    context.reset();
  }
  Mutex mutex;
  std::unique_ptr<grpc::ClientContext> context TUTTI_GUARDED_BY(mutex);  // null: over
};

std::string text_of(const std::string& address, const grpc::Status& status) {
  std::string text = cat(address, ": ", status.error_message());
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED)
    text += "; another service listens there, expected Tutti's remote calls; compare the address";
  return text;
}

}  // namespace

struct RemoteChannel::Impl {
  Impl(const std::string& address, const Security& security)
      : channel(address, security), stub(channel.grpc()) {}

  bool add(const std::shared_ptr<OneCall>& call) {
    MutexLock lock(mutex);
    if (closed) return false;
    calls.insert(call);
    return true;
  }
  void finished(const std::shared_ptr<OneCall>& call, const grpc::Status& status) {
    call->end();
    RemoteReply reply;
    if (!status.ok()) {
      reply.failure = {code_of(status), text_of(channel.address(), status)};
    } else {
      try {
        reply.message = pieces_of(call->response);
      } catch (const Error& error) {
        reply.failure = {error.code(), cat(channel.address(), ": ", error.what())};
      }
    }
    call->request.Clear();  // the tensors that were sent
    call->done(std::move(reply));
    call->done = nullptr;
    MutexLock lock(mutex);
    calls.erase(call);
    // Under the lock: close() may return, and this go, as soon as the set is empty.
    empty.notify_all();
  }
  void close() {
    MutexLock lock(mutex);
    closed = true;
    for (const auto& call : calls) call->cancel();
    while (!calls.empty()) empty.wait(mutex);
  }

  const Channel channel;
  grpc::GenericStub stub;
  Mutex mutex;
  ConditionVariable empty;
  std::set<std::shared_ptr<OneCall>> calls TUTTI_GUARDED_BY(mutex);
  bool closed TUTTI_GUARDED_BY(mutex) = false;
};

RemoteChannel::RemoteChannel(const std::string& address, const Security& security)
    : impl_(std::make_unique<Impl>(address, security)) {}
RemoteChannel::~RemoteChannel() { close(); }

const std::string& RemoteChannel::address() const { return impl_->channel.address(); }
void RemoteChannel::close() { impl_->close(); }

std::function<void()> RemoteChannel::call(Pieces message, const RemoteCallOptions& options,
                                          std::function<void(RemoteReply)> done) {
  auto call = std::make_shared<OneCall>();
  call->done = std::move(done);
  auto owned = std::make_unique<grpc::ClientContext>();
  grpc::ClientContext* context = owned.get();  // lives until the reply
  impl_->channel.prepare(*context, options.timeout);
  context->set_wait_for_ready(options.wait_for_ready);
  {
    MutexLock lock(call->mutex);
    call->context = std::move(owned);
  }
  call->request = buffer_of(std::move(message));
  if (!impl_->add(call)) {
    call->done({.failure = MessageFailure{ErrorCode::kCancelled,
                                          cat(address(), ": the client is closed")}});
    return [] {};
  }
  impl_->stub.UnaryCall(
      context, kMethod, {}, &call->request, &call->response,
      [impl = impl_.get(), call](const grpc::Status& status) { impl->finished(call, status); });
  return [weak = std::weak_ptr<OneCall>(call)] {
    if (const auto held = weak.lock()) held->cancel();
  };
}

}  // namespace tutti::rpc
