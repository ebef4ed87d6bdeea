#include "rpc/address.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::rpc {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& text, std::string_view reason) {
  throw InvalidArgument(cat("address [\"", text, "\"]: ", reason,
                            ", expected host:port with a port in [0, 65535]; an IPv6 host stands "
                            "in brackets"));
}

/// Inodes of the sockets that listen on `port`, from /proc/net/tcp or tcp6.
void listening_inodes(const char* table, int port, std::set<std::string>& inodes) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // the heading
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, skip, inode;
    fields >> slot >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) fields >> skip;
    fields >> inode;
    const auto colon = local.rfind(':');
    if (state != "0A" || colon == std::string::npos) continue;
    if (std::stoi(local.substr(colon + 1), nullptr, 16) == port)
      inodes.insert(cat("socket:[", inode, "]"));
  }
}

bool holds(const fs::path& process, const std::set<std::string>& inodes) {
  std::error_code error;
  for (fs::directory_iterator at(process / "fd", error), end; !error && at != end;
       at.increment(error)) {
    std::error_code unreadable;
    if (inodes.count(fs::read_symlink(at->path(), unreadable).string())) return true;
  }
  return false;
}

}  // namespace

Address parse_address(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) refuse(text, "no port");
  Address address;
  address.host = text.substr(0, colon);
  const std::string port = text.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(port.data(), port.data() + port.size(), address.port, 10);
  if (error != std::errc() || end != port.data() + port.size() || address.port < 0 ||
      address.port > 65535) {
    refuse(text, cat("port \"", port, "\""));
  }
  if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']')
    address.host = address.host.substr(1, address.host.size() - 2);
  else if (address.host.find(':') != std::string::npos)
    refuse(text, "an IPv6 host without brackets");
  if (address.host.empty()) refuse(text, "no host");
  if (address.host.find_first_of(" \t\r\n/[]\"'\\") != std::string::npos)
    refuse(text, cat("host \"", address.host, "\""));
  return address;
}

std::string to_string(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? cat("[", address.host, "]:", address.port) : cat(address.host, ":", address.port);
}

bool is_loopback(const Address& address) {
  return address.host == "localhost" || address.host == "127.0.0.1" || address.host == "::1";
}

std::string owner_of_port(int port) {
  std::set<std::string> inodes;
  listening_inodes("/proc/net/tcp", port, inodes);
  listening_inodes("/proc/net/tcp6", port, inodes);
  if (inodes.empty()) return "";
  std::error_code error;
  for (fs::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    const std::string pid = at->path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!holds(at->path(), inodes)) continue;
    std::string name;
    std::ifstream comm(at->path() / "comm");
    std::getline(comm, name);
    return cat("pid ", pid, " (", name, ")");
  }
  return "";
}

}  // namespace tutti::rpc
