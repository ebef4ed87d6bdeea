#pragma once
// Where layers draw from.

#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::keras::layers {

/// The generators of one layer. Without a seed it is the replica's; with one, the layer has streams
/// of its own, whatever else draws, which follow step and replica as the strategy's do.
class RandomStreams {
 public:
  explicit RandomStreams(std::optional<int64_t> seed) : seed_(seed) {}
  /// When the layer is built, under its strategy.
  void prepare();
  /// This replica's; FailedPrecondition that names `layer` under a strategy that it was not built
  /// for.
  at::Generator& generator(const std::string& layer);

 private:
  struct alignas(64) Stream {
    at::Generator generator;
    int64_t step = -1;
    uint64_t seed_generation = 0;
  };
  at::Generator& own(int local, const std::string& layer);

  std::optional<int64_t> seed_;
  std::vector<std::unique_ptr<Stream>> own_;
};

}  // namespace tutti::keras::layers
