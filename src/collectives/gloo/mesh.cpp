#include "collectives/gloo/mesh.h"

#include <atomic>
#include <csignal>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/mutex.h"
#include "collectives/gloo/c10d_store.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::collectives {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kNeverSent = 1 << 20;                              // a tag
constexpr std::chrono::milliseconds kForever{int64_t{1} << 40};  // WaitLimit ends it before

/// A thread that ends a wait at its time. Gloo's own timeout closes all connections first, and the
/// others would see that before they could read why.
class WaitLimit {
 public:
  WaitLimit() : thread_([this] { run(); }) {}
  ~WaitLimit() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  WaitLimit(const WaitLimit&) = delete;
  WaitLimit& operator=(const WaitLimit&) = delete;

  /// False when the wait was ended.
  bool wait(c10d::Work& work, Clock::time_point end) {
    enter(&work, end);
    struct Leave {
      WaitLimit* limit;
      ~Leave() { limit->leave(); }
    } leave{this};
    return work.wait(kForever);
  }

 private:
  void enter(c10d::Work* work, Clock::time_point end) {
    bool sooner = false;
    {
      MutexLock lock(mutex_);
      work_ = work;
      end_ = end;
      sooner = end < wakes_;
      if (sooner) wakes_ = end;
    }
    if (sooner) changed_.notify_all();
  }
  void leave() {
    MutexLock lock(mutex_);
    work_ = nullptr;
  }

  /// Wakes up at the end of the wait that it has last seen, mostly to see a later one: a wait that
  /// ends after wakes_ costs no wake-up.
  void run() {
    std::unique_lock<Mutex> lock(mutex_);
    while (!stopping_) {
      if (Clock::now() < end_) {
        const Clock::time_point wakes = end_;  // read without the lock
        wakes_ = wakes;
        changed_.wait_until(lock, wakes);
      } else if (work_ != nullptr) {
        std::exchange(work_, nullptr)->abort();
      } else {
        wakes_ = Clock::time_point::max();
        changed_.wait(lock);
      }
    }
  }

  Mutex mutex_;
  ConditionVariable changed_;
  c10d::Work* work_ TUTTI_GUARDED_BY(mutex_) = nullptr;
  Clock::time_point end_ TUTTI_GUARDED_BY(mutex_) = Clock::time_point::min();
  Clock::time_point wakes_ TUTTI_GUARDED_BY(mutex_) = Clock::time_point::max();
  bool stopping_ TUTTI_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

class GlooTransfer : public Transfer {
 public:
  GlooTransfer(c10::intrusive_ptr<c10d::Work> work, WaitLimit* limit)
      : work_(std::move(work)), limit_(*limit) {}
  bool wait_until(Clock::time_point end) override { return limit_.wait(*work_, end); }
  void wait(std::chrono::milliseconds timeout) override { work_->wait(timeout); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  WaitLimit& limit_;
};

class GlooMesh : public Mesh {
 public:
  explicit GlooMesh(const GroupOptions& options) : rank_(options.rank), size_(options.size) {
    const auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
    gloo->threads = 1;  // for its collectives, which are not used
    const auto store =
        c10::make_intrusive<C10dStore>(options.store, options.key("gloo/"), options.timeout);
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank_, size_, gloo);
  }

  std::unique_ptr<Transfer> send(int to, const void* data, std::size_t bytes, int tag) override {
    std::vector<at::Tensor> message{view(data, bytes)};
    return std::make_unique<GlooTransfer>(group_->send(message, to, tag), &limit_);
  }
  std::unique_ptr<Transfer> receive(int from, void* data, std::size_t bytes, int tag) override {
    std::vector<at::Tensor> message{view(data, bytes)};
    return std::make_unique<GlooTransfer>(group_->recv(message, from, tag), &limit_);
  }

  /// Gloo's abort does nothing; a wait that times out closes every connection of the rank. One on a
  /// connection that is closed already does not, so all are tried.
  void close() override {
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      try {
        char byte = 0;
        receive(other, &byte, 1, kNeverSent)->wait(std::chrono::milliseconds(1));
      } catch (const std::exception&) {  // as meant
      }
    }
  }

 private:
  static at::Tensor view(const void* data, std::size_t bytes) {
    return at::from_blob(const_cast<void*>(data), {static_cast<int64_t>(bytes)}, at::kByte);
  }

  const int rank_;
  const int size_;
  WaitLimit limit_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

/// Gloo writes to sockets without MSG_NOSIGNAL, and a peer that has died must not end this process
/// by a signal. A handler of the program's own stays.
void ignore_broken_pipes() {
  struct sigaction present = {};
  if (sigaction(SIGPIPE, nullptr, &present) == 0 && present.sa_handler == SIG_DFL)
    std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

std::unique_ptr<Mesh> make_mesh(const GroupOptions& options) {
  ignore_broken_pipes();
  try {
    return std::make_unique<GlooMesh>(options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    throw Unavailable(cat("building a group [gloo rank ", options.rank, "/", options.size,
                          "]: ", text.substr(0, text.find('\n')),
                          ", expected connections to all ranks; see that GroupOptions::address (",
                          options.address, ") is one at which the others reach this machine"));
  }
}

}  // namespace tutti::collectives
