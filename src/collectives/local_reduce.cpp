#include "tutti/collectives/local_reduce.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::collectives {
namespace {

constexpr int64_t kChunk = 2048;

void check_mean(ReduceOp op, at::ScalarType dtype) {
  if (op == ReduceOp::kMean && !at::isFloatingType(dtype) && !at::isComplexType(dtype)) {
    throw InvalidArgument(cat("reduce: MEAN of ", dtype_name(dtype), ", expected a floating dtype; convert first, or use SUM"));
  }
}

template <class Scalar>
void reduce_range_of(ReduceOp op, const std::vector<const void*>& inputs, const std::vector<void*>& outputs, int64_t begin, int64_t end) {
  alignas(64) Scalar sum[kChunk];
  const auto count = static_cast<Scalar>(inputs.size());
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = std::min(kChunk, end - at);
    std::copy_n(static_cast<const Scalar*>(inputs[0]) + at, n, sum);
    for (std::size_t r = 1; r < inputs.size(); ++r) {
      const Scalar* part = static_cast<const Scalar*>(inputs[r]) + at;
      for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<Scalar>(sum[i] + part[i]);
    }
    if constexpr (std::is_floating_point_v<Scalar>) {
      if (op == ReduceOp::kMean) {
        for (int64_t i = 0; i < n; ++i) sum[i] /= count;
      }
    }
    for (void* output : outputs) std::copy_n(sum, n, static_cast<Scalar*>(output) + at);
  }
}

}  // namespace

bool reduce_range(ReduceOp op, at::ScalarType dtype, const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                  int64_t begin, int64_t end) {
  check_mean(op, dtype);
  switch (dtype) {
    case at::kFloat: reduce_range_of<float>(op, inputs, outputs, begin, end); return true;
    case at::kDouble: reduce_range_of<double>(op, inputs, outputs, begin, end); return true;
    case at::kInt: reduce_range_of<int32_t>(op, inputs, outputs, begin, end); return true;
    case at::kLong: reduce_range_of<int64_t>(op, inputs, outputs, begin, end); return true;
    case at::kShort: reduce_range_of<int16_t>(op, inputs, outputs, begin, end); return true;
    case at::kChar: reduce_range_of<int8_t>(op, inputs, outputs, begin, end); return true;
    case at::kByte: reduce_range_of<uint8_t>(op, inputs, outputs, begin, end); return true;
    default: return false;
  }
}

Tensor local_reduce(ReduceOp op, const std::vector<Tensor>& inputs) {
  if (inputs.empty()) throw InvalidArgument("reduce: no tensors, expected at least one");
  const Tensor& first = inputs[0];
  for (const Tensor& input : inputs) {
    if (input.sizes() != first.sizes() || input.scalar_type() != first.scalar_type()) {
      throw InvalidArgument(cat("reduce: ", dtype_name(first.scalar_type()), " ", shape_text(first.sizes()), " and ",
                                dtype_name(input.scalar_type()), " ", shape_text(input.sizes()), ", expected one shape and dtype"));
    }
  }
  check_mean(op, first.scalar_type());
  at::NoGradGuard no_grad;
  Tensor sum = first.detach().clone();
  for (std::size_t i = 1; i < inputs.size(); ++i) sum.add_(inputs[i].detach().to(sum.device()));
  if (op == ReduceOp::kMean) sum.div_(static_cast<double>(inputs.size()));
  return sum;
}

IndexedSlices local_reduce(ReduceOp op, const std::vector<IndexedSlices>& inputs) {
  if (inputs.empty()) throw InvalidArgument("reduce: no slices, expected at least one");
  std::vector<Tensor> values;
  std::vector<Tensor> indices;
  for (const IndexedSlices& input : inputs) {
    input.check();
    if (input.dense_shape != inputs[0].dense_shape) {
      throw InvalidArgument(cat("reduce: slices of ", shape_text(inputs[0].dense_shape), " and ", shape_text(input.dense_shape),
                                ", expected one dense shape"));
    }
    values.push_back(input.values);
    indices.push_back(input.indices);
  }
  IndexedSlices joined{at::cat(values), at::cat(indices), inputs[0].dense_shape};
  check_mean(op, joined.values.scalar_type());
  if (op == ReduceOp::kMean) joined.values = joined.values / static_cast<double>(inputs.size());
  return joined;
}

}  // namespace tutti::collectives
