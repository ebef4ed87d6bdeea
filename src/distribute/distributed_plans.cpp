// Which pieces a distributed dataset is made of; distributed_plans_steps.cpp deals them.

#include "distribute/distributed_plans.h"

#include <algorithm>

#include "base/environment.h"
#include "distribute/distributed_plans_steps.h"
#include "distribute/thread_team.h"
#include "tutti/base/log.h"

namespace tutti::distribute {
namespace {

using data::InputOptions;
using data::InputReplicationMode;

class DealingPlan : public DistributedPlan {
 public:
  /// One stream from which the replicas draw in turn, or one for each. `batches`: of the global
  /// size, of which the stream has the pieces; null: a stream's batches are a replica's.
  DealingPlan(std::vector<data::PlanPtr> streams, data::PlanPtr batches,
              std::vector<DeviceName> devices, const InputOptions& options, int num_workers)
      : streams_(std::move(streams)),
        batches_(std::move(batches)),
        num_workers_(num_workers),
        dealing_(std::make_shared<Dealing>()) {
    dealing_->devices = std::move(devices);
    // Other workers may be on the same cores.
    if (num_workers == 1) {
      dealing_->threads =
          std::max(1, available_cores() / static_cast<int>(dealing_->devices.size()));
    }
    dealing_->fetch_to_device = options.fetch_to_device.value_or(true);
    accelerators_ =
        dealing_->fetch_to_device &&
        std::any_of(dealing_->devices.begin(), dealing_->devices.end(),
                    [](const DeviceName& d) { return d.kind != DeviceName::Kind::kCpu; });
    buffer_size_ = options.per_replica_buffer_size;
  }
  std::unique_ptr<DistributedIterator> iterator() override {
    std::vector<std::unique_ptr<data::Iterator>> passes;
    const int64_t ahead = steps_ahead();
    for (const data::PlanPtr& stream : streams_) passes.push_back(data::begin_pass(stream));
    return deal(std::move(passes), dealing_, ahead);
  }
  int64_t cardinality() const override {
    return streams_.size() == 1 ? steps_in_turn() : steps_side_by_side();
  }
  std::string steps_text() const override {
    const auto replicas = static_cast<int>(dealing_->devices.size());
    const int64_t steps = cardinality();
    std::string text = steps == data::kInfinite ? "without end" : "unknown before a pass has ended";
    if (steps >= 0) text = steps_rule(steps, replicas);
    const int all = replicas * num_workers_;
    if (batches_) {
      if (const auto batch = batches_->batch_size()) text += "; " + batch_text(*batch, all);
      return text;
    }
    if (const auto batch = streams_[0]->batch_size()) {
      text += all == 1 ? cat("; a global batch of ", *batch)
                       : cat("; a global batch of ", all, " * ", *batch, " = ", all * *batch, ", ",
                             *batch, " rows for each of ", all, " replicas");
    }
    return text;
  }
  SpecNest replica_spec() const override {
    SpecNest spec = streams_[0]->element_spec();
    for (std::size_t i = 1; i < streams_.size(); ++i) {
      const SpecNest other = streams_[i]->element_spec();
      if (!same_structure(spec, other)) {
        throw InvalidArgument(cat("element_spec [replica ", i, "]: elements ", other,
                                  ", expected the structure of replica 0's, ", spec));
      }
      const auto theirs = flatten(other);
      std::size_t leaf = 0;
      spec = spec.map_leaves(
          [&](const TensorSpec& ours) { return ours.relaxed_with(theirs[leaf++]); });
    }
    return spec;
  }
  int num_local_replicas() const override { return static_cast<int>(dealing_->devices.size()); }

