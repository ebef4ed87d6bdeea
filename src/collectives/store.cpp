#include "collectives/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::collectives {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void throw_not_set(const std::string& key, std::chrono::milliseconds timeout) {
  throw DeadlineExceeded(cat("Store::get: \"", key, "\" is not set after ", timeout.count(),
                             " ms, expected another rank to set it; see whether that rank runs"));
}

}  // namespace

void Store::wait(std::span<const std::string> keys, std::chrono::milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  std::vector<std::string> missing;
  for (const std::string& key : keys) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    try {
      get(key, std::max(left, std::chrono::milliseconds(0)));
    } catch (const DeadlineExceeded&) {
      missing.push_back(key);
    }
  }
  if (missing.empty()) return;
  throw DeadlineExceeded(cat("Store::wait: \"", join(missing, "\", \""), "\" not set after ",
                             timeout.count(),
                             " ms, expected other ranks to set them; see whether they run"));
}

// ---- In memory ---------------------------------------------------------------------------------

void InMemoryStore::set(const std::string& key, const std::string& value) {
  {
    MutexLock lock(mutex_);
    values_[key] = value;
  }
  changed_.notify_all();
}

std::string InMemoryStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  std::unique_lock<Mutex> lock(mutex_);
  const bool set = changed_.wait_for(lock, timeout, [&] { return values_.count(key) > 0; });
  if (!set) throw_not_set(key, timeout);
  return values_[key];
}

int64_t InMemoryStore::add(const std::string& key, int64_t delta) {
  MutexLock lock(mutex_);
  return counters_[key] += delta;
}

void InMemoryStore::remove(const std::string& key) {
  MutexLock lock(mutex_);
  values_.erase(key);
  counters_.erase(key);
}

// ---- In a folder -------------------------------------------------------------------------------

namespace {

constexpr std::chrono::milliseconds kLongestNap{5};

std::optional<std::string> contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Replaces the file at once: a reader sees the old bytes or the new ones.
void replace(const std::string& path, const std::string& bytes) {
  static std::atomic<int> number{0};
  const std::string fresh = cat(path, ".", getpid(), ".", number.fetch_add(1));
  {
    std::ofstream out(fresh, std::ios::binary);
    out << bytes;
    out.close();
    if (!out) {
      throw Unavailable(cat("FileStore [", path, "]: ", std::strerror(errno),
                            ", expected a folder that can be written"));
    }
  }
  if (std::rename(fresh.c_str(), path.c_str()) != 0) {
    throw Unavailable(cat("FileStore [", path, "]: rename: ", std::strerror(errno)));
  }
}

}  // namespace

FileStore::FileStore(std::string folder) : folder_(std::move(folder)) {}

std::string FileStore::path_of(const std::string& key) const {
  std::string name = folder_ + "/";
  for (const char c : key) {  // so that no key is a path
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_') {
      name += c;
    } else {
      constexpr const char* kDigits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      name += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return name;
}

void FileStore::set(const std::string& key, const std::string& value) {
  replace(path_of(key), value);
}

std::string FileStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  const std::string path = path_of(key);
  const auto end = Clock::now() + timeout;
  std::chrono::milliseconds nap{1};
  for (;;) {
    if (auto value = contents(path)) return *value;
    if (Clock::now() >= end) throw_not_set(key, timeout);
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, kLongestNap);
  }
}

int64_t FileStore::add(const std::string& key, int64_t delta) {
  const std::string path = path_of(key) + ".count";
  const int lock = open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0 || flock(lock, LOCK_EX) != 0) {
    const int error = errno;
    if (lock >= 0) close(lock);
    throw Unavailable(cat("FileStore [", path, "]: ", std::strerror(error),
                          ", expected a folder that can be written"));
  }
  const int64_t sum = std::stoll(contents(path).value_or("0")) + delta;
  try {
    replace(path, std::to_string(sum));
  } catch (...) {
    close(lock);
    throw;
  }
  close(lock);
  return sum;
}

void FileStore::remove(const std::string& key) {
  std::remove(path_of(key).c_str());
  std::remove((path_of(key) + ".count").c_str());
}

}  // namespace tutti::collectives
