#pragma once
// The template behind Strategy::reduce of nests: every leaf.

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tutti/distribute/strategy.h"

namespace tutti::distribute {

template <class T>
auto Strategy::reduce_nest(AnyReduceOp op, const T& value) {
  if constexpr (!tutti::internal::kIsNest<T>) {
    return reduce(op, value);
  } else if constexpr (tutti::internal::kIsRunTimeNest<T>) {
    return value.map_leaves([&](const auto& leaf) { return reduce(op, leaf); });
  } else if constexpr (tutti::internal::kIsMap<T>) {
    std::map<std::string, decltype(reduce_nest(op, value.begin()->second))> reduced;
    for (const auto& [key, item] : value) reduced.emplace(key, reduce_nest(op, item));
    return reduced;
  } else if constexpr (tutti::internal::kIsVector<T>) {
    std::vector<decltype(reduce_nest(op, *value.begin()))> reduced;
    for (const auto& item : value) reduced.push_back(reduce_nest(op, item));
    return reduced;
  } else {
    return std::apply([&](const auto&... items) { return std::tuple(reduce_nest(op, items)...); },
                      value);
  }
}

}  // namespace tutti::distribute
