#pragma once
// Nests known at run time: tuples, lists and maps of leaves, to any depth (what TensorFlow calls
// structures).

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/string_tensor.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

enum class NestKind { kNone, kLeaf, kTuple, kList, kMap, kStrings, kObject };

/// What else may stand in a nest: a dataset, or, in a nest of specs, what is known of one.
class NestObject {
 public:
  virtual ~NestObject() = default;
  /// What stands for it in the text of a nest.
  virtual std::string nest_text() const = 0;
  /// What stands in its place in the nest's spec.
  virtual std::shared_ptr<const NestObject> nest_spec() const = 0;
};
using NestObjectPtr = std::shared_ptr<const NestObject>;

/// What strings are in a nest of these leaves: a StringTensor, or what the leaf says (one for each
/// replica, in a nest of distributed values).
template <class Leaf>
struct NestStrings {
  using Type = StringTensor;
};
template <class Leaf>
requires requires { typename Leaf::OfStrings; }
struct NestStrings<Leaf> {
  using Type = typename Leaf::OfStrings;
};

/// A value type: copying copies the structure and the leaves (a Tensor leaf shares its storage).
/// Maps are ordered by key, as TensorFlow flattens them. Strings stand in it as a StringTensor, a
/// component that is no leaf: what visits leaves passes it by, what maps them keeps it as it is.
/// So does an object.
template <class Leaf>
class NestOf {
 public:
  using Strings = typename NestStrings<Leaf>::Type;
  NestOf() = default;  // NOLINT: the empty nest, Python's None
  NestOf(Leaf leaf)
      : value_(std::in_place_index<1>, std::move(leaf)) {}  // NOLINT: a leaf is a nest
  NestOf(Strings strings)
      : value_(std::in_place_index<3>, std::move(strings)) {}  // NOLINT: so are strings
  /// `object` is not null.
  NestOf(NestObjectPtr object)
      : value_(std::in_place_index<4>, std::move(object)) {}  // NOLINT: and objects
  static NestOf tuple(std::vector<NestOf> items) {
    return NestOf(NestKind::kTuple, {}, std::move(items));
  }
  static NestOf list(std::vector<NestOf> items) {
    return NestOf(NestKind::kList, {}, std::move(items));
  }
  static NestOf map(std::map<std::string, NestOf> entries) {
    std::vector<std::string> keys;
    std::vector<NestOf> items;
    for (auto& [key, item] : entries) {
      keys.push_back(key);
      items.push_back(std::move(item));
    }
    return NestOf(NestKind::kMap, std::move(keys), std::move(items));
  }

  NestKind kind() const {
    if (value_.index() == 0) return NestKind::kNone;
    if (value_.index() == 1) return NestKind::kLeaf;
    if (value_.index() == 3) return NestKind::kStrings;
    if (value_.index() == 4) return NestKind::kObject;
    return std::get<2>(value_).kind;
  }
  bool is_leaf() const { return value_.index() == 1; }

  /// The leaf itself. Throws InvalidArgument when this is none.
  const Leaf& leaf() const {
    if (!is_leaf())
      throw InvalidArgument(cat("nest: found ", structure(), ", expected a single leaf"));
    return std::get<1>(value_);
  }
  Leaf& leaf() { return const_cast<Leaf&>(std::as_const(*this).leaf()); }

  bool is_strings() const { return value_.index() == 3; }
  /// The strings themselves. Throws InvalidArgument when this is something else.
  const Strings& strings() const {
    if (!is_strings())
      throw InvalidArgument(cat("nest: found ", structure(), ", expected strings"));
    return std::get<3>(value_);
  }
  /// The object itself. Throws InvalidArgument when this is something else.
  const NestObjectPtr& object() const {
    if (kind() != NestKind::kObject)
      throw InvalidArgument(cat("nest: found ", structure(), ", expected a dataset"));
    return std::get<4>(value_);
  }

  /// Children of a tuple, list or map (a map's in the order of keys()); empty for anything else.
  const std::vector<NestOf>& items() const {
    static const std::vector<NestOf> kEmpty;
    return value_.index() == 2 ? std::get<2>(value_).items : kEmpty;
  }
  std::vector<NestOf>& items() {
    return const_cast<std::vector<NestOf>&>(std::as_const(*this).items());
  }
  const std::vector<std::string>& keys() const {
    static const std::vector<std::string> kEmpty;
    return value_.index() == 2 ? std::get<2>(value_).keys : kEmpty;
  }
  std::size_t size() const { return items().size(); }

  /// Child `index`, or the child of `key`. Throws OutOfRange or NotFound.
  const NestOf& operator[](std::size_t index) const {
    if (index >= size())
      throw OutOfRange(
          cat("nest: index ", index, ", expected below ", size(), " in ", structure()));
    return items()[index];
  }
  const NestOf& operator[](const std::string& key) const {
    for (std::size_t i = 0; i < keys().size(); ++i) {
      if (keys()[i] == key) return items()[i];
    }
    throw NotFound(cat("nest: key \"", key, "\", expected one of ", join(keys(), ", ")));
  }

