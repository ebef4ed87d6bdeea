#pragma once
// Training that is told to end: saved by all workers after the same step, and gone on with by the
// next start. docs/preemption.md.

#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "tutti/cluster/cluster_resolver.h"
#include "tutti/distribute/replica_context.h"
#include "tutti/distribute/strategy.h"
#include "tutti/train/checkpoint.h"

namespace tutti::coordination {
class CoordinationAgent;
}
namespace tutti::preemption {
class PreemptionChannel;
}

namespace tutti::distribute {

/// What a checkpoint manager is asked to save with. A save before the end ignores the interval of
/// the manager unless told otherwise.
struct PreemptionSaveArguments {
  std::optional<int64_t> checkpoint_number = {};
  bool check_interval = false;
};

/// A function that saves in the manager's stead: without parameters or with the arguments. Empty:
/// the manager saves.
class PreemptionSaveFn {
 public:
  PreemptionSaveFn() = default;
  template <std::invocable<const PreemptionSaveArguments&> Fn>
  PreemptionSaveFn(Fn fn) : fn_(std::move(fn)) {}  // NOLINT: a function is one
  template <std::invocable<> Fn>
  requires(!std::invocable<Fn, const PreemptionSaveArguments&>)
      PreemptionSaveFn(Fn fn)  // NOLINT: likewise
      : fn_([fn = std::move(fn)](const PreemptionSaveArguments&) mutable { fn(); }) {}
  explicit operator bool() const { return static_cast<bool>(fn_); }
  void operator()(const PreemptionSaveArguments& arguments) const { fn_(arguments); }

 private:
  std::function<void(const PreemptionSaveArguments&)> fn_;
};

/// tf.distribute.experimental.TerminationConfig: how the platform says that it will end this
/// process, and how it wants it to end.
struct TerminationConfig {
  /// Asked every second, by a thread of its own, until it says true: the process will be ended. It
  /// must come back soon. Without it SIGTERM says so.
  std::function<bool()> termination_watcher_fn = {};
  /// Called when the last save is done, on the thread of the training. All workers have saved by
  /// then, and have left the job in order: this process may end in any way. Without it the process
  /// ends with `exit_code`: standard streams are flushed and the handlers of std::at_quick_exit
  /// run, destructors and those of std::atexit do not. When it returns, training goes on and
  /// nothing is saved again; between processes that a worker fails is not noticed any more.
  std::function<void()> exit_fn = {};
  /// Seconds between the notice and the end. Above 0 all save at once, train on, and save again and
  /// end when the time is nearly over. The worker that was told decides for all.
  std::optional<double> grace_period = {};
  PreemptionSaveFn save_fn = {};
  /// Of a process that ends without `exit_fn`; tutti-run starts a job that ends with 42 again.
  int exit_code = 42;
};

struct GceTerminationConfigOptions {
  /// True: a spot or preemptible machine, which is told 30 seconds before its end. Otherwise one
  /// with GPUs, which is told of maintenance an hour before.
  bool spot = false;
  /// In the environment's stead: GCE_METADATA_HOST, GCE_METADATA_IP.
  std::shared_ptr<cluster_resolver::EnvironmentVariables> variables = {};
};
/// `config` with what it leaves open filled in for machines of Google Compute Engine: asks the
/// metadata service, and ends after maintenance notices with code 143 after 3600 s of grace, as
/// TensorFlow does. A service that does not answer is no notice.
TerminationConfig gce_termination_config(TerminationConfig config = {},
                                         const GceTerminationConfigOptions& options = {});

struct PreemptionCheckpointHandlerOptions {
  /// With a Checkpoint: where it is saved, a folder for nothing else.
  std::string checkpoint_dir = "";
  TerminationConfig termination_config = {};
  /// Whose workers save together; null: the current strategy. It must outlive the handler.
  Strategy* strategy = nullptr;
  /// How long workers wait for one another when they agree on a step.
  double agreement_timeout_seconds = 60;
};

/// tf.distribute.experimental.PreemptionCheckpointHandler: restores the latest checkpoint when it
/// is made, counts the calls of run(), and when any worker is told that it will be ended, all
/// workers save after the same call, and end. With several workers each makes one, at the same
/// place of the program, and calls run() as often.
///
///     PreemptionCheckpointHandler handler(resolver, checkpoint, {.checkpoint_dir = "state"});
///     for (int64_t step = handler.total_run_calls(); step < steps; ++step)
///       handler.run(train_step, next_batch());
///
/// The count is part of the checkpoint, as "checkpointed_runs", whoever saves it. SIGTERM is taken
/// while the handler lives, without a watcher function of one's own; a handler of the user's that
/// was there before is called too, and is back afterwards. One thread at a time; outside replicas.
class PreemptionCheckpointHandler {
 public:
  using ClusterResolver = cluster_resolver::ClusterResolver;

