#pragma once
// Which type the elements of a dataset have after a transformation.

#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/tensor/static_nest.h"

namespace tutti::data {
template <NestLike Element>
class Dataset;

namespace internal {

/// `Of<T>` for each component of a nest; `Of` is asked with what is no nest.
template <template <class> class Of, class T>
struct EachComponent {
  using Type = typename Of<T>::Type;
};
template <template <class> class Of, class... Items>
struct EachComponent<Of, std::tuple<Items...>> {
  using Type = std::tuple<typename EachComponent<Of, Items>::Type...>;
};
template <template <class> class Of, class First, class Second>
struct EachComponent<Of, std::pair<First, Second>> {
  using Type =
      std::pair<typename EachComponent<Of, First>::Type, typename EachComponent<Of, Second>::Type>;
};
template <template <class> class Of, class Item>
struct EachComponent<Of, std::vector<Item>> {
  using Type = std::vector<typename EachComponent<Of, Item>::Type>;
};
template <template <class> class Of, class Item>
struct EachComponent<Of, std::map<std::string, Item>> {
  using Type = std::map<std::string, typename EachComponent<Of, Item>::Type>;
};

template <class T>
struct BatchedComponent {
  using Type = T;
};
template <>
struct BatchedComponent<std::string> {
  using Type = StringTensor;
};
template <class T>
struct RaggedComponent {
  using Type = std::vector<T>;
};
template <>
struct RaggedComponent<Nest> {
  using Type = Nest;
};
template <class T>
struct WindowComponent {
  using Type = Dataset<T>;
};
template <>
struct WindowComponent<Nest> {
  using Type = Nest;
};

/// Several elements as one: a string becomes a StringTensor, all else keeps its type.
template <class Element>
using Batched = typename EachComponent<BatchedComponent, Element>::Type;
/// Several as a list.
template <class Element>
using Ragged = typename EachComponent<RaggedComponent, Element>::Type;
/// Several as a dataset.
template <class Element>
using Windowed = typename EachComponent<WindowComponent, Element>::Type;

/// What slices of an argument of from_tensor_slices are, and the nest to slice: a list of strings
/// is a StringTensor.
template <class T>
struct Sliced {
  using Type = T;
  static Nest nest(const T& columns) { return to_nest(columns); }
};
template <>
struct Sliced<std::vector<std::string>> {
  using Type = std::string;
  static Nest nest(const std::vector<std::string>& strings) { return Nest(StringTensor(strings)); }
};
template <class... Items>
struct Sliced<std::tuple<Items...>> {
  using Type = std::tuple<typename Sliced<Items>::Type...>;
  static Nest nest(const std::tuple<Items...>& columns) {
    return std::apply(
        [](const Items&... items) { return Nest::tuple({Sliced<Items>::nest(items)...}); },
        columns);
  }
};
template <class First, class Second>
struct Sliced<std::pair<First, Second>> {
  using Type = std::pair<typename Sliced<First>::Type, typename Sliced<Second>::Type>;
  static Nest nest(const std::pair<First, Second>& columns) {
    return Nest::tuple({Sliced<First>::nest(columns.first), Sliced<Second>::nest(columns.second)});
  }
};
template <class Item>
struct Sliced<std::map<std::string, Item>> {
  using Type = std::map<std::string, typename Sliced<Item>::Type>;
  static Nest nest(const std::map<std::string, Item>& columns) {
    std::map<std::string, Nest> entries;
    for (const auto& [key, item] : columns) entries.emplace(key, Sliced<Item>::nest(item));
    return Nest::map(std::move(entries));
  }
};

/// One argument is the element, several are a tuple.
template <class... Items>
struct ElementOf {
  using Type = std::tuple<std::decay_t<Items>...>;
};
template <class Item>
struct ElementOf<Item> {
  using Type = std::decay_t<Item>;
};

/// `function(first..., element)`, or with a tuple's items as its arguments when it does not take
/// the tuple.
template <class Function, class Element, class... First>
decltype(auto) call_with_element(Function& function, Element element, First... first) {
  if constexpr (std::is_invocable_v<Function&, First..., Element>) {
    return function(std::move(first)..., std::move(element));
  } else {
    return std::apply(
        [&](auto&&... items) -> decltype(auto) {
          return function(std::move(first)..., std::move(items)...);
        },
        std::move(element));
  }
}

/// A bool, or a Tensor of one; InvalidArgument otherwise.
bool one_bool(const char* operation, const Tensor& verdict);
inline bool one_bool(const char* /*operation*/, bool verdict) { return verdict; }
/// An integer, or a Tensor of one; InvalidArgument otherwise.
int64_t one_integer(const char* operation, const Tensor& number);
inline int64_t one_integer(const char* /*operation*/, int64_t number) { return number; }

}  // namespace internal
}  // namespace tutti::data
