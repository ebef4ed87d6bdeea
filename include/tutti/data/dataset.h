#pragma once
// Datasets: values that describe where elements come from and what is done to them. Every
// transformation gives a new one.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/data/element_types.h"
#include "tutti/data/input_context.h"
#include "tutti/data/plan.h"
#include "tutti/data/plans.h"
#include "tutti/data/saving.h"
#include "tutti/data/tracked_pass.h"
#include "tutti/tensor/static_nest.h"

namespace tutti {

/// A dataset as an element: what window makes.
template <NestLike Element>
struct NestTraits<data::Dataset<Element>> {
  static Nest to_nest(const data::Dataset<Element>& dataset) {
    return Nest(NestObjectPtr(dataset.plan()));
  }
  static data::Dataset<Element> from_nest(const Nest& nest) {
    auto plan = std::dynamic_pointer_cast<const data::Plan>(nest.object());
    if (!plan)
      throw InvalidArgument(cat("element: found ", nest.structure(), ", expected a dataset"));
    return data::Dataset<Element>(std::move(plan));
  }
};

namespace data {

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
  /// Iterator's: where this pass stands, and going on there.
  Nest save() const { return core_->save(); }
  void restore(const Nest& state) { core_->restore(state); }
  friend std::shared_ptr<Trackable> trackable(DatasetIterator& iterator) {
    return trackable(*iterator.core_);
  }

 private:
  std::unique_ptr<Iterator> core_;
};

/// The place of an iterator as part of a checkpoint, `train::Checkpoint({{"iterator", iterator}})`:
/// a new iterator of an equal pipeline goes on there. Both must be alive.
template <class Element>
std::shared_ptr<Trackable> trackable(DatasetIterator<Element>& iterator) {
  return internal::tracked_pass([&iterator] { return iterator.save(); },
                                [&iterator](const Nest& state) { iterator.restore(state); });
}

/// Elements are Tensors, strings (std::string for one, StringTensor), datasets, tuples, pairs,
/// vectors or maps of them, or Nests. A handle: copies share the plan. A function of the user gets
/// an element, or a tuple's items as its arguments when it does not take the tuple; it runs without
/// gradients, and what it throws surfaces at its element, behind which the pass can go on.
template <NestLike Element>
class Dataset {
 public:
  using element_type = Element;
  explicit Dataset(PlanPtr plan) : plan_(std::move(plan)) {}

  /// `function(element)` for each, in order.
  template <class Function>
  auto map(Function function, const MapOptions& options = {}) const {
    using Result =
        std::decay_t<decltype(internal::call_with_element(function, std::declval<Element>()))>;
    auto on_nests = [function](const Nest& nest) mutable {
      return to_nest<Result>(internal::call_with_element(function, from_nest<Element>(nest)));
    };
    return Dataset<Result>(plans::map(plan_, std::move(on_nests), options));
  }
  /// Keeps the elements for which `predicate` gives true (bool, or one boolean Tensor).
  template <class Predicate>
  Dataset filter(Predicate predicate) const {
    return Dataset(plans::filter(plan_, predicate_of("filter", std::move(predicate))));
  }
  /// The elements up to the first one for which `predicate` is not true.
  template <class Predicate>
  Dataset take_while(Predicate predicate) const {
    return Dataset(plans::take_while(plan_, predicate_of("take_while", std::move(predicate))));
  }
  /// The elements of `function(element)`, a dataset, one dataset after the other.
  template <class Function>
  auto flat_map(Function function) const {
    return Dataset<ElementGiven<Function>>(plans::flat_map(plan_, plans_of(std::move(function))));
  }
  /// The same with several datasets open, from which blocks of elements are taken in turn. One that
  /// has ended gives its place to the next.
  template <class Function>
  auto interleave(Function function, const InterleaveOptions& options = {}) const {
    return Dataset<ElementGiven<Function>>(
        plans::interleave(plan_, plans_of(std::move(function)), options));
  }
  /// `function(state, element)` gives a pair (or tuple) of the next state and an element of the
  /// result. Every pass begins with `initial_state`, whose dtypes stay.
  template <NestLike State, class Function>
  auto scan(State initial_state, Function function) const {
    using Result = std::decay_t<decltype(internal::call_with_element(
        function, std::declval<Element>(), std::declval<State>()))>;
    using Output = std::decay_t<std::tuple_element_t<1, Result>>;
    auto on_nests = [function](const Nest& state, const Nest& element) mutable {
      const Result result = internal::call_with_element(function, from_nest<Element>(element),
                                                        from_nest<State>(state));
      return std::pair(to_nest<State>(std::get<0>(result)), to_nest<Output>(std::get<1>(result)));
    };
    return Dataset<Output>(plans::scan(plan_, to_nest<State>(initial_state), std::move(on_nests)));
  }
  /// `state = function(state, element)` over one pass; of any type. The dtypes of a state of
  /// tensors stay (InvalidArgument). Never ends over an infinite dataset.
  template <class State, class Function>
  State reduce(State initial_state, Function function) const {
    plans::for_each(*plan_, [&](const Nest& element) {
      State next =
          internal::call_with_element(function, from_nest<Element>(element), initial_state);
      if constexpr (NestLike<State>)
        plans::check_state("reduce", to_nest<State>(initial_state), to_nest<State>(next));
      initial_state = std::move(next);
    });
    return initial_state;
  }

