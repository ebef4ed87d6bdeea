#pragma once
// A strategy: on which devices the replicas live, how they run, how their values meet.

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tutti/base/function_ref.h"
#include "tutti/data/dataset.h"
#include "tutti/data/input_context.h"
#include "tutti/distribute/cross_device_ops.h"
#include "tutti/distribute/distributed_dataset.h"
#include "tutti/distribute/replica_context.h"
#include "tutti/distribute/values.h"
#include "tutti/distribute/variable.h"
#include "tutti/tensor/device.h"

namespace tutti::distribute {

using data::InputContext;
using data::InputOptions;
using data::InputReplicationMode;

/// Hints for `run` that only a TPU looks at; every other strategy accepts and ignores them.
struct RunOptions {
  bool enable_dynamic_batch_size = true;
  bool bucketizing_dynamic_shape = false;
  std::string xla_options = "";
};

class StrategyExtended;
class MultiStepContext;
class WorkerGroup;

/// Used by one user thread at a time: a second one at the same moment gets FailedPrecondition.
/// Strategies are independent. A strategy must outlive the calls made with it; variables may
/// outlive it, but then only be destroyed.
class Strategy {
 public:
  virtual ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// Throws FailedPrecondition inside another strategy's scope and inside replicas.
  [[nodiscard]] Scope scope() { return Scope(*this); }

  /// A view of this strategy under TensorFlow's name for its less common members.
  StrategyExtended extended();

  /// Of all workers.
  int num_replicas_in_sync() const { return num_replicas_; }
  /// Replicas of this process.
  int num_local_replicas() const { return static_cast<int>(devices_.size()); }
  const std::vector<DeviceName>& devices() const { return devices_; }

  /// Calls `fn(args...)` once per replica, replicas in parallel: this thread runs replica 0,
  /// standing threads the others. Every PerReplica, Mirrored or DistributedValues in the arguments,
  /// at any depth of tuples, vectors and maps, is replaced by the replica's component. One tuple
  /// argument is spread over fn's parameters when fn does not take the tuple. Returns a nest of
  /// PerReplica, or nothing. The first exception of a replica aborts and joins the others and is
  /// thrown here with theirs listed.
  template <class Fn, class... Args>
  requires(!std::is_same_v<std::decay_t<Fn>, RunOptions>) auto run(Fn&& fn, Args&&... args);
  template <class Fn, class... Args>
  auto run(const RunOptions&, Fn&& fn, Args&&... args) {
    return run(std::forward<Fn>(fn), std::forward<Args>(args)...);
  }

  /// Reduction over the replicas of all workers; the result, the same on every worker, carries no
  /// gradient. Shapes must agree. With several workers every worker must make the call.
  Tensor reduce(AnyReduceOp op, const PerReplica<Tensor>& value);
  IndexedSlices reduce(AnyReduceOp op, const PerReplica<IndexedSlices>& value);
  /// What is the same on every replica (a Mirrored, a plain tensor, a host number, an ON_WRITE
  /// variable): MEAN gives the value; SUM does of the number 0 and, unless it is a mirrored
  /// variable, with one replica, and is InvalidArgument otherwise. Of an ON_READ variable the
  /// components are reduced. With several workers a plain tensor is reduced over the workers, each
  /// of which brings its own.
  Tensor reduce(AnyReduceOp op, const Mirrored<Tensor>& value);
  Tensor reduce(AnyReduceOp op, const Tensor& value);
  Tensor reduce(AnyReduceOp op, const Variable& value);
  template <class Number>
  requires(std::is_arithmetic_v<Number>) Number reduce(AnyReduceOp op, Number value) {
    check_same_everywhere(op, "a host number", value == Number(0));
    return value;
  }
  /// First over `axes` in each replica, then over the replicas. MEAN divides the sum of sums by the
  /// true number of entries, so it is right for uneven and empty replicas; integers give float64.
  Tensor reduce(AnyReduceOp op, const PerReplica<Tensor>& value, std::vector<int64_t> axes);
  /// A plain tensor counts once a replica here.
  Tensor reduce(AnyReduceOp op, const Tensor& value, std::vector<int64_t> axes);
  template <class T>
  Tensor reduce(AnyReduceOp op, const T& value, int64_t axis) {
    return reduce(op, value, std::vector<int64_t>{axis});
  }
  /// Every leaf of a nest.
  template <internal::DistributedNest T>
  auto reduce(AnyReduceOp op, const T& value) {
    return reduce_nest(op, value);
  }
  /// TensorFlow's axis=None.
  template <class T>
  auto reduce(AnyReduceOp op, const T& value, std::nullopt_t) {
    return reduce(op, value);
  }

