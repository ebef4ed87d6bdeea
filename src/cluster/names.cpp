#include "cluster/names.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::cluster {
namespace {

constexpr std::size_t kLongestShown = 80;
constexpr std::size_t kLongestHost = 253;  // of a DNS name
constexpr std::size_t kLongestLabel = 63;  // of its parts
constexpr std::size_t kLongestJobName = 64;
constexpr std::size_t kLongestRpcLayer = 32;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::optional<Fault> fault_of_label(std::string_view label, std::string_view host) {
  const std::string in = cat(" in the host ", shown(host));
  if (label.empty()) return Fault{cat("an empty label", in), "names with dots between", "mend it"};
  if (label.size() > kLongestLabel) {
    return Fault{cat("a label of ", label.size(), " characters", in),
                 cat("at most ", kLongestLabel), "mend it"};
  }
  const auto bad = std::find_if_not(label.begin(), label.end(), [](char c) {
    return is_letter(c) || is_digit(c) || c == '-' || c == '_';
  });
  if (bad != label.end()) {
    return Fault{cat("the character ", shown(std::string_view(&*bad, 1)), in),
                 "letters, digits, '-', '_' and dots", "mend it"};
  }
  if (label.front() == '-' || label.back() == '-') {
    return Fault{cat("a label that begins or ends with '-'", in), "a host name", "mend it"};
  }
  return std::nullopt;
}

bool is_address_of(int family, std::string_view text) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(family, std::string(text).c_str(), bytes) == 1;
}

std::optional<Fault> fault_of_port(std::string_view port, std::string_view address) {
  if (port.empty()) {
    return Fault{cat("no port behind the colon of ", shown(address)), "host:port", "add the port"};
  }
  if (!whole_number(port, 65535)) {
    return Fault{cat("port ", shown(port), " of ", shown(address)), "a number from 1 to 65535",
                 "correct the port"};
  }
  return std::nullopt;
}

}  // namespace

std::string shown(std::string_view text) {
  static const char* const kDigits = "0123456789abcdef";
  std::string quoted = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == kLongestShown) return quoted + "…\"";
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c < 0x7f) {
      quoted += text[i];
    } else {
      quoted += {'\\', 'x', kDigits[c >> 4], kDigits[c & 15]};
    }
  }
  return quoted + "\"";
}

void refuse(const std::string& operation, const std::string& where, const Fault& fault) {
  throw InvalidArgument(cat(operation, " [", where, "]: ", fault.found, ", expected ",
                            fault.expected, "; ", fault.remedy));
}

std::optional<int64_t> whole_number(std::string_view text, int64_t high) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  if (!std::all_of(text.begin(), text.end(), is_digit)) return std::nullopt;
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || value > high) return std::nullopt;
  return value;
}

std::optional<Fault> fault_of_host(std::string_view host) {
  if (host.empty()) return Fault{"an empty host", "a host name or an IP address", "name the host"};
  if (host.size() > kLongestHost) {
    return Fault{cat("a host of ", host.size(), " characters"), cat("at most ", kLongestHost),
                 "mend it"};
  }
  if (host.front() == '[') {
    if (host.back() == ']' && is_address_of(AF_INET6, host.substr(1, host.size() - 2)))
      return std::nullopt;
    return Fault{cat("the host ", shown(host)), "an IPv6 address in the brackets", "correct it"};
  }
  if (host.find(':') != std::string_view::npos) {
    return Fault{cat("the host ", shown(host)), "an IPv6 address in brackets, [::1]:2222",
                 "add the brackets"};
  }
  if (std::all_of(host.begin(), host.end(), [](char c) { return is_digit(c) || c == '.'; })) {
    if (is_address_of(AF_INET, host)) return std::nullopt;
    return Fault{cat("the host ", shown(host)), "an IPv4 address, four numbers up to 255",
                 "correct it"};
  }
  for (const std::string& label : split(host, '.')) {
    if (auto fault = fault_of_label(label, host)) return fault;
  }
  return std::nullopt;
}

std::optional<Fault> fault_of_address(std::string_view address) {
  if (address.empty()) return Fault{"an empty address", "host:port", "name host and port"};
  if (address.find("://") != std::string_view::npos) {
    return Fault{cat("a protocol in ", shown(address)), "host:port",
                 "leave it out, rpc_layer says the protocol"};
  }
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || (address.back() == ']' && address.front() == '[')) {
    return Fault{cat("no port in ", shown(address)), "host:port", "add the port"};
  }
  if (auto fault = fault_of_host(address.substr(0, colon))) return fault;
  return fault_of_port(address.substr(colon + 1), address);
}

std::optional<Fault> fault_of_job_name(std::string_view job) {
  const bool fits = !job.empty() && job.size() <= kLongestJobName &&
                    std::all_of(job.begin(), job.end(), [](char c) {
                      return is_letter(c) || is_digit(c) || c == '_' || c == '-' || c == '.';
                    });
  if (fits) return std::nullopt;
  return Fault{cat("the job ", shown(job)),
               cat("1 to ", kLongestJobName, " letters, digits, '_', '-' and '.'"),
               "give it another name"};
}

std::optional<Fault> fault_of_rpc_layer(std::string_view rpc_layer) {
  if (rpc_layer.empty()) return std::nullopt;
  const bool fits = rpc_layer.size() <= kLongestRpcLayer && is_letter(rpc_layer[0]) &&
                    std::all_of(rpc_layer.begin(), rpc_layer.end(), [](char c) {
                      return is_letter(c) || is_digit(c) || c == '+' || c == '-' || c == '.';
                    });
  if (fits) return std::nullopt;
  return Fault{cat("the protocol ", shown(rpc_layer)), "a letter, then letters, digits, +, - and .",
               "\"grpc\" is usual"};
}

int port_of(std::string_view address) {
  return static_cast<int>(*whole_number(address.substr(address.rfind(':') + 1), 65535));
}

std::string address_of(const std::string& host, int64_t port) {
  const bool bare = host.find(':') != std::string::npos && host.front() != '[';
  return bare ? cat("[", host, "]:", port) : cat(host, ":", port);
}

void check_ports(const std::string& operation, int64_t port, int64_t count) {
  if (port >= 1 && port <= 65535 && count - 1 <= 65535 - port) return;
  const std::string last = count > 1 ? cat(" to ", port + count - 1) : "";
  refuse(operation, "port", {cat(port, last), "ports from 1 to 65535", "choose another port"});
}

}  // namespace tutti::cluster
