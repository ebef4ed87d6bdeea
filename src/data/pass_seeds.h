#pragma once
// Seeds of what is random in a pass.

#include <random>

#include "base/mutex.h"
#include "tutti/base/seed.h"
#include "tutti/data/options.h"

namespace tutti::data {

/// Seeds of the passes over one dataset: a stream that belongs to the dataset, so that each pass
/// has another order and a seeded program has the same ones in each run.
class PassSeeds {
 public:
  explicit PassSeeds(const ShuffleOptions& options)
      : options_(options), offset_(next_seed_offset()) {}
  uint64_t next() {
    MutexLock lock(mutex_);
    if (!stream_ || generation_ != seed_generation()) {
      generation_ = seed_generation();
      stream_.emplace(first_seed());
      fixed_ = stream_->next();
    }
    return options_.reshuffle_each_iteration ? stream_->next() : fixed_;
  }

 private:
  uint64_t first_seed() const {
    constexpr uint64_t kDefaultGlobalSeed = 87654321;
    const auto global = global_seed();
    if (options_.seed)
      return mix_seeds(global ? static_cast<uint64_t>(*global) : kDefaultGlobalSeed,
                       static_cast<uint64_t>(*options_.seed));
    if (global) return mix_seeds(static_cast<uint64_t>(*global), static_cast<uint64_t>(offset_));
    std::random_device device;
    return mix_seeds(device(), device());
  }
  ShuffleOptions options_;
  int64_t offset_;
  Mutex mutex_;
  std::optional<RandomBits> stream_;
  uint64_t generation_ = 0;
  uint64_t fixed_ = 0;
};

}  // namespace tutti::data
