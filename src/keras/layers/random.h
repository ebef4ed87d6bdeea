#pragma once
// Where layers draw from.

#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "tutti/keras/layer.h"

namespace tutti::keras::layers {

/// What a layer draws from: the replica's generator, or with a seed of the layer's own streams that
/// follow step and replica as the strategy's do (tutti/base/seed.h).
class LayerRandom {
 public:
  explicit LayerRandom(std::optional<int64_t> seed) : seed_(seed) {}
  const std::optional<int64_t>& seed() const { return seed_; }
  /// From the layer's build, once for all replicas.
  void build();
  at::Generator& generator(const LayerImpl& layer);
  /// 1 / (1 - rate) with probability 1 - rate, else 0, in dtype and place of `like`.
  Tensor dropout_mask(const LayerImpl& layer, at::IntArrayRef sizes, double rate,
                      const Tensor& like);

 private:
  struct alignas(64) Stream {
    Mutex mutex;
    at::Generator generator TUTTI_GUARDED_BY(mutex);
    int64_t step TUTTI_GUARDED_BY(mutex) = -1;
    uint64_t seed_generation TUTTI_GUARDED_BY(mutex) = 0;
  };
  std::optional<int64_t> seed_;
  std::vector<std::unique_ptr<Stream>> own_;
};

}  // namespace tutti::keras::layers
