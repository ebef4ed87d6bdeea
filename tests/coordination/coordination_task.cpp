// One task of a cluster, for tests: takes commands on standard input and answers each by one line,
// "ok …" or "error CODE message". Without LibTorch: it starts at once.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "coordination/agent.h"
#include "coordination/service.h"
#include "tutti/base/text.h"

namespace tutti::coordination {
namespace {

Cluster workers(int count) {
  Cluster cluster;
  for (int i = 0; i < count; ++i) cluster["worker"].push_back(cat("host", i, ":1"));
  return cluster;
}

class Task {
 public:
  explicit Task(int workers_count) : cluster_(workers(workers_count)) {}

  std::string run(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "serve") return serve(words);
    if (verb == "join") return join(words);
    if (verb == "shutdown") return service_->shutdown(time(words)) ? "all left" : "not all left";
    if (verb == "exit") ::_exit(static_cast<int>(number(words)));
    return on_agent(verb, words);
  }

 private:
  static int64_t number(std::istream& words) {
    int64_t value = 0;
    words >> value;
    return value;
  }
  static Milliseconds time(std::istream& words) { return Milliseconds(number(words)); }
  static std::string word(std::istream& words) {
    std::string value;
    words >> value;
    return value;
  }
  static std::string rest(std::istream& words) {
    std::string value;
    std::getline(words >> std::ws, value);
    return value;
  }

  /// serve HEARTBEAT PING PROGRESS [ADDRESS]
  std::string serve(std::istream& words) {
    Limits limits;
    limits.heartbeat_interval = time(words);
    limits.ping_limit = time(words);
    limits.progress_limit = time(words);
    std::string address = word(words);
    if (address.empty()) address = "127.0.0.1:0";
    service_ = std::make_unique<CoordinationService>(
        ServiceOptions{.cluster = cluster_,
                       .address = address,
                       .security = rpc::Security::from_environment(),
                       .limits = limits});
    return service_->address();
  }
  /// join TASK LEADER TIMEOUT SAY_EVERY [GENERATION]
  std::string join(std::istream& words) {
    AgentOptions options{.cluster = cluster_, .security = rpc::Security::from_environment()};
    options.task = word(words);
    options.leader_address = word(words);
    options.join_timeout = time(words);
    options.say_every = time(words);
    options.generation = static_cast<uint64_t>(number(words));
    agent_ = std::make_unique<CoordinationAgent>(options);
    return cat(agent_->generation());
  }
  std::string on_agent(const std::string& verb, std::istream& words) {
    if (!agent_) throw FailedPrecondition("join first");
    if (verb == "barrier") {
      const std::string name = word(words);
      agent_->barrier(name, {.timeout = time(words)});
      return "";
    }
    if (verb == "set") {
      const std::string key = word(words);
      agent_->set(key, rest(words));
      return "";
    }
    if (verb == "get") {
      const std::string key = word(words);
      return agent_->get(key, time(words));
    }
    if (verb == "progress") {
      const int64_t step = number(words);
      agent_->report_progress(step, rest(words));
      return "";
    }
    if (verb == "await") {  // progress of a task that waits for others
      const int64_t step = number(words);
      agent_->report_progress(step, rest(words), /*waiting=*/true);
      return "";
    }
    if (verb == "report") {
      const auto code = static_cast<ErrorCode>(number(words));
      return agent_->report_error(code, rest(words)).message;
    }
    if (verb == "wait_failure") {
      const auto failure = agent_->wait_for_failure(time(words));
      return failure ? cat(failure->task, " ", to_string(failure->code), " ", failure->message)
                     : "none";
    }
    if (verb == "leave") {
      agent_->leave(time(words));
      return "";
    }
    throw InvalidArgument(cat("unknown command ", verb));
  }

  // The agent goes first.
  Cluster cluster_;
  std::unique_ptr<CoordinationService> service_;
  std::unique_ptr<CoordinationAgent> agent_;
};

}  // namespace
}  // namespace tutti::coordination

int main(int, char** arguments) {
  using tutti::Error;
  tutti::coordination::Task task(std::stoi(arguments[1]));
  std::string line;
  while (std::getline(std::cin, line)) {
    try {
      const std::string text = task.run(line);
      std::cout << "ok" << (text.empty() ? "" : " ") << text << std::endl;
    } catch (const Error& error) {
      std::cout << "error " << to_string(error.code()) << " " << error.what() << std::endl;
    }
  }
  return 0;
}
