// The gradient of a collective is a collective: every replica's backward makes the same call in the
// same order. A call that reduces many tensors is one node of the graph, so that its backward
// reduces them together, whichever of them a replica's loss depends on.

#include "distribute/collective_gradients.h"

#include <torch/csrc/autograd/custom_function.h>

#include <bit>

#include "collectives/rendezvous.h"
#include "distribute/collective_all_reduce.h"
#include "distribute/context_stack.h"
#include "distribute/cross_device_ops_packs.h"
#include "distribute/worker_group.h"
#include "tutti/distribute/strategy.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ---- without gradient

/// True when the replicas can do together what the strategy's algorithm does.
bool sums_together(const ReplicaContext& context) {
  const Strategy& strategy = context.strategy();
  const CrossDeviceOps& ops =
      strategy.workers() == nullptr
          ? strategy.cross_device_ops()
          : static_cast<const CollectiveAllReduce&>(strategy.cross_device_ops()).local();
  return typeid(ops) == typeid(ReductionToOneDevice) &&
         static_cast<const ReductionToOneDevice&>(ops).is_plain();
}

bool is_number(const Tensor& value) { return value.is_floating_point() || value.is_complex(); }

/// A copy that a collective may write; float64 where the mean of integers is asked for.
Tensor own_copy(ReduceOp op, const Tensor& value) {
  const Tensor source = value.detach();
  if (op == ReduceOp::kMean && !is_number(source)) return source.to(at::kDouble).contiguous();
  return source.clone(at::MemoryFormat::Contiguous);
}

Tensor all_reduced(const ReplicaCall& call, ReduceOp op, const Tensor& value) {
  Tensor mine = own_copy(op, value);
  if (sums_together(call.context)) {
    call.context.communicator().all_reduce(mine, op, call.options);
    return mine;
  }
  // Another algorithm was asked for: it wants to see all replicas' tensors at once.
  return call.context.merge_call(
      [&](Strategy& strategy, const PerReplica<Tensor>& values) {
        return strategy.cross_device_ops().reduce(op, values, values, call.options);
      },
      mine);
}

/// Tensors that are reduced as one.
struct Pack {
  std::vector<std::size_t> members;
  at::ScalarType dtype;
  c10::Device device;
  int64_t bytes = 0;
};

std::vector<Pack> packs_of(const std::vector<Tensor>& values, int64_t bytes_per_pack) {
  std::vector<Pack> packs;
  for (std::size_t i = values.size(); i-- > 0;) {
    const Tensor& value = values[i];
    Pack* open = nullptr;
    for (Pack& pack : packs) {
      if (pack.dtype == value.scalar_type() && pack.device == value.device()) open = &pack;
    }
    if (open == nullptr || (bytes_per_pack > 0 && open->bytes > bytes_per_pack)) {
      packs.push_back({{}, value.scalar_type(), value.device()});
      open = &packs.back();
    }
    open->members.push_back(i);
    open->bytes += static_cast<int64_t>(value.nbytes());
  }
  return packs;
}

void reduce_pack(const ReplicaCall& call, ReduceOp op, const Pack& pack,
                 std::vector<Tensor>& values) {
  collectives::Communicator& communicator = call.context.communicator();
  if (pack.members.size() == 1) {
    Tensor& value = values[pack.members[0]];
    value = own_copy(op, value);
    communicator.all_reduce(value, op, call.options);
    return;
  }
  std::vector<Tensor> pieces;
  for (std::size_t i : pack.members) pieces.push_back(values[i].reshape({-1}));
  Tensor flat = at::cat(pieces);
  communicator.all_reduce(flat, op, call.options);
  int64_t offset = 0;
  for (std::size_t i : pack.members) {
    const int64_t numel = values[i].numel();
    values[i] = part_of(flat, offset, values[i].sizes());
    offset += numel;
  }
}

/// The reductions of tensors on which all replicas agree, in packs.
std::vector<Tensor> all_reduced(const ReplicaCall& call, ReduceOp op, std::vector<Tensor> values) {
  if (values.empty()) return values;
  for (Tensor& value : values) {
    value = value.detach();
    if (op == ReduceOp::kMean && !is_number(value)) value = value.to(at::kDouble);
  }
  if (sums_together(call.context)) {
    for (const Pack& pack : packs_of(values, call.options.bytes_per_pack))
      reduce_pack(call, op, pack, values);
    return values;
  }
  auto merge_fn = [&](Strategy& strategy, const std::vector<PerReplica<Tensor>>& all) {
    std::vector<ValueDestinations> items;
    for (const PerReplica<Tensor>& item : all) items.push_back({item, item});
    std::vector<Mirrored<Tensor>> sums;
    for (ReductionResult& sum : strategy.cross_device_ops().batch_reduce(op, items, call.options))
      sums.push_back(std::get<Mirrored<Tensor>>(std::move(sum)));
    return sums;
  };
  return call.context.merge_call(merge_fn, values);
}

std::string text(const Tensor& value) {
  return cat(dtype_name(value.scalar_type()), " ", shape_text(value.sizes()));
}

