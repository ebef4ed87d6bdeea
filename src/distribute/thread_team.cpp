#include "distribute/thread_team.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <sched.h>

#include <cstring>
#include <thread>

#include "collectives/group.h"
#include "distribute/worker_group.h"

namespace tutti::distribute {
namespace {

using SetThreads = void (*)(int);
using GetThreads = int (*)();
using SetLocalThreads = int (*)(int);

/// Looked up in the global scope, where libtorch_cpu's own references were resolved: the same
/// library, whichever it is. Linking OpenMP here could bind a second copy.
struct ThreadLibraries {
  SetThreads openmp_set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  GetThreads openmp_get = reinterpret_cast<GetThreads>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  SetLocalThreads blas_set =
      reinterpret_cast<SetLocalThreads>(dlsym(RTLD_DEFAULT, "MKL_Set_Num_Threads_Local"));
};

int count_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    const int count = CPU_COUNT(&set);
    if (count > 0) return count;
  }
  const unsigned cores = std::thread::hardware_concurrency();
  return cores == 0 ? 1 : static_cast<int>(cores);
}

const ThreadLibraries& libraries() {
  static const ThreadLibraries kFound;
  return kFound;
}

}  // namespace

int available_cores() {
  static const int kCount = count_cores();
  return kCount;
}

std::vector<int64_t> described_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) std::memset(&set, 0xff, sizeof(set));
  std::vector<int64_t> numbers(1 + sizeof(set) / sizeof(int64_t));
  numbers[0] = hash_of(collectives::host_identity());
  std::memcpy(numbers.data() + 1, &set, sizeof(set));
  return numbers;
}

bool share_cores(const std::vector<int64_t>& one, const std::vector<int64_t>& other) {
  if (one[0] != other[0]) return false;
  for (std::size_t i = 1; i < one.size(); ++i) {
    if ((one[i] & other[i]) != 0) return true;
  }
  return false;
}

ThreadTeam::ThreadTeam(int threads) {
  // ATen sets a thread's number at its first parallel operator; let that happen before ours.
  at::internal::lazy_init_num_threads();
  const ThreadLibraries& found = libraries();
  if (found.openmp_set != nullptr && found.openmp_get != nullptr) {
    openmp_before_ = found.openmp_get();
    found.openmp_set(threads);
  }
  if (found.blas_set != nullptr) blas_before_ = found.blas_set(threads);
#if defined(__x86_64__)
  constexpr unsigned kFlushToZero = 0x8000 | 0x0040;  // results, and operands
  float_mode_before_ = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(float_mode_before_ | kFlushToZero);
#endif
}

ThreadTeam::~ThreadTeam() {
  const ThreadLibraries& found = libraries();
  if (openmp_before_ > 0) found.openmp_set(openmp_before_);
  if (found.blas_set != nullptr) found.blas_set(blas_before_);
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(float_mode_before_);
#endif
}

}  // namespace tutti::distribute
