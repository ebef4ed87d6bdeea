#pragma once
// The process-wide seed, and random numbers that are the same on every platform.

#include <cstdint>
#include <optional>

namespace tutti {

/// The seed of the last set_seed, or nothing: then everything random differs from run to run.
std::optional<int64_t> global_seed();
/// Grows with each set_seed: whoever derived random streams from the old one makes them anew.
uint64_t seed_generation();
/// A number that differs for each caller since the last set_seed: the second half of a seed when
/// only the global one was given.
int64_t next_seed_offset();

namespace internal {
void set_global_seed(int64_t seed);
}

/// xoshiro256**, seeded by splitmix64.
class RandomBits {
 public:
  explicit RandomBits(uint64_t seed);
  uint64_t next();
  /// Uniform in [0, bound), without bias; bound ≥ 1.
  uint64_t below(uint64_t bound);
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_[4];
};

/// One 64-bit seed of two.
uint64_t mix_seeds(uint64_t a, uint64_t b);

}  // namespace tutti
