#pragma once
// Nests known at run time: tuples, lists and maps of leaves, to any depth (what TensorFlow calls
// structures).

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/string_tensor.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

enum class NestKind { kNone, kLeaf, kTuple, kList, kMap, kStrings };

/// A value type: copying copies the structure and the leaves (a Tensor leaf shares its storage).
/// Maps are ordered by key, as TensorFlow flattens them. Strings stand in it as a StringTensor, a
/// component that is no leaf: what visits leaves passes it by, what maps them keeps it as it is.
template <class Leaf>
class NestOf {
 public:
  NestOf() = default;  // NOLINT: the empty nest, Python's None
  NestOf(Leaf leaf)
      : value_(std::in_place_index<1>, std::move(leaf)) {}  // NOLINT: a leaf is a nest
  NestOf(StringTensor strings)
      : value_(std::in_place_index<3>, std::move(strings)) {}  // NOLINT: so are strings
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
  const StringTensor& strings() const {
    if (!is_strings())
      throw InvalidArgument(cat("nest: found ", structure(), ", expected strings"));
    return std::get<3>(value_);
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

  /// The structure with `*` for each leaf and `strings` for strings: `(*, {a: *})`.
  std::string structure() const {
    switch (kind()) {
      case NestKind::kNone:
        return "None";
      case NestKind::kLeaf:
        return "*";
      case NestKind::kStrings:
        return "strings";
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

  /// The same structure with every leaf replaced by `function(leaf)`.
  template <class Function>
  auto map_leaves(Function&& function) const
      -> NestOf<std::decay_t<std::invoke_result_t<Function&, const Leaf&>>> {
    using Result = NestOf<std::decay_t<std::invoke_result_t<Function&, const Leaf&>>>;
    if (kind() == NestKind::kNone) return Result();
    if (is_leaf()) return Result(function(std::get<1>(value_)));
    if (is_strings()) return Result(std::get<3>(value_));
    std::vector<Result> mapped;
    mapped.reserve(size());
    for (const NestOf& item : items()) mapped.push_back(item.map_leaves(function));
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

  std::variant<std::monostate, Leaf, Branch, StringTensor> value_;
};

/// A nest of tensors: one element of a dataset, for example.
using Nest = NestOf<Tensor>;

template <class Leaf>
std::vector<Leaf> flatten(const NestOf<Leaf>& nest) {
  std::vector<Leaf> leaves;
  nest.for_each([&](const Leaf& leaf) { leaves.push_back(leaf); });
  return leaves;
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
