// What all strategies share: scopes, checks, reductions, input.

#include "tutti/distribute/strategy.h"

#include <ATen/CPUGeneratorImpl.h>

#include <random>

#include "base/mutex.h"
#include "collectives/local_reduce.h"
#include "distribute/context_stack.h"
#include "distribute/distributed_plans.h"
#include "distribute/thread_team.h"
#include "tutti/base/log.h"
#include "tutti/base/seed.h"

namespace tutti::distribute {

// ---- Scope
// ---------------------------------------------------------------------------------------------------------------------

Scope::Scope(Strategy& strategy) : strategy_(&strategy), depth_(thread_context().stack.size()) {
  ReplicaContext* replica = get_replica_context();
  if (replica != nullptr && !replica->strategy().is_default()) {
    throw FailedPrecondition(cat("scope [", strategy.name(), "]: entered inside replica ",
                                 replica->replica_id_in_sync_group(),
                                 ", expected cross-replica context; enter it outside run"));
  }
  Strategy& current = get_strategy();
  if (has_strategy() && &current != &strategy) {
    throw FailedPrecondition(cat("scope [", strategy.name(),
                                 "]: entered inside the scope of another strategy (",
                                 current.name(),
                                 "), expected the same or none; mixing strategies is not possible, "
                                 "leave the other scope first"));
  }
  ReplicaContext* context = strategy.is_default() ? &default_replica_context() : nullptr;
  thread_context().stack.push_back({&strategy, context});
}

void Scope::exit() {
  if (strategy_ == nullptr) return;
  auto& stack = thread_context().stack;
  if (stack.size() != depth_ + 1) {
    throw FailedPrecondition(
        cat("scope [", strategy_->name(), "]: left while ",
            static_cast<int64_t>(stack.size()) - 1 - static_cast<int64_t>(depth_),
            " scopes entered after it are open, expected the reverse order; leave the inner ones "
            "first"));
  }
  stack.pop_back();
  strategy_ = nullptr;
}

Scope::~Scope() {
  if (strategy_ == nullptr) return;
  auto& stack = thread_context().stack;
  if (stack.size() != depth_ + 1) {
    log_line(LogLevel::kError,
             cat("scope [", strategy_->name(),
                 "]: destroyed out of order; scopes opened after it are closed too"));
  }
  while (stack.size() > depth_) stack.pop_back();
}

// ---- Strategy
// ------------------------------------------------------------------------------------------------------------------

/// Generators of the local replicas, seeded anew after each set_seed.
struct Strategy::Random {
  int64_t index;  // of the strategy in this process
  Mutex mutex;
  uint64_t seed_generation = 0;
  std::vector<at::Generator> generators;
};

namespace {
std::atomic<int64_t> g_num_strategies{0};
}  // namespace

Strategy::Strategy(std::vector<DeviceName> devices, Settings settings)
    : devices_(std::move(devices)),
      num_replicas_(static_cast<int>(devices_.size())),
      threads_per_replica_(std::max(1, available_cores() / std::max(1, num_replicas_))),
      is_default_(settings.is_default),
      cross_device_ops_(std::move(settings.cross_device_ops)),
      communication_options_(settings.communication_options),
      parameter_device_(settings.parameter_device),
      lifetime_(std::make_shared<int>(0)),
      random_(std::make_unique<Random>()) {
  communication_options_.merged_with({});  // checks the fields
  if (!cross_device_ops_) cross_device_ops_ = ReductionToOneDevice();
  random_->index = is_default_ ? -1 : g_num_strategies.fetch_add(1);
}

Strategy::~Strategy() = default;

at::Generator& Strategy::generator(int local_replica) {
  MutexLock lock(random_->mutex);
  if (random_->generators.empty() || random_->seed_generation != seed_generation()) {
    random_->seed_generation = seed_generation();
    random_->generators.clear();
    const auto seed = global_seed();
    const uint64_t base =
        seed ? mix_seeds(static_cast<uint64_t>(*seed), static_cast<uint64_t>(random_->index))
             : std::random_device{}();
    for (int i = 0; i < num_local_replicas(); ++i) {
      random_->generators.push_back(at::detail::createCPUGenerator(
          mix_seeds(base, static_cast<uint64_t>(first_replica_id() + i))));
    }
  }
  return random_->generators[static_cast<std::size_t>(local_replica)];
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

void Strategy::check_cross_replica(const char* operation) const {
  check_usable(operation);
  ReplicaContext* replica = get_replica_context();
  if (replica != nullptr && !replica->strategy().is_default()) {
    throw FailedPrecondition(cat(operation, " [", name(), " replica ",
                                 replica->replica_id_in_sync_group(),
                                 "]: called inside a replica, expected cross-replica context; call "
                                 "it outside run or inside merge_call"));
  }
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
  run_on_replicas(body);
}

void Strategy::on_replica_team(FunctionRef<void()> body) const {
  if (is_default_) return body();
  ThreadTeam team(threads_per_replica_);
  body();
}

Tensor Strategy::reduce(AnyReduceOp op, const PerReplica<Tensor>& value) {
  check_cross_replica("reduce");
  if (static_cast<int>(value.size()) != num_local_replicas()) {
    throw InvalidArgument(cat("reduce [", name(), "]: ", value.size(), " components, expected ",
                              num_local_replicas(),
                              ", one a replica; pass what this strategy's run returned"));
  }
  at::NoGradGuard no_grad;
  return cross_device_ops().reduce(op, value);
}

Tensor Strategy::reduce(AnyReduceOp op, const Mirrored<Tensor>& value) {
  check_cross_replica("reduce");
  if (ReduceOp(op) == ReduceOp::kSum && num_replicas_ > 1) {
    throw InvalidArgument(
        cat("reduce [", name(),
            "]: SUM of a Mirrored value, expected MEAN; the value is the same on every replica, "
            "multiply it by num_replicas_in_sync() if that is meant"));
  }
  return value[0].detach();
}

Tensor Strategy::reduce(AnyReduceOp op, const Tensor& value) {
  check_cross_replica("reduce");
  if (ReduceOp(op) == ReduceOp::kSum && num_replicas_ > 1) {
    throw InvalidArgument(cat("reduce [", name(), "]: SUM of a tensor that is no PerReplica with ",
                              num_replicas_,
                              " replicas, expected a PerReplica; it is unclear whether it counts "
                              "once or once a replica"));
  }
  return value.detach();
}

Tensor Strategy::reduce(AnyReduceOp op, const Variable& value) {
  return reduce(op, PerReplica<Tensor>(value.components()));
}

Tensor Strategy::reduce(AnyReduceOp op, const PerReplica<Tensor>& value,
                        std::vector<int64_t> axes) {
  check_cross_replica("reduce");
  at::NoGradGuard no_grad;
  std::vector<Tensor> sums;
  std::vector<Tensor> counts;
  for (const Tensor& component : value.values()) {
    int64_t count = 1;
    for (int64_t axis : axes) {
      if (axis < -component.dim() || axis >= component.dim()) {
        throw InvalidArgument(cat("reduce [", name(), "]: axis ", axis, " of a component of shape ",
                                  shape_text(component.sizes()), ", expected from ",
                                  -component.dim(), " to ", component.dim() - 1));
      }
      count *= component.size(axis);
    }
    sums.push_back(component.sum(axes, /*keepdim=*/false, component.scalar_type()));
    counts.push_back(at::full({}, count, at::kLong));
  }
  Tensor sum = reduce(ReduceOp::kSum, PerReplica<Tensor>(std::move(sums)));
  if (ReduceOp(op) == ReduceOp::kSum) return sum;
  const Tensor count = collectives::local_reduce(ReduceOp::kSum, counts);
  if (!sum.is_floating_point()) sum = sum.to(at::kDouble);
  return sum / count.to(sum.device());
}

Tensor Strategy::gather(const PerReplica<Tensor>& value, int64_t axis) {
  check_cross_replica("gather");
  at::NoGradGuard no_grad;
  const Tensor& first = value[0];
  std::vector<Tensor> parts;
  for (const Tensor& component : value.values()) {
    if (component.dim() == 0)
      throw InvalidArgument(cat(
          "gather [", name(), "]: a scalar component, expected rank 1 or more; use unsqueeze(0)"));
    if (axis < -component.dim() || axis >= component.dim() || component.dim() != first.dim()) {
      throw InvalidArgument(cat("gather [", name(), "]: axis ", axis, " of components of shape ",
                                shape_text(first.sizes()), " and ", shape_text(component.sizes()),
                                ", expected one rank and an axis below it"));
    }
    for (int64_t dim = 0; dim < component.dim(); ++dim) {
      if (dim != at::maybe_wrap_dim(axis, component.dim()) &&
          component.size(dim) != first.size(dim)) {
        throw InvalidArgument(cat("gather [", name(), "]: components of shape ",
                                  shape_text(first.sizes()), " and ", shape_text(component.sizes()),
                                  ", expected equal sizes but for axis ", axis));
      }
    }
    parts.push_back(component.to(first.device()));
  }
  return at::cat(parts, axis);
}

std::shared_ptr<DistributedPlan> Strategy::distribute_plan(std::shared_ptr<const data::Plan> plan,
                                                           const InputOptions& options) {
  return make_rebatched_plan(std::move(plan),
                             {.num_workers = 1, .replicas_per_worker = num_replicas_, .worker = 0},
                             devices_, options);
}

std::shared_ptr<DistributedPlan> Strategy::distribute_plans_from_function(
    FunctionRef<std::shared_ptr<const data::Plan>(const InputContext&)> dataset_fn,
    const InputOptions& options) {
  return make_plans_from_function(dataset_fn, input_context(), devices_, options);
}

std::string Strategy::summary() const {
  return cat(name(), ": ", num_replicas_, num_replicas_ == 1 ? " replica on " : " replicas on ",
             join(devices_, ", "), "\n  threads: ", threads_per_replica_, " of ", available_cores(),
             " cores for each replica\n  reduction: ", cross_device_ops().name(),
             num_replicas_ > 1 ? " (in process)" : " (one replica: nothing to reduce)", "\n");
}

// ---- the default strategy
// ------------------------------------------------------------------------------------------------------

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
