#include "tutti/remote/rpc.h"

#include <algorithm>

#include "remote/method_client.h"
#include "remote/method_server.h"
#include "remote/security.h"
#include "rpc/address.h"
#include "tutti/base/text.h"

namespace tutti::distribute::rpc {
namespace {

constexpr int64_t kDefaultTimeoutMs = 30 * 60 * 1000;

void check_layer(const char* operation, const std::string& rpc_layer) {
  if (rpc_layer != "grpc") {
    throw InvalidArgument(
        cat(operation, ": rpc_layer \"", rpc_layer, "\", expected \"grpc\", the only one"));
  }
}

/// Throws InvalidArgument unless the values are what the specs say.
void check_specs(const std::string& operation, const SpecNest& found, const SpecNest& expected) {
  bool fits = same_structure(found, expected);
  if (fits) {
    const auto of_found = flatten(found);
    const auto of_expected = flatten(expected);
    for (std::size_t i = 0; i < of_found.size() && fits; ++i)
      fits = of_expected[i].accepts(of_found[i]);
  }
  if (!fits) throw InvalidArgument(cat(operation, ": found ", found, ", expected ", expected));
}

}  // namespace

bool CallContext::is_cancelled() const { return call_->is_cancelled(); }
std::chrono::milliseconds CallContext::time_left() const { return call_->time_left(); }
std::string CallContext::peer() const { return call_->peer(); }

namespace internal {

const std::vector<Nest>& expect_arguments(const std::string& name, const Nest& arguments,
                                          std::size_t count) {
  const bool many = arguments.kind() == NestKind::kTuple || arguments.kind() == NestKind::kList;
  if (!many || arguments.size() != count) {
    throw InvalidArgument(cat("rpc function \"", name, "\": found the arguments ",
                              arguments.structure(), ", expected ", count));
  }
  return arguments.items();
}

void refuse_argument(const std::string& name, std::size_t index, const std::string& why) {
  throw InvalidArgument(cat("rpc function \"", name, "\", argument ", index, ": ", why));
}

Nest arguments_of(Nest nest) {
  if (nest.kind() == NestKind::kTuple) return nest;
  if (nest.kind() == NestKind::kList) return Nest::tuple(nest.items());
  return Nest::tuple({std::move(nest)});
}

}  // namespace internal

// --- Server ------------------------------------------------------------------------------------

struct Server::Impl {
  Impl(std::string the_address, ServerOptions the_options)
      : address(std::move(the_address)), options(std::move(the_options)) {}

  const std::string address;
  const ServerOptions options;
  mutable Mutex mutex;
  std::map<std::string, remote::Method> methods TUTTI_GUARDED_BY(mutex);
  std::unique_ptr<remote::MethodServer> server TUTTI_GUARDED_BY(mutex);
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;

Server Server::create(const std::string& rpc_layer, const std::string& address,
                      const ServerOptions& options) {
  check_layer("rpc::Server::create", rpc_layer);
  if (options.threads < 0)
    throw InvalidArgument(cat("rpc::Server::create: ", options.threads,
                              " threads, expected at least 1, or 0 for the number of cores"));
  tutti::rpc::parse_address(address);
  return Server(std::make_unique<Impl>(address, options));
}

void Server::register_nest_function(const std::string& name, NestFunction fn,
                                    const RegisterOptions& options) {
  MutexLock lock(impl_->mutex);
  const std::string operation = cat("rpc::Server::register_function [", name, "]: ");
  if (name.empty()) throw InvalidArgument(operation + "an empty name, expected one to call it by");
  if (!fn) throw InvalidArgument(operation + "no function, expected one");
  if (impl_->server) {
    throw FailedPrecondition(operation +
                             "the server has started. All methods must be registered before "
                             "starting the server; register it before start()");
  }
  if (impl_->methods.contains(name))
    throw InvalidArgument(operation + "registered already, expected a name of its own");
  if (options.input_signature) {
    fn = [signature = *options.input_signature, name, inner = std::move(fn)](
             const CallContext& context, const Nest& arguments) {
      check_specs(cat("rpc function \"", name, "\""), spec_of(arguments), signature);
      return inner(context, arguments);
    };
  }
  impl_->methods.emplace(name, std::move(fn));
}

void Server::start() {
  MutexLock lock(impl_->mutex);
  if (impl_->server) return;
  impl_->server = std::make_unique<remote::MethodServer>(
      impl_->methods,
      remote::MethodServerOptions{.address = impl_->address,
                                  .security = remote::security_of(impl_->options.config),
                                  .threads = static_cast<std::size_t>(impl_->options.threads)});
}

std::string Server::address() const {
  MutexLock lock(impl_->mutex);
  return impl_->server ? impl_->server->address() : impl_->address;
}

// --- StatusOrResult ----------------------------------------------------------------------------

struct StatusOrResult::Impl {
  std::string operation;
  std::shared_ptr<remote::PendingCall> call;
  std::optional<SpecNest> output_specs;
};

bool StatusOrResult::is_ok() const { return !impl_->call->wait().failure.has_value(); }

std::pair<int, std::string> StatusOrResult::get_error() const {
  const remote::Outcome& outcome = impl_->call->wait();
  if (!outcome.failure) return {0, ""};
  return {static_cast<int>(outcome.failure->code), outcome.failure->message};
}

Nest StatusOrResult::get_value() const {
  const remote::Outcome& outcome = impl_->call->wait();
  if (outcome.failure)
    throw_error(outcome.failure->code, cat(impl_->operation, ": ", outcome.failure->message));
  if (impl_->output_specs)
    check_specs(cat(impl_->operation, ", result"), spec_of(outcome.value), *impl_->output_specs);
  return outcome.value;
}

void StatusOrResult::cancel() { impl_->call->cancel(); }

// --- Client ------------------------------------------------------------------------------------

struct Client::Impl {
  Impl(const std::string& address, const ClientOptions& the_options)
      : options(the_options), client(address, remote::security_of(the_options.config)) {}