  /// The components joined along `axis` in replica order; sizes may differ along it only. Scalars
  /// cannot be joined, but with one replica a scalar comes back as it is. In a replica:
  /// FailedPrecondition (use all_gather).
  Tensor gather(const DistributedValues<Tensor>& value, int64_t axis);
  /// What is not distributed comes back as it is; with several workers it is joined over them.
  Tensor gather(const Tensor& value, int64_t axis);

  // ---- moving and reducing between devices (cross-replica context; results carry no gradient)
  /// The reduction of `value` on each destination. Passing the value itself as the destinations is
  /// an all-reduce. `options` over the strategy's own, field by field.
  Mirrored<Tensor> reduce_to(AnyReduceOp op, const PerReplica<Tensor>& value,
                             const Destinations& destinations,
                             const CommunicationOptions& options = {});
  /// MEAN: the value; SUM: InvalidArgument with more than one replica, and so for a plain tensor.
  Mirrored<Tensor> reduce_to(AnyReduceOp op, const Mirrored<Tensor>& value,
                             const Destinations& destinations,
                             const CommunicationOptions& options = {});
  Mirrored<Tensor> reduce_to(AnyReduceOp op, const Tensor& value, const Destinations& destinations,
                             const CommunicationOptions& options = {});
  Mirrored<IndexedSlices> reduce_to(AnyReduceOp op, const PerReplica<IndexedSlices>& value,
                                    const Destinations& destinations,
                                    const CommunicationOptions& options = {});
  /// Several at once, in input order, packed as the CrossDeviceOps says.
  std::vector<ReductionResult> batch_reduce_to(AnyReduceOp op,
                                               const std::vector<ValueDestinations>& values,
                                               const CommunicationOptions& options = {});
  Mirrored<Tensor> broadcast_to(const Tensor& tensor, const Destinations& destinations);

  // ---- updating variables
  /// Calls `fn(variable, args...)` once for each physical copy of the variable's components, in
  /// update context: reads and assignments inside see and change that copy only. Components that
  /// share one storage are one copy. Arguments must be plain or Mirrored: a PerReplica would make
  /// the components differ (InvalidArgument). Returns a nest of Mirrored, or nothing. Inside a
  /// replica: FailedPrecondition (use ReplicaContext::update).
  template <class Fn, class... Args>
  auto update(const Variable& variable, Fn&& fn, Args&&... args);
  /// The same with the results apart (group=False): a vector with one result a local replica.
  template <class Fn, class... Args>
  auto update_ungrouped(const Variable& variable, Fn&& fn, Args&&... args);
  /// Calls `fn(args...)` for each device of `colocate_with`, in update context.
  template <class Fn, class... Args>
  auto update_non_slot(const Destinations& colocate_with, Fn&& fn, Args&&... args);
  /// Where state that belongs to no single variable of `variables` goes.
  std::vector<DeviceName> non_slot_devices(const std::vector<Variable>& variables) const;
  /// What `variable` holds in this context: read_value().
  Tensor read_var(const Variable& variable) const { return variable.read_value(); }
  /// Variables made until the guard dies live where `variable` does. Must be inside this strategy's
  /// scope (FailedPrecondition); the variable must be this strategy's (InvalidArgument).
  [[nodiscard]] Scope colocate_vars_with(const Variable& variable);
  bool variable_created_in_scope(const Variable& variable) const;
  /// The variable of which `component` is a component, else the tensor itself. A container maps to
  /// itself.
  std::variant<Tensor, Variable> value_container(const Tensor& component) const;
  Variable value_container(const Variable& variable) const { return variable; }
  /// Devices of the local replicas, and of variables. FailedPrecondition on the default strategy.
  std::vector<DeviceName> worker_devices() const;
  std::vector<DeviceName> parameter_devices() const;

