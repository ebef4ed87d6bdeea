#pragma once
// A strategy: on which devices the replicas live, how they run, how their values meet.

#include <atomic>
#include <memory>
#include <optional>
#include <string>
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

/// Which replica `distribute_values_from_function` makes a value for.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

/// Makes its strategy current on this thread from Strategy::scope() until it dies or exit(). Guards
/// of one strategy may be nested; guards must be left in the reverse order: exit() throws
/// FailedPrecondition otherwise, the destructor logs.
class Scope {
 public:
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  void exit();

 private:
  friend class Strategy;
  explicit Scope(Strategy& strategy);
  Strategy* strategy_;
  std::size_t depth_;
};

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
  auto run(Fn&& fn, Args&&... args);

  /// Reduction over the replicas; the result carries no gradient. Shapes must agree.
  Tensor reduce(ReduceOp op, const PerReplica<Tensor>& value);
  /// Mirrored: MEAN gives the value, SUM is InvalidArgument. A plain tensor likewise when there is
  /// more than one replica.
  Tensor reduce(ReduceOp op, const Mirrored<Tensor>& value);
  Tensor reduce(ReduceOp op, const Tensor& value);
  Tensor reduce(ReduceOp op, const Variable& value);
  /// First over `axes` in each replica, then over the replicas. MEAN divides the sum of sums by the
  /// true number of entries, so it is right for uneven and empty replicas; integers give float64.
  Tensor reduce(ReduceOp op, const PerReplica<Tensor>& value, std::vector<int64_t> axes);
  Tensor reduce(ReduceOp op, const PerReplica<Tensor>& value, int64_t axis) {
    return reduce(op, value, std::vector<int64_t>{axis});
  }
  /// Every leaf of a nest.
  template <class T>
  requires(tutti::internal::Select<T>::kDistributed &&
           !std::derived_from<T, DistributedValues<Tensor>>) auto reduce(ReduceOp op,
                                                                         const T& value) {
    return reduce_nest(op, value);
  }

  /// The components joined along `axis` in replica order. In a replica: FailedPrecondition (use
  /// all_gather).
  Tensor gather(const PerReplica<Tensor>& value, int64_t axis);

  /// The components on this process, in replica order.
  template <class T>
  std::vector<T> local_results(const DistributedValues<T>& value) const {
    return std::vector<T>(value.values().begin(), value.values().end());
  }
  std::vector<Tensor> local_results(const Variable& variable) const {
    return variable.components();
  }
  template <class T>
  requires(!tutti::internal::Select<T>::kDistributed &&
           !std::is_same_v<T, Variable>) std::vector<T> local_results(const T& value)
  const { return {value}; }

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
  DistributedDataset<Element> distribute_dataset(const data::Dataset<Element>& dataset) {
    return DistributedDataset<Element>(distribute_plan(dataset.plan()));
  }
  /// `dataset_fn(InputContext)` gives a dataset batched by the replica's size, from which replicas
  /// draw in turn.
  template <class DatasetFn>
  auto distribute_datasets_from_function(DatasetFn&& dataset_fn) {
    auto dataset = dataset_fn(input_context());
    using Element = typename decltype(dataset)::element_type;
    return DistributedDataset<Element>(distribute_per_replica_plan(dataset.plan()));
  }

  /// The way tensors of several replicas are reduced.
  const CrossDeviceOps& cross_device_ops() const { return *cross_device_ops_.get(); }
  virtual std::string name() const = 0;
  /// A few lines: devices, threads of each replica, who reduces.
  std::string summary() const;

  InputContext input_context() const { return InputContext(1, 0, num_replicas_); }
  int first_replica_id() const { return 0; }
  /// Intra-op threads of each local replica.
  int threads_per_replica() const { return threads_per_replica_; }
  bool is_default() const { return is_default_; }

  // For the library.
  // ---------------------------------------------------------------------------------------------------------
  /// Calls `body(local replica)` on every local replica, each in its replica context; what `run` is
  /// made of.
  void run_replicas(FunctionRef<void(int)> body);
  /// Calls `body` on this thread with a replica's intra-op team: for host work between steps, which
  /// with a larger team would leave OpenMP threads spinning on the other replicas' cores.
  void on_replica_team(FunctionRef<void()> body) const;
  /// The random generator of a local replica.
  at::Generator& generator(int local_replica);
  /// Throws FailedPrecondition unless this thread may use this strategy's variables and
  /// cross-replica calls.
  void check_usable(const char* operation) const;
  void check_cross_replica(const char* operation) const;
  std::weak_ptr<void> lifetime() const { return lifetime_; }
  /// Grows whenever variables are updated; tells a tape that its forward is stale.
  std::atomic<uint64_t>& update_count() { return update_count_; }

 protected:
  Strategy(std::vector<DeviceName> devices, AnyCrossDeviceOps cross_device_ops,
           bool is_default = false);

 private:
  virtual void run_on_replicas(FunctionRef<void(int)> body) = 0;
  std::shared_ptr<DistributedPlan> distribute_plan(std::shared_ptr<const data::Plan> plan);
  std::shared_ptr<DistributedPlan> distribute_per_replica_plan(
      std::shared_ptr<const data::Plan> plan);
  template <class T>
  auto reduce_nest(ReduceOp op, const T& value);

  std::vector<DeviceName> devices_;
  int num_replicas_;
  int threads_per_replica_;
  bool is_default_;
  AnyCrossDeviceOps cross_device_ops_;
  std::shared_ptr<void> lifetime_;
  std::atomic<uint64_t> update_count_{0};
  std::atomic<bool> in_use_{false};
  struct Random;
  std::unique_ptr<Random> random_;
};

// ---- the templates behind run and reduce
// --------------------------------------------------------------------------------------

namespace internal {

template <class Arg>
decltype(auto) selected(int replica, Arg& arg) {
  return tutti::internal::Select<std::remove_cv_t<Arg>>::of(static_cast<std::size_t>(replica), arg);
}

template <class Fn, class... Args>
decltype(auto) invoke_replica(Fn& fn, int replica, Args&... args) {
  if constexpr (std::is_invocable_v<Fn&, decltype(selected(replica, args))...>) {
    return fn(selected(replica, args)...);
  } else {
    static_assert(sizeof...(Args) == 1,
                  "run: fn cannot be called with these arguments, each replica's part of them");
    return std::apply(fn, selected(replica, args)...);
  }
}

}  // namespace internal

template <class Fn, class... Args>
auto Strategy::run(Fn&& fn, Args&&... args) {
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

template <class T>
auto Strategy::reduce_nest(ReduceOp op, const T& value) {
  if constexpr (std::derived_from<T, DistributedValues<Tensor>> || std::is_same_v<T, Tensor>) {
    return reduce(op, value);
  } else if constexpr (requires {
                         value.map_leaves([](const PerReplica<Tensor>& leaf) { return Tensor(); });
                       }) {
    return value.map_leaves([&](const PerReplica<Tensor>& leaf) { return reduce(op, leaf); });
  } else if constexpr (requires { value.begin()->second; }) {
    std::map<std::string, decltype(reduce_nest(op, value.begin()->second))> reduced;
    for (const auto& [key, item] : value) reduced.emplace(key, reduce_nest(op, item));
    return reduced;
  } else if constexpr (requires { value.begin(); }) {
    std::vector<decltype(reduce_nest(op, *value.begin()))> reduced;
    for (const auto& item : value) reduced.push_back(reduce_nest(op, item));
    return reduced;
  } else {
    return std::apply([&](const auto&... items) { return std::tuple(reduce_nest(op, items)...); },
                      value);
  }
}

}  // namespace tutti::distribute
