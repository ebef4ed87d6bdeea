// Strategy::reduce and Strategy::gather: what the replicas hold becomes one value.

#include <algorithm>

#include "collectives/local_reduce.h"
#include "distribute/worker_group.h"
#include "tutti/distribute/strategy.h"

namespace tutti::distribute {
namespace {

void check_axes(const Strategy& strategy, const Tensor& component, std::vector<int64_t> axes) {
  for (int64_t& axis : axes) {
    if (axis < -component.dim() || axis >= component.dim()) {
      throw InvalidArgument(
          cat("reduce [", strategy.name(), "]: axis ", axis, " of a component of shape ",
              shape_text(component.sizes()),
              component.dim() == 0
                  ? std::string(", expected none for a scalar; leave the axis out")
                  : cat(", expected from ", -component.dim(), " to ", component.dim() - 1)));
    }
    if (axis < 0) axis += component.dim();
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
    throw InvalidArgument(cat("reduce [", strategy.name(),
                              "]: an axis is named twice, expected each once; leave one out"));
  }
}

}  // namespace

void Strategy::check_components(const char* operation, std::size_t components) const {
  if (static_cast<int>(components) == num_local_replicas()) return;
  throw InvalidArgument(cat(operation, " [", name(), "]: ", components, " components, expected ",
                            num_local_replicas(),
                            ", one a replica; pass what this strategy's run returned"));
}

void Strategy::check_same_everywhere(ReduceOp op, const char* what, bool is_zero) const {
  check_cross_replica("reduce");
  if (op == ReduceOp::kMean || num_replicas_ == 1 || is_zero) return;
  throw InvalidArgument(cat("reduce [", name(), "]: SUM of ", what, " with ", num_replicas_,
                            " replicas, expected a PerReplica, or MEAN; it is the same on every "
                            "replica, so multiply it by num_replicas_in_sync() if that is meant"));
}

Tensor Strategy::reduce(AnyReduceOp op, const PerReplica<Tensor>& value) {
  check_cross_replica("reduce");
  check_components("reduce", value.size());
  if (num_replicas_ == 1) {
    if (!value[0].defined())
      throw InvalidArgument(cat("reduce [", name(), "]: an undefined tensor, expected a value"));
    return value[0].detach().clone();
  }
  at::NoGradGuard no_grad;
  return cross_device_ops().reduce(op, value, Destinations(value[0]), communication_options_)[0];
}

IndexedSlices Strategy::reduce(AnyReduceOp op, const PerReplica<IndexedSlices>& value) {
  check_cross_replica("reduce");
  check_components("reduce", value.size());
  at::NoGradGuard no_grad;
  return cross_device_ops().reduce(op, value, Destinations(value[0].values),
                                   communication_options_)[0];
}

Tensor Strategy::reduce(AnyReduceOp op, const Mirrored<Tensor>& value) {
  check_same_everywhere(op, "a Mirrored value");
  return value[0].detach();
}

Tensor Strategy::reduce(AnyReduceOp op, const Tensor& value) {
  if (workers_ != nullptr) {
    // One value a worker, as TensorFlow has it.
    check_cross_replica("reduce");
    if (!value.defined())
      throw InvalidArgument(cat("reduce [", name(), "]: an undefined tensor, expected a value"));
    Tensor sum = value.detach().clone(at::MemoryFormat::Contiguous);
    if (ReduceOp(op) == ReduceOp::kMean && !sum.is_floating_point() && !sum.is_complex())
      sum = sum.to(at::kDouble);
    workers_->all_reduce(sum, op, communication_options_);
    return sum;
  }
  check_same_everywhere(op, "a tensor that is no PerReplica");
  return value.detach();
}

Tensor Strategy::reduce(AnyReduceOp op, const Variable& value) {
  check_cross_replica("reduce");
  const std::string type = value.type_name();
  if (type == "SyncOnReadVariable") return reduce(op, PerReplica<Tensor>(value.components()));
  if (type == "MirroredVariable" && ReduceOp(op) == ReduceOp::kSum) {
    throw InvalidArgument(cat("reduce [", name(), "]: SUM of the mirrored variable \"",
                              value.name(),
                              "\", expected MEAN; its components are meant to be equal, sum what "
                              "local_results(variable) gives if they are not"));
  }
  check_same_everywhere(op, "a variable with one copy");
  return value.components()[0].detach().clone();
}

Tensor Strategy::reduce(AnyReduceOp op, const Tensor& value, std::vector<int64_t> axes) {
  return reduce(op,
                PerReplica<Tensor>(
                    std::vector<Tensor>(static_cast<std::size_t>(num_local_replicas()), value)),
                std::move(axes));
}

Tensor Strategy::reduce(AnyReduceOp op, const PerReplica<Tensor>& value,
                        std::vector<int64_t> axes) {
  check_cross_replica("reduce");
  check_components("reduce", value.size());
  at::NoGradGuard no_grad;
  std::vector<Tensor> sums;
  std::vector<Tensor> counts;
  for (const Tensor& component : value.values()) {
    check_axes(*this, component, axes);
    int64_t count = 1;
    for (int64_t axis : axes) count *= component.size(axis);
    // No axes is not LibTorch's "all axes".
    sums.push_back(axes.empty() ? component
                                : component.sum(axes, /*keepdim=*/false, component.scalar_type()));
    counts.push_back(at::full({}, count, at::kLong));
  }
  Tensor sum = reduce(ReduceOp::kSum, PerReplica<Tensor>(std::move(sums)));
  if (ReduceOp(op) == ReduceOp::kSum) return sum;
  Tensor count = collectives::local_reduce(ReduceOp::kSum, counts);
  if (workers_ != nullptr) workers_->all_reduce(count, ReduceOp::kSum, communication_options_);
  if (!sum.is_floating_point() && !sum.is_complex()) sum = sum.to(at::kDouble);
  return sum / count.to(sum.device());
}

Tensor Strategy::gather(const Tensor& value, int64_t axis) {
  check_cross_replica("gather", "use get_replica_context()->all_gather");
  if (workers_ == nullptr) return value.detach();
  if (!value.defined() || axis < -value.dim() || axis >= value.dim()) {
    throw InvalidArgument(cat("gather [", name(), "]: axis ", axis, " of a tensor of shape ",
                              value.defined() ? shape_text(value.sizes()) : "undefined",
                              ", expected an axis below the rank, and no scalar"));
  }
  at::NoGradGuard no_grad;
  return gather_over_workers(value.detach(), axis);
}

Tensor Strategy::gather(const DistributedValues<Tensor>& value, int64_t axis) {
  check_cross_replica("gather", "use get_replica_context()->all_gather");
  check_components("gather", value.size());
  const Tensor& first = value[0];
  if (num_replicas_ == 1 && first.dim() == 0) return first.detach().clone();
  at::NoGradGuard no_grad;
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
    parts.push_back(component.detach().to(first.device()));
  }
  const Tensor here = at::cat(parts, axis);
  return workers_ == nullptr ? here : gather_over_workers(here, axis);
}

Tensor Strategy::gather_over_workers(const Tensor& here, int64_t axis) {
  return workers_->all_gather(here.movedim(axis, 0).contiguous(), communication_options_)
      .movedim(0, axis)
      .contiguous();
}

}  // namespace tutti::distribute
