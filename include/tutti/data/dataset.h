#pragma once
// Datasets: values that describe where elements come from and what is done to them. Every
// transformation gives a new one.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/data/input_context.h"
#include "tutti/data/plan.h"
#include "tutti/tensor/static_nest.h"

namespace tutti {

/// A string stands in a Nest as the vector of its bytes (uint8), so it may be an element or a part
/// of one, but there are no batches of strings: map them to tensors of numbers first.
template <>
struct NestTraits<std::string> {
  static Nest to_nest(const std::string& text);
  static std::string from_nest(const Nest& nest);
};

namespace data {

struct BatchOptions {
  bool drop_remainder = false;
};
using ShapeNest = NestOf<std::vector<int64_t>>;
struct PaddedBatchOptions {
  /// Of one element, for each component; -1: the longest of the batch. Unset: all of them.
  std::optional<ShapeNest> padded_shapes = std::nullopt;
  /// For each component, or one for all; unset: 0.
  std::optional<Nest> padding_values = std::nullopt;
  bool drop_remainder = false;
};
struct ShuffleOptions {
  std::optional<int64_t> seed = std::nullopt;
  /// True: each pass has another order (the same ones in each run of a seeded program).
  bool reshuffle_each_iteration = true;
};

using NestFunction = std::function<Nest(const Nest&)>;
using NestPredicate = std::function<bool(const Nest&)>;
/// Gives one element a call, then nothing.
using NestGenerator = std::function<std::optional<Nest>()>;

// The plans behind the typed front; each says its errors (InvalidArgument) when it is made.
namespace plans {
PlanPtr range(int64_t start, int64_t stop, int64_t step);
PlanPtr from_tensors(Nest element);
PlanPtr from_tensor_slices(Nest columns);
PlanPtr from_generator(std::function<NestGenerator()> factory, std::optional<SpecNest> spec);
PlanPtr text_lines(std::vector<std::string> files);
PlanPtr map(PlanPtr input, NestFunction function);
PlanPtr filter(PlanPtr input, NestPredicate predicate);
PlanPtr batch(PlanPtr input, int64_t size, const BatchOptions& options);
PlanPtr padded_batch(PlanPtr input, int64_t size, const PaddedBatchOptions& options);
PlanPtr unbatch(PlanPtr input);
PlanPtr shuffle(PlanPtr input, int64_t buffer_size, const ShuffleOptions& options);
PlanPtr repeat(PlanPtr input, int64_t count);
PlanPtr take(PlanPtr input, int64_t count);
PlanPtr skip(PlanPtr input, int64_t count);
PlanPtr cache(PlanPtr input);
PlanPtr prefetch(PlanPtr input, int64_t buffer_size);
PlanPtr shard(PlanPtr input, int64_t num_shards, int64_t index);
PlanPtr zip(std::vector<PlanPtr> inputs);
PlanPtr concatenate(PlanPtr first, PlanPtr second);
PlanPtr enumerate(PlanPtr input, int64_t start);
PlanPtr with_options(PlanPtr input, const Options& options);
}  // namespace plans

/// One pass over a dataset, typed.
template <class Element>
class DatasetIterator {
 public:
  explicit DatasetIterator(std::unique_ptr<Iterator> core) : core_(std::move(core)) {}
  /// The next element, or nothing at the end.
  std::optional<Element> next() {
    auto nest = core_->next();
    if (!nest) return std::nullopt;
    return from_nest<Element>(*nest);
  }
  /// The next element; OutOfRange at the end.
  Element get_next() {
    auto element = next();
    if (!element)
      throw OutOfRange(
          "get_next: end of the dataset, expected one more element; make a new iterator or use "
          "next()");
    return std::move(*element);
  }

