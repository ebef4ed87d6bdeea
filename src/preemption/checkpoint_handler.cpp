#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "base/error_file.h"
#include "cluster/gce_termination.h"
#include "cluster/roles.h"
#include "distribute/variable_checkpoint.h"
#include "distribute/worker_group.h"
#include "preemption/agreement.h"
#include "preemption/polling.h"
#include "preemption/run_counter.h"
#include "preemption/termination_signal.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/preemption/preemption.h"

namespace tutti::distribute {
namespace {

using preemption::Agreement;
using preemption::PreemptionChannel;
using Clock = std::chrono::steady_clock;

const char* const kHandler = "PreemptionCheckpointHandler";
const char* const kCounter = "checkpointed_runs";
constexpr int kGceExitCode = 143;
constexpr double kGceGracePeriod = 3600;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void end_process(int code) {
  std::cout.flush();
  std::cerr.flush();
  std::clog.flush();
  std::fflush(nullptr);
  // Threads of the training are still there: what the end of a process destroys may be in use.
  std::quick_exit(code);
}

/// Workers beside this one, by the resolver; an evaluator has none.
bool has_others(const cluster_resolver::ClusterResolver& resolver) {
  if (!resolver.defined()) return false;
  const train::ClusterSpec cluster = resolver.cluster_spec();
  if (!cluster) return false;
  if (cluster.has_job(cluster::kParameterServer)) {
    throw Unimplemented(cat(kHandler,
                            " [cluster_resolver]: a cluster with parameter servers, expected one "
                            "of workers; save on the coordinator by a CheckpointManager"));
  }
  const std::string type = resolver.task_type().value_or(cluster::kWorker);
  return type != cluster::kEvaluator && cluster::worker_count(cluster, type) > 1;
}

Strategy& strategy_of(const PreemptionCheckpointHandlerOptions& options) {
  return options.strategy != nullptr ? *options.strategy : get_strategy();
}

std::unique_ptr<PreemptionChannel> channel_of(const cluster_resolver::ClusterResolver& resolver,
                                              const PreemptionCheckpointHandlerOptions& options) {
  const bool expects_others = has_others(resolver);
  Strategy& strategy = strategy_of(options);
  WorkerGroup* const workers = strategy.workers();
  if (workers == nullptr || workers->num_workers() == 1) {
    if (!expects_others) return preemption::sole_channel();
    throw FailedPrecondition(cat(kHandler, " [strategy]: ", strategy.name(),
                                 " of one worker, expected one of the workers that the cluster "
                                 "has; make the handler in the scope of a "
                                 "MultiWorkerMirroredStrategy, or give it as `strategy`"));
  }
  if (workers->agent() == nullptr) {
    throw FailedPrecondition(cat(kHandler,
                                 " [strategy]: workers without coordination, expected "
                                 "workers that TF_CONFIG or a resolver connected"));
  }
  // A number that all workers have, and no earlier handler had.
  const int64_t calls = workers->of_first(workers->num_calls());
  return preemption::agent_channel(workers->agent(), workers->worker(), workers->num_workers(),
                                   std::to_string(calls));
}

void check(const TerminationConfig& config, double timeout) {
  if (std::isnan(config.grace_period.value_or(0)))
    throw InvalidArgument(cat(kHandler, " [grace_period]: NaN, expected seconds"));
  if (!(timeout > 0)) {
    throw InvalidArgument(
        cat(kHandler, " [agreement_timeout_seconds]: ", timeout, ", expected more than 0"));
  }
}

}  // namespace

class PreemptionCheckpointHandler::Impl {
 public:
  Impl(std::unique_ptr<PreemptionChannel> channel, train::Checkpoint& checkpoint,
       train::CheckpointManager* manager, const PreemptionCheckpointHandlerOptions& options)
      : config_(options.termination_config),
        strategy_(strategy_of(options)),
        checkpoint_(checkpoint),
        counter_(std::make_shared<preemption::RunCounter>(tutti::internal::peers_of(strategy_))) {
    check(config_, options.agreement_timeout_seconds);
    take_manager(manager, options.checkpoint_dir);
    checkpoint_.add_hidden(kCounter, counter_);
    manager_->restore_or_initialize();
    agreement_ = std::make_unique<Agreement>(
        std::move(channel),
        preemption::AgreementOptions{.grace_period = config_.grace_period.value_or(0),
                                     .timeout = options.agreement_timeout_seconds},
        counter_->value());
    listen();
  }

  /// True when all is saved and it is time to end.
  bool before_step(const PreemptionSaveArguments& arguments) {
    for (;;) {
      switch (agreement_->before_step()) {
        case Agreement::Next::kGo:
          return false;
        case Agreement::Next::kSave:
          agreement_->saved(save(arguments));
          break;
        case Agreement::Next::kSaveAndExit:
          save(arguments);
          finish();
          return true;
      }
    }
  }
  void begin_step() { step_start_ = Clock::now(); }
  void after_step() {
    agreement_->after_step(step_start_ ? std::optional(seconds_since(*step_start_)) : std::nullopt);
    step_start_.reset();
    counter_->set(agreement_->steps());
  }
  void exit() {
    // A signal that comes again before the process has ended changes nothing.
    if (config_.exit_fn) {
      config_.exit_fn();
      return signal_.reset();
    }
    if (agreement_->leads()) record_error("preempted: this task was told first");
    end_process(config_.exit_code);
  }
  void report_failure() noexcept {
    PreemptionChannel& channel = agreement_->channel();
    if (channel.num_workers() == 1) return;
    try {
      try {
        throw;
      } catch (const Error& error) {
        channel.report_error(error.code(), error.what());
      } catch (const std::exception& error) {
        channel.report_error(ErrorCode::kInternal, error.what());
      } catch (...) {
        channel.report_error(ErrorCode::kInternal, "an exception that is no std::exception");
      }
    } catch (const std::exception& error) {
      log_info(kHandler, ": the error was not reported to the other workers: ", error.what());
    }
  }
  int64_t steps() const { return agreement_->steps(); }