 private:
  /// One step ahead of the cutting of rows saves less than its thread takes from CPU devices; of
  /// functions of the user, more. With one replica, or replicas one by one, functions stay on the
  /// caller's thread: what they share with the program is then used in the order of the program.
  int64_t steps_ahead() const {
    if (buffer_size_ > 1 || accelerators_) return buffer_size_;
    const bool in_parallel =
        dealing_->devices.size() > 1 && !environment_flag("TUTTI_SEQUENTIAL_REPLICAS");
    const bool worth_a_thread = in_parallel && std::any_of(streams_.begin(), streams_.end(),
                                                           [](const data::PlanPtr& stream) {
                                                             return stream->runs_functions();
                                                           });
    return worth_a_thread ? buffer_size_ : 0;
  }
  /// Only then is a step that not all replicas have data for a step.
  bool batched() const {
    bool batched = true;
    streams_[0]->element_spec().for_each([&](const TensorSpec& leaf) {
      batched = batched && (leaf.unknown_rank || !leaf.shape.empty());
    });
    return batched;
  }
  std::string steps_rule(int64_t steps, int replicas) const {
    if (batches_) {
      const auto batch = batches_->batch_size();
      const int64_t rows = batches_->num_rows();
      if (batch && rows >= 0 && (rows + *batch - 1) / *batch == steps)
        return steps_formula(rows, "rows", *batch, steps);
      return cat(steps, ", a step for each batch");
    }
    if (streams_.size() > 1)
      return cat(steps, ", the steps until all ", replicas, " replicas' datasets have ended");
    return steps_formula(streams_[0]->cardinality(), "batches", replicas, steps);
  }
  int64_t steps_in_turn() const {
    const int64_t pieces = streams_[0]->cardinality();
    const auto replicas = static_cast<int64_t>(dealing_->devices.size());
    if (pieces < 0) return pieces;
    return pieces / replicas + (pieces % replicas != 0 && batched() ? 1 : 0);
  }
  int64_t steps_side_by_side() const {
    std::vector<int64_t> finite;
    for (const data::PlanPtr& stream : streams_) {
      const int64_t size = stream->cardinality();
      if (size == data::kUnknown) return data::kUnknown;
      if (size != data::kInfinite) finite.push_back(size);
    }
    if (finite.empty()) return data::kInfinite;
    const auto [least, most] = std::minmax_element(finite.begin(), finite.end());
    if (finite.size() == streams_.size() && *least == *most) return *most;
    if (!batched()) return *least;
    return finite.size() == streams_.size() ? *most : data::kInfinite;
  }

