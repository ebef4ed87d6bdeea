#include "collectives/shm/shm_arena.h"

#include <algorithm>
#include <map>

#include "base/mutex.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::collectives {

namespace {

constexpr int64_t kAlignment = 64;

/// First fit over a map of the free pieces. Tensors hold it, so it lives as long as they do.
class ShmArena : public SharedArena, public std::enable_shared_from_this<ShmArena> {
 public:
  ShmArena(std::shared_ptr<Segment> segment, std::byte* data, int64_t bytes)
      : segment_(std::move(segment)), data_(data), bytes_(bytes) {
    if (bytes > 0) free_[0] = bytes;
  }

  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) override {
    int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
    for (const int64_t size : sizes) bytes *= size;
    bytes = std::max<int64_t>((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
    const int64_t offset = take(bytes);
    const auto give_back = [self = shared_from_this(), offset, bytes](void*) {
      self->give_back(offset, bytes);
    };
    return at::from_blob(data_ + offset, sizes, give_back, at::TensorOptions().dtype(dtype));
  }

  bool contains(const at::Tensor& tensor) const override { return offset_of(tensor) >= 0; }

  int64_t offset_of(const at::Tensor& tensor) const {
    if (!tensor.is_cpu() || tensor.numel() == 0) return -1;
    const auto* at = static_cast<const std::byte*>(tensor.const_data_ptr());
    return at >= data_ && at < data_ + bytes_ ? at - data_ : -1;
  }

 private:
  int64_t take(int64_t bytes) {
    MutexLock lock(mutex_);
    for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
      const auto [offset, length] = *piece;
      if (length < bytes) continue;
      free_.erase(piece);
      if (length > bytes) free_[offset + bytes] = length - bytes;
      return offset;
    }
    int64_t left = 0;
    for (const auto& [offset, length] : free_) left += length;
    throw ResourceExhausted(cat("SharedArena::empty: ", bytes, " bytes, ", left, " of ", bytes_,
                                " are free, expected enough in one piece; raise "
                                "GroupOptions::arena_bytes on every rank"));
  }

  void give_back(int64_t offset, int64_t bytes) {
    MutexLock lock(mutex_);
    auto next = free_.upper_bound(offset);
    if (next != free_.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        before->second += bytes;
        return;
      }
    }
    free_[offset] = bytes;
  }

  std::shared_ptr<Segment> segment_;
  std::byte* data_;
  int64_t bytes_;
  Mutex mutex_;
  std::map<int64_t, int64_t> free_ TUTTI_GUARDED_BY(mutex_);  // offset to length
};

}  // namespace

std::shared_ptr<SharedArena> make_arena(std::shared_ptr<Segment> segment, std::byte* data,
                                        int64_t bytes) {
  return std::make_shared<ShmArena>(std::move(segment), data, bytes);
}

int64_t offset_in(const SharedArena& arena, const at::Tensor& tensor) {
  return static_cast<const ShmArena&>(arena).offset_of(tensor);
}

}  // namespace tutti::collectives
