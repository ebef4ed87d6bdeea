#include "rpc/remote_server.h"

#include <atomic>

#include "rpc/byte_buffer.h"
#include "rpc/server.h"
#include "tutti/remote.grpc.pb.h"

namespace tutti::rpc {
namespace {

/// What a call's two holders share: gRPC, until it is done, and the one who answers.
struct CallState {
  std::atomic<bool> cancelled{false};
};

/// Deletes itself when gRPC is done with it, which is after the answer.
class Reactor final : public grpc::ServerUnaryReactor {
 public:
  explicit Reactor(std::shared_ptr<CallState> state) : state_(std::move(state)) {}
  void OnCancel() override { state_->cancelled = true; }
  void OnDone() override { delete this; }

 private:
  const std::shared_ptr<CallState> state_;
};

class Incoming final : public IncomingCall {
 public:
  Incoming(grpc::CallbackServerContext* context, Pieces request, grpc::ByteBuffer* response,
           std::shared_ptr<CallState> state, Reactor* reactor)
      : request_(std::move(request)),
        peer_(context->peer()),
        deadline_(context->raw_deadline()),
        state_(std::move(state)),
        response_(response),
        reactor_(reactor) {}
  ~Incoming() override {
    finish(grpc::Status(grpc::StatusCode::INTERNAL, "the call was dropped without an answer"));
  }

  const Pieces& request() const override { return request_; }
  bool is_cancelled() const override { return state_->cancelled; }
  std::chrono::milliseconds time_left() const override {
    const gpr_timespec left = gpr_time_sub(gpr_convert_clock_type(deadline_, GPR_CLOCK_MONOTONIC),
                                           gpr_now(GPR_CLOCK_MONOTONIC));
    return std::chrono::milliseconds(std::max<int64_t>(0, gpr_time_to_millis(left)));
  }
  std::string peer() const override { return peer_; }

  void reply(Pieces message) override {
    Reactor* reactor = reactor_.exchange(nullptr);
    if (reactor == nullptr) return;
    *response_ = buffer_of(std::move(message));
    reactor->Finish(grpc::Status::OK);
  }

 private:
  void finish(const grpc::Status& status) {
    if (Reactor* reactor = reactor_.exchange(nullptr)) reactor->Finish(status);
  }

  const Pieces request_;
  const std::string peer_;
  const gpr_timespec deadline_;
  const std::shared_ptr<CallState> state_;
  grpc::ByteBuffer* response_;  // gRPC's until the answer
  std::atomic<Reactor*> reactor_;
};

class Service final
    : public remote::v1::Remote::WithRawCallbackMethod_Call<remote::v1::Remote::Service> {
 public:
  explicit Service(OnCall on_call) : on_call_(std::move(on_call)) {}

  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override {
    auto state = std::make_shared<CallState>();
    auto* reactor = new Reactor(state);
    Pieces pieces;
    try {
      pieces = pieces_of(*request);
    } catch (const Error& error) {
      reactor->Finish({static_cast<grpc::StatusCode>(error.code()), error.what()});
      return reactor;
    }
    on_call_(std::make_shared<Incoming>(context, std::move(pieces), response, state, reactor));
    return reactor;
  }

 private:
  const OnCall on_call_;
};

}  // namespace

struct RemoteServer::Impl {
  Impl(const std::string& address, const Security& security, OnCall on_call)
      : service(std::move(on_call)), server(address, security, {&service}) {}
  Service service;
  RpcServer server;
};

RemoteServer::RemoteServer(const std::string& address, const Security& security, OnCall on_call)
    : impl_(std::make_unique<Impl>(address, security, std::move(on_call))) {}
RemoteServer::~RemoteServer() { shutdown(); }

const std::string& RemoteServer::address() const { return impl_->server.address(); }
void RemoteServer::shutdown() { impl_->server.shutdown(std::chrono::milliseconds(0)); }

}  // namespace tutti::rpc
