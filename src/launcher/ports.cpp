#include "launcher/ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "launcher/hosts.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::launcher {
namespace {

// The address as the kernel takes it; all IPv4 addresses for a name.
socklen_t socket_address(const std::string& address, int port, sockaddr_storage& storage) {
  storage = {};
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
    return sizeof *v6;
  }
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  if (inet_pton(AF_INET, address.c_str(), &v4->sin_addr) != 1) v4->sin_addr.s_addr = INADDR_ANY;
  v4->sin_family = AF_INET;
  v4->sin_port = htons(static_cast<uint16_t>(port));
  return sizeof *v4;
}

int port_of(int fd) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof storage;
  getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size);
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
}

// Sockets with SO_REUSEADDR that do not listen may share a port. This name in the same network
// namespace, which ends with the process that has it, tells one launcher of another.
int claim(int port) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  const std::string text = cat("tutti-run:port:", port);
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&name), size) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

[[noreturn]] void refuse(const std::string& address, int port, int error) {
  if (error == EADDRNOTAVAIL) {
    throw InvalidArgument(cat("hold a port [", address, "]: not an address of this machine; give ",
                              "one that is by --host"));
  }
  if (error == EMFILE || error == ENFILE) {
    throw ResourceExhausted(cat("hold a port [", address, "]: ", std::strerror(error),
                                ", expected two descriptors a task; raise ulimit -n"));
  }
  throw Unavailable(cat("hold a port [", address_text(address, port), "]: ", std::strerror(error),
                        ", expected it free; leave out --port, or give another"));
}

}  // namespace

HeldPorts::~HeldPorts() {
  for (const int fd : sockets_) close(fd);
}

int HeldPorts::hold(const std::string& address, int port) {
  constexpr int kTries = 100;
  sockaddr_storage storage;
  const socklen_t size = socket_address(address, port, storage);
  for (int i = 0; i < kTries; ++i) {
    const int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(fd, reinterpret_cast<sockaddr*>(&storage), size) != 0) {
      const int error = errno;
      if (fd >= 0) close(fd);
      refuse(address, port, error);
    }
    const int found = port_of(fd);
    const int claimed = claim(found);
    if (claimed >= 0) {
      sockets_.push_back(fd);
      sockets_.push_back(claimed);
      return found;
    }
    close(fd);
    if (port != 0) break;
  }
  throw Unavailable(cat("hold a port [", address_text(address, port), "]: held by another ",
                        "tutti-run, expected it free; leave out --port, or give another"));
}

int draw_port(std::set<int>& taken) {
  std::random_device random;
  constexpr std::size_t kPorts = 10000;
  if (taken.size() >= kPorts)
    throw ResourceExhausted("draw a port: all of 20000 to 29999 are taken");
  int port = 0;
  do {
    port = 20000 + static_cast<int>(random() % kPorts);
  } while (!taken.insert(port).second);
  return port;
}

}  // namespace tutti::launcher
