#pragma once
// How many threads LibTorch's operators may use on this thread, without changing what other threads
// of the program see.

#include <cstdint>
#include <vector>

namespace tutti::distribute {

/// Cores that this process may run on.
int available_cores();
/// This host and the cores, as numbers that processes can compare: see share_cores().
std::vector<int64_t> described_cores();
/// Whether two processes described themselves as on one host and with some core in common.
bool share_cores(const std::vector<int64_t>& one, const std::vector<int64_t>& other);

/// Sets this thread's intra-op team until it dies: OpenMP's and the BLAS library's per-thread
/// numbers, not at::set_num_threads, which also changes the default of every thread that asks
/// later. Meanwhile numbers too small for full precision count as zero, as in TensorFlow: late in
/// training they would make some operators several times slower.
class ThreadTeam {
 public:
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

 private:
  int openmp_before_ = 0;
  int blas_before_ = 0;
  unsigned float_mode_before_ = 0;
};

}  // namespace tutti::distribute
