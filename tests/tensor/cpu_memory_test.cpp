#include "tensor/cpu_memory.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <cstdint>
#include <vector>

#include "support/expect.h"
#include "tutti/tensor/tensor.h"

namespace tutti {
namespace {

class CpuMemory : public ::testing::Test {
 protected:
  CpuMemory() { keep_freed_memory(); }
};

TEST_F(CpuMemory, TensorsOfEverySizeAreAligned) {
  for (int64_t bytes : {1, 8, 63, 64, 1000, 5537792, 40 << 20}) {
    const Tensor tensor = at::zeros({bytes}, at::kByte);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64, 0u) << bytes;
  }
  EXPECT_EQ(at::empty({0}).data_ptr(), nullptr);
}

TEST_F(CpuMemory, AFreedBufferFitsTheNextOneOfItsSize) {
  std::vector<Tensor> small;  // what would take the pieces that are cut off a buffer
  std::size_t before = 0;
  for (int step = 0; step < 100; ++step) {
    const Tensor a = at::zeros({1384448});
    const Tensor b = at::zeros({1384448});
    for (int i = 0; i < 20; ++i) small.push_back(at::zeros({1 + i % 4}));
    if (step == 0) before = mallinfo2().arena;
  }
  EXPECT_LT(mallinfo2().arena, before + (8 << 20)) << "two buffers of 5.5 MB, again and again";
}

TEST_F(CpuMemory, GivesRawMemoryAsOneDnnTakesIt) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  for (std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{1} << 20}) {
    void* data = allocator->raw_allocate(bytes);
    EXPECT_EQ(data != nullptr, bytes > 0);
    allocator->raw_deallocate(data);
  }
}

TEST_F(CpuMemory, ATensorCanGrowInPlace) {
  Tensor tensor = at::arange(10);
  tensor.resize_({100000});
  EXPECT_TENSOR_EQ(tensor.narrow(0, 0, 10), at::arange(10));
}

#if !defined(TUTTI_SANITIZED)  // there malloc itself ends the process
TEST_F(CpuMemory, TooLargeATensorIsAnErrorThatSaysHowLarge) {
  const int64_t bytes = int64_t{1} << 55;
  try {
    at::empty({bytes}, at::kByte);
    FAIL() << "an exception is missing";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(bytes)), std::string::npos);
  }
}
#endif

}  // namespace
}  // namespace tutti
