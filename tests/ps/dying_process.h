#pragma once
// A ps_task that is killed and comes back at its address.

#include <memory>
#include <string>
#include <vector>

#include "support/child_process.h"

namespace tutti::testing {

class DyingProcess {
 public:
  /// Arguments in front of the address and behind it.
  DyingProcess(std::vector<std::string> before, std::vector<std::string> after)
      : before_(std::move(before)), after_(std::move(after)) {
    start("127.0.0.1:0");
  }
  void kill() {
    process_->signal(SIGKILL);
    process_->wait();
  }
  void restart() { start(address_); }
  void kill_and_restart() {
    kill();
    restart();
  }
  const std::string& address() const { return address_; }
  ChildProcess& process() { return *process_; }

 private:
  void start(const std::string& address) {
    std::vector<std::string> arguments{beside_this_program("ps_task")};
    arguments.insert(arguments.end(), before_.begin(), before_.end());
    arguments.push_back(address);
    arguments.insert(arguments.end(), after_.begin(), after_.end());
    process_ = std::make_unique<ChildProcess>(arguments);
    address_ = process_->line();
  }

  const std::vector<std::string> before_, after_;
  std::string address_;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace tutti::testing
