#pragma once
// How waiting ranks spin before they sleep.

#include <sched.h>

#include <chrono>
#include <thread>

namespace tutti::collectives {

inline constexpr std::chrono::microseconds kSpinTime{70};
inline constexpr int kSpinsBetweenChecks = 32;  // reading the clock costs as much as a pause

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// The cores that this process may use.
inline int num_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace tutti::collectives
