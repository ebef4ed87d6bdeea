#include "cluster/host_list.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "cluster/names.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::cluster {
namespace {

constexpr std::size_t kMostHosts = 65536;
constexpr std::size_t kLongestNumber = 9;  // digits

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class HostListReader {
 public:
  HostListReader(const std::string& operation, std::string_view text)
      : operation_(operation), text_(text) {}

  std::vector<std::string> read() const {
    std::vector<std::string> hosts;
    for (const std::string_view part : parts()) {
      for (std::string& host : expand(part)) {
        if (const auto fault = fault_of_host(host)) refuse(operation_, "hosts", *fault);
        hosts.push_back(std::move(host));
      }
      check_number(hosts.size());
    }
    return hosts;
  }

 private:
  [[noreturn]] void fail(const std::string& found) const {
    refuse(operation_, "hosts",
           {cat(found, " in ", shown(text_)), "a list like n[1-2],m5", "correct the list"});
  }
  void check_number(std::size_t count) const {
    if (count > kMostHosts) fail(cat("more than ", kMostHosts, " hosts"));
  }

  /// What commas outside of brackets separate.
  std::vector<std::string_view> parts() const {
    std::vector<std::string_view> parts;
    std::size_t start = 0;
    bool inside = false;
    for (std::size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '[' || c == ']') {
        if (inside == (c == '[')) fail(cat("a bracket '", c, "' without its partner"));
        inside = c == '[';
      } else if (c == ',' && !inside) {
        parts.push_back(text_.substr(start, i - start));
        start = i + 1;
      }
    }
    if (inside) fail("a bracket '[' without its partner");
    parts.push_back(text_.substr(start));
    return parts;
  }

  std::vector<std::string> expand(std::string_view part) const {
    if (part.empty()) fail("an empty name");
    std::vector<std::string> names = {""};
    while (!part.empty()) {
      const std::size_t open = part.find('[');
      const std::string literal(part.substr(0, open));
      for (std::string& name : names) name += literal;
      if (open == std::string_view::npos) break;
      const std::size_t close = part.find(']');
      const auto numbers = expand_ranges(part.substr(open + 1, close - open - 1));
      check_number(names.size() * numbers.size());
      std::vector<std::string> longer;
      for (const std::string& name : names) {
        for (const std::string& number : numbers) longer.push_back(name + number);
      }
      names = std::move(longer);
      part = part.substr(close + 1);
    }
    return names;
  }

  int64_t number(std::string_view digits) const {
    int64_t value = 0;
    const bool fits = !digits.empty() && digits.size() <= kLongestNumber &&
                      std::all_of(digits.begin(), digits.end(), is_digit);
    if (!fits) fail(cat("the number ", shown(digits)));
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  }

  std::vector<std::string> expand_ranges(std::string_view ranges) const {
    std::vector<std::string> numbers;
    for (const std::string& range : split(ranges, ',')) {
      const std::size_t dash = range.find('-');
      const std::string first = range.substr(0, dash);
      const std::string last = dash == std::string::npos ? first : range.substr(dash + 1);
      const int64_t from = number(first);
      const int64_t to = number(last);
      if (to < from) fail(cat("the range ", range, ", which ends before it begins"));
      check_number(numbers.size() + static_cast<std::size_t>(to - from) + 1);
      for (int64_t i = from; i <= to; ++i) {
        std::string text = std::to_string(i);
        if (text.size() < first.size()) text.insert(0, first.size() - text.size(), '0');
        numbers.push_back(std::move(text));
      }
    }
    return numbers;
  }

  const std::string& operation_;
  std::string_view text_;
};

}  // namespace

std::vector<std::string> expand_host_list(const std::string& operation, std::string_view text) {
  return HostListReader(operation, text).read();
}

std::vector<int64_t> expand_tasks_per_node(const std::string& operation, std::string_view text) {
  std::vector<int64_t> tasks;
  for (const std::string& part : split(text, ',')) {
    const std::size_t open = part.find("(x");
    const auto number = whole_number(part.substr(0, open), int64_t{kMostHosts});
    std::optional<int64_t> times = 1;
    if (open != std::string::npos) {
      times = part.back() == ')'
                  ? whole_number(part.substr(open + 2, part.size() - open - 3), int64_t{kMostHosts})
                  : std::nullopt;
    }
    if (!number || !times || *times == 0 ||
        tasks.size() + static_cast<std::size_t>(*times) > kMostHosts) {
      refuse(operation, "tasks per node",
             {cat(shown(part), " in ", shown(text)),
              cat("a list like 3(x2),2,1 of at most ", kMostHosts, " hosts"), "correct the list"});
    }
    tasks.insert(tasks.end(), static_cast<std::size_t>(*times), *number);
  }
  return tasks;
}

bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
      continue;
    }
    const auto number = [](std::string_view text, std::size_t& at) {
      const std::size_t start = at;
      while (at < text.size() && is_digit(text[at])) ++at;
      std::string_view digits = text.substr(start, at - start);
      while (digits.size() > 1 && digits[0] == '0') digits.remove_prefix(1);
      return digits;
    };
    const std::string_view x = number(a, i);
    const std::string_view y = number(b, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  if ((i < a.size()) != (j < b.size())) return j < b.size();
  return a < b;  // n01 and n1
}

std::vector<std::string> addresses_of(const std::string& operation,
                                      const std::vector<HostTasks>& hosts, int64_t port_base) {
  std::vector<std::string> addresses;
  int64_t most = 1;
  for (const HostTasks& host : hosts) most = std::max(most, host.tasks);
  check_ports(operation, port_base, most);
  for (const HostTasks& host : hosts) {
    for (int64_t i = 0; i < host.tasks; ++i)
      addresses.push_back(address_of(host.host, port_base + i));
  }
  return addresses;
}

std::pair<int64_t, int64_t> place_of(const std::vector<HostTasks>& hosts, int64_t rank) {
  int64_t index = 0;
  for (const HostTasks& host : hosts) {
    if (rank < host.tasks) break;
    rank -= host.tasks;
    ++index;
  }
  return {index, rank};
}

}  // namespace tutti::cluster
