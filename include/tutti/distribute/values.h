#pragma once
// Values that have one component a replica, and how nests of them are taken apart and put together.

#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/nest.h"
#include "tutti/tensor/printing.h"

namespace tutti {

/// One value for each local replica, in replica order. Copying copies the components (tensors share
/// their storage).
template <class T>
class DistributedValues {
 public:
  using value_type = T;
  using OfStrings = DistributedValues<StringTensor>;  // beside these in a nest
  using Storage = std::conditional_t<std::is_same_v<T, bool>, std::deque<bool>,
                                     std::vector<T>>;  // vector<bool> has no references
  DistributedValues() = default;
  explicit DistributedValues(std::vector<T> values)
      : values_(std::make_move_iterator(values.begin()), std::make_move_iterator(values.end())) {}

  const Storage& values() const& { return values_; }
  /// Of a value that is about to die, so that `for (… : strategy.run(fn).values())` is safe.
  Storage values() && { return std::move(values_); }
  std::size_t size() const { return values_.size(); }
  /// Component of local replica `index`. Throws OutOfRange.
  const T& operator[](std::size_t index) const {
    if (index >= values_.size()) {
      throw OutOfRange(
          cat("DistributedValues: component ", index, ", expected below ", values_.size()));
    }
    return values_[index];
  }
  /// With one replica the value itself; with more, InvalidArgument.
  operator T() const {  // NOLINT: what one replica gives looks like what no strategy gives
    if (values_.size() != 1) {
      throw InvalidArgument(cat("PerReplica: converted to a single value but it has ",
                                values_.size(),
                                " components; use strategy.reduce, strategy.local_results or run"));
    }
    return values_.front();
  }