 private:
  void take_manager(train::CheckpointManager* manager, const std::string& folder) {
    if (manager == nullptr && folder.empty()) {
      throw InvalidArgument(cat(kHandler,
                                " [checkpoint_dir]: none, expected a folder with a "
                                "Checkpoint; give checkpoint_dir, or a "
                                "CheckpointManager"));
    }
    if (manager == nullptr) {
      own_manager_ = std::make_unique<train::CheckpointManager>(
          checkpoint_, folder, train::CheckpointManagerOptions{.max_to_keep = 1});
    }
    manager_ = manager != nullptr ? manager : own_manager_.get();
  }
  void listen() {
    auto tell = [this](const char* why) { return [this, why] { agreement_->notice(why); }; };
    if (config_.termination_watcher_fn) {
      polling_ = std::make_unique<preemption::Polling>(config_.termination_watcher_fn,
                                                       tell("termination_watcher_fn said so"));
    } else {
      signal_ = std::make_unique<preemption::TerminationSignal>(tell("SIGTERM"));
    }
  }
  double save(const PreemptionSaveArguments& arguments) {
    const Clock::time_point start = Clock::now();
    if (config_.save_fn) {
      config_.save_fn(arguments);
    } else {
      manager_->save(arguments.checkpoint_number, arguments.check_interval);
    }
    checkpoint_.sync();
    const double taken = seconds_since(start);
    log_info(kHandler, ": saved after ", agreement_->steps(), " steps, in ", taken, " s");
    return taken;
  }
  void finish() {
    polling_.reset();
    agreement_->finish();
    if (WorkerGroup* const workers = strategy_.workers()) workers->leave();
  }

  const TerminationConfig config_;
  Strategy& strategy_;
  train::Checkpoint& checkpoint_;
  const std::shared_ptr<preemption::RunCounter> counter_;
  std::unique_ptr<train::CheckpointManager> own_manager_;
  train::CheckpointManager* manager_ = nullptr;
  std::optional<Clock::time_point> step_start_;
  std::unique_ptr<Agreement> agreement_;
  // Last: they use the agreement.
  std::unique_ptr<preemption::Polling> polling_;
  std::unique_ptr<preemption::TerminationSignal> signal_;
};

PreemptionCheckpointHandler::PreemptionCheckpointHandler(
    const ClusterResolver& cluster_resolver, train::Checkpoint& checkpoint,
    const PreemptionCheckpointHandlerOptions& options)
    : PreemptionCheckpointHandler(checkpoint, channel_of(cluster_resolver, options), options) {}

PreemptionCheckpointHandler::PreemptionCheckpointHandler(
    const ClusterResolver& cluster_resolver, train::CheckpointManager& manager,
    const PreemptionCheckpointHandlerOptions& options)
    : PreemptionCheckpointHandler(manager, channel_of(cluster_resolver, options), options) {}

PreemptionCheckpointHandler::PreemptionCheckpointHandler(
    train::Checkpoint& checkpoint, std::unique_ptr<PreemptionChannel> channel,
    const PreemptionCheckpointHandlerOptions& options)
    : impl_(std::make_unique<Impl>(std::move(channel), checkpoint, nullptr, options)) {}

PreemptionCheckpointHandler::PreemptionCheckpointHandler(
    train::CheckpointManager& manager, std::unique_ptr<PreemptionChannel> channel,
    const PreemptionCheckpointHandlerOptions& options)
    : impl_(std::make_unique<Impl>(std::move(channel), manager.checkpoint(), &manager, options)) {}

PreemptionCheckpointHandler::~PreemptionCheckpointHandler() = default;

void PreemptionCheckpointHandler::begin_call(const PreemptionSaveArguments& arguments) {
  if (watch_preemption_scope([&] { return impl_->before_step(arguments); })) impl_->exit();
  impl_->begin_step();
}
void PreemptionCheckpointHandler::end_call() noexcept { impl_->after_step(); }
void PreemptionCheckpointHandler::report_failure() noexcept { impl_->report_failure(); }

void PreemptionCheckpointHandler::save_checkpoint_if_preempted(
    const PreemptionSaveArguments& arguments) {
  begin_call(arguments);
  end_call();
}

int64_t PreemptionCheckpointHandler::total_run_calls() const { return impl_->steps(); }

TerminationConfig gce_termination_config(TerminationConfig config,
                                         const GceTerminationConfigOptions& options) {
  if (!config.termination_watcher_fn) {
    config.termination_watcher_fn = cluster::gce_termination_watcher(
        options.spot ? cluster::GceNotice::kSpot : cluster::GceNotice::kMaintenance,
        options.variables);
  }
  if (options.spot) return config;
  if (!config.grace_period) config.grace_period = kGceGracePeriod;
  if (config.exit_code == TerminationConfig().exit_code) config.exit_code = kGceExitCode;
  return config;
}

}  // namespace tutti::distribute
