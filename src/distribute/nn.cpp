#include "tutti/distribute/nn.h"

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

}  // namespace

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
  const Tensor initial = parameters[0].detach();
  return Variable(
      tutti::internal::make_variable_state(initial, options, strategy, std::move(parameters)));
}

std::size_t local_replica(const distribute::Strategy& strategy) {
  const auto& stack = distribute::thread_context().stack;
  if (stack.empty() || stack.back().replica == nullptr || stack.back().strategy != &strategy)
    return 0;
  return static_cast<std::size_t>(stack.back().replica->local_replica_id());
}

}  // namespace internal
}  // namespace tutti::nn
