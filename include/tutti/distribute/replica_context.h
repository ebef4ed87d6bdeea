#pragma once
// What a function sees inside `run`: which replica it is, the collectives, merge_call.

#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "tutti/base/function_ref.h"
#include "tutti/collectives/communicator.h"
#include "tutti/distribute/values.h"
#include "tutti/tensor/static_nest.h"

namespace at {
struct Generator;
}
namespace tutti::collectives {
class Rendezvous;
}

namespace tutti::distribute {

using collectives::CommunicationImplementation;
using collectives::CommunicationOptions;
using collectives::ReduceOp;

class Strategy;
class ReplicaContext;

/// The strategy that is current on this thread; the default one outside any scope.
Strategy& get_strategy();
/// True when the current strategy is not the default one.
bool has_strategy();
/// This thread's replica; the default strategy's outside any scope; null in cross-replica context
/// (inside a scope or a merge_fn).
ReplicaContext* get_replica_context();
/// True exactly when get_replica_context() is null.
bool in_cross_replica_context();

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

  /// The reduction of `value` over the replicas, the same on each; `value` is left alone. Sizes and
  /// dtype must agree. Gradient: the same reduction of the incoming gradients (SUM → SUM, MEAN →
  /// MEAN).
  Tensor all_reduce(ReduceOp op, const Tensor& value, const CommunicationOptions& options = {});
  /// Every leaf of a nest, of the same structure on each replica.
  template <NestLike T>
  requires(!std::is_same_v<T, Tensor>) T
      all_reduce(ReduceOp op, const T& value, const CommunicationOptions& options = {}) {
    return from_nest<T>(to_nest(value).map_leaves(
        [&](const Tensor& leaf) { return all_reduce(op, leaf, options); }));
  }

  /// The replicas' tensors joined along `axis` (negative counts from the end), in replica order.
  /// Rank ≥ 1; sizes must agree but for `axis`. Gradient: this replica's slice of the summed
  /// incoming gradients.
  Tensor all_gather(const Tensor& value, int64_t axis, const CommunicationOptions& options = {});

  /// Waits for all replicas, runs `merge_fn(strategy, PerReplica(args)...)` once (on replica 0's
  /// thread, in cross-replica context, without gradient) and gives each replica its part of the
  /// result.
  template <class MergeFn, class... Args>
  auto merge_call(MergeFn&& merge_fn, Args&&... args);

  /// Runs `once` on replica 0's thread in cross-replica context while the others wait: for what is
  /// created lazily. `operation` names the call in errors and must be a string literal.
  void call_once_for_all(const char* operation, FunctionRef<void()> once);

  /// Random numbers of this replica: seeded by set_seed, the strategy and the replica id.
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
  void merge(const char* operation, void* payload, FunctionRef<void(std::span<void* const>)> merged,
             FunctionRef<void(void*)> take);
  void check_current(const char* operation) const;

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

namespace internal {
/// Strips gradients: what merge_call and reduce hand out carries none.
Tensor detached(const Tensor& tensor);
template <class T>
T detach_result(T value) {
  if constexpr (std::is_same_v<T, Tensor>) {
    return detached(value);
  } else {
    return value;
  }
}
}  // namespace internal

template <class MergeFn, class... Args>
auto ReplicaContext::merge_call(MergeFn&& merge_fn, Args&&... args) {
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
    merge("merge_call", &mine, call, [](void*) {});
  } else {
    std::optional<std::decay_t<tutti::internal::Selected<Result>>> part;
    merge(
        "merge_call", &mine,
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
