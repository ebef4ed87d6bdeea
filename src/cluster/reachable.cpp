#include "cluster/reachable.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::cluster {
namespace {

/// As inet_ntop writes it; empty for what is no IP address.
std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address == nullptr) return text;
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
              sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
              sizeof(text));
  }
  return text;
}

bool is_loopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

std::vector<std::string> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    addresses.push_back(text_of(at->ai_addr));
  }
  return addresses;
}

std::set<std::string> addresses_of_this_machine() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(found, &freeifaddrs);
  std::set<std::string> addresses;
  for (const ifaddrs* at = found; at != nullptr; at = at->ifa_next) {
    addresses.insert(text_of(at->ifa_addr));
  }
  return addresses;
}

/// Without the port, and without the brackets of an IPv6 address.
std::string host_of(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  return host;
}

}  // namespace

void check_reachable(const std::string& operation, const train::ClusterSpec& cluster,
                     const std::string& task_type, int64_t task_id) {
  const std::string own = cluster.task_address(task_type, task_id);
  const std::vector<std::string> mine = addresses_of(host_of(own));
  if (mine.empty() || !std::all_of(mine.begin(), mine.end(), is_loopback)) return;
  const std::set<std::string> here = addresses_of_this_machine();
  for (const std::string& job : cluster.jobs()) {
    for (const int64_t index : cluster.task_indices(job)) {
      const std::string other = cluster.task_address(job, index);
      const std::vector<std::string> theirs = addresses_of(host_of(other));
      const bool elsewhere =
          !theirs.empty() && std::none_of(theirs.begin(), theirs.end(), [&](const auto& address) {
            return is_loopback(address) || here.count(address) > 0;
          });
      if (!elsewhere) continue;
      throw InvalidArgument(cat(operation, " [", task_type, " ", task_id, " at ", own,
                                "]: ", host_of(own), " is ", mine.front(),
                                " on this machine, expected an "
                                "address at which ",
                                job, " ", index, " at ", other,
                                " reaches it; name the address of the network's interface in the "
                                "cluster, or take the loopback line out of /etc/hosts"));
    }
  }
}

}  // namespace tutti::cluster
