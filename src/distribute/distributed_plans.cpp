// A step takes one piece of the stream for each local replica, in replica order. When the stream
// ends inside a step, the replicas that are left without data get pieces of zero rows, so that no
// row is lost; a piece without a batch axis cannot be emptied, then the started step is dropped
// with one warning.

#include "distribute/distributed_plans.h"

#include "distribute/thread_team.h"
#include "tutti/base/log.h"

namespace tutti::distribute {
namespace {

Nest on_device(const Nest& piece, const DeviceName& device) {
  if (device.kind == DeviceName::Kind::kCpu) return piece;
  return piece.map_leaves([&](const Tensor& leaf) { return leaf.to(device.torch_device()); });
}

class DealingIterator : public DistributedIterator {
 public:
  DealingIterator(std::unique_ptr<data::Iterator> pieces, std::vector<DeviceName> devices)
      : pieces_(std::move(pieces)), devices_(std::move(devices)) {}

  std::optional<std::vector<Nest>> next() override {
    if (done_) return std::nullopt;
    // On a replica's team: a larger one would leave OpenMP threads spinning on the cores that the
    // other replicas are about to use.
    ThreadTeam team(std::max(1, available_cores() / static_cast<int>(devices_.size())));
    std::vector<Nest> step;
    step.reserve(devices_.size());
    while (step.size() < devices_.size()) {
      auto piece = pieces_->next();
      if (!piece) {
        done_ = true;
        if (step.empty() || !fill_with_empty(step)) return std::nullopt;
        break;
      }
      step.push_back(on_device(*piece, devices_[step.size()]));
    }
    return step;
  }

 private:
  bool fill_with_empty(std::vector<Nest>& step) const {
    bool batched = true;
    step[0].for_each([&](const Tensor& leaf) { batched = batched && leaf.dim() > 0; });
    if (!batched) {
      log_once(
          LogLevel::kWarning, "distribute/dropped",
          cat("distribute [", devices_.size(),
              " replicas]: the data ended inside a step and elements have no batch axis; the last ",
              step.size(),
              " are dropped. Batch the dataset, or make its length a multiple of the replicas"));
      return false;
    }
    while (step.size() < devices_.size()) {
      step.push_back(
          on_device(step[0].map_leaves([](const Tensor& leaf) { return leaf.narrow(0, 0, 0); }),
                    devices_[step.size()]));
    }
    return true;
  }

  std::unique_ptr<data::Iterator> pieces_;
  std::vector<DeviceName> devices_;
  bool done_ = false;
};

class DealingPlan : public DistributedPlan {
 public:
  DealingPlan(data::PlanPtr pieces, std::vector<DeviceName> devices)
      : pieces_(std::move(pieces)), devices_(std::move(devices)) {}
  std::unique_ptr<DistributedIterator> iterator() override {
    return std::make_unique<DealingIterator>(pieces_->iterator(), devices_);
  }
  int64_t cardinality() const override {
    const int64_t pieces = pieces_->cardinality();
    const auto replicas = static_cast<int64_t>(devices_.size());
    return pieces < 0 ? pieces : (pieces + replicas - 1) / replicas;
  }
  SpecNest replica_spec() const override { return pieces_->element_spec(); }
  int num_local_replicas() const override { return static_cast<int>(devices_.size()); }

 private:
  data::PlanPtr pieces_;
  std::vector<DeviceName> devices_;
};

}  // namespace

std::shared_ptr<DistributedPlan> make_rebatched_plan(data::PlanPtr plan, int num_replicas,
                                                     std::vector<DeviceName> devices,
                                                     const data::InputOptions& options) {
  const data::AutoShardPolicy policy = plan->options().auto_shard_policy;
  const auto batch = plan->batch_size();
  const bool by_rows =
      policy == data::AutoShardPolicy::kAuto || policy == data::AutoShardPolicy::kData || !batch;
  data::PlanPtr pieces;
  if (devices.size() == 1 && by_rows) {
    pieces = std::move(plan);
  } else if (by_rows) {
    pieces = data::legacy_rebatch(std::move(plan), num_replicas);
  } else {
    pieces = data::static_rebatch(std::move(plan),
                                  data::batch_sizes_for_worker(*batch, 1, num_replicas, 0));
  }
  return std::make_shared<DealingPlan>(std::move(pieces), std::move(devices));
}

std::shared_ptr<DistributedPlan> make_plans_from_function(
    FunctionRef<data::PlanPtr(const data::InputContext&)> dataset_fn,
    const data::InputContext& context, std::vector<DeviceName> devices,
    const data::InputOptions& options) {
  return std::make_shared<DealingPlan>(dataset_fn(context), std::move(devices));
}

DistributedSpec::DistributedSpec(SpecNest replica_spec, int num_local_replicas)
    : replica_spec_(std::move(replica_spec)), num_local_replicas_(num_local_replicas) {}

std::string DistributedSpec::to_string() const {
  constexpr std::size_t kColumns = 80;
  auto leaf_text = [this](const TensorSpec& leaf, const char* separator) {
    if (num_local_replicas_ == 1) return leaf.to_string();
    std::string text = "PerReplicaSpec(";
    for (int i = 0; i < num_local_replicas_; ++i) text += (i ? separator : "") + leaf.to_string();
    return text + ")";
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
