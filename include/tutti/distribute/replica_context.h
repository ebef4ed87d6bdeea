#pragma once
// What a function sees inside `run`: which replica it is, the collectives, merge_call.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/base/function_ref.h"
#include "tutti/collectives/communicator.h"
#include "tutti/distribute/cross_device_ops.h"
#include "tutti/distribute/values.h"
#include "tutti/distribute/variable.h"
#include "tutti/tensor/indexed_slices.h"
#include "tutti/tensor/static_nest.h"

namespace at {
struct Generator;
}
namespace tutti::collectives {
class Rendezvous;
}

namespace tutti::distribute {

class Strategy;
class ReplicaContext;

namespace internal {
/// A leaf of a nest, in place.
using ReducibleLeaf = std::variant<Tensor*, IndexedSlices*>;
template <class T>
inline constexpr bool kReducible = std::is_same_v<T, Tensor> || std::is_same_v<T, IndexedSlices>;
template <class T>
inline constexpr bool kReducible<std::vector<T>> = kReducible<T>;
template <class T>
inline constexpr bool kReducible<std::map<std::string, T>> = kReducible<T>;
template <class A, class B>
inline constexpr bool kReducible<std::pair<A, B>> = kReducible<A>&& kReducible<B>;
template <class... Ts>
inline constexpr bool kReducible<std::tuple<Ts...>> = (kReducible<Ts> && ...);
template <>
inline constexpr bool kReducible<Nest> = true;
template <class T>
concept ReducibleNest = kReducible<T>;

template <class T>
void collect_leaves(T& value, std::vector<ReducibleLeaf>& leaves) {
  if constexpr (std::is_same_v<T, Tensor> || std::is_same_v<T, IndexedSlices>) {
    leaves.emplace_back(&value);
  } else if constexpr (std::is_same_v<T, Nest>) {
    if (value.is_leaf()) leaves.emplace_back(&value.leaf());
    for (Nest& item : value.items()) collect_leaves(item, leaves);
  } else if constexpr (tutti::internal::kIsMap<T>) {
    for (auto& [key, item] : value) collect_leaves(item, leaves);
  } else if constexpr (requires { value.begin(); }) {
    for (auto& item : value) collect_leaves(item, leaves);
  } else {
    std::apply([&](auto&... items) { (collect_leaves(items, leaves), ...); }, value);
  }
}

/// A nest with distributed values in it.
template <class T>
concept DistributedNest =
    tutti::internal::Select<T>::kDistributed && !tutti::internal::kIsDistributedValues<T>;

template <class Arg>
decltype(auto) selected(int replica, Arg& arg) {
  return tutti::internal::Select<std::remove_cv_t<Arg>>::of(static_cast<std::size_t>(replica), arg);
}

/// `fn` with what `replica` sees of each argument; one tuple is spread when fn does not take it.
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

/// Components of the largest PerReplica in `value`, 0 when there is none.
template <class T>
std::size_t per_replica_size(const T& value) {
  std::size_t largest = 0;
  [[maybe_unused]] auto look = [&largest](const auto& item) {
    largest = std::max(largest, per_replica_size(item));
  };
  if constexpr (tutti::internal::kIsPerReplica<T>) {
    largest = value.size();
  } else if constexpr (tutti::internal::kIsRunTimeNest<T>) {
    value.for_each(look, look);
  } else if constexpr (tutti::internal::kIsMap<T>) {
    for (const auto& [key, item] : value) look(item);
  } else if constexpr (tutti::internal::kIsVector<T>) {
    for (const auto& item : value) look(item);
  } else if constexpr (tutti::internal::kIsTuple<T>) {
    std::apply([&look](const auto&... items) { (look(items), ...); }, value);
  }
  return largest;
}

/// A copy of select_replica's part, in which a Variable is replaced by its component too.
template <class T>
auto local_part(std::size_t replica, const T& value) {
  [[maybe_unused]] auto part = [replica](const auto& item) { return local_part(replica, item); };
  if constexpr (tutti::internal::kIsDistributedValues<T>) {
    return typename T::value_type(value[replica]);
  } else if constexpr (requires { value.components(); }) {
    auto components = value.components();
    return components[std::min(replica, components.size() - 1)];
  } else if constexpr (tutti::internal::kIsRunTimeNest<T>) {
    return value.map_components(part, part);
  } else if constexpr (tutti::internal::kIsMap<T>) {
    std::map<std::string, decltype(part(value.begin()->second))> parts;
    for (const auto& [key, item] : value) parts.emplace(key, part(item));
    return parts;
  } else if constexpr (tutti::internal::kIsVector<T>) {
    std::vector<std::decay_t<decltype(part(*value.begin()))>> parts;
    for (const auto& item : value) parts.push_back(part(item));
    return parts;
  } else if constexpr (tutti::internal::kIsTuple<T> && requires { value.first; }) {
    return std::pair(part(value.first), part(value.second));
  } else if constexpr (tutti::internal::kIsTuple<T>) {
    return std::apply(
        [&part](const auto&... items) {
          return std::tuple<decltype(part(items))...>(part(items)...);
        },
        value);
  } else {
    return value;
  }
}

/// What Strategy::local_results gives.
template <class T>
auto local_parts(int replicas, const T& value) {
  std::size_t count = tutti::internal::kIsNest<T> ? static_cast<std::size_t>(replicas) : 1;
  if constexpr (requires { value.components(); }) count = value.components().size();
  if constexpr (tutti::internal::kIsDistributedValues<T>) count = value.size();
  std::vector<std::decay_t<decltype(local_part(0, value))>> parts;
  parts.reserve(count);
  for (std::size_t i = 0; i < count; ++i) parts.push_back(local_part(i, value));
  return parts;
}
}  // namespace internal

/// The strategy that is current on this thread; the default one outside any scope.
Strategy& get_strategy();
/// True when the current strategy is not the default one.
bool has_strategy();
/// This thread's replica; the default strategy's outside any scope; null in cross-replica context
/// (inside a scope or a merge_fn).
ReplicaContext* get_replica_context();
/// True exactly when get_replica_context() is null.
bool in_cross_replica_context();

/// Leaves the strategy that was set before on this thread and makes `strategy` current, without a
/// guard; null (or the default strategy) clears. Its own scope may be entered meanwhile, another
/// strategy's not. FailedPrecondition inside a scope and inside a replica, whatever is set.
void set_strategy(Strategy* strategy);
/// Which component the running Strategy::update works on; nothing elsewhere.
std::optional<int> get_update_replica_id();

/// One replica of a strategy, alive during `run`. Used by its own thread only.
///
/// The collectives must be called by every replica of the strategy, in the same order. They throw
/// what Communicator does; when a replica throws or returns early, the others get an error instead
/// of waiting for it.
class ReplicaContext {
 public:
  /// Global id, 0 … num_replicas_in_sync() - 1.
  int replica_id_in_sync_group() const { return replica_id_; }
  int num_replicas_in_sync() const;
  Strategy& strategy() const { return strategy_; }
  /// This replica's device, alone. Inside its own function only.
  std::vector<DeviceName> devices() const;

