#include "ps/remote_server.h"

#include <algorithm>
#include <thread>

#include "remote/method_client.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::ps {
namespace {

using Clock = std::chrono::steady_clock;

class RemoteServer final : public AskingServer {
 public:
  explicit RemoteServer(const RemoteServerOptions& options)
      : options_(options), client_(options.address, options.security) {}

 private:
  /// Until there is an answer, or the time is over.
  Nest ask(const std::string& method, const Nest& request) override {
    using std::chrono::milliseconds;
    const std::string operation = cat(method, " at ", options_.address);
    const auto end = Clock::now() + options_.timeout;
    milliseconds pause{10};
    for (int attempt = 1;; ++attempt) {
      const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
      const auto limit = std::clamp(left, milliseconds(1), options_.attempt_timeout);
      const auto call = client_.call(operation, method, request, {.timeout = limit});
      const remote::Outcome& outcome = call->wait();
      if (!outcome.failure) return outcome.value;
      const ErrorCode code = outcome.failure->code;
      const bool lost = outcome.on_the_way &&
                        (code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded);
      if (!lost) throw_error(code, cat(operation, ": ", outcome.failure->message));
      if (Clock::now() + pause >= end) {
        throw DeadlineExceeded(cat(operation, ": no answer in ", options_.timeout.count(),
                                   " ms and ", attempt, " attempts, expected the server there (",
                                   outcome.failure->message, ")"));
      }
      log_debug(operation, ": attempt ", attempt, " was lost: ", outcome.failure->message);
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds(500));
    }
  }

  const RemoteServerOptions options_;
  remote::MethodClient client_;
};

}  // namespace

std::unique_ptr<ParameterServer> make_remote_server(const RemoteServerOptions& options) {
  return std::make_unique<RemoteServer>(options);
}

}  // namespace tutti::ps
