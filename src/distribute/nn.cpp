#include "tutti/distribute/nn.h"

#include <torch/csrc/autograd/custom_function.h>

#include "distribute/context_stack.h"
#include "distribute/variable_state.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::nn {
namespace {

distribute::ReplicaContext& replica_for(const char* operation) {
  distribute::ReplicaContext* context = distribute::get_replica_context();
  if (context == nullptr) {
    throw FailedPrecondition(cat(operation, " [", distribute::get_strategy().name(),
                                 "]: called in cross-replica context, expected inside a replica; "
                                 "call it in the function given to run"));
  }
  return *context;
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Lookup : torch::autograd::Function<Lookup> {
  static Tensor forward(AutogradContext* saved, const Tensor& params, const Tensor& rows) {
    saved->save_for_backward({rows});
    saved->saved_data["shape"] = params.sizes().vec();
    return params.index_select(0, rows);
  }
  static variable_list backward(AutogradContext* saved, variable_list incoming) {
    const Tensor rows = saved->get_saved_variables()[0];
    const Tensor values = incoming[0].contiguous();
    return {at::_sparse_coo_tensor_unsafe(rows.unsqueeze(0), values,
                                          saved->saved_data["shape"].toIntVector(),
                                          values.options().layout(at::kSparse)),
            Tensor()};
  }
};

void check_ids(const Variable& params, const Tensor& ids) {
  const auto head = [&] { return cat("embedding_lookup [", params.name(), "]: "); };
  if (!ids.defined() || (ids.scalar_type() != at::kLong && ids.scalar_type() != at::kInt)) {
    throw InvalidArgument(cat(head(), "ids ",
                              ids.defined() ? dtype_name(ids.scalar_type()) : "undefined",
                              ", expected int32 or int64; convert them"));
  }
  if (params.sizes().empty())
    throw InvalidArgument(cat(head(), "a scalar variable, expected one that has rows"));
  if (!ids.is_cpu() || ids.numel() == 0) return;
  const auto low = ids.min().item<int64_t>();
  const auto high = ids.max().item<int64_t>();
  if (low >= 0 && high < params.sizes()[0]) return;
  throw InvalidArgument(cat(head(), "ids from ", low, " to ", high,
                            ", expected 0 or more and below ", params.sizes()[0],
                            ", the variable's rows"));
}

}  // namespace

Tensor embedding_lookup(const Variable& params, const Tensor& ids) {
  check_ids(params, ids);
  const Tensor table = params.value();
  const Tensor rows = ids.reshape({-1}).to(table.device(), at::kLong);
  const Tensor found = at::GradMode::is_enabled() && table.requires_grad()
                           ? Lookup::apply(table, rows)
                           : table.index_select(0, rows);
  std::vector<int64_t> shape = ids.sizes().vec();
  shape.insert(shape.end(), table.sizes().begin() + 1, table.sizes().end());
  return found.view(shape);
}

Tensor compute_average_loss(const Tensor& per_example_loss,
                            std::optional<int64_t> global_batch_size, const Tensor& sample_weight) {
  distribute::ReplicaContext& context = replica_for("compute_average_loss");
  if (!per_example_loss.defined() || per_example_loss.dim() == 0) {
    throw InvalidArgument(
        "compute_average_loss: a scalar loss, expected one value for each example; make the loss "
        "with reduction NONE");
  }
  if (global_batch_size && *global_batch_size <= 0) {
    throw InvalidArgument(cat("compute_average_loss [global_batch_size]: ", *global_batch_size,
                              ", expected a positive number"));
  }
  Tensor loss = per_example_loss;
  if (sample_weight.defined()) {
    Tensor weight = sample_weight.to(loss.scalar_type());
    while (weight.dim() < loss.dim()) weight = weight.unsqueeze(-1);
    loss = loss * weight;
  }
  const int64_t divisor =
      global_batch_size.value_or(context.num_replicas_in_sync() * per_example_loss.size(0));
  const Tensor sum = loss.sum();
  return divisor == 0 ? sum : sum / static_cast<double>(divisor);
}

Tensor scale_regularization_loss(const Tensor& regularization_loss) {
  distribute::ReplicaContext& context = replica_for("scale_regularization_loss");
  if (!regularization_loss.defined())
    throw InvalidArgument("scale_regularization_loss: an undefined tensor, expected a loss");
  return regularization_loss.sum() / static_cast<double>(context.num_replicas_in_sync());
}

namespace internal {

Variable adopt_parameters(const std::string& name, std::vector<Tensor> parameters) {
  VariableOptions options;
  options.name = name;
  options.trainable = parameters[0].requires_grad();
  distribute::Strategy& strategy = distribute::get_strategy();
  const Tensor initial =
      tutti::internal::agreed_initial_value(parameters[0].detach(), options, strategy);
  return Variable(
      tutti::internal::make_variable_state(initial, options, strategy, std::move(parameters)));
}

Variable adopt_buffers(const std::string& name, std::vector<Tensor> buffers) {
  distribute::Strategy& strategy = distribute::get_strategy();
  if (strategy.parameter_device() && buffers.size() > 1) return Variable();
  VariableOptions options;
  options.name = name;
  options.trainable = false;
  options.synchronization = VariableSynchronization::kOnRead;
  options.aggregation = VariableAggregation::kOnlyFirstReplica;
  const Tensor initial =
      tutti::internal::agreed_initial_value(buffers[0].detach(), options, strategy);
  return Variable(
      tutti::internal::make_variable_state(initial, options, strategy, std::move(buffers)));
}

std::size_t local_replica(const distribute::Strategy& strategy) {
  const auto& stack = distribute::thread_context().stack;
  if (stack.empty() || stack.back().replica == nullptr || stack.back().strategy != &strategy)
    return 0;
  return static_cast<std::size_t>(stack.back().replica->local_replica_id());
}

}  // namespace internal
}  // namespace tutti::nn
