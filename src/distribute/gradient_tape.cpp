#include "tutti/distribute/gradient_tape.h"

#include "distribute/context_stack.h"
#include "distribute/variable_state.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti {
namespace {

/// LibTorch's message about a saved tensor that was written; found by its words, for it has no
/// class of its own.
bool is_stale_forward(const std::string& message) {
  return message.find("modified by an inplace operation") != std::string::npos;
}

/// The source that was written last.
std::string latest_update(const std::vector<Variable>& sources) {
  const Variable* latest = nullptr;
  uint64_t at = 0;
  for (const Variable& source : sources) {
    const uint64_t updated = source.state().updated_at.load(std::memory_order_acquire);
    if (latest == nullptr || updated > at) {
      latest = &source;
      at = updated;
    }
  }
  return latest == nullptr ? "a watched tensor" : latest->name();
}

}  // namespace

GradientTape::GradientTape(const GradientTapeOptions& options) : persistent_(options.persistent) {
  ++distribute::thread_context().open_tapes;
}

GradientTape::~GradientTape() { --distribute::thread_context().open_tapes; }

void GradientTape::watch(Tensor& tensor) {
  if (!tensor.is_floating_point()) {
    throw InvalidArgument(cat("GradientTape::watch: a tensor of ", dtype_name(tensor.scalar_type()),
                              ", expected a floating dtype"));
  }
  if (!tensor.is_leaf()) return;  // it has a history already, gradients flow to it
  tensor.requires_grad_(true);
}

std::vector<Tensor> GradientTape::gradient(const Tensor& target,
                                           const std::vector<Variable>& sources) {
  std::vector<Tensor> leaves;
  leaves.reserve(sources.size());
  for (const Variable& source : sources) {
    internal::VariableState& state = source.state();
    state.check_usable("GradientTape::gradient");
    leaves.push_back(state.leaves[static_cast<std::size_t>(std::max(0, state.replica()))]);
  }
  return backward(target, std::move(leaves), sources);
}

std::vector<Tensor> GradientTape::gradient(const Tensor& target,
                                           const std::vector<Tensor>& watched) {
  for (const Tensor& tensor : watched) {
    if (!tensor.is_leaf()) const_cast<Tensor&>(tensor).retain_grad();
  }
  return backward(target, watched, {});
}

IndexedSlices GradientTape::gradient_slices(const Tensor& target, const Variable& source) {
  const std::vector<int64_t> shape = source.sizes().vec();
  if (shape.empty()) {
    throw InvalidArgument(cat("GradientTape::gradient_slices [", source.name(),
                              "]: a scalar variable, expected one that has rows; use gradient"));
  }
  const Tensor gradient = this->gradient(target, source);
  if (gradient.defined() && gradient.layout() == at::kSparse)
    return IndexedSlices::from_sparse(gradient);
  if (gradient.defined())
    return {gradient, at::arange(shape[0], gradient.options().dtype(at::kLong)), shape};
  std::vector<int64_t> none = shape;
  none[0] = 0;
  const at::TensorOptions options = source.state().components[0].options();
  return {at::empty(none, options), at::empty({0}, options.dtype(at::kLong)), shape};
}

std::vector<Tensor> GradientTape::backward(const Tensor& target, std::vector<Tensor> leaves,
                                           const std::vector<Variable>& names) {
  if (used_ && !persistent_) {
    throw FailedPrecondition(
        "GradientTape::gradient: called a second time on a tape that is not persistent, expected "
        "one call; make it with "
        "{.persistent = true}, or ask for all gradients at once");
  }
  used_ = true;
  if (!target.defined())
    throw InvalidArgument("GradientTape::gradient: an undefined target, expected a tensor");
  std::vector<Tensor> gradients(leaves.size());
  if (!target.requires_grad()) return gradients;  // it depends on no source

  std::vector<Tensor> inputs;
  for (Tensor& leaf : leaves) {
    bool seen = !leaf.requires_grad();
    for (const Tensor& earlier : inputs) seen = seen || earlier.is_same(leaf);
    if (!seen) inputs.push_back(leaf);
  }
  if (inputs.empty()) return gradients;
  // Undefined beforehand, so that backward hands its buffers over instead of adding into ours.
  for (Tensor& input : inputs) input.mutable_grad().reset();
  const bool keep_graph = persistent_ || distribute::thread_context().open_tapes > 1;
  const Tensor scalar = target.dim() == 0 ? target : target.sum();
  try {
    scalar.backward(/*gradient=*/{}, keep_graph, /*create_graph=*/false, inputs);
  } catch (const c10::Error& error) {
    for (Tensor& input : inputs) input.mutable_grad().reset();
    if (!is_stale_forward(error.what())) throw;
    throw FailedPrecondition(cat("GradientTape::gradient [", latest_update(names),
                                 "]: the variable was updated after the forward whose "
                                 "gradient is asked for, expected weights as they were; take all "
                                 "gradients first, then update"));
  }
  for (std::size_t i = 0; i < leaves.size(); ++i) gradients[i] = leaves[i].grad();
  for (Tensor& input : inputs) input.mutable_grad().reset();
  return gradients;
}

}  // namespace tutti