 private:
  std::unique_ptr<Iterator> core_;
};

namespace internal {

template <class Function, class Element>
decltype(auto) call_with_element(Function& function, Element element) {
  if constexpr (std::is_invocable_v<Function&, Element>) {
    return function(std::move(element));
  } else {
    return std::apply(function, std::move(element));
  }
}

}  // namespace internal

/// Elements are Tensors, tuples, pairs, vectors or maps of them, or Nests. A handle: copies share
/// the plan.
template <NestLike Element>
class Dataset {
 public:
  using element_type = Element;
  explicit Dataset(PlanPtr plan) : plan_(std::move(plan)) {}

  /// `function(element)`, or with a tuple's items as its arguments when it does not take the tuple.
  /// In order, one at a time; an exception surfaces at its element and the iterator can go on
  /// behind it.
  template <class Function>
  auto map(Function function) const {
    using Result =
        std::decay_t<decltype(internal::call_with_element(function, std::declval<Element>()))>;
    return Dataset<Result>(plans::map(plan_, [function](const Nest& nest) mutable {
      return to_nest<Result>(internal::call_with_element(function, from_nest<Element>(nest)));
    }));
  }
  /// Keeps the elements for which `predicate` gives true (bool, or one boolean Tensor).
  template <class Predicate>
  Dataset filter(Predicate predicate) const {
    return Dataset(plans::filter(plan_, [predicate](const Nest& nest) mutable -> bool {
      const auto verdict = internal::call_with_element(predicate, from_nest<Element>(nest));
      if constexpr (std::is_convertible_v<decltype(verdict), bool>) {
        return verdict;
      } else {
        return one_bool(verdict);
      }
    }));
  }
  /// Stacks `size` elements along a new first axis; shapes must agree.
  Dataset batch(int64_t size, const BatchOptions& options = {}) const {
    return Dataset(plans::batch(plan_, size, options));
  }
  /// The same for elements of different shapes, each filled up at the end of its axes.
  Dataset padded_batch(int64_t size, const PaddedBatchOptions& options = {}) const {
    return Dataset(plans::padded_batch(plan_, size, options));
  }
  Dataset unbatch() const { return Dataset(plans::unbatch(plan_)); }
  /// Draws each element from a buffer of the next `buffer_size` ones.
  Dataset shuffle(int64_t buffer_size, const ShuffleOptions& options = {}) const {
    return Dataset(plans::shuffle(plan_, buffer_size, options));
  }
  /// -1: for ever.
  Dataset repeat(int64_t count = -1) const { return Dataset(plans::repeat(plan_, count)); }
  /// -1: all.
  Dataset take(int64_t count) const { return Dataset(plans::take(plan_, count)); }
  Dataset skip(int64_t count) const { return Dataset(plans::skip(plan_, count)); }
  /// Keeps the elements of the first complete pass in memory; later passes take them from there.
  /// A pass that ends early leaves nothing behind.
  Dataset cache() const { return Dataset(plans::cache(plan_)); }
  /// A thread, on one core, makes elements ahead, `buffer_size` at most; -1: 2; 0: none.
  Dataset prefetch(int64_t buffer_size) const {
    return Dataset(plans::prefetch(plan_, buffer_size));
  }
  /// Elements index, index + num_shards, …; shard(kShardHint, kShardHint): see AutoShardPolicy.
  Dataset shard(int64_t num_shards, int64_t index) const {
    return Dataset(plans::shard(plan_, num_shards, index));
  }
  Dataset concatenate(const Dataset& other) const {
    return Dataset(plans::concatenate(plan_, other.plan_));
  }
  /// (int64 number, element).
  auto enumerate(int64_t start = 0) const {
    return Dataset<std::tuple<Tensor, Element>>(plans::enumerate(plan_, start));
  }
  Dataset with_options(const Options& options) const {
    return Dataset(plans::with_options(plan_, options));
  }
  /// `function(*this)`.
  template <class Function>
  auto apply(Function&& function) const {
    return function(*this);
  }

  int64_t cardinality() const { return plan_->cardinality(); }
  SpecNest element_spec() const { return plan_->element_spec(); }
  const PlanPtr& plan() const { return plan_; }

