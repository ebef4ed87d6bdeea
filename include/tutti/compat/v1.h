#pragma once
// For ported code: what tf.compat.v1.distribute has beside tf.distribute, and the `experimental_`
// spellings of tf.distribute. New code needs none of it.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/cluster/resolvers.h"
#include "tutti/coordination/server.h"
#include "tutti/distribute/extended.h"
#include "tutti/distribute/strategies.h"

namespace tutti::compat {

using tutti::distribute::set_strategy;
using CollectiveCommunication = tutti::distribute::CommunicationImplementation;

/// CommunicationOptions by its older name, with the two fields that it had.
struct CollectiveHints {
  int64_t bytes_per_pack = 0;
  double timeout_seconds = 0;
  /// Throws InvalidArgument for negative values.
  operator tutti::distribute::CommunicationOptions() const {  // NOLINT: one stands for the other
    return tutti::distribute::CommunicationOptions().merged_with(
        {.bytes_per_pack = bytes_per_pack, .timeout_seconds = timeout_seconds});
  }
};

inline void experimental_set_strategy(tutti::distribute::Strategy* strategy) {
  set_strategy(strategy);
}
template <class Dataset>
auto experimental_distribute_dataset(tutti::distribute::Strategy& strategy, const Dataset& dataset,
                                     const tutti::distribute::InputOptions& options = {}) {
  return strategy.distribute_dataset(dataset, options);
}
template <class DatasetFn>
auto experimental_distribute_datasets_from_function(
    tutti::distribute::Strategy& strategy, DatasetFn&& dataset_fn,
    const tutti::distribute::InputOptions& options = {}) {
  return strategy.distribute_datasets_from_function(std::forward<DatasetFn>(dataset_fn), options);
}
template <class ValueFn>
auto experimental_distribute_values_from_function(tutti::distribute::Strategy& strategy,
                                                  ValueFn&& value_fn) {
  return strategy.distribute_values_from_function(std::forward<ValueFn>(value_fn));
}
template <class T>
auto experimental_local_results(const tutti::distribute::Strategy& strategy, const T& value) {
  return strategy.local_results(value);
}

}  // namespace tutti::compat

namespace tutti::compat::v1 {

/// The part of TensorFlow's session configuration that a strategy sets. Nothing here reads it.
struct ConfigProto {
  bool isolate_session_state = false;
};

}  // namespace tutti::compat::v1

namespace tutti::compat::v1::distribute {

namespace cluster_resolver {
using tutti::distribute::cluster_resolver::ClusterResolver;
using tutti::distribute::cluster_resolver::GCEClusterResolver;
using tutti::distribute::cluster_resolver::KubernetesClusterResolver;
using tutti::distribute::cluster_resolver::KubernetesExecutableLocation;
using tutti::distribute::cluster_resolver::SimpleClusterResolver;
using tutti::distribute::cluster_resolver::SlurmClusterResolver;
using tutti::distribute::cluster_resolver::TFConfigClusterResolver;
using tutti::distribute::cluster_resolver::TPUClusterResolver;
using tutti::distribute::cluster_resolver::UnionResolver;
}  // namespace cluster_resolver

using tutti::distribute::CrossDeviceOps;
using tutti::distribute::HierarchicalCopyAllReduce;
using tutti::distribute::InputContext;
using tutti::distribute::InputReplicationMode;
using tutti::distribute::MultiStepContext;
using tutti::distribute::NcclAllReduce;
using tutti::distribute::ReduceOp;
using tutti::distribute::ReductionToOneDevice;
using tutti::distribute::ReplicaContext;
using tutti::distribute::RunOptions;
using tutti::distribute::Server;

using compat::experimental_set_strategy;
using tutti::distribute::get_replica_context;
using tutti::distribute::has_strategy;
using tutti::distribute::in_cross_replica_context;

/// How the losses of the replicas are to be added up: SUM. (TensorFlow says otherwise only inside
/// an Estimator, which does not exist here.)
inline ReduceOp get_loss_reduction() { return ReduceOp::kSum; }

/// An iterator that can start again.
template <class Element>
class DistributedIterator {
 public:
  explicit DistributedIterator(tutti::distribute::DistributedDataset<Element> dataset)
      : dataset_(std::move(dataset)), iterator_(dataset_.iterator()) {}
  /// From the beginning.
  void initialize() { iterator_ = dataset_.iterator(); }
  /// The next step; OutOfRange at the end.
  auto get_next() { return iterator_.get_next(); }
  auto get_next_as_optional() { return iterator_.get_next_as_optional(); }
  auto element_spec() const { return dataset_.element_spec(); }