 private:
  Storage values_;
};

/// A different value on each replica: what `run` returns and what distributed datasets hand out.
template <class T>
class PerReplica : public DistributedValues<T> {
 public:
  using OfStrings = PerReplica<StringTensor>;
  using DistributedValues<T>::DistributedValues;
};

namespace internal {
/// Which of `size` components a value that is the same everywhere stands for on this thread: the
/// replica's own, the first one outside replicas.
std::size_t current_component(std::size_t size);
}  // namespace internal

/// The same value on each replica. It stands for it wherever a single value is expected, in
/// arithmetic and comparisons too; `m[i]` is component i.
template <class T>
class Mirrored : public DistributedValues<T> {
 public:
  using OfStrings = Mirrored<StringTensor>;
  using DistributedValues<T>::DistributedValues;
  /// This replica's component; the first one outside replicas.
  operator T() const {  // NOLINT: a mirrored value stands where the value does
    return (*this)[internal::current_component(this->size())];
  }
};

namespace internal {
template <class T>
std::string component_text(const T& value) {
  if constexpr (std::is_same_v<T, Tensor> || std::is_same_v<T, StringTensor>) {
    return tutti::to_string(Nest(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "True" : "False";
  } else {
    return cat(value);
  }
}
template <class T>
std::ostream& print_components(std::ostream& out, const char* name,
                               const DistributedValues<T>& values) {
  if (values.size() == 1) return out << component_text(values[0]);
  out << name << ":{\n";
  for (std::size_t i = 0; i < values.size(); ++i) {
    out << "  " << i << ": " << component_text(values[i]) << (i + 1 < values.size() ? ",\n" : "\n");
  }
  return out << "}";
}
}  // namespace internal

/// `PerReplica:{`, one `i: value` a line, `}`; with one replica the value alone.
template <class T>
std::ostream& operator<<(std::ostream& out, const PerReplica<T>& values) {
  return internal::print_components(out, "PerReplica", values);
}
template <class T>
std::ostream& operator<<(std::ostream& out, const Mirrored<T>& values) {
  return internal::print_components(out, "Mirrored", values);
}
template <class T>
std::ostream& operator<<(std::ostream& out, const DistributedValues<T>& values) {
  return internal::print_components(out, "DistributedValues", values);
}

// ---- select: what replica r sees of an argument ----

namespace internal {

template <class T>
struct Select {  // all else is passed as is
  static constexpr bool kDistributed = false;
  template <class U>
  static U& of(std::size_t, U& value) {
    return value;
  }
};

template <class T>
inline constexpr bool kIsPerReplica = false;
template <class T>
inline constexpr bool kIsPerReplica<PerReplica<T>> = true;
template <class T>
inline constexpr bool kIsDistributedValues = false;
template <class T>
inline constexpr bool kIsDistributedValues<DistributedValues<T>> = true;
template <class T>
inline constexpr bool kIsDistributedValues<PerReplica<T>> = true;
template <class T>
inline constexpr bool kIsDistributedValues<Mirrored<T>> = true;

template <class T>
struct SelectComponent {
  static constexpr bool kDistributed = true;
  static const T& of(std::size_t replica, const DistributedValues<T>& value) {
    return value[replica];
  }
};
template <class T>
struct Select<DistributedValues<T>> : SelectComponent<T> {};
template <class T>
struct Select<PerReplica<T>> : SelectComponent<T> {};
template <class T>
struct Select<Mirrored<T>> : SelectComponent<T> {};

template <class Values>
requires(kIsDistributedValues<Values>) struct Select<NestOf<Values>> {
  using T = typename Values::value_type;
  static constexpr bool kDistributed = true;
  static NestOf<T> of(std::size_t replica, const NestOf<Values>& nest) {
    const auto component = [replica](const auto& values) { return values[replica]; };
    return nest.map_components(component, component);
  }
};

template <class T>
using Selected = std::decay_t<decltype(Select<T>::of(0, std::declval<T&>()))>;

template <class... Ts>
requires(Select<Ts>::kDistributed || ...) struct Select<std::tuple<Ts...>> {
  static constexpr bool kDistributed = true;
  static std::tuple<Selected<Ts>...> of(std::size_t replica, const std::tuple<Ts...>& value) {
    return std::apply(
        [&](const Ts&... items) {
          return std::tuple<Selected<Ts>...>(Select<Ts>::of(replica, items)...);
        },
        value);
  }
};

template <class A, class B>
requires(Select<A>::kDistributed || Select<B>::kDistributed) struct Select<std::pair<A, B>> {
  static constexpr bool kDistributed = true;
  static std::pair<Selected<A>, Selected<B>> of(std::size_t replica, const std::pair<A, B>& value) {
    return {Select<A>::of(replica, value.first), Select<B>::of(replica, value.second)};
  }
};

template <class T>
requires(Select<T>::kDistributed) struct Select<std::vector<T>> {
  static constexpr bool kDistributed = true;
  static std::vector<Selected<T>> of(std::size_t replica, const std::vector<T>& value) {
    std::vector<Selected<T>> selected;
    selected.reserve(value.size());
    for (const T& item : value) selected.push_back(Select<T>::of(replica, item));
    return selected;
  }
};

template <class T>
requires(Select<T>::kDistributed) struct Select<std::map<std::string, T>> {
  static constexpr bool kDistributed = true;
  static std::map<std::string, Selected<T>> of(std::size_t replica,
                                               const std::map<std::string, T>& value) {
    std::map<std::string, Selected<T>> selected;
    for (const auto& [key, item] : value) selected.emplace(key, Select<T>::of(replica, item));
    return selected;
  }
};

template <class T>
inline constexpr bool kIsMap = false;
template <class T>
inline constexpr bool kIsMap<std::map<std::string, T>> = true;
template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
inline constexpr bool kIsTuple = false;
template <class... Ts>
inline constexpr bool kIsTuple<std::tuple<Ts...>> = true;
template <class A, class B>
inline constexpr bool kIsTuple<std::pair<A, B>> = true;
template <class T>
inline constexpr bool kIsRunTimeNest = false;
template <class T>
inline constexpr bool kIsRunTimeNest<NestOf<T>> = true;
/// What TensorFlow calls a structure.
template <class T>
inline constexpr bool kIsNest = kIsMap<T> || kIsVector<T> || kIsTuple<T> || kIsRunTimeNest<T>;

// ---- regroup: one result of each replica becomes a nest of PerReplica ----

template <class T, template <class> class Wrap = PerReplica>
struct Regroup {
  using Type = Wrap<T>;
  static Type of(std::vector<T> results) { return Type(std::move(results)); }
};

template <class T, template <class> class Wrap = PerReplica>
using Regrouped = typename Regroup<T, Wrap>::Type;

template <class... Ts, template <class> class Wrap>
struct Regroup<std::tuple<Ts...>, Wrap> {
  using Type = std::tuple<Regrouped<Ts, Wrap>...>;
  static Type of(std::vector<std::tuple<Ts...>> results) {
    return split(results, std::index_sequence_for<Ts...>());
  }

 private:
  template <std::size_t... kIndex>
  static Type split(std::vector<std::tuple<Ts...>>& results, std::index_sequence<kIndex...>) {
    return Type(Regroup<Ts, Wrap>::of(column<Ts, kIndex>(results))...);
  }
  template <class T, std::size_t kIndex>
  static std::vector<T> column(std::vector<std::tuple<Ts...>>& results) {
    std::vector<T> items;
    items.reserve(results.size());
    for (auto& result : results) items.push_back(std::move(std::get<kIndex>(result)));
    return items;
  }
};

template <class A, class B, template <class> class Wrap>
struct Regroup<std::pair<A, B>, Wrap> {
  using Type = std::pair<Regrouped<A, Wrap>, Regrouped<B, Wrap>>;
  static Type of(std::vector<std::pair<A, B>> results) {
    std::vector<A> first;
    std::vector<B> second;
    for (auto& result : results) {
      first.push_back(std::move(result.first));
      second.push_back(std::move(result.second));
    }
    return {Regroup<A, Wrap>::of(std::move(first)), Regroup<B, Wrap>::of(std::move(second))};
  }
};

template <class T, template <class> class Wrap>
struct Regroup<std::vector<T>, Wrap> {
  using Type = std::vector<Regrouped<T, Wrap>>;
  static Type of(std::vector<std::vector<T>> results) {
    Type regrouped;
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      std::vector<T> column;
      for (auto& result : results) {
        if (result.size() != results[0].size()) {
          throw InvalidArgument(cat("regroup: lists of ", results[0].size(), " and ", result.size(),
                                    " items on different replicas, expected one length; return the "
                                    "same structure everywhere"));
        }
        column.push_back(std::move(result[i]));
      }
      regrouped.push_back(Regroup<T, Wrap>::of(std::move(column)));
    }
    for (auto& result : results) {
      if (result.size() != regrouped.size()) {
        throw InvalidArgument(
            "regroup: lists of different lengths on the replicas, expected one; return the same "
            "structure everywhere");
      }
    }
    return regrouped;
  }
};

template <class T, template <class> class Wrap>
struct Regroup<std::map<std::string, T>, Wrap> {
  using Type = std::map<std::string, Regrouped<T, Wrap>>;
  static Type of(std::vector<std::map<std::string, T>> results) {
    Type regrouped;
    for (const auto& result : results) {
      if (result.size() != results[0].size()) fail(results[0], result);
    }
    for (auto& [key, unused] : results[0]) {
      std::vector<T> column;
      for (auto& result : results) {
        auto found = result.find(key);
        if (found == result.end()) fail(results[0], result);
        column.push_back(std::move(found->second));
      }
      regrouped.emplace(key, Regroup<T, Wrap>::of(std::move(column)));
    }
    return regrouped;
  }

 private:
  [[noreturn]] static void fail(const std::map<std::string, T>& a,
                                const std::map<std::string, T>& b) {
    auto keys = [](const auto& map) {
      std::vector<std::string> names;
      for (const auto& [key, unused] : map) names.push_back(key);
      return join(names, ", ");
    };
    throw InvalidArgument(cat(
        "regroup: maps with the keys {", keys(a), "} and {", keys(b),
        "} on different replicas, expected the same keys; return the same structure everywhere"));
  }
};

template <class T, template <class> class Wrap>
struct Regroup<NestOf<T>, Wrap> {
  using Type = NestOf<Wrap<T>>;
  static Type of(std::vector<NestOf<T>> results) {
    using Strings = typename NestOf<T>::Strings;
    std::vector<std::vector<T>> leaves;
    std::vector<std::vector<Strings>> strings;
    for (const auto& result : results) {
      if (!same_structure(result, results[0])) {
        throw InvalidArgument(
            cat("regroup: structures ", results[0].structure(), " and ", result.structure(),
                " on different replicas, expected the same; return the same structure everywhere"));
      }
      leaves.push_back(flatten(result));
      strings.push_back(flatten_strings(result));
    }
    const auto column = [](const auto& of_replicas, std::size_t at) {
      auto items = of_replicas[0];
      items.clear();
      for (const auto& of_replica : of_replicas) items.push_back(of_replica[at]);
      return items;
    };
    std::size_t leaf = 0, text = 0;
    return results[0].map_components(
        [&](const T&) { return Wrap<T>(column(leaves, leaf++)); },
        [&](const Strings&) { return Wrap<Strings>(column(strings, text++)); });
  }
};

}  // namespace internal

/// Replica `replica`'s part of `nest`: DistributedValues are replaced by its component, Variables
/// and all else kept.
template <class T>
decltype(auto) select_replica(std::size_t replica, const T& nest) {
  return internal::Select<std::remove_cvref_t<T>>::of(replica, nest);
}

/// One nest of each replica → one nest of PerReplica. Lists of one length, maps of one key set,
/// else InvalidArgument.
/// Leaves become `Wrap`: PerReplica, or Mirrored for values that are known to be equal.
template <template <class> class Wrap = PerReplica, class T>
auto regroup(std::vector<T> values) -> internal::Regrouped<T, Wrap> {
  if (values.empty()) throw InvalidArgument("regroup: no values, expected one for each replica");
  return internal::Regroup<T, Wrap>::of(std::move(values));
}

}  // namespace tutti
