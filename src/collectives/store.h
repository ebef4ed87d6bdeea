#pragma once
// The seam through which the ranks of a group that is being built find one another.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/mutex.h"

namespace tutti::collectives {

/// Keys and values that all ranks of a job see. Values are bytes. Any thread may call.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The value, as soon as somebody has set the key. Throws DeadlineExceeded that names the key
  /// after `timeout`; a timeout of 0 only looks.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// Adds to a counter that begins at 0, all at once, and returns the sum. A counter is no value
  /// for get().
  virtual int64_t add(const std::string& key, int64_t delta) = 0;
  virtual void remove(const std::string& key) = 0;

  /// Blocks until all keys are set. Throws DeadlineExceeded that names those that are not.
  void wait(std::span<const std::string> keys, std::chrono::milliseconds timeout);
};

/// For ranks that are threads of one process.
class InMemoryStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  int64_t add(const std::string& key, int64_t delta) override;
  void remove(const std::string& key) override;

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  std::map<std::string, std::string> values_ TUTTI_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> counters_ TUTTI_GUARDED_BY(mutex_);
};

/// For processes that see one folder, a file a key: of one machine, or of several that share a
/// disk whose renames and locks hold for all of them. get() looks again every few milliseconds. The
/// folder must exist; use a new one for each run.
class FileStore : public Store {
 public:
  explicit FileStore(std::string folder);
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override;
  int64_t add(const std::string& key, int64_t delta) override;
  void remove(const std::string& key) override;

 private:
  std::string path_of(const std::string& key) const;
  std::string folder_;
};

}  // namespace tutti::collectives