  /// `run` by its older name.
  template <class Fn, class... Args>
  auto call_for_each_replica(Fn&& fn, Args&&... args) {
    return run(std::forward<Fn>(fn), std::forward<Args>(args)...);
  }

  /// `fn(context, inputs)` `iterations` times in cross-replica context, each with the iterator's
  /// next step; gives the context, in which fn may leave outputs. `initial` are the outputs before
  /// the first iteration. The end of the data is OutOfRange. (Its body is in extended.h.)
  template <class Fn, class Iterator>
  MultiStepContext run_steps_on_iterator(Fn&& fn, Iterator& iterator, int64_t iterations = 1,
                                         const std::map<std::string, Tensor>& initial = {});
  /// A dataset of the slices of host arrays (vectors, spans, std::arrays, tensors, and tuples and
  /// maps of them) along their first axis. The arrays are copied. (Its body is in extended.h.)
  template <class... Arrays>
  auto make_numpy_dataset(const Arrays&... arrays) const;

  /// What this process holds, in replica order: the components of a distributed value or variable;
  /// of a nest one nest a local replica, distributed leaves replaced by their component and other
  /// leaves repeated; anything else alone.
  template <class T>
  auto local_results(const T& value) const {
    return internal::local_parts(num_local_replicas(), value);
  }

  /// Calls `value_fn(ValueContext)` once for each local replica, on this thread, and keeps the
  /// values where they are.
  template <class ValueFn>
  auto distribute_values_from_function(ValueFn&& value_fn) {
    using T = std::decay_t<std::invoke_result_t<ValueFn&, ValueContext>>;
    std::vector<T> values;
    for (int i = 0; i < num_local_replicas(); ++i)
      values.push_back(value_fn(ValueContext{first_replica_id() + i, num_replicas_}));
    return regroup(std::move(values));
  }

  /// `dataset` is batched by the global size; each batch is cut among the replicas.
  template <class Element>
  DistributedDataset<Element> distribute_dataset(const data::Dataset<Element>& dataset,
                                                 const InputOptions& options = {}) {
    return DistributedDataset<Element>(distribute_plan(dataset.plan(), options));
  }
  /// `dataset_fn(InputContext)` gives a dataset batched by the replica's size, from which replicas
  /// draw in turn; in PER_REPLICA mode it is called once for each local replica, whose own dataset
  /// it gives.
  template <class DatasetFn>
  auto distribute_datasets_from_function(DatasetFn&& dataset_fn, const InputOptions& options = {}) {
    using Element =
        typename std::decay_t<std::invoke_result_t<DatasetFn&, InputContext>>::element_type;
    return DistributedDataset<Element>(distribute_plans_from_function(
        [&dataset_fn](const InputContext& context) { return dataset_fn(context).plan(); },
        options));
  }

  /// The way tensors of several replicas are reduced.
  const CrossDeviceOps& cross_device_ops() const { return *cross_device_ops_.get(); }
  /// Defaults of every collective.
  const CommunicationOptions& communication_options() const { return communication_options_; }
  /// Set when variables have one copy only, there.
  const std::optional<DeviceName>& parameter_device() const { return parameter_device_; }
  virtual std::string name() const = 0;
  /// A few lines: devices, threads of each replica, who reduces and why, where variables are, what
  /// a batch is, how many steps are made of rows.
  std::string summary() const;

