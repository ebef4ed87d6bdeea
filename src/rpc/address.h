#pragma once
// "host:port" texts.

#include <string>

namespace tutti::rpc {

struct Address {
  std::string host;  // without the brackets of an IPv6 address
  int port = 0;
};

/// Throws InvalidArgument unless `text` is host:port with a port in [0, 65535]; an IPv6 host stands
/// in brackets.
Address parse_address(const std::string& text);

/// host:port, with brackets around an IPv6 host.
std::string to_string(const Address& address);

/// localhost, 127.0.0.1 and ::1. Other names of this host are not: what they resolve to may change.
bool is_loopback(const Address& address);

/// The program that listens on TCP port `port` of this host as "pid 4711 (name)"; "" where /proc
/// does not tell.
std::string owner_of_port(int port);

}  // namespace tutti::rpc
