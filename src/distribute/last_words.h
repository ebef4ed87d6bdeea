#pragma once
// What is said when an exception that nobody catches ends the process.

#include <functional>
#include <list>
#include <string>

namespace tutti::distribute {

/// While it lives, an uncaught exception's message goes into the launcher's error file
/// (base/error_file.h) and to `say` before the process ends as it would have, by whatever terminate
/// handler was there before. `say` is called on a thread of its own and waited for two seconds at
/// most: whoever threw may hold any lock. Any thread may make and destroy one.
class LastWords {
 public:
  using Say = std::function<void(const std::string& message)>;
  explicit LastWords(Say say);
  /// Waits for a `say` that is being called.
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  std::list<Say>::iterator place_;
};

/// The message of an exception.
std::string message_of(const std::exception_ptr& error);

}  // namespace tutti::distribute