  /// The reduction of `value` over the replicas, the same on each; `value` is left alone. Sizes and
  /// dtype must agree. Gradient: the same reduction of the incoming gradients (SUM → SUM, MEAN →
  /// MEAN).
  Tensor all_reduce(AnyReduceOp op, const Tensor& value, const CommunicationOptions& options = {});
  /// Rows of all replicas joined in replica order, duplicates kept (MEAN divides values): never
  /// made dense. Every replica may bring another number of rows. Gradient: to `values`, the rows of
  /// the summed incoming gradients that are this replica's.
  IndexedSlices all_reduce(AnyReduceOp op, const IndexedSlices& value,
                           const CommunicationOptions& options = {});
  /// Every leaf of a nest (tensors and IndexedSlices mixed), of the same structure on each replica.
  /// Dense leaves of one dtype go together, in packs of CommunicationOptions::bytes_per_pack.
  template <class T>
  requires(!std::is_same_v<T, Tensor> && !std::is_same_v<T, IndexedSlices> &&
           internal::ReducibleNest<T>) T
      all_reduce(AnyReduceOp op, const T& value, const CommunicationOptions& options = {}) {
    T result = value;
    std::vector<internal::ReducibleLeaf> leaves;
    internal::collect_leaves(result, leaves);
    all_reduce_leaves(op, leaves, options);
    return result;
  }

