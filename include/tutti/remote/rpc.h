#pragma once
// Functions of another process, called by name with nests of tensors:
// tf.distribute.experimental.rpc. docs/remote_calls.md.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/coordination/server.h"
#include "tutti/tensor/static_nest.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::rpc {
class IncomingCall;
}

namespace tutti::distribute::rpc {

/// What a function may ask about the call that it serves. Valid while it runs.
class CallContext {
 public:
  explicit CallContext(const tutti::rpc::IncomingCall* call) : call_(call) {}
  /// The caller has gone, has given up, or the server ends: nobody waits for the result.
  bool is_cancelled() const;
  /// Until the caller's deadline; not negative.
  std::chrono::milliseconds time_left() const;
  /// The caller's address.
  std::string peer() const;

 private:
  const tutti::rpc::IncomingCall* call_;
};

/// A function of the tuple of all arguments; an undefined result is None.
using NestFunction = std::function<Nest(const CallContext& context, const Nest& arguments)>;

namespace internal {

/// Result and parameters of a lambda, a function or a std::function.
template <class F>
struct Signature : Signature<decltype(&F::operator())> {};
template <class R, class... Args>
struct Signature<R (*)(Args...)> {
  using Result = R;
  using Parameters = std::tuple<std::decay_t<Args>...>;
};
template <class R, class C, class... Args>
struct Signature<R (C::*)(Args...)> : Signature<R (*)(Args...)> {};
template <class R, class C, class... Args>
struct Signature<R (C::*)(Args...) const> : Signature<R (*)(Args...)> {};
template <class R, class... Args>
struct Signature<R(Args...)> : Signature<R (*)(Args...)> {};

/// A first parameter that is a CallContext is no argument of the call's.
template <class Parameters>
struct Arguments {
  using Type = Parameters;
  static constexpr bool kTakesContext = false;
};
template <class... Rest>
struct Arguments<std::tuple<CallContext, Rest...>> {
  using Type = std::tuple<Rest...>;
  static constexpr bool kTakesContext = true;
};

/// Throws InvalidArgument unless `arguments` is a tuple or list of `count`.
const std::vector<Nest>& expect_arguments(const std::string& name, const Nest& arguments,
                                          std::size_t count);
[[noreturn]] void refuse_argument(const std::string& name, std::size_t index,
                                  const std::string& why);

template <class T>
T argument(const std::string& name, const std::vector<Nest>& items, std::size_t index) {
  try {
    return from_nest<T>(items[index]);
  } catch (const InvalidArgument& error) {
    refuse_argument(name, index, error.what());
  }
}

template <class F, class... Args, std::size_t... kIndex>
Nest invoke_with(const F& fn, const std::string& name, const CallContext& context,
                 const Nest& arguments, std::tuple<Args...>*, std::index_sequence<kIndex...>) {
  using Parts = Arguments<typename Signature<F>::Parameters>;
  const auto& items = expect_arguments(name, arguments, sizeof...(Args));
  // In braces: the arguments are taken in order.
  auto taken = std::tuple<Args...>{argument<Args>(name, items, kIndex)...};
  const auto invoke = [&]() -> decltype(auto) {
    if constexpr (Parts::kTakesContext) {
      return fn(context, std::get<kIndex>(std::move(taken))...);
    } else {
      return fn(std::get<kIndex>(std::move(taken))...);
    }
  };
  if constexpr (std::is_void_v<typename Signature<F>::Result>) {
    invoke();
    return Nest();
  } else {
    return to_nest(invoke());
  }
}

template <class F>
NestFunction nest_function(std::string name, F fn) {
  return [name = std::move(name), fn = std::move(fn)](const CallContext& context,
                                                      const Nest& arguments) -> Nest {
    using Args = typename Arguments<typename Signature<F>::Parameters>::Type;
    return invoke_with(fn, name, context, arguments, static_cast<Args*>(nullptr),
                       std::make_index_sequence<std::tuple_size_v<Args>>());
  };
}

/// The tuple of arguments that a caller's nest is: a list or tuple, or one argument.
Nest arguments_of(Nest nest);

}  // namespace internal

struct ServerOptions {
  /// Of the address, certificates and tokens; listen_address is not used.
  ServerConfig config = {};
  /// That run functions; 0: as many as there are cores, and 4 at least. A function that waits for
  /// another call to this server needs a thread of its own.
  int threads = 0;
};

struct RegisterOptions {
  /// What the arguments must be: a tuple with a nest of specs for each. Not given: only what the
  /// function's parameters tell.
  std::optional<SpecNest> input_signature = std::nullopt;
};

/// Serves registered functions from start() until it is destroyed, on threads of its own, several
/// calls at once. Members may be called from any thread.
class Server {
 public:
  /// `address` is host:port; port 0 takes a free one. Throws InvalidArgument for another rpc_layer
  /// than "grpc".
  static Server create(const std::string& rpc_layer, const std::string& address,
                       const ServerOptions& options = {});
  ~Server();
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;

