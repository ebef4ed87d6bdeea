#pragma once
// A coordinator's way to one worker.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "tutti/base/error.h"
#include "tutti/tensor/nest.h"

namespace tutti::ps {

/// The worker is gone, or was when the call came: what it ran has to run elsewhere. Whether it ran
/// there nobody knows.
class WorkerLost : public Unavailable {
 public:
  using Unavailable::Unavailable;
};
/// The worker found a parameter server that does not answer.
class ServerLost : public Unavailable {
 public:
  ServerLost(int64_t server, const std::string& message) : Unavailable(message), server_(server) {}
  int64_t server() const { return server_; }

 private:
  int64_t server_;
};

/// An argument as the worker gets it: a value, or the number of what it has made.
struct WorkerArgument {
  Nest value;
  int64_t resource = -1;
};

/// Used by one thread, but for cancel(). One call at a time.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  /// Of this start of the worker; what it has made is gone when the number changes.
  virtual uint64_t incarnation() = 0;
  /// Makes resource `number` by the function `maker`. Throws its error, WorkerLost or
  /// ServerLost.
  virtual void make(int64_t number, const std::string& maker) = 0;
  /// Runs a function. Throws its error, WorkerLost, ServerLost, or Cancelled after cancel().
  virtual Nest run(const std::string& function, const std::vector<WorkerArgument>& arguments) = 0;
  /// Ends the call under way, if any, soon. Any thread.
  virtual void cancel() = 0;
  /// After WorkerLost: blocks until the worker is there again, whatever else answers meanwhile.
  /// False when `stop()` says so first.
  virtual bool wait_until_back(const std::function<bool()>& stop) = 0;
};

/// What a resource of an in-process worker is: gives the next value of an iterator, for example.
using Resource = std::function<Nest()>;
/// Of the worker that runs it.
struct WorkerContext {
  int64_t worker = 0;
  std::function<bool()> is_cancelled;
};
/// Functions and makers of resources, by name.
struct FunctionTable {
  struct Call {
    std::vector<WorkerArgument> arguments;
    /// Of an argument that is a resource.
    std::function<Resource&(int64_t number)> resource;
  };
  std::map<std::string, std::function<Nest(const WorkerContext&, const Call&)>> functions;
  std::map<std::string, std::function<Resource(const WorkerContext&)>> makers;
};

/// A worker in this process: runs functions on the caller's thread. die() makes it lost, and
/// come_back() a new one.
class InProcessWorker final : public WorkerLink {
 public:
  InProcessWorker(int64_t worker, std::shared_ptr<const FunctionTable> table);

  uint64_t incarnation() override;
  void make(int64_t number, const std::string& maker) override;
  Nest run(const std::string& function, const std::vector<WorkerArgument>& arguments) override;
  void cancel() override;
  bool wait_until_back(const std::function<bool()>& stop) override;

  // Any thread.
  void die();
  void come_back();

 private:
  void check_alive(const char* operation);
  WorkerContext context();

  const int64_t worker_;
  const std::shared_ptr<const FunctionTable> table_;
  std::map<int64_t, Resource> resources_;  // of the thread that uses the link
  Mutex mutex_;
  ConditionVariable changed_;
  uint64_t incarnation_ TUTTI_GUARDED_BY(mutex_) = 1;
  uint64_t resources_of_ TUTTI_GUARDED_BY(mutex_) = 1;
  bool alive_ TUTTI_GUARDED_BY(mutex_) = true;
  bool cancelled_ TUTTI_GUARDED_BY(mutex_) = false;
};

}  // namespace tutti::ps