  InputContext input_context() const;
  /// Global id of the first local replica.
  int first_replica_id() const { return first_replica_id_; }
  /// Intra-op threads of each local replica.
  int threads_per_replica() const { return threads_per_replica_; }
  bool is_default() const { return is_default_; }

  // For the library.
  /// Calls `body(local replica)` on every local replica, each in its replica context; what `run` is
  /// made of.
  void run_replicas(FunctionRef<void(int)> body);
  /// Calls `body` on this thread with a replica's intra-op team: for host work between steps, which
  /// with a larger team would leave OpenMP threads spinning on the other replicas' cores.
  void on_replica_team(FunctionRef<void()> body) const;
  /// The random generator of a local replica, in its stream of the step (tutti/base/seed.h).
  at::Generator& generator(int local_replica);
  /// The step of the `run` under way; the next one's is one more, or what was set (0 or more).
  int64_t random_step() const;
  int64_t next_random_step() const;
  void set_random_step(int64_t step);
  /// Throws FailedPrecondition unless this thread may use this strategy's variables and
  /// cross-replica calls.
  void check_usable(const char* operation) const;
  /// `remedy` says what to do inside a replica instead.
  void check_cross_replica(const char* operation,
                           const char* remedy = "call it outside run or inside merge_call") const;
  std::weak_ptr<void> lifetime() const { return variables_; }
  /// False where a variable is one plain tensor.
  virtual bool mirrors_variables() const { return !is_default_; }
  tutti::internal::VariableRegistry& variables() const { return *variables_; }
  /// Null where there is one worker.
  WorkerGroup* workers() const { return workers_.get(); }
  /// Grows whenever variables are updated; tells a tape that its forward is stale.
  std::atomic<uint64_t>& update_count() { return update_count_; }

 protected:
  struct Settings {
    AnyCrossDeviceOps cross_device_ops = {};
    CommunicationOptions communication_options = {};
    /// Set: variables have one copy, there.
    std::optional<DeviceName> parameter_device = std::nullopt;
    bool is_default = false;
    /// Null: one worker. Every worker has as many devices.
    std::shared_ptr<WorkerGroup> workers = nullptr;
  };
  Strategy(std::vector<DeviceName> devices, Settings settings);

 private:
  virtual void run_on_replicas(FunctionRef<void(int)> body) = 0;
  /// Calls `body(r)` in update context r for the first local replica r of each physical copy of the
  /// variable; gives for every local replica the r whose copy it shares.
  std::vector<int> update_copies(const Variable& variable, FunctionRef<void(int)> body);
  /// The same for the first replica on each device of `devices`.
  void update_devices(const Destinations& devices, FunctionRef<void(int)> body);
  void check_owner(const char* operation, const Variable& variable) const;
  void refuse_per_replica(const char* operation, std::size_t components) const;
  template <class Arg>
  void check_update_argument(const char* operation, const Arg& arg) const;
  /// Throws InvalidArgument for SUM with several replicas, unless the value is zero.
  void check_same_everywhere(ReduceOp op, const char* what, bool is_zero = false) const;
  void check_components(const char* operation, std::size_t components) const;
  /// `here`, of this worker, joined along `axis` with the other workers'.
  Tensor gather_over_workers(const Tensor& here, int64_t axis);
  std::shared_ptr<DistributedPlan> distribute_plan(std::shared_ptr<const data::Plan> plan,
                                                   const InputOptions& options);
  std::shared_ptr<DistributedPlan> distribute_plans_from_function(
      FunctionRef<std::shared_ptr<const data::Plan>(const InputContext&)> dataset_fn,
      const InputOptions& options);
  template <class T>
  auto reduce_nest(AnyReduceOp op, const T& value);

