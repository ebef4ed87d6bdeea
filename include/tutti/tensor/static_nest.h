#pragma once
// Bridge between static nests (tuple, pair, vector, map<string, …> of tensors and strings, to any
// depth) and run-time Nests.

#include <concepts>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/tensor/nest.h"

namespace tutti {

/// NestTraits<T>::to_nest(value) and NestTraits<T>::from_nest(nest); specialised for every type
/// that may be a dataset element. from_nest throws InvalidArgument when the structure is another
/// one.
template <class T>
struct NestTraits;

namespace internal {
inline void expect_nest(const Nest& nest, NestKind kind, std::size_t size, const char* what) {
  if (nest.kind() != kind || (kind == NestKind::kTuple && nest.size() != size)) {
    throw InvalidArgument(cat("element: found the structure ", nest.structure(), ", expected ",
                              what, kind == NestKind::kTuple ? cat(" of ", size) : ""));
  }
}
}  // namespace internal

template <>
struct NestTraits<Nest> {
  static Nest to_nest(const Nest& nest) { return nest; }
  static Nest from_nest(const Nest& nest) { return nest; }
};

template <>
struct NestTraits<Tensor> {
  static Nest to_nest(const Tensor& tensor) { return Nest(tensor); }
  static Tensor from_nest(const Nest& nest) { return nest.leaf(); }
};

template <>
struct NestTraits<StringTensor> {
  static Nest to_nest(const StringTensor& strings) { return Nest(strings); }
  static StringTensor from_nest(const Nest& nest) { return nest.strings(); }
};

/// A scalar of strings.
template <>
struct NestTraits<std::string> {
  static Nest to_nest(const std::string& text) { return Nest(StringTensor(text)); }
  static std::string from_nest(const Nest& nest) { return nest.strings().item(); }
};

template <class... Items>
struct NestTraits<std::tuple<Items...>> {
  static Nest to_nest(const std::tuple<Items...>& value) {
    return std::apply(
        [](const Items&... items) {
          return Nest::tuple({NestTraits<std::decay_t<Items>>::to_nest(items)...});
        },
        value);
  }
  static std::tuple<Items...> from_nest(const Nest& nest) {
    internal::expect_nest(nest, NestKind::kTuple, sizeof...(Items), "a tuple");
    return unpack(nest, std::index_sequence_for<Items...>());
  }

 private:
  template <std::size_t... kIndex>
  static std::tuple<Items...> unpack(const Nest& nest, std::index_sequence<kIndex...>) {
    return std::tuple<Items...>(
        NestTraits<std::decay_t<Items>>::from_nest(nest.items()[kIndex])...);
  }
};

template <class First, class Second>
struct NestTraits<std::pair<First, Second>> {
  static Nest to_nest(const std::pair<First, Second>& value) {
    return Nest::tuple(
        {NestTraits<First>::to_nest(value.first), NestTraits<Second>::to_nest(value.second)});
  }
  static std::pair<First, Second> from_nest(const Nest& nest) {
    internal::expect_nest(nest, NestKind::kTuple, 2, "a tuple");
    return {NestTraits<First>::from_nest(nest.items()[0]),
            NestTraits<Second>::from_nest(nest.items()[1])};
  }
};

template <class Item>
struct NestTraits<std::vector<Item>> {
  static Nest to_nest(const std::vector<Item>& value) {
    std::vector<Nest> items;
    for (const Item& item : value) items.push_back(NestTraits<Item>::to_nest(item));
    return Nest::list(std::move(items));
  }
  static std::vector<Item> from_nest(const Nest& nest) {
    internal::expect_nest(nest, NestKind::kList, 0, "a list");
    std::vector<Item> value;
    for (const Nest& item : nest.items()) value.push_back(NestTraits<Item>::from_nest(item));
    return value;
  }
};

template <class Item>
struct NestTraits<std::map<std::string, Item>> {
  static Nest to_nest(const std::map<std::string, Item>& value) {
    std::map<std::string, Nest> entries;
    for (const auto& [key, item] : value) entries.emplace(key, NestTraits<Item>::to_nest(item));
    return Nest::map(std::move(entries));
  }
  static std::map<std::string, Item> from_nest(const Nest& nest) {
    internal::expect_nest(nest, NestKind::kMap, 0, "a map");
    std::map<std::string, Item> value;
    for (std::size_t i = 0; i < nest.size(); ++i)
      value.emplace(nest.keys()[i], NestTraits<Item>::from_nest(nest.items()[i]));
    return value;
  }
};

/// A type that may stand as an element of a dataset.
template <class T>
concept NestLike = requires(const std::decay_t<T>& value, const Nest& nest) {
  { NestTraits<std::decay_t<T>>::to_nest(value) } -> std::same_as<Nest>;
};

template <NestLike T>
Nest to_nest(const T& value) {
  return NestTraits<std::decay_t<T>>::to_nest(value);
}

template <NestLike T>
T from_nest(const Nest& nest) {
  return NestTraits<T>::from_nest(nest);
}

}  // namespace tutti
