#include "coordination/key_value_store.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::coordination {
namespace {

bool begins_with(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace

void check_key(std::string_view operation, const std::string& key) {
  if (key.empty() || key.size() > kMostKeyBytes) {
    throw InvalidArgument(cat(operation, " [\"", key.substr(0, 64), "\"]: a key of ", key.size(),
                              " bytes, expected 1 to ", kMostKeyBytes));
  }
}

void check_value(std::string_view operation, const std::string& key, std::size_t size) {
  if (size > kMostValueBytes) {
    throw ResourceExhausted(cat(operation, " [\"", key, "\"]: a value of ", size,
                                " bytes, expected at most ", kMostValueBytes,
                                "; put large data into files or tensors"));
  }
}

void KeyValueStore::set(const std::string& key, std::string value, bool overwrite) {
  check_key("set", key);
  check_value("set", key, value.size());
  const auto found = values_.find(key);
  const bool known = found != values_.end();
  if (known && !overwrite) {
    throw AlreadyExists(
        cat("set [\"", key, "\"]: has a value already, expected none; set with overwrite"));
  }
  const std::size_t before = known ? key.size() + found->second.size() : 0;
  const std::size_t after = bytes_ - before + key.size() + value.size();
  check_room("set", key, after, known ? 0 : 1);
  bytes_ = after;
  values_[key] = std::move(value);
}

int64_t KeyValueStore::add(const std::string& key, int64_t delta) {
  check_key("add", key);
  const auto found = counters_.find(key);
  const bool known = found != counters_.end();
  const std::size_t after = bytes_ + (known ? 0 : key.size() + sizeof(int64_t));
  check_room("add", key, after, known ? 0 : 1);
  int64_t sum = 0;
  if (__builtin_add_overflow(known ? found->second : 0, delta, &sum)) {
    throw OutOfRange(
        cat("add [\"", key, "\"]: ", found->second, " and ", delta, ", expected a sum of 64 bits"));
  }
  bytes_ = after;
  return counters_[key] = sum;
}

void KeyValueStore::check_room(const char* operation, const std::string& key, std::size_t bytes,
                               std::size_t more) const {
  const std::size_t keys = values_.size() + counters_.size() + more;
  if (bytes <= kMostStoreBytes && keys <= kMostKeys) return;
  throw ResourceExhausted(cat(operation, " [\"", key, "\"]: the store would hold ", bytes,
                              " bytes in ", keys, " keys, expected at most ", kMostStoreBytes,
                              " and ", kMostKeys, "; erase what is read"));
}

const std::string* KeyValueStore::find(const std::string& key) const {
  check_key("get", key);
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

int64_t KeyValueStore::erase(const std::string& key, bool prefix) {
  if (!prefix) check_key("erase", key);
  int64_t count = 0;
  for (auto at = values_.lower_bound(key); at != values_.end();) {
    if (prefix ? !begins_with(at->first, key) : at->first != key) break;
    bytes_ -= at->first.size() + at->second.size();
    at = values_.erase(at);
    ++count;
  }
  for (auto at = counters_.lower_bound(key); at != counters_.end();) {
    if (prefix ? !begins_with(at->first, key) : at->first != key) break;
    bytes_ -= at->first.size() + sizeof(int64_t);
    at = counters_.erase(at);
    ++count;
  }
  return count;
}

std::vector<std::pair<std::string, std::string>> KeyValueStore::list(
    const std::string& prefix) const {
  std::vector<std::pair<std::string, std::string>> entries;
  std::size_t bytes = 0;
  for (auto at = values_.lower_bound(prefix); at != values_.end(); ++at) {
    if (!begins_with(at->first, prefix)) break;
    bytes += at->first.size() + at->second.size();
    if (bytes > kMostListedBytes) {
      throw ResourceExhausted(cat("list [\"", prefix, "\"]: more than ", kMostListedBytes,
                                  " bytes; ask with a longer prefix"));
    }
    entries.emplace_back(at->first, at->second);
  }
  return entries;
}

}  // namespace tutti::coordination