  std::vector<data::PlanPtr> streams_;
  data::PlanPtr batches_;
  int num_workers_;
  std::shared_ptr<Dealing> dealing_;
  bool accelerators_ = false;
  int64_t buffer_size_ = 0;
};

void check_options(const char* operation, const InputOptions& options) {
  if (options.per_replica_buffer_size < 0) {
    throw InvalidArgument(cat(operation, ": per_replica_buffer_size ",
                              options.per_replica_buffer_size, ", expected 0 (none) or more"));
  }
  if (!options.place_dataset_on_device) return;
  if (options.replication_mode != InputReplicationMode::kPerReplica) {
    throw InvalidArgument(cat(operation,
                              ": place_dataset_on_device with one dataset for all replicas, "
                              "expected replication_mode kPerReplica"));
  }
  if (options.fetch_to_device.value_or(true)) {
    throw InvalidArgument(cat(operation,
                              ": place_dataset_on_device and fetch_to_device, expected "
                              "fetch_to_device = false; what is placed there needs no fetching"));
  }
}

}  // namespace

std::shared_ptr<DistributedPlan> make_rebatched_plan(data::PlanPtr plan,
                                                     const data::InputWorkers& workers,
                                                     std::vector<DeviceName> devices,
                                                     const InputOptions& options) {
  if (options.replication_mode == InputReplicationMode::kPerReplica) {
    throw Unimplemented(
        "distribute_dataset: replication_mode kPerReplica, expected kPerWorker; use "
        "distribute_datasets_from_function, which can make a dataset for each replica");
  }
  check_options("distribute_dataset", options);
  std::vector<data::PlanPtr> streams{data::worker_pieces(plan, workers)};
  return std::make_shared<DealingPlan>(std::move(streams), std::move(plan), std::move(devices),
                                       options, workers.num_workers);
}

std::shared_ptr<DistributedPlan> make_plans_from_function(
    FunctionRef<data::PlanPtr(const data::InputContext&)> dataset_fn,
    const data::InputContext& context, std::vector<DeviceName> devices,
    const InputOptions& options) {
  constexpr const char* kOperation = "distribute_datasets_from_function";
  check_options(kOperation, options);
  std::vector<data::PlanPtr> streams;
  if (options.replication_mode == InputReplicationMode::kPerWorker) {
    streams.push_back(dataset_fn(context));
  } else {
    if (context.num_input_pipelines() > 1) {
      throw Unimplemented(cat(kOperation, ": replication_mode kPerReplica with ",
                              context.num_input_pipelines(),
                              " workers, expected kPerWorker, or a strategy of one process"));
    }
    const auto replicas = static_cast<int>(devices.size());
    for (int replica = 0; replica < replicas; ++replica)
      streams.push_back(dataset_fn(data::InputContext(replicas, replica, replicas)));
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (streams[i]->cardinality() != 0) continue;
    log_warning(kOperation, " [dataset ", i, " of ", streams.size(),
                "]: it has no elements; look at how dataset_fn uses its InputContext, and at "
                "filter, take, skip and drop_remainder");
  }
  const int workers = options.replication_mode == InputReplicationMode::kPerWorker
                          ? context.num_input_pipelines()
                          : 1;
  return std::make_shared<DealingPlan>(std::move(streams), nullptr, std::move(devices), options,
                                       workers);
}

Nest DistributedIterator::save() const {
  throw FailedPrecondition(
      "save iterator: a distributed pass that cannot tell its place, expected one over a dataset");
}

void DistributedIterator::restore(const Nest& /*state*/) {
  throw FailedPrecondition(
      "restore iterator: a distributed pass that cannot tell its place, expected one over a "
      "dataset");
}

std::string batch_text(int64_t global_batch, int replicas) {
  if (replicas == 1) return cat("a global batch of ", global_batch);
  return cat("a global batch of ", global_batch, ", ceil(", global_batch, " / ", replicas,
             ") = ", (global_batch + replicas - 1) / replicas, " rows for each of ", replicas,
             " replicas");
}

std::string steps_formula(int64_t count, const char* of_what, int64_t by, int64_t steps) {
  return cat("ceil(", count, " ", of_what, " / ", by, ") = ", steps);
}

DistributedSpec::DistributedSpec(SpecNest replica_spec, int num_local_replicas, bool is_alone)
    : replica_spec_(std::move(replica_spec)),
      num_local_replicas_(num_local_replicas),
      is_alone_(is_alone) {}

std::string DistributedSpec::to_string() const {
  constexpr std::size_t kColumns = 80;
  auto leaf_text = [this](const TensorSpec& leaf, const char* separator) {
    if (num_local_replicas_ == 1 && is_alone_) return leaf.to_string();
    std::string text = "PerReplicaSpec(";
    for (int i = 0; i < num_local_replicas_; ++i) text += (i ? separator : "") + leaf.to_string();
    return text + (num_local_replicas_ == 1 ? ",)" : ")");  // Python's tuple of one
  };
  const std::string line = layout_nest_text(
      replica_spec_.map_leaves([&](const TensorSpec& leaf) { return leaf_text(leaf, ", "); }),
      1 << 20);
  if (line.size() <= kColumns) return line;
  return layout_nest_text(replica_spec_.map_leaves(
      [&](const TensorSpec& leaf) { return leaf_text(leaf, ",\n               "); }));
}

std::ostream& operator<<(std::ostream& out, const DistributedSpec& spec) {
  return out << spec.to_string();
}

}  // namespace tutti::distribute
