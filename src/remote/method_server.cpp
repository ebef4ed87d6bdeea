#include "remote/method_server.h"

#include <new>

#include "remote/nest_message.h"
#include "tutti/base/text.h"

namespace tutti::remote {
namespace {

using tutti::rpc::IncomingCall;
using tutti::rpc::Message;
using tutti::rpc::MessageFailure;

void answer_failure(IncomingCall& call, MessageFailure failure) {
  Message reply;
  reply.failure = std::move(failure);
  call.reply(tutti::rpc::encode_message(reply, "remote call"));
}

void answer(IncomingCall& call, const Nest& result, const std::string& operation) {
  Message reply;
  append_nest(result, operation, Sharing::kCopy, reply);
  call.reply(tutti::rpc::encode_message(reply, operation));
}

}  // namespace

MessageFailure failure_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return {ours->code(), ours->what()};
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return {ErrorCode::kResourceExhausted, "out of memory"};
  const std::string text = error.what();  // LibTorch adds its stack
  return {ErrorCode::kInternal, text.substr(0, text.find('\n'))};
}

MethodServer::MethodServer(std::map<std::string, Method> methods,
                           const MethodServerOptions& options)
    : methods_(std::move(methods)), pool_(options.threads, options.most_waiting) {
  server_ = std::make_unique<tutti::rpc::RemoteServer>(
      options.address, options.security,
      [this](std::shared_ptr<IncomingCall> call) { on_call(std::move(call)); });
}

MethodServer::~MethodServer() { stop(); }

void MethodServer::stop() {
  // The server cancels the calls and waits for their answers, so the pool goes on meanwhile.
  if (server_) server_->shutdown();
  pool_.stop();
}

void MethodServer::on_call(std::shared_ptr<IncomingCall> call) {
  const bool taken = pool_.add([this, call] {
    if (call->is_cancelled()) {  // it waited for too long
      return answer_failure(*call,
                            {ErrorCode::kCancelled, "remote call: cancelled while it waited"});
    }
    try {
      const Message request = tutti::rpc::decode_message(call->request());
      const Nest result = run(CallContext(call.get()), request);
      answer(*call, result, cat("remote call [", request.method, "]"));
    } catch (const std::exception& error) {
      answer_failure(*call, failure_of(error));
    } catch (...) {
      answer_failure(*call, {ErrorCode::kInternal, "the method threw what is no exception"});
    }
  });
  if (!taken) {
    answer_failure(*call, {ErrorCode::kResourceExhausted,
                           "remote call: the server has as many calls waiting as it takes, or is "
                           "ending; call again later"});
  }
}

Nest MethodServer::run(const CallContext& context, const Message& request) const {
  if (request.method.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, method] : methods_) names.push_back(name);
    return Nest(StringTensor(std::move(names)));
  }
  const auto found = methods_.find(request.method);
  if (found == methods_.end()) {
    std::vector<std::string> names;
    for (const auto& [name, method] : methods_) names.push_back(name);
    throw NotFound(cat("remote call: no method \"", request.method.substr(0, 200),
                       "\", expected one of ", join(names, ", ")));
  }
  return found->second(context, nest_of(request));
}

}  // namespace tutti::remote
