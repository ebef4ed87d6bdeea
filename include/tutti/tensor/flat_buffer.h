#pragma once
// One contiguous, 64-byte aligned arena per dtype and device, cut into views.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tutti {

/// What one view needs: sizes, and strides of a dense (non-overlapping, gap-free) layout; empty
/// strides mean contiguous.
struct FlatViewSpec {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

/// A zero-filled arena with one view for each spec. Every view starts on a 64-byte boundary; the
/// gaps stay zero, so passes over the whole arena are harmless. Arenas of 2 MiB or more on CPU
/// start on a 2 MiB boundary and ask for huge pages.
class FlatBuffer {
 public:
  FlatBuffer() = default;
  /// Throws InvalidArgument for negative sizes, strides that are not dense, or a total that does
  /// not fit in 63 bits.
  FlatBuffer(const std::vector<FlatViewSpec>& specs, at::ScalarType dtype, c10::Device device);

  /// The whole arena, one-dimensional.
  const at::Tensor& flat() const { return flat_; }
  const std::vector<at::Tensor>& views() const { return views_; }
  /// First element of view `i` in flat().
  int64_t offset(std::size_t i) const { return offsets_[i]; }

 private:
  at::Tensor flat_;
  std::vector<at::Tensor> views_;
  std::vector<int64_t> offsets_;
};

/// Zeros with the same sizes and dense strides as `like`, storage 64-byte aligned.
at::Tensor zeros_like_dense(const at::Tensor& like);

}  // namespace tutti