  /// The replicas' tensors joined along `axis` (negative counts from the end), in replica order.
  /// Rank ≥ 1; sizes must agree but for `axis`. Gradient: this replica's slice of the summed
  /// incoming gradients.
  Tensor all_gather(const Tensor& value, int64_t axis, const CommunicationOptions& options = {});
  /// Every leaf of a nest, of the same structure on each replica. IndexedSlices: Unimplemented.
  template <class T>
  requires(!std::is_same_v<T, Tensor> && internal::ReducibleNest<T>) T
      all_gather(const T& value, int64_t axis, const CommunicationOptions& options = {}) {
    T result = value;
    std::vector<internal::ReducibleLeaf> leaves;
    internal::collect_leaves(result, leaves);
    all_gather_leaves(leaves, axis, options);
    return result;
  }

  /// Waits for all replicas, runs `merge_fn(strategy, PerReplica(args)...)` once (on replica 0's
  /// thread, in cross-replica context, without gradient) and gives each replica its part of the
  /// result.
  template <class MergeFn, class... Args>
  auto merge_call(MergeFn&& merge_fn, Args&&... args) {
    return merge_call_named("merge_call", std::forward<MergeFn>(merge_fn),
                            std::forward<Args>(args)...);
  }
  /// merge_call as another operation: replicas that meet with a different one get InvalidArgument
  /// that names both. `operation` must be a string literal.
  template <class MergeFn, class... Args>
  auto merge_call_named(const char* operation, MergeFn&& merge_fn, Args&&... args);

  /// Runs `once` on replica 0's thread in cross-replica context while the others wait: for what is
  /// created lazily. `operation` names the call in errors and must be a string literal.
  void call_once_for_all(const char* operation, FunctionRef<void()> once);

  /// Calls `fn(variable, args...)` in update context on this replica's component: no aggregation,
  /// so replicas that pass different arguments part for good. Returns what fn returns.
  template <class Fn, class... Args>
  auto update(const Variable& variable, Fn&& fn, Args&&... args) {
    using Result = std::decay_t<std::invoke_result_t<Fn&, const Variable&, Args&...>>;
    if constexpr (std::is_void_v<Result>) {
      update_component(variable, [&] { fn(variable, args...); });
    } else {
      std::optional<Result> result;
      update_component(variable, [&] { result.emplace(fn(variable, args...)); });
      return std::move(*result);
    }
  }

  /// Random numbers of this replica: a function of seed, step and replica id (tutti/base/seed.h).
  at::Generator& generator() const;

  // For the library: the rank's communicator, where the replicas of this process meet, and the
  // index among them.
  collectives::Communicator& communicator() const { return communicator_; }
  collectives::Rendezvous& rendezvous() const { return rendezvous_; }
  int local_replica_id() const { return local_id_; }

  ReplicaContext(Strategy& strategy, int replica_id, int local_id,
                 collectives::Communicator& communicator, collectives::Rendezvous& rendezvous)
      : strategy_(strategy),
        replica_id_(replica_id),
        local_id_(local_id),
        communicator_(communicator),
        rendezvous_(rendezvous) {}
  ReplicaContext(const ReplicaContext&) = delete;
  ReplicaContext& operator=(const ReplicaContext&) = delete;

 private:
  /// All replicas meet with their payload; replica 0 runs `merged` over all payloads, then each
  /// runs `take` on replica 0's.
  /// `type` stands for the types of arguments and result, which must agree.
  void merge(const char* operation, const std::type_info& type, void* payload,
             FunctionRef<void(std::span<void* const>)> merged, FunctionRef<void(void*)> take);
  void check_current(const char* operation) const;
  /// Replaces each leaf by its reduction.
  void all_reduce_leaves(ReduceOp op, const std::vector<internal::ReducibleLeaf>& leaves,
                         const CommunicationOptions& options);
  void all_gather_leaves(const std::vector<internal::ReducibleLeaf>& leaves, int64_t axis,
                         const CommunicationOptions& options);
  void update_component(const Variable& variable, FunctionRef<void()> body);