 private:
  tutti::distribute::DistributedDataset<Element> dataset_;
  tutti::distribute::DistributedDatasetIterator<Element> iterator_;
};

/// The view with the members that only v1 has.
class StrategyExtended : public tutti::distribute::StrategyExtended {
 public:
  explicit StrategyExtended(tutti::distribute::Strategy& strategy)
      : tutti::distribute::StrategyExtended(strategy),
        is_chief_(strategy.first_replica_id() == 0),
        has_peers_(strategy.num_replicas_in_sync() > strategy.num_local_replicas()) {}
  template <class... Arrays>
  auto experimental_make_numpy_dataset(const Arrays&... arrays) const {
    return make_numpy_dataset(arrays...);
  }
  template <class Fn, class Iterator>
  MultiStepContext experimental_run_steps_on_iterator(
      Fn&& fn, Iterator& iterator, int64_t iterations = 1,
      const std::map<std::string, Tensor>& initial_loop_values = {}) const {
    return run_steps_on_iterator(std::forward<Fn>(fn), iterator, iterations, initial_loop_values);
  }
  bool experimental_require_static_shapes() const { return require_static_shapes(); }
  /// Does every worker build the same program? Where there are several.
  bool experimental_between_graph() const { return has_peers_; }
  bool experimental_should_init() const { return true; }
  /// Does what this worker saves, and what it writes for people to look at, count? The chief's
  /// does.
  bool should_checkpoint() const { return is_chief_; }
  bool should_save_summary() const { return is_chief_; }

 private:
  bool is_chief_;
  bool has_peers_;
};

namespace internal {
ConfigProto updated_config(const tutti::distribute::Strategy& strategy, const ConfigProto& config);
void check_cluster(const std::map<std::string, std::vector<std::string>>& cluster_spec,
                   const std::string& task_type, std::optional<int> task_id);
void check_replication(InputReplicationMode mode);

/// The deprecated members, over `Self::strategy()`.
template <class Self>
class DeprecatedMembers {
 public:
  /// local_results.
  template <class T>
  auto unwrap(const T& value) {
    return here().local_results(value);
  }
  template <class T>
  auto experimental_local_results(const T& value) {
    return here().local_results(value);
  }
  /// An operation that has run when all of `value` has. Here everything has run when it is there.
  template <class T>
  void group(const T&, const std::string& name = "") {}
  /// Lets the strategy set its part of `session_config`, and tells it the cluster: one local task,
  /// as for MirroredStrategyOptions::cluster_spec (InvalidArgument otherwise).
  void configure(ConfigProto* session_config = nullptr,
                 const std::map<std::string, std::vector<std::string>>& cluster_spec = {},
                 const std::string& task_type = "", std::optional<int> task_id = std::nullopt) {
    check_cluster(cluster_spec, task_type, task_id);
    if (session_config != nullptr) *session_config = update_config_proto(*session_config);
  }
  /// A copy of `config` with what the strategy needs.
  ConfigProto update_config_proto(const ConfigProto& config) {
    return updated_config(here(), config);
  }

