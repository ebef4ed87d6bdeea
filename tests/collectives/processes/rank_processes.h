#pragma once
// Processes that stand for ranks, and communicators of the test's process that stand for theirs.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "collectives/call.h"
#include "collectives/processes/wire.h"
#include "support/run_on_ranks.h"
#include "tutti/base/error.h"

extern char** environ;

namespace tutti::testing {

/// One process; commands one at a time, kAbort whenever.
class RankProcess {
 public:
  RankProcess() {
    int commands[2];
    int urgent[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, commands) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, urgent) != 0) {
      throw std::runtime_error("socketpair");
    }
    // Out of the way of the numbers that the process will know them by.
    const int theirs = fcntl(commands[1], F_DUPFD_CLOEXEC, 10);
    const int theirs_urgent = fcntl(urgent[1], F_DUPFD_CLOEXEC, 10);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs, 3);
    posix_spawn_file_actions_adddup2(&actions, theirs_urgent, 4);
    char name[] = "collectives_rank";
    char* arguments[] = {name, nullptr};
    if (posix_spawn(&process_, TUTTI_RANK_PROGRAM, &actions, nullptr, arguments, environ) != 0) {
      throw std::runtime_error("posix_spawn " TUTTI_RANK_PROGRAM);
    }
    posix_spawn_file_actions_destroy(&actions);
    for (const int number : {commands[1], urgent[1], theirs, theirs_urgent}) close(number);
    commands_ = commands[0];
    urgent_ = urgent[0];
  }
  ~RankProcess() {
    close(commands_);
    close(urgent_);
    kill(process_, SIGCONT);
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  void signal(int number) const { kill(process_, number); }

  /// The answer, past its head; throws what the process threw.
  Frame ask(const Frame& command) {
    std::lock_guard<std::mutex> lock(mutex_);
    command.write_to(commands_);
    return answer();
  }
  void tell(const Frame& command) const { command.write_to(commands_); }
  Frame answer() const {
    Frame frame = Frame::read_from(commands_);
    if (!frame.get<bool>()) {
      const auto code = static_cast<ErrorCode>(frame.get<int32_t>());
      throw_error(code, frame.get_text());
    }
    return frame;
  }
  void ask_urgently(const Frame& command) {
    std::lock_guard<std::mutex> lock(urgent_mutex_);
    command.write_to(urgent_);
    Frame::read_from(urgent_);
  }

 private:
  pid_t process_ = -1;
  int commands_ = -1;
  int urgent_ = -1;
  std::mutex mutex_;
  std::mutex urgent_mutex_;
};

/// The processes of a test program, started when first needed and kept: a start costs a third of a
/// second.
class RankPool {
 public:
  static RankPool& of_program() {
    static RankPool pool;
    return pool;
  }
  std::shared_ptr<RankProcess> process(int rank) {
    const auto at = static_cast<std::size_t>(rank);
    while (processes_.size() <= at) processes_.push_back(std::make_shared<RankProcess>());
    return processes_[at];
  }
  /// For the tests that end some.
  void renew() { processes_.clear(); }
  std::string store_folder() const { return folder_; }
  int64_t next_number() { return ++number_; }

 private:
  RankPool() {
    char name[] = "/tmp/tutti-ranks-XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = name;
  }
  ~RankPool() {
    processes_.clear();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::vector<std::shared_ptr<RankProcess>> processes_;
  std::string folder_;
  std::atomic<int64_t> number_{0};
};

/// Stands for a rank in another process.
class ProcessCommunicator : public collectives::Communicator {
 public:
  ProcessCommunicator(const std::string& backend, int rank, int size, int64_t group)
      : Communicator(backend, rank, size),
        process_(RankPool::of_program().process(rank)),
        group_(group) {}
  ~ProcessCommunicator() override {
    try {
      process_->ask(Frame().put(Command::kDestroy).put(group_));
    } catch (const std::exception&) {  // it was ended by the test
    }
  }

