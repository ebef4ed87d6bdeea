// A server in a process of its own: prints its address and serves until its input ends.
#include <ATen/ATen.h>

#include <iostream>
#include <string>
#include <thread>

#include "tutti/remote/rpc.h"

int main() {
  using namespace tutti;
  distribute::rpc::Server server = distribute::rpc::Server::create("grpc", "127.0.0.1:0");
  server.register_function("add", [](Tensor a, Tensor b) { return a + b; });
  server.register_function("hang", [](const distribute::rpc::CallContext& context) {
    std::cout << "hangs" << std::endl;
    while (!context.is_cancelled()) std::this_thread::yield();
  });
  server.start();
  std::cout << server.address() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
}
