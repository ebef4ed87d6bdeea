// One rank's process: it does what the test tells it through descriptor 3. Descriptor 4 carries
// what may come while it is in a call.

#include <csignal>
#include <map>
#include <thread>

#include "base/mutex.h"
#include "collectives/call.h"
#include "collectives/gloo/gloo.h"
#include "collectives/group.h"
#include "collectives/hierarchical/hierarchical.h"
#include "collectives/processes/wire.h"
#include "collectives/shm/shm.h"
#include "tutti/base/error.h"

namespace tutti::collectives {
namespace {

using testing::Command;
using testing::Frame;

constexpr int kCommands = 3;
constexpr int kUrgent = 4;

class RankProcess {
 public:
  int serve() {
    std::thread(&RankProcess::serve_urgent, this).detach();
    for (;;) {
      Frame command = Frame::read_from(kCommands);
      Frame answer;
      try {
        Frame done;
        done.put(true);
        carry_out(command, done);
        answer = done;
      } catch (const Error& error) {
        answer.put(false).put(static_cast<int32_t>(error.code())).put(std::string(error.what()));
      } catch (const std::exception& error) {
        answer.put(false).put(static_cast<int32_t>(ErrorCode::kInternal));
        answer.put(std::string(error.what()));
      }
      answer.write_to(kCommands);
    }
  }

 private:
  void serve_urgent() {
    try {
      for (;;) {
        Frame command = Frame::read_from(kUrgent);
        command.get<Command>();
        const auto group = find(command.get<int64_t>());
        group->abort(command.get_text());
        Frame().put(true).write_to(kUrgent);
      }
    } catch (const std::exception&) {
      _exit(0);  // the test has ended
    }
  }

  std::shared_ptr<Communicator> find(int64_t number) {
    MutexLock lock(mutex_);
    return groups_.at(number);
  }

  void make(Frame& command) {
    const auto number = command.get<int64_t>();
    const std::string backend = command.get_text();
    GroupOptions options;
    options.host = command.get_text();
    options.store = std::make_shared<FileStore>(command.get_text());
    options.prefix = command.get_text();
    options.rank = command.get<int32_t>();
    options.size = command.get<int32_t>();
    options.timeout = std::chrono::milliseconds(command.get<int64_t>());
    std::shared_ptr<Communicator> group;
    if (backend == "shm") group = make_shm(options);
    if (backend == "gloo") group = make_gloo(options);
    if (backend == "hierarchical") group = make_hierarchical(options);
    MutexLock lock(mutex_);
    groups_[number] = std::move(group);
  }

  void call(Frame& command, Frame& answer) {
    const auto group = find(command.get<int64_t>());
    const auto verb = command.get<Verb>();
    const auto op = command.get<ReduceOp>();
    const auto root = command.get<int32_t>();
    const auto options = command.get<CommunicationOptions>();
    at::Tensor tensor = command.get_tensor();
    switch (verb) {
      case Verb::kAllReduce:
        group->all_reduce(tensor, op, options);
        break;
      case Verb::kAllGather:
        tensor = group->all_gather(tensor, options);
        break;
      case Verb::kReduceScatter:
        tensor = group->reduce_scatter(tensor, op, options);
        break;
      case Verb::kBroadcast:
        group->broadcast(tensor, root, options);
        break;
      case Verb::kBarrier:
        group->barrier(options);
    }
    answer.put(tensor);
  }

  void loop(Frame& command) {
    const auto group = find(command.get<int64_t>());
    at::Tensor tensor = at::ones({command.get<int64_t>()});
    const auto calls = command.get<int64_t>();
    const auto options = command.get<CommunicationOptions>();
    for (int64_t call = 0; call < calls; ++call) {
      group->all_reduce(tensor, ReduceOp::kMean, options);
      if (call == 0) Frame().put(true).write_to(kCommands);
    }
  }

  void carry_out(Frame& command, Frame& answer) {
    switch (command.get<Command>()) {
      case Command::kMake:
        make(command);
        return;
      case Command::kDestroy: {
        MutexLock lock(mutex_);
        groups_.erase(command.get<int64_t>());
        return;
      }
      case Command::kCall:
        call(command, answer);
        return;
      case Command::kStart: {
        const auto group = find(command.get<int64_t>());
        const auto op = command.get<ReduceOp>();
        const auto options = command.get<CommunicationOptions>();
        Started started{command.get_tensor(), nullptr};
        started.work = group->start_all_reduce(started.tensor, op, options);
        works_[++num_works_] = std::move(started);
        answer.put(num_works_);
        return;
      }
      case Command::kWait: {
        Started& started = works_.at(command.get<int64_t>());
        started.work->wait();
        answer.put(started.tensor);
        return;
      }
      case Command::kDrop:
        works_.erase(command.get<int64_t>());
        return;
      case Command::kLoop:
        loop(command);
        return;
      case Command::kAbort:
        return;
    }
  }

  struct Started {
    at::Tensor tensor;
    std::unique_ptr<Work> work;
  };
  Mutex mutex_;
  std::map<int64_t, std::shared_ptr<Communicator>> groups_ TUTTI_GUARDED_BY(mutex_);
  std::map<int64_t, Started> works_;
  int64_t num_works_ = 0;
};

}  // namespace
}  // namespace tutti::collectives

int main() {
  try {
    return tutti::collectives::RankProcess().serve();
  } catch (const std::exception&) {
    _exit(0);  // the test has ended
  }
}