  /// Stacks `size` elements along a new first axis; shapes must agree.
  auto batch(int64_t size, const BatchOptions& options = {}) const {
    return Dataset<internal::Batched<Element>>(plans::batch(plan_, size, options));
  }
  /// The same for elements of different shapes, each filled up at the end of its axes.
  auto padded_batch(int64_t size, const PaddedBatchOptions& options = {}) const {
    return Dataset<internal::Batched<Element>>(plans::padded_batch(plan_, size, options));
  }
  /// `size` elements as they are: each component becomes a list.
  auto ragged_batch(int64_t size, const BatchOptions& options = {}) const {
    return Dataset<internal::Ragged<Element>>(plans::ragged_batch(plan_, size, options));
  }
  /// One Tensor an element, of at most `row_shape` each (-1: the largest of the batch); becomes a
  /// sparse COO tensor [size, row_shape…] with all their entries, zeros too, in order.
  Dataset sparse_batch(int64_t size, std::vector<int64_t> row_shape) const {
    return Dataset(plans::sparse_batch(plan_, size, std::move(row_shape)));
  }
  /// The rows of batches.
  Dataset unbatch() const { return Dataset(plans::unbatch(plan_)); }
  /// The rows of batches as batches of `size` rows, or of these sizes, round and round.
  Dataset rebatch(int64_t size, const BatchOptions& options = {}) const {
    return rebatch(std::vector<int64_t>{size}, options);
  }
  Dataset rebatch(std::vector<int64_t> sizes, const BatchOptions& options = {}) const {
    return Dataset(plans::rebatch(plan_, std::move(sizes), options));
  }
  /// Datasets of `size` elements, for a tuple (vector, map) one for each of its items. Mostly
  /// followed by `flat_map([](Dataset<Tensor> w) { return w.batch(size); })`.
  auto window(int64_t size, const WindowOptions& options = {}) const {
    return Dataset<internal::Windowed<Element>>(plans::window(plan_, size, options));
  }
  /// Elements of one `key(element)` (an integer, or one integral Tensor) are gathered; of each
  /// `window_size` ones (a number, or a function of the key) `reduce(key, group)` makes a dataset,
  /// whose elements come next. At the end the groups that are left have their turn, by key.
  template <class Key, class Reduce, class WindowSize>
  auto group_by_window(Key key, Reduce reduce, WindowSize window_size) const {
    using Result = std::decay_t<decltype(reduce(int64_t{}, std::declval<Dataset>()))>;
    Grouping grouping{number_of("group_by_window", std::move(key)),
                      [reduce](int64_t of, const PlanPtr& group) mutable -> PlanPtr {
                        return reduce(of, Dataset(group)).plan();
                      },
                      nullptr};
    if constexpr (std::is_invocable_v<WindowSize&, int64_t>) {
      grouping.window_size = std::move(window_size);
    } else {
      grouping.window_size = [window_size](int64_t) -> int64_t { return window_size; };
    }
    return Dataset<typename Result::element_type>(
        plans::group_by_window(plan_, std::move(grouping)));
  }
  /// Batches of elements of similar length: bucket i has the lengths below `bucket_boundaries[i]`
  /// and not below the one before, the last one the others. One batch size for each bucket.
  template <class Length>
  auto bucket_by_sequence_length(Length element_length, std::vector<int64_t> bucket_boundaries,
                                 std::vector<int64_t> bucket_batch_sizes,
                                 const BucketOptions& options = {}) const {
    Buckets buckets{number_of("bucket_by_sequence_length", std::move(element_length)),
                    std::move(bucket_boundaries), std::move(bucket_batch_sizes)};
    return Dataset<internal::Batched<Element>>(
        plans::bucket_by_sequence_length(plan_, std::move(buckets), options));
  }
  /// Draws each element from a buffer of the next `buffer_size` ones.
  Dataset shuffle(int64_t buffer_size, const ShuffleOptions& options = {}) const {
    return Dataset(plans::shuffle(plan_, buffer_size, options));
  }
  /// -1: for ever.
  Dataset repeat(int64_t count = -1) const { return Dataset(plans::repeat(plan_, count)); }
  /// -1: all. Directly behind a shuffle that reshuffles, each pass takes other elements, so that
  /// take(n) and skip(n) are no split into two sets; a warning says so once.
  Dataset take(int64_t count) const { return Dataset(plans::take(plan_, count)); }
  Dataset skip(int64_t count) const { return Dataset(plans::skip(plan_, count)); }
  /// Keeps the elements of the first complete pass in memory; later passes take them from there.
  /// A pass that ends early leaves nothing behind.
  Dataset cache() const { return Dataset(plans::cache(plan_)); }
  /// Keeps them in the files `filename.index` and `filename.data-…` instead, also for other
  /// programs; they do not see when the pipeline changes: remove them then. One pass writes at a
  /// time, until its end; another one is AlreadyExists meanwhile. Damaged files are DataLoss.
  Dataset cache(const std::string& filename) const {
    return Dataset(plans::cache_in_files(plan_, filename));
  }
  /// The same in a folder, which is made; a pass beside the one that writes only passes through.
  Dataset snapshot(const std::string& path, const SnapshotOptions<Element>& options = {}) const {
    return Dataset(plans::snapshot(
        plan_, path,
        {options.compression, internal::reader_of_plans<Element>(options.reader_func),
         options.shard_func.of_nests()}));
  }
  /// One pass into the folder `path`, for load(path). At its end it replaces, at once, what is
  /// there; AlreadyExists while another one writes there.
  void save(const std::string& path, const SaveOptions<Element>& options = {}) const {
    plans::save(*plan_, path, {options.compression, nullptr, options.shard_func.of_nests()});
  }
  /// Elements that have not been seen before, each one integer, bool or string Tensor.
  Dataset unique() const { return Dataset(plans::unique(plan_)); }
  /// Drops elements so that classes are as frequent as `target_dist` says; gives (class, element).
  /// `class_of` as group_by_window's key. A class c is kept with the probability
  /// t(c) / i(c) / max(t / i) for the initial distribution i.
  template <class ClassOf>
  auto rejection_resample(ClassOf class_of, std::vector<double> target_dist,
                          const ResampleOptions& options = {}) const {
    return Dataset<std::tuple<Tensor, Element>>(
        plans::rejection_resample(plan_, number_of("rejection_resample", std::move(class_of)),
                                  std::move(target_dist), options));
  }
  /// Drops elements that throw. FailedPrecondition when it seems that this would go on for ever:
  /// the source fails again and again in the same way.
  Dataset ignore_errors(const IgnoreErrorsOptions& options = {}) const {
    return Dataset(plans::ignore_errors(plan_, options));
  }
  /// Says how many elements there are; a pass that has another number ends in FailedPrecondition.
  Dataset assert_cardinality(int64_t expected) const {
    return Dataset(plans::assert_cardinality(plan_, expected));
  }
  /// A thread, on one core, makes elements ahead, `buffer_size` at most; 0: none. kAutotune: 2, and
  /// more where the buffer runs dry (AutotuneOptions).
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
  /// Those of a distribution alone: `with_options({.auto_shard_policy = AutoShardPolicy::kData})`.
  template <std::same_as<DistributeOptions> Distribute = DistributeOptions>
  Dataset with_options(const Distribute& options) const {
    return with_options(Options{.experimental_distribute = options});
  }
  Dataset with_options(const Options& options) const {
    return Dataset(plans::with_options(plan_, options));
  }
  /// `function(*this)`.
  template <class Function>
  auto apply(Function&& function) const {
    return function(*this);
  }

