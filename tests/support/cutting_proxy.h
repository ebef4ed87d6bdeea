#pragma once
// A TCP proxy on loopback that cuts its first connection after so many bytes, and lets later ones
// through.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace tutti::testing {

class CuttingProxy {
 public:
  /// To the port `target`. `after` bytes of both directions together pass through the first
  /// connection; below 0: all.
  CuttingProxy(int target, int64_t after) : target_(target), after_(after) {
    listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = at(0);
    ::bind(listening_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(listening_, 16);
    socklen_t size = sizeof address;
    ::getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~CuttingProxy() {
    ended_ = true;
    thread_.join();
    for (std::thread& connection : connections_) connection.join();
    ::close(listening_);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  /// Bytes that have passed through the first connection.
  int64_t passed() const { return passed_; }

 private:
  static sockaddr_in at(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void run() {
    for (bool first = true; !ended_;) {
      pollfd file{listening_, POLLIN, 0};
      if (::poll(&file, 1, 20) <= 0) continue;
      const int from = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
      if (from < 0) continue;
      connections_.emplace_back([this, from, first] { serve(from, first); });
      first = false;
    }
  }

  void serve(int from, bool first) {
    const int to = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = at(target_);
    if (::connect(to, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
      pass(from, to, first);
    ::close(from);
    ::close(to);
  }

  void pass(int from, int to, bool first) {
    std::vector<char> block(16 << 10);
    while (!ended_) {
      pollfd files[2] = {{from, POLLIN, 0}, {to, POLLIN, 0}};
      if (::poll(files, 2, 20) <= 0) continue;
      for (int side = 0; side < 2; ++side) {
        if (files[side].revents == 0) continue;
        std::size_t most = block.size();
        if (first && after_ >= 0) {
          if (passed_ >= after_) return;
          most = std::min<std::size_t>(most, static_cast<std::size_t>(after_ - passed_));
        }
        const ssize_t size = ::recv(files[side].fd, block.data(), most, 0);
        if (size <= 0) return;
        if (::send(side == 0 ? to : from, block.data(), static_cast<std::size_t>(size),
                   MSG_NOSIGNAL) != size)
          return;
        if (first) passed_ += size;
      }
    }
  }

  const int target_;
  const int64_t after_;
  int listening_ = -1;
  int port_ = 0;
  std::atomic<bool> ended_{false};
  std::atomic<int64_t> passed_{0};
  std::thread thread_;
  std::vector<std::thread> connections_;
};

}  // namespace tutti::testing