/// The same over the workers. Every replica throws.
void check_agreement_of_workers(const ReplicaCall& call, const std::vector<Tensor>& values) {
  collectives::Communicator& group = call.context.communicator();
  std::vector<std::string> texts;
  for (const Tensor& value : values) texts.push_back(text(value));
  const std::string mine = join(texts, ", ");
  const Tensor hashes =
      group.all_gather(at::full({1, 1, 1, 1}, hash_of(mine), at::kLong), call.options);
  if (hashes.eq(hash_of(mine)).all().item<bool>()) return;
  const std::vector<std::string> all = gather_texts(group, mine, call.options);
  std::size_t other = 0;
  while (other + 1 < all.size() && all[other] == all[0]) ++other;
  throw InvalidArgument(cat("all_reduce: ", all[0], " on replica 0 and ", all[other],
                            " on replica ", other,
                            ", expected the same structure, shapes and dtypes on every replica; "
                            "pad them, or use all_gather"));
}

/// A pack of one replica could fit another's by accident: the tensors are compared one by one.
void check_agreement(const ReplicaCall& call, const std::vector<Tensor>& values) {
  if (call.context.strategy().workers() != nullptr) return check_agreement_of_workers(call, values);
  collectives::Rendezvous& rendezvous = call.context.rendezvous();
  if (rendezvous.size() == 1) return;
  const int rank = call.context.local_replica_id();
  rendezvous.meet(rank, {"all_reduce of a nest", &values}, call.options.timeout());
  const auto& first = *static_cast<const std::vector<Tensor>*>(rendezvous.call_of(0).payload);
  std::string difference;
  for (int r = 1; r < rendezvous.size() && difference.empty(); ++r) {
    const auto& other = *static_cast<const std::vector<Tensor>*>(rendezvous.call_of(r).payload);
    if (first.size() != other.size())
      difference = cat("replica 0 has ", first.size(), " tensors, replica ", r, " ", other.size());
    for (std::size_t i = 0; i < first.size() && difference.empty(); ++i) {
      if (first[i].sizes() == other[i].sizes() && first[i].scalar_type() == other[i].scalar_type())
        continue;
      difference = cat("tensor ", i, " is ", text(first[i]), " on replica 0 and ", text(other[i]),
                       " on replica ", r);
    }
  }
  rendezvous.leave(rank, call.options.timeout());
  if (difference.empty()) return;
  throw InvalidArgument(cat("all_reduce: ", difference,
                            ", expected the same structure, shapes and dtypes on every replica; "
                            "pad them, or use all_gather"));
}

/// The replicas' rows joined along dimension 0. `offset`: where this replica's begin.
struct RowLayout {
  int64_t offset = 0;
  int64_t size = 0;
};

/// `like`, which every replica gives with its rows, must be the same everywhere; it is what the
/// rows are of, or 0.
RowLayout row_layout(const ReplicaCall& call, int64_t rows, int64_t like) {
  collectives::Communicator& communicator = call.context.communicator();
  const Tensor mine = at::tensor({rows, like}, at::kLong).unsqueeze(0);
  const Tensor all = communicator.all_gather(mine, call.options);
  const auto* entry = all.const_data_ptr<int64_t>();
  RowLayout layout{0, rows};
  for (int i = 0; i < communicator.size(); ++i) {
    if (i < communicator.rank()) layout.offset += entry[2 * i];
    if (entry[2 * i + 1] == entry[1]) continue;
    throw InvalidArgument(cat("all_reduce of IndexedSlices: dense shapes of ", entry[1],
                              " rows on replica 0 and ", entry[2 * i + 1], " on replica ", i,
                              ", expected one dense shape"));
  }
  return layout;
}

// ---- with gradient

/// What backward needs, as autograd can keep it.
std::vector<int64_t> packed(const ReplicaCall& call, ReduceOp op) {
  return {reinterpret_cast<int64_t>(&call.context), static_cast<int64_t>(op),
          call.options.bytes_per_pack, std::bit_cast<int64_t>(call.options.timeout_seconds),
          static_cast<int64_t>(call.options.implementation)};
}

/// The call of a backward, in the replica's context.
class BackwardCall {
 public:
  BackwardCall(AutogradContext* saved, const Tensor& incoming)
      : kept_(saved->saved_data["call"].toIntVector()) {
    ReplicaContext* context = reinterpret_cast<ReplicaContext*>(kept_[0]);
    if (get_replica_context() == context) return;
    // Autograd has a thread for each GPU; on CPU it stays on the thread that called backward.
    if (!incoming.is_cuda()) {
      throw FailedPrecondition(
          "gradient of a collective: backward is called outside the replica that made the "
          "collective, expected the same run and thread; take gradients inside the replica's "
          "function");
    }
    guard_.emplace(context->strategy(), context);
  }
  ReplicaCall call() const {
    CommunicationOptions options;
    options.bytes_per_pack = kept_[2];
    options.timeout_seconds = std::bit_cast<double>(kept_[3]);
    options.implementation = static_cast<CommunicationImplementation>(kept_[4]);
    return {*reinterpret_cast<ReplicaContext*>(kept_[0]), options};
  }
  ReduceOp op() const { return static_cast<ReduceOp>(kept_[1]); }