  std::string operation(const std::string& method) const {
    return cat("rpc::Client", options.name.empty() ? "" : cat(" \"", options.name, "\""), " [",
               method.empty() ? "list of methods" : method, " at ", client.address(), "]");
  }
  std::shared_ptr<remote::PendingCall> start(const std::string& method, const Nest& args,
                                             int64_t timeout_in_ms) {
    const std::string what = operation(method);
    if (timeout_in_ms < 0)
      throw InvalidArgument(cat(what, ": timeout_in_ms ", timeout_in_ms, ", expected 0 or more"));
    if (timeout_in_ms == 0) timeout_in_ms = options.timeout_in_ms;
    if (timeout_in_ms == 0) timeout_in_ms = kDefaultTimeoutMs;
    return client.call(what, method, args, {.timeout = std::chrono::milliseconds(timeout_in_ms)});
  }

  const ClientOptions options;
  remote::MethodClient client;
  std::vector<std::string> methods;
};

Client Client::create(const std::string& rpc_layer, const std::string& address,
                      const ClientOptions& options) {
  check_layer("rpc::Client::create", rpc_layer);
  tutti::rpc::parse_address(address);
  if (options.timeout_in_ms < 0) {
    throw InvalidArgument(cat("rpc::Client::create [", address, "]: timeout_in_ms ",
                              options.timeout_in_ms, ", expected 0 or more"));
  }
  auto impl = std::make_shared<Impl>(address, options);
  if (options.list_registered_methods) {
    const auto call = impl->start("", Nest::tuple({}), 0);
    const remote::Outcome& outcome = call->wait();
    if (outcome.failure)
      throw_error(outcome.failure->code, cat(impl->operation(""), ": ", outcome.failure->message));
    const auto names = outcome.value.strings().values();
    impl->methods.assign(names.begin(), names.end());
  }
  return Client(std::move(impl));
}

StatusOrResult Client::call(const std::string& method_name, const Nest& args,
                            const CallOptions& options) const {
  if (method_name.empty())
    throw InvalidArgument(cat(impl_->operation(""), ": an empty name, expected a method's"));
  auto result = std::make_shared<StatusOrResult::Impl>();
  result->operation = impl_->operation(method_name);
  result->call = impl_->start(method_name, internal::arguments_of(args), options.timeout_in_ms);
  result->output_specs = options.output_specs;
  return StatusOrResult(std::move(result));
}

const std::vector<std::string>& Client::registered_methods() const { return impl_->methods; }

RegisteredMethod Client::operator[](const std::string& method_name) const {
  const auto& methods = impl_->methods;
  if (std::find(methods.begin(), methods.end(), method_name) == methods.end()) {
    throw NotFound(cat(impl_->operation(method_name), ": no such method, expected one of ",
                       join(methods, ", "),
                       "; a client asks for them when it is made, with list_registered_methods"));
  }
  return RegisteredMethod(*this, method_name);
}

}  // namespace tutti::distribute::rpc
