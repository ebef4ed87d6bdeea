#pragma once
// The process-wide seed, and random numbers that are the same on every platform.
//
// What a replica draws is a function of (seed, step, replica) and of nothing else: not of what was
// drawn in other steps, nor of which thread came first. Within a step the draws of a replica follow
// each other. The step is the number of the strategy's `run` since set_seed, from 0, unless
// Strategy::set_random_step says otherwise: Model's training sets it to the optimizer's
// gradient_steps(), which are saved and loaded, so that a training that goes on at step k draws
// what one without interruption draws there. A loop of one's own that goes on calls
// set_random_step(k).
//
// Initial weights are drawn once for all replicas, from a stream of their own.

#include <array>
#include <cstdint>
#include <optional>

namespace tutti {

/// The seed of the last set_seed, or nothing: then everything random differs from run to run.
std::optional<int64_t> global_seed();
/// Grows with each set_seed: whoever derived random streams from the old one makes them anew.
uint64_t seed_generation();
/// The seed of the last set_seed; when there was none, a number drawn once a process.
uint64_t stream_base();
/// The seed of one replica's stream in one step. Its low 32 bits, all that LibTorch's CPU generator
/// looks at, differ for the replicas of a step.
uint64_t stream_seed(uint64_t base, int64_t step, int64_t replica);
/// A number that differs for each caller since the last set_seed: the second half of a seed when
/// only the global one was given.
int64_t next_seed_offset();
/// The same for functions of datasets, which have numbers of their own.
int64_t next_function_offset();

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
  /// Where it stands; numbers go on from there after set_state.
  const std::array<uint64_t, 4>& state() const { return state_; }
  void set_state(const std::array<uint64_t, 4>& state) { state_ = state; }

 private:
  std::array<uint64_t, 4> state_;
};

/// One 64-bit seed of two.
uint64_t mix_seeds(uint64_t a, uint64_t b);

}  // namespace tutti
