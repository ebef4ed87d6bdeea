#pragma once
// Options of Dataset::snapshot, Dataset::save and load: how elements are spread over files.

#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "tutti/data/element_types.h"
#include "tutti/data/plans.h"

namespace tutti::data {

/// A function of an element (or of a tuple's items) that gives its shard: an integer, or one
/// integral Tensor, from 0 to 1023. Null: all elements are in one shard.
template <NestLike Element>
class ShardFunction {
 public:
  ShardFunction() = default;
  template <class Function>
  requires(!std::same_as<std::decay_t<Function>, ShardFunction>)
      ShardFunction(Function function)  // NOLINT: a function is one
      : of_nests_([function](const Nest& nest) mutable -> int64_t {
          return internal::one_integer(
              "shard_func", internal::call_with_element(function, from_nest<Element>(nest)));
        }) {}
  const NestToNumber& of_nests() const { return of_nests_; }

 private:
  NestToNumber of_nests_;
};

/// Makes the dataset of elements of a dataset of the shards' datasets, in the order of their
/// numbers. Null: one element of each shard by turns, those that have ended left out, so that
/// elements that were dealt out by a counter come in the order in which they were written.
template <NestLike Element>
using ReaderFunction = std::function<Dataset<Element>(Dataset<Dataset<Element>>)>;

template <NestLike Element>
struct SnapshotOptions {
  /// "", "GZIP" or "ZLIB"
  std::string compression = "";
  ReaderFunction<Element> reader_func = nullptr;
  ShardFunction<Element> shard_func = {};
};
template <NestLike Element>
struct SaveOptions {
  /// "", "GZIP" or "ZLIB"
  std::string compression = "";
  ShardFunction<Element> shard_func = {};
};
template <NestLike Element>
struct LoadOptions {
  ReaderFunction<Element> reader_func = nullptr;
};

namespace internal {
template <NestLike Element>
ShardReader reader_of_plans(const ReaderFunction<Element>& reader) {
  if (!reader) return nullptr;
  return [reader](const PlanPtr& shards) -> PlanPtr {
    return reader(Dataset<Dataset<Element>>(shards)).plan();
  };
}
}  // namespace internal

}  // namespace tutti::data
