#pragma once
// One call of a user's function for an element, and what is random in it.

#include <ATen/core/Generator.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tutti/tensor/nest.h"

namespace tutti::data {

class PassSeeds;

/// Which call it is: of the pass with this seed, for the element with this number.
struct ElementCall {
  uint64_t seed = 0;
  int64_t index = 0;
};

/// While it lives, this thread makes the call. A generator costs nothing before it is asked for.
class ElementScope {
 public:
  explicit ElementScope(const ElementCall& call);
  ~ElementScope();
  ElementScope(const ElementScope&) = delete;
  ElementScope& operator=(const ElementScope&) = delete;
  /// Of this thread; null outside of calls.
  static ElementScope* current();

  /// The call's. With a seed another one, which goes by the seed and the element's number: of a
  /// layer with a seed of its own.
  at::Generator& generator(std::optional<int64_t> seed = std::nullopt);
  /// Differs for each caller in the call: for datasets that are made in it.
  uint64_t next_seed();

 private:
  struct Stream {
    std::optional<int64_t> seed;
    at::Generator generator;
  };
  ElementCall call_;
  ElementScope* outer_;
  uint64_t made_ = 0;
  std::list<Stream> streams_;  // references stay
};

/// The calls of one function in one pass.
class CallSeeds {
 public:
  /// Of a preview.
  CallSeeds() = default;
  explicit CallSeeds(PassSeeds& seeds);
  ElementCall next() { return {seed_, index_++}; }
  Nest save() const;
  void restore(const Nest& state);

 private:
  uint64_t seed_ = 0;
  int64_t index_ = 0;
};

}  // namespace tutti::data
