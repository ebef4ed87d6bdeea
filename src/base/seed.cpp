#include "tutti/base/seed.h"

#include <atomic>
#include <random>

#include "base/mutex.h"

namespace tutti {
namespace {

Mutex g_mutex;
std::optional<int64_t> g_seed TUTTI_GUARDED_BY(g_mutex);
std::atomic<uint64_t> g_generation{1};
std::atomic<int64_t> g_offset{0};
std::atomic<int64_t> g_function_offset{0};

uint64_t splitmix(uint64_t& state) {
  uint64_t x = (state += 0x9e3779b97f4a7c15ULL);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

}  // namespace

std::optional<int64_t> global_seed() {
  MutexLock lock(g_mutex);
  return g_seed;
}

uint64_t stream_base() {
  static const uint64_t kDrawn = [] {
    std::random_device device;
    return static_cast<uint64_t>(device()) << 32 | device();
  }();
  const auto seed = global_seed();
  return seed ? static_cast<uint64_t>(*seed) : kDrawn;
}

uint64_t stream_seed(uint64_t base, int64_t step, int64_t replica) {
  const uint64_t of_step = mix_seeds(base, static_cast<uint64_t>(step));
  const auto number = static_cast<uint64_t>(replica);
  // An odd factor: no two replicas below 2^32 meet in the low half.
  const uint64_t low = (of_step + number * 0x9e3779b9ULL) & 0xffffffffULL;
  return (mix_seeds(of_step, number) & ~0xffffffffULL) | low;
}

uint64_t seed_generation() { return g_generation.load(std::memory_order_acquire); }

int64_t next_seed_offset() { return g_offset.fetch_add(1, std::memory_order_relaxed); }

int64_t next_function_offset() { return g_function_offset.fetch_add(1, std::memory_order_relaxed); }

void internal::set_global_seed(int64_t seed) {
  {
    MutexLock lock(g_mutex);
    g_seed = seed;
  }
  g_offset.store(0, std::memory_order_relaxed);
  g_function_offset.store(0, std::memory_order_relaxed);
  g_generation.fetch_add(1, std::memory_order_acq_rel);
}

RandomBits::RandomBits(uint64_t seed) {
  for (uint64_t& word : state_) word = splitmix(seed);
}

uint64_t RandomBits::next() {
  const uint64_t result = rotate(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = rotate(state_[3], 45);
  return result;
}

uint64_t RandomBits::below(uint64_t bound) {
  // Numbers below `reject` would make the low results more frequent.
  const uint64_t reject = (0 - bound) % bound;
  for (;;) {
    const uint64_t bits = next();
    if (bits >= reject) return bits % bound;
  }
}

uint64_t mix_seeds(uint64_t a, uint64_t b) {
  uint64_t state = a;
  const uint64_t first = splitmix(state);
  state = first ^ (b + 0x632be59bd9b4e019ULL);
  return splitmix(state);
}

}  // namespace tutti
