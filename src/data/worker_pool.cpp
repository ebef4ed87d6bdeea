#include "data/worker_pool.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include "tensor/cpu_memory.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/plan.h"

namespace tutti::data {

// The library is looked up where LibTorch's own references went; linking OpenMP here could bind a
// second copy.
void on_cores(int cores, const std::function<void()>& work) {
  using SetThreads = void (*)(int);
  at::internal::lazy_init_num_threads();
  if (auto* set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads")))
    set(cores);
  // MKL asks MKL_NUM_THREADS before OpenMP, and would start a team of its own for each call.
  if (auto* set = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "MKL_Set_Num_Threads_Local")))
    set(cores);
  work();
}

void check_parallel_calls(const char* operation, int64_t num_parallel_calls) {
  constexpr int64_t kMost = 1024;
  if (num_parallel_calls == kAutotune) return;
  if (num_parallel_calls < 1 || num_parallel_calls > kMost) {
    throw InvalidArgument(cat(operation, ": num_parallel_calls ", num_parallel_calls,
                              ", expected kAutotune (-1) or 1 to ", kMost));
  }
}

WorkerPool::WorkerPool(int threads, int cores) {
  keep_freed_memory();  // what a call frees, the next one takes
  for (int i = 0; i < threads; ++i)
    threads_.emplace_back([this, cores] { on_cores(cores, [this] { work(); }); });
}

WorkerPool::~WorkerPool() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::submit(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void WorkerPool::work() {
  for (;;) {
    std::unique_lock<Mutex> lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (stop_) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
  }
}

}  // namespace tutti::data
