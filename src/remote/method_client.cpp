#include "remote/method_client.h"

#include "remote/method_server.h"
#include "remote/nest_message.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::remote {
namespace {

constexpr std::chrono::seconds kSayEvery{5};

Outcome outcome_of(tutti::rpc::RemoteReply reply) {
  Outcome outcome;
  if (reply.failure) {
    outcome.failure = std::move(reply.failure);
    outcome.on_the_way = true;
    return outcome;
  }
  try {
    tutti::rpc::Message message = tutti::rpc::decode_message(reply.message);
    if (message.failure) {
      outcome.failure = std::move(message.failure);
    } else {
      outcome.value = nest_of(message);
    }
  } catch (const std::exception& error) {
    outcome.failure = failure_of(error);
    outcome.on_the_way = true;
  }
  return outcome;
}

}  // namespace

PendingCall::PendingCall(std::string what, std::string address)
    : what_(std::move(what)), address_(std::move(address)) {}

const Outcome& PendingCall::wait() const {
  MutexLock lock(mutex_);
  while (!outcome_) {
    if (ended_.wait_for(mutex_, kSayEvery) == std::cv_status::timeout && !outcome_)
      log_info(what_, ": waits for ", address_);
  }
  return *outcome_;  // never changes again
}

bool PendingCall::is_done() const {
  MutexLock lock(mutex_);
  return outcome_.has_value();
}

void PendingCall::cancel() {
  std::function<void()> cancel;
  {
    MutexLock lock(mutex_);
    cancelled_ = true;
    cancel = cancel_;
  }
  if (cancel) cancel();
}

void PendingCall::end(Outcome outcome) {
  MutexLock lock(mutex_);
  outcome_ = std::move(outcome);
  ended_.notify_all();
}

std::shared_ptr<PendingCall> MethodClient::call(const std::string& operation,
                                                const std::string& method, const Nest& arguments,
                                                const tutti::rpc::RemoteCallOptions& options) {
  tutti::rpc::Message message;
  message.method = method;
  append_nest(arguments, operation, Sharing::kKeep, message);
  auto pending = std::make_shared<PendingCall>(operation, address());
  auto cancel = channel_.call(
      tutti::rpc::encode_message(message, operation), options,
      [pending](tutti::rpc::RemoteReply reply) { pending->end(outcome_of(std::move(reply))); });
  bool cancelled = false;
  {
    MutexLock lock(pending->mutex_);
    pending->cancel_ = cancel;
    cancelled = pending->cancelled_;
  }
  if (cancelled) cancel();
  return pending;
}

}  // namespace tutti::remote
