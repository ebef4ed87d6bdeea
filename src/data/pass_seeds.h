#pragma once
// Seeds of what is random in a pass.

#include <random>

#include "base/mutex.h"
#include "data/element_scope.h"
#include "data/iterator_state.h"
#include "tutti/base/seed.h"
#include "tutti/data/options.h"

namespace tutti::data {

/// Seeds of the passes over one dataset: a stream that belongs to the dataset, so that each pass
/// has another order and a seeded program has the same ones in each run. Thread-safe.
class PassSeeds {
 public:
  explicit PassSeeds(const ShuffleOptions& options)
      : PassSeeds(options, ElementScope::current() ? 0 : next_seed_offset()) {}
  /// Those of a user's function.
  static std::shared_ptr<PassSeeds> of_function() {
    const int64_t offset = ElementScope::current() ? 0 : kFunctions + next_function_offset();
    return std::shared_ptr<PassSeeds>(new PassSeeds(ShuffleOptions{}, offset));
  }
  uint64_t next() {
    MutexLock lock(mutex_);
    if (!stream_ || generation_ != seed_generation()) {
      generation_ = seed_generation();
      stream_.emplace(first_seed());
      fixed_ = stream_->next();
    }
    return options_.reshuffle_each_iteration ? stream_->next() : fixed_;
  }

  Nest save() const {
    MutexLock lock(mutex_);
    return Nest::map({{"stream", stream_ ? state::random_bits(*stream_) : Nest()},
                      {"fixed", state::number(static_cast<int64_t>(fixed_))}});
  }
  void restore(const Nest& state) {
    MutexLock lock(mutex_);
    stream_.reset();
    if (state::part(state, "stream").kind() == NestKind::kNone) return;
    stream_.emplace(0);
    state::set_random_bits(state, "stream", *stream_);
    fixed_ = static_cast<uint64_t>(state::number_in(state, "fixed"));
    generation_ = seed_generation();
  }

 private:
  static constexpr int64_t kFunctions = int64_t{1} << 40;  // apart from the other offsets

  PassSeeds(const ShuffleOptions& options, int64_t offset) : options_(options), offset_(offset) {
    // A dataset that is made for an element has its seeds from there, whichever thread makes it.
    if (ElementScope* scope = ElementScope::current()) of_element_ = scope->next_seed();
  }
  uint64_t first_seed() const {
    constexpr uint64_t kDefaultGlobalSeed = 87654321;
    const auto global = global_seed();
    if (options_.seed)
      return mix_seeds(global ? static_cast<uint64_t>(*global) : kDefaultGlobalSeed,
                       static_cast<uint64_t>(*options_.seed));
    if (of_element_) return *of_element_;
    if (global) return mix_seeds(static_cast<uint64_t>(*global), static_cast<uint64_t>(offset_));
    std::random_device device;
    return mix_seeds(device(), device());
  }
  ShuffleOptions options_;
  int64_t offset_;
  std::optional<uint64_t> of_element_;
  mutable Mutex mutex_;
  std::optional<RandomBits> stream_ TUTTI_GUARDED_BY(mutex_);
  uint64_t generation_ TUTTI_GUARDED_BY(mutex_) = 0;
  uint64_t fixed_ TUTTI_GUARDED_BY(mutex_) = 0;
};

}  // namespace tutti::data
