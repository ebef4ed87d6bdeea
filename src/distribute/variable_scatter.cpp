// Assignment of rows.

#include <array>

#include "collectives/local_reduce.h"
#include "distribute/context_stack.h"
#include "distribute/variable_state.h"
#include "distribute/worker_group.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti {

using distribute::Strategy;
using internal::VariableKind;
using internal::VariableState;

namespace {

enum class Op { kAdd, kSub, kMul, kDiv, kMin, kMax, kUpdate };

const char* op_name(Op op) {
  static constexpr std::array kNames{"scatter_add", "scatter_sub", "scatter_mul",   "scatter_div",
                                     "scatter_min", "scatter_max", "scatter_update"};
  return kNames[static_cast<std::size_t>(op)];
}

/// What one replica brings to a scatter that all make together.
struct Part {
  const VariableState* state;
  IndexedSlices slices;
};

Tensor combined(Op op, const Tensor& old, const Tensor& values) {
  switch (op) {
    case Op::kMul:
      return old * values;
    case Op::kDiv:
      return old.is_floating_point() ? old / values
                                     : at::div(old, values, /*rounding_mode=*/"trunc");
    case Op::kMin:
      return at::minimum(old, values);
    case Op::kMax:
      return at::maximum(old, values);
    default:
      return values;
  }
}

bool has_duplicates(const Tensor& indices) {
  const Tensor sorted = std::get<0>(indices.sort());
  const int64_t n = sorted.numel();
  return n > 1 && sorted.narrow(0, 1, n - 1).eq(sorted.narrow(0, 0, n - 1)).any().item<bool>();
}

void apply(Tensor& component, Op op, const IndexedSlices& slices) {
  const Tensor values = slices.values.to(component.device());
  const Tensor indices = slices.indices.to(component.device());
  if (op == Op::kAdd || op == Op::kSub) {
    component.index_add_(0, indices, values, /*alpha=*/op == Op::kAdd ? 1 : -1);
  } else if (!has_duplicates(indices)) {
    component.index_copy_(0, indices, combined(op, component.index_select(0, indices), values));
  } else {
    for (int64_t i = 0; i < indices.numel(); ++i) {
      Tensor row = component.select(0, indices[i].item<int64_t>());
      row.copy_(combined(op, row, values.select(0, i)));
    }
  }
}

void check_supported(const VariableState& state, Op op) {
  const char* name = op_name(op);
  if (state.on_read()) {
    throw Unimplemented(cat(name, " [", state.name,
                            "]: an ON_READ variable, expected ON_WRITE; read, change and assign "
                            "the whole value"));
  }
  const bool joins = state.aggregation == VariableAggregation::kSum ||
                     state.aggregation == VariableAggregation::kMean;
  const bool joinable = op != Op::kMin && op != Op::kMax && op != Op::kUpdate;
  if (state.kind != VariableKind::kPlain && joins && !joinable) {
    throw Unimplemented(cat(name, " [", state.name, "]: aggregation ",
                            state.aggregation == VariableAggregation::kSum ? "SUM" : "MEAN",
                            ", expected NONE or ONLY_FIRST_REPLICA; rows of several replicas have "
                            "no ",
                            name, " that is one"));
  }
  if (state.dtype == at::kBool && op != Op::kUpdate) {
    throw InvalidArgument(
        cat(name, " [", state.name, "]: a bool variable, expected numbers; use scatter_update"));
  }
}

IndexedSlices checked(const VariableState& state, Op op, const IndexedSlices& slices) {
  auto refuse = [&](const auto&... parts) {
    throw InvalidArgument(cat(op_name(op), " [", state.name, "]: ", parts...));
  };
  if (!slices.values.defined() || !slices.indices.defined())
    refuse("slices without values or indices, expected both");
  IndexedSlices rows{slices.values.detach(), slices.indices.detach(), slices.dense_shape};
  if (rows.dense_shape.empty()) rows.dense_shape = state.shape;
  if (rows.indices.scalar_type() == at::kInt) rows.indices = rows.indices.to(at::kLong);
  if (rows.dense_shape != state.shape)
    refuse("slices of a tensor of shape ", shape_text(rows.dense_shape), ", expected ",
           shape_text(state.shape), ", the variable's");
  if (rows.values.scalar_type() != state.dtype)
    refuse("values of ", dtype_name(rows.values.scalar_type()), ", expected ",
           dtype_name(state.dtype), ", the variable's; convert them");
  try {
    rows.check();
  } catch (const InvalidArgument& error) {
    refuse(error.what());
  }
  if (op == Op::kDiv && !at::isFloatingType(state.dtype) && rows.values.eq(0).any().item<bool>())
    refuse("an integer divided by 0, expected other values");
  return rows;
}

/// The workers' rows one after the other.
IndexedSlices joined_over(distribute::WorkerGroup& workers, const IndexedSlices& rows) {
  return {workers.all_gather(rows.values, workers.options()),
          workers.all_gather(rows.indices, workers.options()), rows.dense_shape};
}

IndexedSlices joined(const VariableState& state, Op op, const std::vector<Part>& parts) {
  std::vector<const VariableState*> states;
  std::vector<IndexedSlices> slices;
  for (const Part& part : parts) {
    states.push_back(part.state);
    slices.push_back(part.slices);
  }
  internal::check_one_variable(op_name(op), states);
  distribute::WorkerGroup* workers = state.strategy->workers();
  if (state.aggregation == VariableAggregation::kOnlyFirstReplica) {
    if (workers == nullptr) return slices[0];
    const bool mine = workers->is_chief();  // the others bring no rows
    const IndexedSlices& first = slices[0];
    return joined_over(
        *workers, mine ? first
                       : IndexedSlices{first.values.narrow(0, 0, 0), first.indices.narrow(0, 0, 0),
                                       first.dense_shape});
  }
  if (state.aggregation == VariableAggregation::kSum) {
    IndexedSlices rows = collectives::local_reduce(collectives::ReduceOp::kSum, slices);
    return workers == nullptr ? rows : joined_over(*workers, rows);
  }
  if (!at::isFloatingType(state.dtype)) {
    throw InvalidArgument(cat(op_name(op), " [", state.name, "]: aggregation MEAN of ",
                              dtype_name(state.dtype),
                              ", expected a floating dtype; use SUM or ONLY_FIRST_REPLICA"));
  }
  if (workers == nullptr) return collectives::local_reduce(collectives::ReduceOp::kMean, slices);
  IndexedSlices rows =
      joined_over(*workers, collectives::local_reduce(collectives::ReduceOp::kSum, slices));
  rows.values.div_(static_cast<double>(state.strategy->num_replicas_in_sync()));
  return rows;
}

}  // namespace

Tensor Variable::scatter(Scatter operation, const IndexedSlices& slices) {
  VariableState& state = this->state();
  const Op op = static_cast<Op>(operation);
  state.check_usable(op_name(op));
  check_supported(state, op);
  const IndexedSlices rows = checked(state, op, slices);
  {
    at::NoGradGuard no_grad;
    const int replica = state.replica();
    if (replica < 0) {
      state.write_all([&](Tensor& component) { apply(component, op, rows); });
    } else if (state.in_update_context() || !state.is_collective()) {
      state.write_one(static_cast<std::size_t>(replica),
                      [&](Tensor& component) { apply(component, op, rows); });
    } else {
      state.check_aggregation(op_name(op));
      distribute::get_replica_context()->merge_call_named(
          op_name(op),
          [&](Strategy&, const PerReplica<Part>& parts) {
            const IndexedSlices all = joined(state, op, parts.values());
            state.write_all([&](Tensor& component) { apply(component, op, all); });
          },
          Part{&state, rows});
    }
  }
  return value();
}

}  // namespace tutti