  /// The checkpoint must outlive the handler. A resolver without a cluster, or that holds none, is
  /// one worker. InvalidArgument without checkpoint_dir; Unimplemented for a cluster with parameter
  /// servers; FailedPrecondition when the cluster has several workers and the strategy one, or when
  /// its workers have no coordination; and what restoring throws.
  PreemptionCheckpointHandler(const ClusterResolver& cluster_resolver,
                              train::Checkpoint& checkpoint,
                              const PreemptionCheckpointHandlerOptions& options);
  /// Saves and restores by the manager, in its folder.
  PreemptionCheckpointHandler(const ClusterResolver& cluster_resolver,
                              train::CheckpointManager& manager,
                              const PreemptionCheckpointHandlerOptions& options = {});
  /// For the library: agrees with others through `channel`.
  PreemptionCheckpointHandler(train::Checkpoint& checkpoint,
                              std::unique_ptr<preemption::PreemptionChannel> channel,
                              const PreemptionCheckpointHandlerOptions& options);
  PreemptionCheckpointHandler(train::CheckpointManager& manager,
                              std::unique_ptr<preemption::PreemptionChannel> channel,
                              const PreemptionCheckpointHandlerOptions& options);
  ~PreemptionCheckpointHandler();
  PreemptionCheckpointHandler(const PreemptionCheckpointHandler&) = delete;
  PreemptionCheckpointHandler& operator=(const PreemptionCheckpointHandler&) = delete;

  /// Saves, and ends, when it is time to; else calls `distributed_train_function(args...)`, one
  /// step of training, counts it, and gives its result. With several workers an exception that
  /// leaves it is told to all, whose next call that needs the others throws it.
  template <class Fn, class... Args>
  std::invoke_result_t<Fn, Args...> run(Fn&& distributed_train_function, Args&&... args) {
    begin_call({});
    return watch_preemption_scope([&]() -> std::invoke_result_t<Fn, Args...> {
      Call call(*this);
      return std::invoke(std::forward<Fn>(distributed_train_function), std::forward<Args>(args)...);
    });
  }
  /// run() of nothing: for a loop that takes its step itself, once a step.
  void save_checkpoint_if_preempted(const PreemptionSaveArguments& arguments = {});
  /// Calls `body`. With several workers an exception that leaves it is told to all.
  template <class Fn>
  std::invoke_result_t<Fn> watch_preemption_scope(Fn&& body) {
    try {
      return std::invoke(std::forward<Fn>(body));
    } catch (...) {
      report_failure();
      throw;
    }
  }
  /// Calls of run() and save_checkpoint_if_preempted() that came to their end, over all restarts.
  int64_t total_run_calls() const;

 private:
  class Impl;
  /// A call of the user's function: it counts unless an exception ends it.
  class Call {
   public:
    explicit Call(PreemptionCheckpointHandler& handler)
        : handler_(handler), exceptions_(std::uncaught_exceptions()) {}
    ~Call() {
      if (std::uncaught_exceptions() == exceptions_) handler_.end_call();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    PreemptionCheckpointHandler& handler_;
    int exceptions_;
  };
  void begin_call(const PreemptionSaveArguments& arguments);
  void end_call() noexcept;
  void report_failure() noexcept;
  std::unique_ptr<Impl> impl_;
};

/// tf.distribute.experimental.PreemptionWatcher: hears of the first worker that is told that it
/// will be ended, by SIGTERM or by what a PreemptionCheckpointHandler watches. While it lives
/// SIGTERM does not end this process. Any thread.
class PreemptionWatcher {
 public:
  /// Of the workers of the current strategy, which must outlive this.
  PreemptionWatcher();
  explicit PreemptionWatcher(Strategy& strategy);
  /// For the library: of the workers that this agent is one of; null: alone.
  explicit PreemptionWatcher(std::shared_ptr<coordination::CoordinationAgent> agent);
  ~PreemptionWatcher();
  PreemptionWatcher(const PreemptionWatcher&) = delete;
  PreemptionWatcher& operator=(const PreemptionWatcher&) = delete;

  /// Who is to be ended: "worker:1: SIGTERM"; nothing while nobody is.
  std::optional<std::string> preemption_message() const;
  /// Blocks until another worker has ended or the job has failed; with one worker not at all.
  /// DeadlineExceeded after `timeout_seconds`.
  void block_until_worker_exit(double timeout_seconds = 3600);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::distribute
