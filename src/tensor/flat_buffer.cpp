#include "tutti/tensor/flat_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = 2 << 20;

std::string list_text(const std::vector<int64_t>& numbers) {
  return cat("(", join(numbers, ", "), ")");
}

int64_t checked_numel(const std::vector<int64_t>& sizes) {
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; })) {
    throw InvalidArgument(cat("FlatBuffer: sizes ", list_text(sizes), ", expected none below 0"));
  }
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return 0;
  int64_t numel = 1;
  for (int64_t size : sizes) {
    if (__builtin_mul_overflow(numel, size, &numel)) {
      throw InvalidArgument(cat("FlatBuffer: sizes ", list_text(sizes),
                                ", expected a number of elements that fits in 63 bits"));
    }
  }
  return numel;
}

/// Dense: in order of rising stride each stride is the product of the sizes before it. The number
/// of elements must fit in 63 bits.
bool is_dense(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  if (sizes.size() != strides.size()) return false;
  if (std::any_of(strides.begin(), strides.end(), [](int64_t s) { return s < 0; })) return false;
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return true;
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  int64_t expected = 1;
  for (std::size_t dim : order) {
    if (sizes[dim] == 1) continue;
    if (strides[dim] != expected) return false;
    expected *= sizes[dim];
  }
  return true;
}

int64_t checked_bytes(int64_t numel, at::ScalarType dtype) {
  int64_t bytes = 0;
  // Room is left for rounding up to a huge page.
  if (__builtin_mul_overflow(numel, static_cast<int64_t>(c10::elementSize(dtype)), &bytes) ||
      bytes > std::numeric_limits<int64_t>::max() - kHugePage) {
    throw InvalidArgument(cat("FlatBuffer: ", numel, " elements of ", c10::toString(dtype),
                              ", expected a number of bytes that fits in 63 bits"));
  }
  return bytes;
}

at::Tensor aligned_zeros(int64_t numel, at::ScalarType dtype, c10::Device device) {
  const auto options = at::TensorOptions().dtype(dtype).device(device);
  const int64_t bytes = checked_bytes(numel, dtype);
  if (!device.is_cpu() || numel == 0) return at::zeros({numel}, options);
  const auto alignment = static_cast<std::size_t>(bytes >= kHugePage ? kHugePage : kAlignment);
  const std::size_t rounded =
      (static_cast<std::size_t>(bytes) + alignment - 1) / alignment * alignment;
  std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(alignment, rounded),
                                                     &std::free);
  if (memory == nullptr) {
    throw ResourceExhausted(cat("FlatBuffer: no memory for ", rounded,
                                " bytes, expected as much; use a smaller model or more memory"));
  }
  // Advice: a refusal costs nothing.
  if (bytes >= kHugePage) madvise(memory.get(), rounded, MADV_HUGEPAGE);
  std::memset(memory.get(), 0, rounded);
  at::Tensor flat = at::from_blob(
      memory.get(), {numel}, [](void* block) { std::free(block); }, options);
  memory.release();
  return flat;
}

}  // namespace

FlatBuffer::FlatBuffer(const std::vector<FlatViewSpec>& specs, at::ScalarType dtype,
                       c10::Device device) {
  const int64_t per_line =
      std::max<int64_t>(1, kAlignment / static_cast<int64_t>(c10::elementSize(dtype)));
  int64_t total = 0;
  for (const FlatViewSpec& spec : specs) {
    const int64_t numel = checked_numel(spec.sizes);
    if (!spec.strides.empty() && !is_dense(spec.sizes, spec.strides)) {
      throw InvalidArgument(cat("FlatBuffer: strides ", list_text(spec.strides), " for sizes ",
                                list_text(spec.sizes),
                                ", expected a layout without gaps or overlap"));
    }
    offsets_.push_back(total);
    int64_t end = 0;
    if (__builtin_add_overflow(total, numel, &end) ||
        end > std::numeric_limits<int64_t>::max() - per_line) {
      throw InvalidArgument(
          cat("FlatBuffer: ", specs.size(),
              " views, expected a number of elements together that fits in 63 bits"));
    }
    total = (end + per_line - 1) / per_line * per_line;
  }
  flat_ = aligned_zeros(total, dtype, device);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const at::Tensor part = flat_.narrow(0, offsets_[i], checked_numel(specs[i].sizes));
    views_.push_back(specs[i].strides.empty()
                         ? part.view(specs[i].sizes)
                         : flat_.as_strided(specs[i].sizes, specs[i].strides, offsets_[i]));
  }
}

at::Tensor zeros_like_dense(const at::Tensor& like) {
  std::vector<int64_t> strides = like.strides().vec();
  if (!is_dense(like.sizes().vec(), strides)) strides.clear();
  if (like.dim() == 0) strides.clear();
  return FlatBuffer({{like.sizes().vec(), strides}}, like.scalar_type(), like.device()).views()[0];
}

}  // namespace tutti