  Strategy& strategy_;
  int replica_id_;
  int local_id_;
  collectives::Communicator& communicator_;
  collectives::Rendezvous& rendezvous_;
};

/// Runs `once` for all replicas together: by call_once_for_all inside a strategy's replicas, else
/// right here. Whoever looks whether something is made yet and then calls this has no race: nobody
/// sees it made before all have come.
void once_for_all_replicas(const char* operation, FunctionRef<void()> once);

/// Which replica `distribute_values_from_function` makes a value for.
struct ValueContext {
  int replica_id_in_sync_group = 0;
  int num_replicas_in_sync = 1;
};

/// Makes its strategy current on this thread from Strategy::scope() until it dies or exit(). Guards
/// of one strategy may be nested; guards must be left in the reverse order: exit() throws
/// FailedPrecondition otherwise, the destructor logs and closes what is open inside too. Used on
/// the thread that made it.
class Scope {
 public:
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  /// Enters once more, inside itself or after exit(); each needs an exit() of its own. Throws as
  /// Strategy::scope does.
  void enter();
  /// Does nothing when it is not entered.
  void exit();

 private:
  friend class Strategy;
  explicit Scope(Strategy& strategy);
  Strategy* strategy_;
  int times_entered_ = 0;
};

namespace internal {
/// Strips gradients: what merge_call and reduce hand out carries none.
Tensor detached(const Tensor& tensor);
template <class T>
T detach_result(T value) {
  if constexpr (std::is_same_v<T, Tensor>) {
    return detached(value);
  } else if constexpr (kReducible<T>) {
    std::vector<ReducibleLeaf> leaves;
    collect_leaves(value, leaves);
    for (ReducibleLeaf& leaf : leaves) {
      if (auto* tensor = std::get_if<Tensor*>(&leaf)) {
        **tensor = detached(**tensor);
      } else {
        Tensor& values = std::get<IndexedSlices*>(leaf)->values;
        values = detached(values);
      }
    }
  }
  return value;
}
}  // namespace internal

template <class MergeFn, class... Args>
auto ReplicaContext::merge_call_named(const char* operation, MergeFn&& merge_fn, Args&&... args) {
  using Items = std::tuple<std::decay_t<Args>...>;
  auto call = [&](std::span<void* const> payloads) {
    return [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
      [[maybe_unused]] auto column = [&]<std::size_t kItem>() {
        std::vector<std::tuple_element_t<kItem, Items>> items;
        for (void* payload : payloads)
          items.push_back(std::get<kItem>(*static_cast<Items*>(payload)));
        return regroup(std::move(items));
      };
      return merge_fn(strategy_, column.template operator()<kIndex>()...);
    }
    (std::index_sequence_for<Args...>());
  };
  using Result = decltype(call(std::span<void* const>()));
  // The tuple comes first, so that a pointer to the payload is a pointer to the tuple.
  struct Payload {
    Items items;
    std::shared_ptr<void> result;
  };
  Payload mine{Items(args...), nullptr};
  if constexpr (std::is_void_v<Result>) {
    merge(operation, typeid(Items), &mine, call, [](void*) {});
  } else {
    std::optional<std::decay_t<tutti::internal::Selected<Result>>> part;
    merge(
        operation, typeid(std::pair<Items, Result>*), &mine,
        [&](std::span<void* const> payloads) {
          mine.result = std::make_shared<Result>(call(payloads));
        },
        [&](void* first) {
          auto& result = *static_cast<Result*>(static_cast<Payload*>(first)->result.get());
          part.emplace(internal::detach_result(std::decay_t<tutti::internal::Selected<Result>>(
              tutti::internal::Select<Result>::of(static_cast<std::size_t>(local_id_), result))));
        });
    return std::move(*part);
  }
}

}  // namespace tutti::distribute
