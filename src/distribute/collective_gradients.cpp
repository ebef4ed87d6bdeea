// The gradient of a collective is a collective: every replica's backward makes the same call in the
// same order.

#include "distribute/collective_gradients.h"

#include <torch/csrc/autograd/custom_function.h>

#include "tutti/distribute/strategy.h"

namespace tutti::distribute {
namespace {

Tensor all_reduced(ReplicaContext& context, ReduceOp op, const Tensor& value,
                   const CommunicationOptions& options) {
  Tensor result = value.detach().clone(at::MemoryFormat::Contiguous);
  const CrossDeviceOps& ops = context.strategy().cross_device_ops();
  const auto* to_one_device = dynamic_cast<const ReductionToOneDevice*>(&ops);
  if (to_one_device != nullptr && to_one_device->is_plain()) {
    context.communicator().all_reduce(result, op, options);
    return result;
  }
  // Another algorithm was asked for: it wants to see all replicas' tensors at once.
  Tensor merged = context.merge_call(
      [&](Strategy&, const PerReplica<Tensor>& values) { return ops.reduce(op, values); }, result);
  return merged.to(result.device(), /*non_blocking=*/false, /*copy=*/true);
}

struct AllReduce : torch::autograd::Function<AllReduce> {
  static Tensor forward(torch::autograd::AutogradContext* saved, const Tensor& value,
                        int64_t context, int64_t op, double timeout) {
    saved->saved_data["context"] = context;
    saved->saved_data["op"] = op;
    saved->saved_data["timeout"] = timeout;
    CommunicationOptions options;
    options.timeout_seconds = timeout;
    return all_reduced(*reinterpret_cast<ReplicaContext*>(context), static_cast<ReduceOp>(op),
                       value, options);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list incoming) {
    auto& context = *reinterpret_cast<ReplicaContext*>(saved->saved_data["context"].toInt());
    CommunicationOptions options;
    options.timeout_seconds = saved->saved_data["timeout"].toDouble();
    const auto op = static_cast<ReduceOp>(saved->saved_data["op"].toInt());
    return {all_reduced(context, op, incoming[0], options), Tensor(), Tensor(), Tensor()};
  }
};

/// The tensors joined along dimension 0, and where this replica's rows begin.
struct Gathered {
  Tensor joined;
  int64_t offset;
};

Gathered gather_rows(ReplicaContext& context, const Tensor& rows,
                     const CommunicationOptions& options) {
  Tensor sizes = context.communicator().all_gather(at::full({1}, rows.size(0), at::kLong), options);
  const int64_t* size = sizes.const_data_ptr<int64_t>();
  int64_t offset = 0;
  for (int i = 0; i < context.communicator().rank(); ++i) offset += size[i];
  return {context.communicator().all_gather(rows, options), offset};
}

struct AllGather : torch::autograd::Function<AllGather> {
  static Tensor forward(torch::autograd::AutogradContext* saved, const Tensor& rows,
                        int64_t context, double timeout) {
    CommunicationOptions options;
    options.timeout_seconds = timeout;
    Gathered gathered =
        gather_rows(*reinterpret_cast<ReplicaContext*>(context), rows.detach(), options);
    saved->saved_data["context"] = context;
    saved->saved_data["timeout"] = timeout;
    saved->saved_data["offset"] = gathered.offset;
    saved->saved_data["size"] = rows.size(0);
    return gathered.joined;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list incoming) {
    auto& context = *reinterpret_cast<ReplicaContext*>(saved->saved_data["context"].toInt());
    CommunicationOptions options;
    options.timeout_seconds = saved->saved_data["timeout"].toDouble();
    Tensor sum = all_reduced(context, ReduceOp::kSum, incoming[0], options);
    return {sum.narrow(0, saved->saved_data["offset"].toInt(), saved->saved_data["size"].toInt()),
            Tensor(), Tensor()};
  }
};

bool wants_gradient(const Tensor& value) {
  return at::GradMode::is_enabled() && value.requires_grad();
}

}  // namespace

Tensor differentiable_all_reduce(ReplicaContext& context, ReduceOp op, const Tensor& value,
                                 const CommunicationOptions& options) {
  if (!value.defined())
    throw InvalidArgument(
        "all_reduce: an undefined tensor, expected a value; pass zeros when a replica has none");
  if (!wants_gradient(value)) return all_reduced(context, op, value, options);
  return AllReduce::apply(value, reinterpret_cast<int64_t>(&context), static_cast<int64_t>(op),
                          options.timeout_seconds);
}

Tensor differentiable_all_gather(ReplicaContext& context, const Tensor& value, int64_t axis,
                                 const CommunicationOptions& options) {
  if (!value.defined() || value.dim() == 0) {
    throw InvalidArgument(
        "all_gather: a scalar or undefined tensor, expected rank 1 or more; use "
        "value.unsqueeze(0)");
  }
  if (axis < -value.dim() || axis >= value.dim()) {
    throw InvalidArgument(cat("all_gather: axis ", axis, " of a tensor of shape ",
                              shape_text(value.sizes()), ", expected from ", -value.dim(), " to ",
                              value.dim() - 1));
  }
  const Tensor rows = value.movedim(axis, 0).contiguous();
  const Tensor joined =
      wants_gradient(value)
          ? AllGather::apply(rows, reinterpret_cast<int64_t>(&context), options.timeout_seconds)
          : gather_rows(context, rows.detach(), options).joined;
  return joined.movedim(0, axis);
}

}  // namespace tutti::distribute
