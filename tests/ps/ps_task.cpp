// A parameter server in a process of its own.
//   ps_task ADDRESS FOLDER   prints its address; each line of input "commit" commits and prints the
//                            number of changes that were in the log; ends with its input.
//   ps_task worker INDEX ADDRESS SERVER   runs functions for a coordinator, with a parameter
//   server;
//                            prints its address; ends with its input. Functions: "add", a push of
//                            -1 under the tag of its argument; "numbers", an iterator, and "next".
//   ps_task push ADDRESS WORKER INCARNATION COUNT   pushes COUNT times, printing each sequence when
//                            it was answered.
#include <ATen/ATen.h>

#include <iostream>
#include <string>
#include <thread>

#include "ps/durable_server.h"
#include "ps/remote_server.h"
#include "ps/remote_worker.h"

namespace {

using namespace tutti;

int serve(const std::string& address, const std::string& folder) {
  ps::DurableServer server(folder);
  remote::MethodServer serving(ps::methods_of(server), {.address = address});
  std::cout << serving.address() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << server.logged() << std::endl;
    server.commit();
  }
  return 0;
}

int push(const std::string& address, const std::string& worker, uint64_t incarnation, int count) {
  const auto server = ps::make_remote_server({.address = address});
  for (int i = 1; i <= count; ++i) {
    server->push({worker, incarnation, static_cast<uint64_t>(i)}, 0, {{0, at::full({8}, -1.0)}});
    std::cout << i << std::endl;
  }
  return 0;
}

int work(int64_t index, const std::string& address, const std::string& server_address) {
  const auto server = ps::make_remote_server({.address = server_address});
  auto table = std::make_shared<ps::FunctionTable>();
  table->functions["add"] = [&](const ps::WorkerContext&, const ps::FunctionTable::Call& call) {
    const auto number = call.arguments[0].value.leaf().item<int64_t>();
    server->push({"closures", 1, static_cast<uint64_t>(number)}, 0, {{0, at::full({8}, -1.0)}});
    return Nest(at::scalar_tensor(number, at::kLong));
  };
  table->functions["next"] = [](const ps::WorkerContext&, const ps::FunctionTable::Call& call) {
    return call.resource(call.arguments[0].resource)();
  };
  table->functions["wait"] = [](const ps::WorkerContext& context,
                                const ps::FunctionTable::Call&) -> Nest {
    while (!context.is_cancelled()) std::this_thread::yield();
    throw Cancelled("was told to end");
  };
  table->functions["fail"] = [](const ps::WorkerContext&, const ps::FunctionTable::Call&) -> Nest {
    throw Aborted("a function's own error");
  };
  table->makers["numbers"] = [](const ps::WorkerContext& context) -> ps::Resource {
    return [next = 100 * context.worker]() mutable {
      return Nest(at::scalar_tensor(next++, at::kLong));
    };
  };
  ps::WorkerHost host(index, table);
  remote::MethodServer serving(host.methods(), {.address = address});
  std::cout << serving.address() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 2) return serve(arguments[0], arguments[1]);
    if (arguments.size() == 4) return work(std::stoll(arguments[1]), arguments[2], arguments[3]);
    if (arguments.size() == 5)
      return push(arguments[1], arguments[2], std::stoull(arguments[3]), std::stoi(arguments[4]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
  }
  return 2;
}
