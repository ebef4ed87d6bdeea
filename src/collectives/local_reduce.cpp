#include "collectives/local_reduce.h"

#include <algorithm>

#include "collectives/loops.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

// The compiler makes a version of a loop for each generation of vector instructions. Sanitizers run
// before the dynamic linker has chosen a version, so they get the plain one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(TUTTI_SANITIZED)
#define TUTTI_VECTOR_VERSIONS \
  __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define TUTTI_VECTOR_VERSIONS
#endif

namespace tutti::collectives {
namespace {

constexpr int64_t kChunkBytes = 16384;  // half a first-level cache: the sum stays there

using Inputs = std::vector<const void*>;
using Outputs = std::vector<void*>;

void check_mean(ReduceOp op, at::ScalarType dtype) {
  if (op == ReduceOp::kMean && !at::isFloatingType(dtype) && !at::isComplexType(dtype)) {
    throw InvalidArgument(cat("reduce: MEAN of ", dtype_name(dtype),
                              ", expected a floating dtype; convert first, or use SUM"));
  }
}

/// T, or for integers the unsigned type of its width, whose sums wrap round as ATen's do.
template <class T>
struct Adding {
  using Type = T;
};
template <class T>
requires std::is_integral_v<T>
struct Adding<T> {
  using Type = std::make_unsigned_t<T>;
};

/// sum = a + b, and sum /= divisor unless that is 1.
template <class T>
inline __attribute__((always_inline)) void add(T* sum, const T* a, const T* b, int64_t n,
                                               T divisor) {
  if (divisor == T{1}) {
    for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<T>(a[i] + b[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<T>((a[i] + b[i]) / divisor);
  }
}

// One function a dtype, for an attribute that makes several versions does not go with templates.
#define TUTTI_ADD_OF(T)                                                                     \
  TUTTI_VECTOR_VERSIONS void add_of(T* sum, const T* a, const T* b, int64_t n, T divisor) { \
    add(sum, a, b, n, divisor);                                                             \
  }
TUTTI_ADD_OF(float)
TUTTI_ADD_OF(double)
TUTTI_ADD_OF(uint8_t)
TUTTI_ADD_OF(uint16_t)
TUTTI_ADD_OF(uint32_t)
TUTTI_ADD_OF(uint64_t)
#undef TUTTI_ADD_OF

/// The sums of one dtype; `divisor` is 1 or the number of inputs.
template <class Scalar>
struct Sums {
  using T = typename Adding<Scalar>::Type;
  static void add(T* sum, const T* a, const T* b, int64_t n, int64_t divisor) {
    add_of(sum, a, b, n, static_cast<T>(divisor));
  }
};
template <Float16 kKind>
struct Sums16 {
  using T = uint16_t;
  static void add(T* sum, const T* a, const T* b, int64_t n, int64_t divisor) {
    add_16(kKind, sum, a, b, n, static_cast<float>(divisor));
  }
};
template <>
struct Sums<at::Half> : Sums16<Float16::kHalf> {};
template <>
struct Sums<at::BFloat16> : Sums16<Float16::kBFloat16> {};

/// Chunk by chunk: all inputs of a chunk are read before an output, which may be one of them, is
/// written.
template <class Scalar>
void reduce_range_of(ReduceOp op, const Inputs& inputs, const Outputs& outputs, int64_t begin,
                     int64_t end) {
  using T = typename Sums<Scalar>::T;
  constexpr int64_t kChunk = kChunkBytes / static_cast<int64_t>(sizeof(T));
  alignas(64) T sum[kChunk];
  const int64_t count = op == ReduceOp::kMean ? static_cast<int64_t>(inputs.size()) : 1;
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = std::min(kChunk, end - at);
    const T* so_far = static_cast<const T*>(inputs[0]) + at;
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      const bool last = rank + 1 == inputs.size();
      Sums<Scalar>::add(sum, so_far, static_cast<const T*>(inputs[rank]) + at, n, last ? count : 1);
      so_far = sum;
    }
    for (void* output : outputs) {
      T* to = static_cast<T*>(output) + at;
      if (to != so_far) std::copy_n(so_far, n, to);
    }
  }
}

void check_alike(const std::vector<Tensor>& inputs) {
  if (inputs.empty()) throw InvalidArgument("reduce: no tensors, expected at least one");
  const Tensor& first = inputs[0];
  for (const Tensor& input : inputs) {
    if (input.sizes() == first.sizes() && input.scalar_type() == first.scalar_type()) continue;
    throw InvalidArgument(cat("reduce: ", dtype_name(first.scalar_type()), " ",
                              shape_text(first.sizes()), " and ", dtype_name(input.scalar_type()),
                              " ", shape_text(input.sizes()),
                              ", expected one shape and dtype; reduce them one by one"));
  }
}

}  // namespace

bool reduce_range(ReduceOp op, at::ScalarType dtype, const std::vector<const void*>& inputs,
                  const std::vector<void*>& outputs, int64_t begin, int64_t end) {
  check_mean(op, dtype);
  switch (dtype) {
    case at::kFloat:
      reduce_range_of<float>(op, inputs, outputs, begin, end);
      return true;
    case at::kDouble:
      reduce_range_of<double>(op, inputs, outputs, begin, end);
      return true;
    case at::kHalf:
      reduce_range_of<at::Half>(op, inputs, outputs, begin, end);
      return true;
    case at::kBFloat16:
      reduce_range_of<at::BFloat16>(op, inputs, outputs, begin, end);
      return true;
    case at::kLong:
      reduce_range_of<int64_t>(op, inputs, outputs, begin, end);
      return true;
    case at::kInt:
      reduce_range_of<int32_t>(op, inputs, outputs, begin, end);
      return true;
    case at::kShort:
      reduce_range_of<int16_t>(op, inputs, outputs, begin, end);
      return true;
    case at::kChar:
      reduce_range_of<int8_t>(op, inputs, outputs, begin, end);
      return true;
    case at::kByte:
      reduce_range_of<uint8_t>(op, inputs, outputs, begin, end);
      return true;
    default:
      return false;
  }
}

Tensor local_reduce(ReduceOp op, const std::vector<Tensor>& inputs) {
  check_alike(inputs);
  check_mean(op, inputs[0].scalar_type());
  at::NoGradGuard no_grad;
  Tensor sum = inputs[0].detach().clone();
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
    if (input.dense_shape != inputs[0].dense_shape ||
        input.values.scalar_type() != inputs[0].values.scalar_type()) {
      throw InvalidArgument(cat("reduce: slices of ", dtype_name(inputs[0].values.scalar_type()),
                                " ", shape_text(inputs[0].dense_shape), " and ",
                                dtype_name(input.values.scalar_type()), " ",
                                shape_text(input.dense_shape),
                                ", expected one dense shape and dtype; reduce them one by one"));
    }
    values.push_back(input.values.detach().to(inputs[0].values.device()));
    indices.push_back(input.indices.to(inputs[0].indices.device()));
  }
  check_mean(op, values[0].scalar_type());
  at::NoGradGuard no_grad;
  IndexedSlices joined{at::cat(values), at::cat(indices), inputs[0].dense_shape};
  if (op == ReduceOp::kMean) joined.values.div_(static_cast<double>(inputs.size()));
  return joined;
}

}  // namespace tutti::collectives
