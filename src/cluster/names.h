#pragma once
// The grammar of what stands in a cluster: addresses, jobs, protocols; and text of others in
// messages.

#include <optional>
#include <string>
#include <string_view>

namespace tutti::cluster {

/// `text` in quotes, with what is not printable as \xNN, and "…" for all behind 80 characters.
std::string shown(std::string_view text);

/// What is wrong, and what would be right.
struct Fault {
  std::string found;
  std::string expected;
  std::string remedy;
};
/// Throws InvalidArgument `operation [where]: found, expected …; remedy`.
[[noreturn]] void refuse(const std::string& operation, const std::string& where,
                         const Fault& fault);

/// Nothing when all is well.
std::optional<Fault> fault_of_address(std::string_view address);
std::optional<Fault> fault_of_host(std::string_view host);
std::optional<Fault> fault_of_job_name(std::string_view job);
std::optional<Fault> fault_of_rpc_layer(std::string_view rpc_layer);

/// The port of an address without fault.
int port_of(std::string_view address);
/// `host:port`, an IPv6 address in brackets.
std::string address_of(const std::string& host, int64_t port);
/// Digits only, no leading zero, in [0, high].
std::optional<int64_t> whole_number(std::string_view text, int64_t high);

/// Throws InvalidArgument unless 1 ≤ port and port + count - 1 ≤ 65535.
void check_ports(const std::string& operation, int64_t port, int64_t count = 1);

}  // namespace tutti::cluster
