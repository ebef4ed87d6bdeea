// A process has one terminate handler, so what it calls is the process's too. It is installed once
// and stays: another library may have put its own on top, which must not be taken away.

#include "distribute/last_words.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "base/error_file.h"

namespace tutti::distribute {
namespace {

constexpr std::chrono::seconds kPatience{2};

struct Registry {
  std::mutex mutex;
  std::list<LastWords::Say> says;
  std::terminate_handler before = nullptr;
};

Registry& registry() {
  static auto* const made = new Registry;  // outlives every destructor of the program
  return *made;
}

void call_all(const std::string& message) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  for (const LastWords::Say& say : registry().says) {
    try {
      say(message);
    } catch (...) {  // there is nobody left to hear it
    }
  }
}

struct Done {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

[[noreturn]] void on_terminate() {
  if (const std::exception_ptr error = std::current_exception()) {
    try {
      const std::string message = message_of(error);
      record_error(message);
      const auto done = std::make_shared<Done>();
      std::thread([message, done] {
        call_all(message);
        std::lock_guard<std::mutex> lock(done->mutex);
        done->done = true;
        done->changed.notify_all();
      }).detach();
      std::unique_lock<std::mutex> lock(done->mutex);
      done->changed.wait_for(lock, kPatience, [&] { return done->done; });
    } catch (...) {  // no thread, no memory: the process ends all the same
    }
  }
  if (registry().before != nullptr) registry().before();
  std::abort();
}

}  // namespace

LastWords::LastWords(Say say) {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  static const bool installed = [&all] {
    all.before = std::set_terminate(on_terminate);
    return true;
  }();
  static_cast<void>(installed);
  place_ = all.says.insert(all.says.end(), std::move(say));
}

LastWords::~LastWords() {
  std::lock_guard<std::mutex> lock(registry().mutex);
  registry().says.erase(place_);
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace tutti::distribute
