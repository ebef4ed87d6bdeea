#pragma once
// Ports of this machine that nobody else is given while the job lives.

#include <set>
#include <string>
#include <vector>

namespace tutti::launcher {

/// Holds ports by bound sockets that do not listen. The kernel gives such a port to nobody who asks
/// for any port, while a server that asks for this one, with SO_REUSEADDR as gRPC, Gloo and c10d
/// do, may listen on it. Two launchers never hold the same port.
class HeldPorts {
 public:
  HeldPorts() = default;
  ~HeldPorts();
  HeldPorts(const HeldPorts&) = delete;
  HeldPorts& operator=(const HeldPorts&) = delete;

  /// A port of `address` (a numeric one of this machine; a name stands for all addresses). 0 asks
  /// for any. Throws Unavailable when it is taken, InvalidArgument for another machine's address.
  int hold(const std::string& address, int port = 0);

 private:
  std::vector<int> sockets_;
};

/// A port for a task on a machine where none can be held: one of 20000 to 29999, below those that
/// the kernel gives away, drawn at random and not in `taken`, to which it is added.
int draw_port(std::set<int>& taken);

}  // namespace tutti::launcher