  DatasetIterator<Element> iterator() const { return DatasetIterator<Element>(plan_->iterator()); }

  class Cursor {
   public:
    explicit Cursor(DatasetIterator<Element> iterator) : iterator_(std::move(iterator)) { ++*this; }
    Element& operator*() { return *element_; }
    Cursor& operator++() {
      element_ = iterator_.next();
      return *this;
    }
    bool operator!=(std::nullptr_t) const { return element_.has_value(); }

   private:
    DatasetIterator<Element> iterator_;
    std::optional<Element> element_;
  };
  /// Every `for` is a pass of its own.
  Cursor begin() const { return Cursor(iterator()); }
  std::nullptr_t end() const { return nullptr; }

  /// The dynamic form, which `fit` takes.
  operator Dataset<Nest>() const  // NOLINT
      requires(!std::is_same_v<Element, Nest>) {
    return Dataset<Nest>(plan_);
  }

 private:
  static bool one_bool(const Tensor& verdict);
  PlanPtr plan_;
};

namespace internal {
bool one_bool(const Tensor& verdict);
template <class... Items>
struct ElementOf {
  using Type = std::tuple<std::decay_t<Items>...>;
};
template <class Item>
struct ElementOf<Item> {
  using Type = std::decay_t<Item>;
};
template <class... Items>
Nest nest_of(const Items&... items) {
  if constexpr (sizeof...(Items) == 1) {
    return (to_nest(items), ...);
  } else {
    return Nest::tuple({to_nest(items)...});
  }
}
}  // namespace internal

template <NestLike Element>
bool Dataset<Element>::one_bool(const Tensor& verdict) {
  return internal::one_bool(verdict);
}

/// 0 … stop - 1 as int64 scalars.
inline Dataset<Tensor> range(int64_t stop) { return Dataset<Tensor>(plans::range(0, stop, 1)); }
inline Dataset<Tensor> range(int64_t start, int64_t stop, int64_t step = 1) {
  return Dataset<Tensor>(plans::range(start, stop, step));
}

/// One element: the whole structure, the tensors themselves in every pass. Several arguments make a
/// tuple.
template <NestLike... Items>
auto from_tensors(const Items&... items) {
  return Dataset<typename internal::ElementOf<Items...>::Type>(
      plans::from_tensors(internal::nest_of(items...)));
}

/// Slices along the first axis of every component; all must have the same length.
template <NestLike... Items>
auto from_tensor_slices(const Items&... items) {
  return Dataset<typename internal::ElementOf<Items...>::Type>(
      plans::from_tensor_slices(internal::nest_of(items...)));
}

/// `factory()` gives, for each pass, a callable that returns std::optional<Element>. With a spec
/// every element is checked against it.
template <class Element, class Factory>
Dataset<Element> from_generator(Factory factory, std::optional<SpecNest> spec = std::nullopt) {
  return Dataset<Element>(plans::from_generator(
      [factory]() mutable -> NestGenerator {
        auto generator = std::make_shared<std::decay_t<decltype(factory())>>(factory());
        return [generator]() -> std::optional<Nest> {
          std::optional<Element> element = (*generator)();
          if (!element) return std::nullopt;
          return to_nest<Element>(*element);
        };
      },
      std::move(spec)));
}

/// The lines of text files, plain or gzip, file after file, without their ends of line. NotFound
/// where a file that cannot be opened has its turn; the pass can go on behind it.
inline Dataset<std::string> text_lines(std::vector<std::string> files) {
  return Dataset<std::string>(plans::text_lines(std::move(files)));
}

/// Tuples of one element of each; as long as the shortest.
template <class... Elements>
Dataset<std::tuple<Elements...>> zip(const Dataset<Elements>&... datasets) {
  return Dataset<std::tuple<Elements...>>(plans::zip({datasets.plan()...}));
}

}  // namespace data
}  // namespace tutti