  /// The element of a dataset of one; InvalidArgument when there are none or more.
  Element get_single_element() const { return from_nest<Element>(plans::single_element(*plan_)); }
  int64_t cardinality() const { return plan_->cardinality(); }
  /// The cardinality where there is one; InvalidArgument when it is infinite or unknown.
  int64_t length() const { return plans::length(*plan_); }
  /// Where the cardinality does not tell, the first element of a pass is made to see.
  bool empty() const { return plans::empty(*plan_); }
  /// True, as of any dataset in Python: it is there, with elements or without.
  explicit operator bool() const { return true; }
  SpecNest element_spec() const { return plan_->element_spec(); }
  const PlanPtr& plan() const { return plan_; }

  DatasetIterator<Element> iterator() const { return DatasetIterator<Element>(begin_pass(plan_)); }

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
  template <class Function>
  using ElementGiven = typename std::decay_t<decltype(internal::call_with_element(
      std::declval<Function&>(), std::declval<Element>()))>::element_type;

  template <class Predicate>
  static NestPredicate predicate_of(const char* operation, Predicate predicate) {
    return [operation, predicate](const Nest& nest) mutable -> bool {
      return internal::one_bool(operation,
                                internal::call_with_element(predicate, from_nest<Element>(nest)));
    };
  }
  template <class Function>
  static NestToNumber number_of(const char* operation, Function function) {
    return [operation, function](const Nest& nest) mutable -> int64_t {
      return internal::one_integer(operation,
                                   internal::call_with_element(function, from_nest<Element>(nest)));
    };
  }
  template <class Function>
  static PlanFunction plans_of(Function function) {
    return [function](const Nest& nest) mutable -> PlanPtr {
      return internal::call_with_element(function, from_nest<Element>(nest)).plan();
    };
  }
  PlanPtr plan_;
};

/// The pipeline as a tree, one line an operation: to_string(Plan).
template <class Element>
std::string to_string(const Dataset<Element>& dataset) {
  return to_string(*dataset.plan());
}
template <class Element>
std::ostream& operator<<(std::ostream& out, const Dataset<Element>& dataset) {
  return out << to_string(*dataset.plan());
}

}  // namespace data
}  // namespace tutti

#include "tutti/data/sources.h"  // NOLINT: the other half, for those who include this one