 private:
  using Options = collectives::CommunicationOptions;
  using Verb = collectives::Verb;

  class RemoteWork : public collectives::Work {
   public:
    RemoteWork(std::shared_ptr<RankProcess> process, int64_t number, at::Tensor tensor)
        : process_(std::move(process)), number_(number), tensor_(std::move(tensor)) {}
    ~RemoteWork() override {
      try {
        process_->ask(Frame().put(Command::kDrop).put(number_));
      } catch (const std::exception&) {  // it was ended by the test
      }
    }
    void wait() override {
      tensor_.copy_(process_->ask(Frame().put(Command::kWait).put(number_)).get_tensor());
    }

   private:
    std::shared_ptr<RankProcess> process_;
    int64_t number_;
    at::Tensor tensor_;
  };

  at::Tensor call(Verb verb, const at::Tensor& tensor, collectives::ReduceOp op, int root,
                  const Options& options) {
    Frame command;
    command.put(Command::kCall).put(group_).put(verb).put(op).put(static_cast<int32_t>(root));
    command.put(options).put(tensor);
    return process_->ask(command).get_tensor();
  }
  void do_all_reduce(at::Tensor& tensor, collectives::ReduceOp op,
                     const Options& options) override {
    tensor.copy_(call(Verb::kAllReduce, tensor, op, 0, options));
  }
  std::unique_ptr<collectives::Work> do_start_all_reduce(at::Tensor& tensor,
                                                         collectives::ReduceOp op,
                                                         const Options& options) override {
    Frame command;
    command.put(Command::kStart).put(group_).put(op).put(options).put(tensor);
    const auto number = process_->ask(command).get<int64_t>();
    return std::make_unique<RemoteWork>(process_, number, tensor);
  }
  at::Tensor do_all_gather(const at::Tensor& tensor, const Options& options) override {
    return call(Verb::kAllGather, tensor, collectives::ReduceOp::kSum, 0, options);
  }
  at::Tensor do_reduce_scatter(const at::Tensor& tensor, collectives::ReduceOp op,
                               const Options& options) override {
    return call(Verb::kReduceScatter, tensor, op, 0, options);
  }
  void do_broadcast(at::Tensor& tensor, int root, const Options& options) override {
    tensor.copy_(call(Verb::kBroadcast, tensor, collectives::ReduceOp::kSum, root, options));
  }
  void do_barrier(const Options& options) override {
    call(Verb::kBarrier, at::empty({0}), collectives::ReduceOp::kSum, 0, options);
  }
  void do_abort(std::string_view reason) override {
    process_->ask_urgently(Frame().put(Command::kAbort).put(group_).put(std::string(reason)));
  }

  std::shared_ptr<RankProcess> process_;
  int64_t group_;
};

/// The command that makes `rank` of a group of `size` in its process.
inline Frame make_command(const std::string& backend, int64_t group, int rank, int size,
                          int64_t milliseconds) {
  Frame command;
  command.put(Command::kMake).put(group).put(backend);
  // Pairs share a host where hosts matter.
  command.put(backend == "hierarchical" ? "host " + std::to_string(rank / 2) : std::string());
  command.put(RankPool::of_program().store_folder()).put("group " + std::to_string(group));
  command.put(static_cast<int32_t>(rank)).put(static_cast<int32_t>(size)).put(milliseconds);
  return command;
}

inline Group make_process_group(const std::string& backend, int size) {
  RankPool& pool = RankPool::of_program();
  const int64_t number = pool.next_number();
  for (int rank = 0; rank < size; ++rank) {
    pool.process(rank)->tell(make_command(backend, number, rank, size, 60'000));
  }
  Group group;
  for (int rank = 0; rank < size; ++rank) {
    pool.process(rank)->answer();
    group.push_back(std::make_unique<ProcessCommunicator>(backend, rank, size, number));
  }
  return group;
}

}  // namespace tutti::testing
