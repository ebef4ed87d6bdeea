// A signal belongs to the process, and so does what its handler touches: this file's variables are
// the exception to the rule that nothing is global.
#include "preemption/termination_signal.h"

#include <semaphore.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"

namespace tutti::preemption {
namespace {

// A semaphore, not a pipe: a child that is forked off and gets the signal before it runs its own
// program has a copy, and its parent hears nothing.
sem_t arrived;
struct sigaction replaced;

void on_signal(int number, siginfo_t* info, void* context) {
  const int error = errno;
  ::sem_post(&arrived);
  if ((replaced.sa_flags & SA_SIGINFO) != 0) {
    if (replaced.sa_sigaction != nullptr) replaced.sa_sigaction(number, info, context);
  } else if (replaced.sa_handler != SIG_DFL && replaced.sa_handler != SIG_IGN) {
    replaced.sa_handler(number);
  }
  errno = error;
}

bool is_function(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_signal;
}

/// The actions of the process, and the thread that calls them.
class Listening {
 public:
  void add(const std::function<void()>& action) {
    MutexLock one_at_a_time(lifetime_);
    {
      MutexLock lock(mutex_);
      actions_.push_back(&action);
    }
    if (reader_.joinable()) return;
    stop_ = false;
    if (!made_) ::sem_init(&arrived, 0, 0);
    made_ = true;
    while (::sem_trywait(&arrived) == 0) {
    }
    reader_ = std::thread([this] { read(); });
    install();
  }
  void remove(const std::function<void()>& action) {
    MutexLock one_at_a_time(lifetime_);
    bool last = false;
    {
      MutexLock lock(mutex_);
      std::erase(actions_, &action);
      last = actions_.empty();
    }
    if (!last) return;
    uninstall();
    stop_ = true;
    ::sem_post(&arrived);
    reader_.join();
  }

 private:
  void install() TUTTI_REQUIRES(lifetime_) {
    struct sigaction present = {};
    ::sigaction(SIGTERM, nullptr, &present);
    if (is_ours(present)) return;
    if (left_behind_ && is_function(present)) {  // ours may be in its chain: no second time
      log_warning(
          "PreemptionCheckpointHandler [SIGTERM]: another handler has replaced ours; it must call "
          "the one that it replaced, or no notice is heard");
      return;
    }
    replaced = present;
    struct sigaction ours = {};
    ours.sa_sigaction = on_signal;
    ours.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigemptyset(&ours.sa_mask);
    ::sigaction(SIGTERM, &ours, nullptr);
  }
  void uninstall() TUTTI_REQUIRES(lifetime_) {
    struct sigaction present = {};
    ::sigaction(SIGTERM, nullptr, &present);
    left_behind_ = !is_ours(present);
    if (!left_behind_) ::sigaction(SIGTERM, &replaced, nullptr);
  }
  void read() {
    for (;;) {
      while (::sem_wait(&arrived) != 0) {
      }
      if (stop_) return;
      MutexLock lock(mutex_);
      for (const std::function<void()>* action : actions_) (*action)();
    }
  }

  Mutex lifetime_;  // of the reader, and what is installed
  bool made_ TUTTI_GUARDED_BY(lifetime_) = false;
  bool left_behind_ TUTTI_GUARDED_BY(lifetime_) = false;
  std::thread reader_ TUTTI_GUARDED_BY(lifetime_);
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  std::vector<const std::function<void()>*> actions_ TUTTI_GUARDED_BY(mutex_);
};

Listening& listening() {
  static auto* const kListening = new Listening;  // outlives all who may be in it at the end
  return *kListening;
}

}  // namespace

TerminationSignal::TerminationSignal(std::function<void()> action) : action_(std::move(action)) {
  listening().add(action_);
}
TerminationSignal::~TerminationSignal() { listening().remove(action_); }

}  // namespace tutti::preemption