  /// Makes `fn` callable as `name`. Its parameters and its result are tensors, strings or nests of
  /// them; a first parameter of type CallContext tells of the call. What it throws reaches the
  /// caller with its code. It must be safe to call from several threads at once. Tensors of a
  /// result that others hold too are copied. Throws InvalidArgument for an empty name or one that
  /// is registered, FailedPrecondition after start().
  template <class F>
  void register_function(const std::string& name, F fn, const RegisterOptions& options = {}) {
    register_nest_function(name, internal::nest_function(name, std::move(fn)), options);
  }
  /// The same for a function that takes its arguments as one tuple.
  void register_nest_function(const std::string& name, NestFunction fn,
                              const RegisterOptions& options = {});

  /// Listens; a second call does nothing. Throws AlreadyExists when the port is in use,
  /// FailedPrecondition off loopback without TLS and a token.
  void start();
  /// host:port, once started with the port that was chosen.
  std::string address() const;

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A call's outcome, once it is there; all members but cancel() wait for it, at most until soon
/// after the call's deadline, and say every five seconds whom they wait for. Any thread may call;
/// copies are one call.
class StatusOrResult {
 public:
  /// True when the function returned.
  bool is_ok() const;
  /// Code (an ErrorCode's number) and text of the error; 0 and "" when there is none.
  std::pair<int, std::string> get_error() const;
  /// What the function returned, in memory of its own. Throws the call's error, and
  /// InvalidArgument for a result that `output_specs` or T do not describe.
  Nest get_value() const;
  template <class T>
  T get_value() const {
    return from_nest<T>(get_value());
  }
  /// Gives up: the call ends with Cancelled unless its outcome is there.
  void cancel();

 private:
  friend class Client;
  struct Impl;
  explicit StatusOrResult(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

struct ClientOptions {
  std::string name = "";  ///< of this client, in messages
  /// Asks the server for its functions now, and waits until it is there.
  bool list_registered_methods = true;
  int64_t timeout_in_ms = 0;  ///< of calls that name none; 0: 30 minutes
  ServerConfig config = {};   ///< of certificates and tokens
};

struct CallOptions {
  std::optional<SpecNest> output_specs = std::nullopt;  ///< what the result must be
  int64_t timeout_in_ms = 0;                            ///< 0: the client's
};

class RegisteredMethod;

/// Calls the functions of one server. Any thread may call. Calls under way end with Cancelled when
/// the last copy of the client is gone.
class Client {
 public:
  /// Throws InvalidArgument for another rpc_layer than "grpc", and, when it lists the methods, what
  /// a call would fail with: DeadlineExceeded when no server came in time.
  static Client create(const std::string& rpc_layer, const std::string& address,
                       const ClientOptions& options = {});

  /// Starts a call and returns at once; a server that is not there yet is waited for. `args`: a
  /// list or tuple of the arguments; anything else is the only one. Tensors are sent from where
  /// they lie: they are not to be changed until the outcome is there. Throws InvalidArgument for
  /// arguments that cannot be sent, ResourceExhausted for more than 64 MiB of them.
  StatusOrResult call(const std::string& method_name, const Nest& args = Nest::tuple({}),
                      const CallOptions& options = {}) const;
  template <NestLike T>
  requires(!std::is_same_v<std::decay_t<T>, Nest>) StatusOrResult
      call(const std::string& method_name, const T& args, const CallOptions& options = {})
  const { return call(method_name, to_nest(args), options); }

  /// The functions that were there when the client was made, ascending; none unless it asked.
  const std::vector<std::string>& registered_methods() const;
  /// One of them. Throws NotFound.
  RegisteredMethod operator[](const std::string& method_name) const;

 private:
  struct Impl;
  explicit Client(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

/// A function of a server, called as one of this process.
class RegisteredMethod {
 public:
  RegisteredMethod(Client client, std::string name)
      : client_(std::move(client)), name_(std::move(name)) {}
  /// Client::call with these arguments.
  template <NestLike... Args>
  StatusOrResult operator()(const Args&... args) const {
    return client_.call(name_, Nest::tuple({to_nest(args)...}));
  }
  /// The same, and waits for the result; throws the call's error.
  template <NestLike... Args>
  Nest blocking(const Args&... args) const {
    return (*this)(args...).get_value();
  }

 private:
  Client client_;
  std::string name_;
};

}  // namespace tutti::distribute::rpc
