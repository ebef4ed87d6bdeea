#include "tensor/cpu_memory.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "base/environment.h"

namespace tutti {
namespace {

/// LibTorch asks for aligned memory. The C library then takes a larger block and cuts pieces of
/// some bytes off both ends; while such a piece is in use elsewhere, the freed buffer is too small
/// for the next one of its size, and memory grows to about twice what a step needs. Here the whole
/// block belongs to the buffer; its address stands in front of the data.
class WholeBlockAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    void* const block = bytes < SIZE_MAX - kRoom ? std::malloc(bytes + kRoom) : nullptr;
    if (block == nullptr) {
      c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CPU tensor: no memory for ", bytes, " bytes");
    }
    const auto first = reinterpret_cast<std::uintptr_t>(block) + sizeof(void*);
    void* const data = reinterpret_cast<void*>((first + kAlignment - 1) / kAlignment * kAlignment);
    block_of(data) = block;
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &release, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kRoom = kAlignment + sizeof(void*);
  static void*& block_of(void* data) { return static_cast<void**>(data)[-1]; }
  static void release(void* data) {
    if (data == nullptr) return;
    c10::profiledCPUMemoryReporter().Delete(data);
    std::free(block_of(data));
  }
};

}  // namespace

void keep_freed_memory() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (environment("TUTTI_MALLOC").value_or("") == "system") return;
#if defined(__GLIBC__)
    mallopt(M_MMAP_THRESHOLD, 32 << 20);  // glibc's maximum
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 1 << 20);
#endif
    // An allocator that the program has set itself stays.
    if (c10::GetCPUAllocator() == c10::GetDefaultCPUAllocator())
      c10::SetCPUAllocator(new WholeBlockAllocator);
  });
}

}  // namespace tutti
