#pragma once
// The leader's table of small values.

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::coordination {

constexpr std::size_t kMostKeyBytes = 1024;
constexpr std::size_t kMostValueBytes = std::size_t{16} << 20;
constexpr std::size_t kMostStoreBytes = std::size_t{256} << 20;
constexpr std::size_t kMostKeys = 100'000;
constexpr std::size_t kMostListedBytes = std::size_t{32} << 20;

/// Not locked: its owner does that. Errors: InvalidArgument for an empty or too long key,
/// ResourceExhausted above the sizes.
class KeyValueStore {
 public:
  /// Throws AlreadyExists when the key has a value and may not be overwritten.
  void set(const std::string& key, std::string value, bool overwrite);
  /// Adds to the counter of that key, which begins at 0 and is no value of find() or list(). Throws
  /// OutOfRange when the sum is no int64.
  int64_t add(const std::string& key, int64_t delta);
  /// nullptr when there is none.
  const std::string* find(const std::string& key) const;
  /// Values and counters. Returns how many went.
  int64_t erase(const std::string& key, bool prefix);
  /// In the order of the keys.
  std::vector<std::pair<std::string, std::string>> list(const std::string& prefix) const;

 private:
  void check_room(const char* operation, const std::string& key, std::size_t bytes,
                  std::size_t more) const;

  std::map<std::string, std::string> values_;
  std::map<std::string, int64_t> counters_;
  std::size_t bytes_ = 0;
};

/// Throws InvalidArgument unless `key` has 1 to kMostKeyBytes bytes.
void check_key(std::string_view operation, const std::string& key);
/// Throws ResourceExhausted above kMostValueBytes.
void check_value(std::string_view operation, const std::string& key, std::size_t size);

}  // namespace tutti::coordination
