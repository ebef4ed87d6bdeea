// What all strategies share: scopes, checks, reductions, input.

#include "tutti/distribute/strategy.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include "base/mutex.h"
#include "data/element_scope.h"
#include "distribute/collective_all_reduce.h"
#include "distribute/context_stack.h"
#include "distribute/distributed_plans.h"
#include "distribute/thread_team.h"
#include "distribute/variable_registry.h"
#include "distribute/worker_group.h"
#include "tutti/base/seed.h"

namespace tutti::distribute {

/// The streams of the local replicas. Nothing is seeded before somebody draws: a `run` only says
/// that a new step has begun.
struct Strategy::Random {
  struct alignas(64) Stream {
    Mutex mutex;
    uint64_t turn TUTTI_GUARDED_BY(mutex) = 0;  // in which it was seeded
    at::Generator generator TUTTI_GUARDED_BY(mutex);
  };
  explicit Random(std::size_t replicas) {
    for (std::size_t i = 0; i < replicas; ++i) streams.push_back(std::make_unique<Stream>());
  }

  /// After a set_seed steps are counted from 0 again.
  void notice_seed() {
    const uint64_t generation = seed_generation();
    if (seen_generation.load(std::memory_order_relaxed) == generation) return;
    if (seen_generation.exchange(generation) != generation) go_to(0);
  }
  void go_to(int64_t number) {
    step.store(number, std::memory_order_relaxed);
    next.store(number, std::memory_order_relaxed);
    turn.fetch_add(1, std::memory_order_release);
  }
  void begin_run() {
    notice_seed();
    step.store(next.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
    turn.fetch_add(1, std::memory_order_release);
  }

  std::atomic<int64_t> step{0};
  std::atomic<int64_t> next{0};
  std::atomic<uint64_t> turn{1};  // grows whenever streams begin anew
  std::atomic<uint64_t> seen_generation{0};
  std::vector<std::unique_ptr<Stream>> streams;
};

namespace {
/// NCCL where all devices are GPUs and the build has it.
AnyCrossDeviceOps default_cross_device_ops(const std::vector<DeviceName>& devices) {
  bool nccl = NcclAllReduce::is_built() && devices.size() > 1;
  for (const DeviceName& device : devices) nccl = nccl && device.kind == DeviceName::Kind::kCuda;
  return nccl ? AnyCrossDeviceOps(NcclAllReduce()) : AnyCrossDeviceOps(ReductionToOneDevice());
}

int count_workers(const std::shared_ptr<WorkerGroup>& workers) {
  return workers == nullptr ? 1 : workers->num_workers();
}

at::Generator new_generator(const DeviceName& device) {
  if (device.kind == DeviceName::Kind::kCpu) return at::detail::createCPUGenerator();
  return at::detail::getCUDAHooks().getNewGenerator(device.torch_device().index());
}
}  // namespace

Strategy::Strategy(std::vector<DeviceName> devices, Settings settings)
    : devices_(std::move(devices)),
      workers_(std::move(settings.workers)),
      num_replicas_(num_local_replicas() * count_workers(workers_)),
      first_replica_id_(workers_ == nullptr ? 0 : workers_->worker() * num_local_replicas()),
      threads_per_replica_(std::max(1, available_cores() / std::max(1, num_local_replicas()))),
      is_default_(settings.is_default),
      has_own_cross_device_ops_(static_cast<bool>(settings.cross_device_ops)),
      cross_device_ops_(std::move(settings.cross_device_ops)),
      communication_options_(CommunicationOptions().merged_with(settings.communication_options)),
      parameter_device_(settings.parameter_device),
      variables_(std::make_shared<tutti::internal::VariableRegistry>()),
      random_(std::make_unique<Random>(devices_.size())) {
  if (!cross_device_ops_) cross_device_ops_ = default_cross_device_ops(devices_);
  cross_device_ops_->check_devices(devices_);
  if (workers_ == nullptr) return;
  cross_device_ops_ = CollectiveAllReduce(cross_device_ops_, workers_);
  workers_->set_options(communication_options_);
  // Nobody goes on before all are there.
  workers_->agree("strategy", cat("one of ", num_local_replicas(), " replicas a worker"));
  // Workers of one host have the cores together: teams as large as all of them would spin on the
  // cores that the other workers compute on.
  const std::vector<int64_t> cores = described_cores();
  int sharing = 0;
  for (const std::vector<int64_t>& other : workers_->exchange(cores))
    sharing += share_cores(cores, other) ? 1 : 0;
  threads_per_replica_ =
      std::max(1, available_cores() / (std::max(1, sharing) * num_local_replicas()));
}

Strategy::~Strategy() {
  auto& stack = thread_context().stack;
  if (stack.size() == 1 && stack[0].is_set && stack[0].strategy == this) stack.clear();
}

at::Generator& Strategy::generator(int local_replica) {
  // A layer in a function of a dataset: the element's, whatever thread calls it.
  if (data::ElementScope* call = data::ElementScope::current()) return call->generator();
  Random& random = *random_;
  random.notice_seed();
  const auto index = static_cast<std::size_t>(local_replica);
  Random::Stream& stream = *random.streams[index];
  MutexLock lock(stream.mutex);
  const uint64_t turn = random.turn.load(std::memory_order_acquire);
  if (stream.turn != turn) {
    if (!stream.generator.defined()) stream.generator = new_generator(devices_[index]);
    std::lock_guard<std::mutex> drawing(stream.generator.mutex());
    stream.generator.set_current_seed(
        stream_seed(stream_base(), random_step(), first_replica_id() + local_replica));
    stream.turn = turn;
  }
  return stream.generator;
}

int64_t Strategy::random_step() const {
  random_->notice_seed();
  return random_->step.load(std::memory_order_relaxed);
}

int64_t Strategy::next_random_step() const {
  random_->notice_seed();
  return random_->next.load(std::memory_order_relaxed);
}

void Strategy::set_random_step(int64_t step) {
  if (step < 0)
    throw InvalidArgument(cat("set_random_step [", name(), "]: ", step, ", expected 0 or more"));
  random_->notice_seed();
  random_->go_to(step);
}

void Strategy::check_usable(const char* operation) const {
  const auto& stack = thread_context().stack;
  if (stack.empty()) return;
  const Strategy* current = stack.back().strategy;
  if (current == this || current->is_default() || is_default_) return;
  throw FailedPrecondition(cat(operation, " [", name(),
                               "]: called in a context of another strategy (", current->name(),
                               "), expected its own scope or none; mixing strategies is not "
                               "possible, leave the other one first"));
}

void Strategy::check_cross_replica(const char* operation, const char* remedy) const {
  const auto& stack = thread_context().stack;
  if (stack.empty()) return;
  const ContextEntry& here = stack.back();
  if (here.is_default_mode || (here.strategy == this && here.replica == nullptr)) return;
  if (here.strategy != this) {
    throw FailedPrecondition(cat(operation, " [", name(),
                                 "]: called in a context of another strategy (",
                                 here.strategy->name(),
                                 "), expected its own scope or none; mixing strategies is not "
                                 "possible, leave the other one first"));
  }
  throw FailedPrecondition(
      cat(operation, " [", name(), " replica ", here.replica->replica_id_in_sync_group(),
          "]: called inside a replica, expected cross-replica context; ", remedy));
}

void Strategy::run_replicas(FunctionRef<void(int)> body) {
  check_cross_replica("run");
  bool expected = false;
  if (!in_use_.compare_exchange_strong(expected, true, std::memory_order_acquire)) {
    throw FailedPrecondition(cat(
        "run [", name(),
        "]: another thread is running this strategy at the same moment, expected one at a time; "
        "use a strategy for each thread, or take turns"));
  }
  struct Release {
    std::atomic<bool>& flag;
    ~Release() { flag.store(false, std::memory_order_release); }
  } release{in_use_};
  random_->begin_run();
  if (workers_ != nullptr) return workers_->guarded([&] { run_on_replicas(body); });
  run_on_replicas(body);
}

InputContext Strategy::input_context() const {
  if (workers_ == nullptr) return InputContext(1, 0, num_replicas_);
  return InputContext(workers_->num_workers(), workers_->worker(), num_replicas_);
}

void Strategy::on_replica_team(FunctionRef<void()> body) const {
  if (is_default_) return body();
  ThreadTeam team(threads_per_replica_);
  body();
}

std::shared_ptr<DistributedPlan> Strategy::distribute_plan(std::shared_ptr<const data::Plan> plan,
                                                           const InputOptions& options) {
  const data::InputWorkers place{.num_workers = count_workers(workers_),
                                 .replicas_per_worker = num_local_replicas(),
                                 .worker = workers_ == nullptr ? 0 : workers_->worker()};
  if (workers_ == nullptr) return make_rebatched_plan(std::move(plan), place, devices_, options);
  std::shared_ptr<DistributedPlan> distributed;
  workers_->guarded([&] {
    distributed = rebatched_over_workers(std::move(plan), place, devices_, options, workers_);
  });
  return distributed;
}

std::shared_ptr<DistributedPlan> Strategy::distribute_plans_from_function(
    FunctionRef<std::shared_ptr<const data::Plan>(const InputContext&)> dataset_fn,
    const InputOptions& options) {
  if (workers_ == nullptr)
    return make_plans_from_function(dataset_fn, input_context(), devices_, options);
  std::shared_ptr<DistributedPlan> distributed;
  workers_->guarded([&] {
    distributed =
        from_function_over_workers(dataset_fn, input_context(), devices_, options, workers_);
  });
  return distributed;
}

std::string Strategy::summary() const {
  const int local = num_local_replicas();
  const bool one = num_replicas_ == 1;
  const bool one_here = local == 1;
  const bool on_cpu = devices_[0].kind == DeviceName::Kind::kCpu;
  std::string why = has_own_cross_device_ops_ ? "as asked for" : "the default";
  if (one) why = "one replica: nothing to reduce";
  if (!one && !has_own_cross_device_ops_ && on_cpu)
    why = "the default of CPU devices: in process, in replica order";
  if (workers_ != nullptr) why = "in each worker first, then over the workers";
  std::string variables = "one component a replica";
  if (one_here) variables = cat("on ", devices_[0]);
  if (parameter_device_) variables = cat("one copy, on ", *parameter_device_);
  if (!one_here && !parameter_device_ && on_cpu)
    variables += ", which share one copy while they are equal";
  if (workers_ != nullptr) variables += "; they begin as the chief's";
  std::string head = cat(name(), ": ", num_replicas_, one ? " replica on " : " replicas on ");
  if (workers_ != nullptr)
    head += cat(workers_->num_workers(), " workers, of which this is worker ", workers_->worker(),
                workers_->is_chief() ? ", the chief, on " : ", on ");
  return cat(head, join(devices_, ", "), "\n  threads: ", threads_per_replica_, " of ",
             available_cores(), " cores for each replica\n  reduction: ", cross_device_ops().name(),
             " (", why, ")\n  variables: ", variables, "\n  batch: ",
             one ? std::string("the global batch is the replica's")
                 : cat("a global batch is cut among ", num_replicas_, " replicas, ceil(global / ",
                       num_replicas_,
                       ") rows for each; a batch for each replica (datasets from a function) is a "
                       "global one of ",
                       num_replicas_, " * batch"),
             "\n  steps: ceil(rows / global batch), the last one with the rows that are left\n");
}

// ---- the default strategy

namespace {

class DefaultStrategy : public Strategy {
 public:
  DefaultStrategy() : Strategy({DeviceName{}}, {.is_default = true}) {}
  std::string name() const override { return "default strategy"; }

 private:
  void run_on_replicas(FunctionRef<void(int)> body) override {
    ContextGuard context(*this, &default_replica_context());
    body(0);
  }
};

}  // namespace

Strategy& default_strategy() {
  static DefaultStrategy* strategy =
      new DefaultStrategy();  // never destroyed: variables may outlive main
  return *strategy;
}

}  // namespace tutti::distribute