  template <class Element>
  auto experimental_distribute_dataset(const data::Dataset<Element>& dataset,
                                       const tutti::distribute::InputOptions& options = {}) {
    return here().distribute_dataset(dataset, options);
  }
  template <class DatasetFn>
  auto experimental_distribute_datasets_from_function(
      DatasetFn&& dataset_fn, const tutti::distribute::InputOptions& options = {}) {
    return here().distribute_datasets_from_function(std::forward<DatasetFn>(dataset_fn), options);
  }
  /// Over `dataset`, which is batched by the global size.
  template <class Element>
  DistributedIterator<Element> make_dataset_iterator(const data::Dataset<Element>& dataset) {
    return DistributedIterator<Element>(here().distribute_dataset(dataset));
  }
  /// Over what `input_fn(InputContext)` gives, a dataset batched by the replica's size. PER_WORKER
  /// only (InvalidArgument).
  template <class InputFn>
  auto make_input_fn_iterator(InputFn&& input_fn, InputReplicationMode replication_mode =
                                                      InputReplicationMode::kPerWorker) {
    check_replication(replication_mode);
    auto dataset = here().distribute_datasets_from_function(std::forward<InputFn>(input_fn));
    return DistributedIterator<typename decltype(dataset)::element_type>(std::move(dataset));
  }
  template <class... Arrays>
  auto experimental_make_numpy_dataset(const Arrays&... arrays) {
    return here().make_numpy_dataset(arrays...);
  }
  /// run, with the iterator's next step as the argument when there is one.
  template <class Fn>
  auto experimental_run(Fn&& fn) {
    return here().run(std::forward<Fn>(fn));
  }
  template <class Fn, class Iterator>
  auto experimental_run(Fn&& fn, Iterator& input_iterator) {
    const auto inputs = input_iterator.get_next();
    return here().run(std::forward<Fn>(fn), inputs);
  }

 private:
  tutti::distribute::Strategy& here() { return static_cast<Self*>(this)->strategy(); }
};

}  // namespace internal

/// Any strategy, seen as v1 sees it. A view: copy freely; it must not outlive the strategy.
class Strategy : public internal::DeprecatedMembers<Strategy> {
 public:
  Strategy(tutti::distribute::Strategy& strategy) : strategy_(&strategy) {}  // NOLINT: a view
  tutti::distribute::Strategy& strategy() const { return *strategy_; }

  [[nodiscard]] tutti::distribute::Scope scope() const { return strategy_->scope(); }
  StrategyExtended extended() const { return StrategyExtended(*strategy_); }
  int num_replicas_in_sync() const { return strategy_->num_replicas_in_sync(); }
  template <class... Args>
  auto run(Args&&... args) const {
    return strategy_->run(std::forward<Args>(args)...);
  }
  /// The axis may be left out, or std::nullopt.
  template <class... Args>
  auto reduce(tutti::distribute::AnyReduceOp op, const Args&... value_and_axis) const {
    return strategy_->reduce(op, value_and_axis...);
  }
  [[nodiscard]] tutti::distribute::Scope colocate_vars_with(const Variable& variable) const {
    return strategy_->colocate_vars_with(variable);
  }

 private:
  tutti::distribute::Strategy* strategy_;
};

/// The current strategy.
inline Strategy get_strategy() { return tutti::distribute::get_strategy(); }

/// A strategy of today with the deprecated members.
template <std::derived_from<tutti::distribute::Strategy> Base>
class V1 : public Base, public internal::DeprecatedMembers<V1<Base>> {
 public:
  using Base::Base;
  tutti::distribute::Strategy& strategy() { return *this; }
  StrategyExtended extended() { return StrategyExtended(*this); }
};

using MirroredStrategy = V1<tutti::distribute::MirroredStrategy>;
using OneDeviceStrategy = V1<tutti::distribute::OneDeviceStrategy>;

namespace experimental {
using CentralStorageStrategy = V1<tutti::distribute::CentralStorageStrategy>;
using MultiWorkerMirroredStrategy = V1<tutti::distribute::MultiWorkerMirroredStrategy>;
using compat::CollectiveCommunication;
using compat::CollectiveHints;
using tutti::distribute::CommunicationImplementation;
using tutti::distribute::CommunicationOptions;
}  // namespace experimental

}  // namespace tutti::compat::v1::distribute