  /// The structure with `*` for each leaf, `strings` for strings and the text of an object:
  /// `(*, {a: *})`.
  std::string structure() const {
    switch (kind()) {
      case NestKind::kNone:
        return "None";
      case NestKind::kLeaf:
        return "*";
      case NestKind::kStrings:
        return "strings";
      case NestKind::kObject:
        return std::get<4>(value_)->nest_text();
      case NestKind::kTuple:
        return cat("(", join_items(), size() == 1 ? ",)" : ")");
      case NestKind::kList:
        return cat("[", join_items(), "]");
      case NestKind::kMap:
        return cat("{", join_items(), "}");
    }
    return "";
  }

  /// Leaves in order, depth first.
  template <class Visitor>
  void for_each(Visitor&& visit) const {
    if (is_leaf()) return visit(std::get<1>(value_));
    for (const NestOf& item : items()) item.for_each(visit);
  }

  /// Leaves and strings in order, depth first.
  template <class OnLeaf, class OnStrings>
  void for_each(OnLeaf&& on_leaf, OnStrings&& on_strings) const {
    if (is_leaf()) return on_leaf(std::get<1>(value_));
    if (is_strings()) return on_strings(std::get<3>(value_));
    for (const NestOf& item : items()) item.for_each(on_leaf, on_strings);
  }

  /// The same structure with every leaf replaced by `function(leaf)`. InvalidArgument when there
  /// are strings that cannot stand beside the new leaves.
  template <class Function>
  auto map_leaves(Function&& function) const
      -> NestOf<std::decay_t<std::invoke_result_t<Function&, const Leaf&>>> {
    using Result = NestOf<std::decay_t<std::invoke_result_t<Function&, const Leaf&>>>;
    return map_components(function, [](const Strings& strings) -> typename Result::Strings {
      if constexpr (std::is_same_v<typename Result::Strings, Strings>) {
        return strings;
      } else {
        throw InvalidArgument("nest: strings, expected tensors only; take the strings out of it");
      }
    });
  }

  /// The same with strings replaced by `on_strings(strings)`, strings or a nest.
  template <class OnLeaf, class OnStrings>
  auto map_components(OnLeaf&& on_leaf, OnStrings&& on_strings) const
      -> NestOf<std::decay_t<std::invoke_result_t<OnLeaf&, const Leaf&>>> {
    using Result = NestOf<std::decay_t<std::invoke_result_t<OnLeaf&, const Leaf&>>>;
    return map_parts<Result>([&](const NestOf& part) {
      if (part.is_leaf()) return Result(on_leaf(std::get<1>(part.value_)));
      if (part.is_strings()) return Result(on_strings(std::get<3>(part.value_)));
      return part.kind() == NestKind::kNone ? Result() : Result(std::get<4>(part.value_));
    });
  }

  /// The same tuples, lists and maps with every other part (a leaf, strings, an object, None)
  /// replaced by the nest `function(part)`.
  template <class Result, class Function>
  Result map_parts(Function&& function) const {
    if (value_.index() != 2) return function(*this);
    std::vector<Result> mapped;
    mapped.reserve(size());
    for (const NestOf& item : items()) mapped.push_back(item.template map_parts<Result>(function));
    return Result(kind(), keys(), std::move(mapped));
  }

  NestOf(NestKind kind, std::vector<std::string> keys, std::vector<NestOf> items)
      : value_(std::in_place_index<2>, Branch{kind, std::move(keys), std::move(items)}) {}

 private:
  struct Branch {
    NestKind kind;
    std::vector<std::string> keys;
    std::vector<NestOf> items;
  };

  std::string join_items() const {
    std::string text;
    for (std::size_t i = 0; i < size(); ++i) {
      if (i) text += ", ";
      if (!keys().empty()) text += keys()[i] + ": ";
      text += items()[i].structure();
    }
    return text;
  }

  std::variant<std::monostate, Leaf, Branch, Strings, NestObjectPtr> value_;
};

/// A nest of tensors: one element of a dataset, for example.
using Nest = NestOf<Tensor>;

template <class Leaf>
std::vector<Leaf> flatten(const NestOf<Leaf>& nest) {
  std::vector<Leaf> leaves;
  nest.for_each([&](const Leaf& leaf) { leaves.push_back(leaf); });
  return leaves;
}

template <class Leaf>
std::vector<typename NestOf<Leaf>::Strings> flatten_strings(const NestOf<Leaf>& nest) {
  std::vector<typename NestOf<Leaf>::Strings> all;
  nest.for_each([](const Leaf&) {}, [&](const auto& strings) { all.push_back(strings); });
  return all;
}

template <class A, class B>
bool same_structure(const NestOf<A>& a, const NestOf<B>& b) {
  if (a.kind() != b.kind() || a.keys() != b.keys() || a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_structure(a.items()[i], b.items()[i])) return false;
  }
  return true;
}

/// `leaves` in the structure of `like`. Throws InvalidArgument when the counts differ.
template <class Other, class Leaf>
NestOf<Leaf> pack_as(const NestOf<Other>& like, std::vector<Leaf> leaves) {
  std::size_t next = 0;
  auto packed = like.map_leaves([&](const Other&) -> Leaf {
    if (next >= leaves.size())
      throw InvalidArgument(
          cat("pack_as: ", leaves.size(), " leaves, expected more for ", like.structure()));
    return std::move(leaves[next++]);
  });
  if (next != leaves.size())
    throw InvalidArgument(
        cat("pack_as: ", leaves.size(), " leaves, expected ", next, " for ", like.structure()));
  return packed;
}

}  // namespace tutti