  std::vector<DeviceName> devices_;
  std::shared_ptr<WorkerGroup> workers_;
  int num_replicas_;
  int first_replica_id_;
  int threads_per_replica_;
  bool is_default_;
  bool has_own_cross_device_ops_;
  AnyCrossDeviceOps cross_device_ops_;
  CommunicationOptions communication_options_;
  std::optional<DeviceName> parameter_device_;
  std::shared_ptr<tutti::internal::VariableRegistry> variables_;  // dies with the strategy
  std::atomic<uint64_t> update_count_{0};
  std::atomic<bool> in_use_{false};
  struct Random;
  std::unique_ptr<Random> random_;
};

// ---- the templates behind run and update

template <class Fn, class... Args>
requires(!std::is_same_v<std::decay_t<Fn>, RunOptions>) auto Strategy::run(Fn&& fn,
                                                                           Args&&... args) {
  using Result = std::decay_t<decltype(internal::invoke_replica(fn, 0, args...))>;
  if constexpr (std::is_void_v<Result>) {
    run_replicas([&](int replica) { internal::invoke_replica(fn, replica, args...); });
  } else {
    std::vector<std::optional<Result>> slots(static_cast<std::size_t>(num_local_replicas()));
    run_replicas([&](int replica) {
      slots[static_cast<std::size_t>(replica)].emplace(
          internal::invoke_replica(fn, replica, args...));
    });
    std::vector<Result> results;
    results.reserve(slots.size());
    for (auto& slot : slots) results.push_back(std::move(*slot));
    return regroup(std::move(results));
  }
}

template <class Arg>
void Strategy::check_update_argument(const char* operation, const Arg& arg) const {
  const std::size_t components = internal::per_replica_size(arg);
  if (components > 1) refuse_per_replica(operation, components);
}

template <class Fn, class... Args>
auto Strategy::update_ungrouped(const Variable& variable, Fn&& fn, Args&&... args) {
  (check_update_argument("update", args), ...);
  using Result = std::decay_t<decltype(fn(variable, internal::selected(0, args)...))>;
  if constexpr (std::is_void_v<Result>) {
    update_copies(variable,
                  [&]([[maybe_unused]] int r) { fn(variable, internal::selected(r, args)...); });
  } else {
    std::vector<std::optional<Result>> slots(static_cast<std::size_t>(num_local_replicas()));
    const std::vector<int> copies = update_copies(variable, [&]([[maybe_unused]] int r) {
      slots[static_cast<std::size_t>(r)].emplace(fn(variable, internal::selected(r, args)...));
    });
    std::vector<Result> results;
    for (int copy : copies) results.push_back(*slots[static_cast<std::size_t>(copy)]);
    return results;
  }
}

template <class Fn, class... Args>
auto Strategy::update(const Variable& variable, Fn&& fn, Args&&... args) {
  using Result = std::decay_t<decltype(fn(variable, internal::selected(0, args)...))>;
  if constexpr (std::is_void_v<Result>) {
    update_ungrouped(variable, std::forward<Fn>(fn), std::forward<Args>(args)...);
  } else {
    return regroup<Mirrored>(
        update_ungrouped(variable, std::forward<Fn>(fn), std::forward<Args>(args)...));
  }
}

template <class Fn, class... Args>
auto Strategy::update_non_slot(const Destinations& colocate_with, Fn&& fn, Args&&... args) {
  (check_update_argument("update_non_slot", args), ...);
  using Result = std::decay_t<decltype(fn(internal::selected(0, args)...))>;
  if constexpr (std::is_void_v<Result>) {
    update_devices(colocate_with,
                   [&]([[maybe_unused]] int r) { fn(internal::selected(r, args)...); });
  } else {
    std::vector<Result> results;
    update_devices(colocate_with, [&]([[maybe_unused]] int r) {
      results.push_back(fn(internal::selected(r, args)...));
    });
    return regroup<Mirrored>(std::move(results));
  }
}

/// The place of the strategy's random numbers as part of a checkpoint; the strategy must outlive
/// it. A program with the seed of the one that saved it then draws on as that one would have.
std::shared_ptr<Trackable> trackable(Strategy& strategy);

}  // namespace tutti::distribute

#include "tutti/distribute/reduce_nest.h"  // IWYU pragma: export