 private:
  std::vector<int64_t> kept_;
  std::optional<ContextGuard> guard_;
};

struct AllReduce : torch::autograd::Function<AllReduce> {
  static Tensor forward(AutogradContext* saved, const Tensor& value, const ReplicaCall* call,
                        ReduceOp op) {
    saved->saved_data["call"] = packed(*call, op);
    return all_reduced(*call, op, value);
  }
  static variable_list backward(AutogradContext* saved, variable_list incoming) {
    const BackwardCall backward(saved, incoming[0]);
    return {all_reduced(backward.call(), backward.op(), incoming[0]), Tensor(), Tensor()};
  }
};

struct AllReduceMany : torch::autograd::Function<AllReduceMany> {
  static variable_list forward(AutogradContext* saved, at::TensorList values,
                               const ReplicaCall* call, ReduceOp op) {
    saved->saved_data["call"] = packed(*call, op);
    return all_reduced(*call, op, values.vec());
  }
  static variable_list backward(AutogradContext* saved, variable_list incoming) {
    const BackwardCall backward(saved, incoming[0]);
    variable_list gradients = all_reduced(backward.call(), backward.op(), std::move(incoming));
    gradients.resize(gradients.size() + 2);  // of `call` and `op`: none
    return gradients;
  }
};

struct AllGather : torch::autograd::Function<AllGather> {
  static Tensor forward(AutogradContext* saved, const Tensor& rows, const ReplicaCall* call,
                        RowLayout layout) {
    saved->saved_data["call"] = packed(*call, ReduceOp::kSum);
    saved->saved_data["offset"] = layout.offset;
    saved->saved_data["size"] = layout.size;
    return call->context.communicator().all_gather(rows.detach(), call->options);
  }
  static variable_list backward(AutogradContext* saved, variable_list incoming) {
    const BackwardCall backward(saved, incoming[0]);
    const Tensor sum = all_reduced(backward.call(), ReduceOp::kSum, incoming[0]);
    return {sum.narrow(0, saved->saved_data["offset"].toInt(), saved->saved_data["size"].toInt()),
            Tensor(), Tensor()};
  }
};

bool wants_gradient(const Tensor& value) {
  return at::GradMode::is_enabled() && value.requires_grad();
}

void check_defined(const Tensor& value) {
  if (value.defined()) return;
  throw InvalidArgument(
      "all_reduce: an undefined tensor, expected a value; pass zeros when a replica has none");
}

Tensor gathered(const ReplicaCall& call, const Tensor& rows, RowLayout layout) {
  if (wants_gradient(rows)) return AllGather::apply(rows, &call, layout);
  return call.context.communicator().all_gather(rows.detach(), call.options);
}

}  // namespace

Tensor differentiable_all_reduce(const ReplicaCall& call, ReduceOp op, const Tensor& value) {
  check_defined(value);
  if (!wants_gradient(value)) return all_reduced(call, op, value);
  return AllReduce::apply(value, &call, op);
}

void differentiable_all_reduce(const ReplicaCall& call, ReduceOp op,
                               const std::vector<Tensor*>& values) {
  // Integers apart: they have no place in a node of the graph. The order of the collectives is by
  // dtype alone, for a replica cannot know which tensors of the others want a gradient.
  std::vector<Tensor> all, numbers, others;
  bool any_gradient = false;
  for (const Tensor* value : values) {
    check_defined(*value);
    all.push_back(*value);
    (is_number(*value) ? numbers : others).push_back(*value);
    any_gradient = any_gradient || wants_gradient(*value);
  }
  if (all.empty()) return;
  check_agreement(call, all);
  numbers = any_gradient ? AllReduceMany::apply(at::TensorList(numbers), &call, op)
                         : all_reduced(call, op, std::move(numbers));
  others = all_reduced(call, op, std::move(others));
  std::size_t number = 0;
  std::size_t other = 0;
  for (Tensor* value : values)
    *value = is_number(*value) ? std::move(numbers[number++]) : std::move(others[other++]);
}

IndexedSlices differentiable_all_reduce(const ReplicaCall& call, ReduceOp op,
                                        const IndexedSlices& value) {
  value.check();
  const RowLayout layout = row_layout(call, value.values.size(0), value.dense_shape[0]);
  Tensor rows = value.values.contiguous();
  if (op == ReduceOp::kMean) {
    rows = (is_number(rows) ? rows : rows.to(at::kDouble)) /
           static_cast<double>(call.context.num_replicas_in_sync());
  }
  return {gathered(call, rows, layout),
          call.context.communicator().all_gather(value.indices.contiguous(), call.options),
          value.dense_shape};
}

Tensor differentiable_all_gather(const ReplicaCall& call, const Tensor& value, int64_t axis) {
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
  return gathered(call, rows, row_layout(call, rows.size(0), 0)).movedim(0, axis);
}

}  // namespace tutti::distribute
