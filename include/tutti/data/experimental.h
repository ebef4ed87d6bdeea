#pragma once
// What tf.data.experimental has and Dataset does not: elements by number, padding to a number of
// elements, reductions by key, and batches of the records of Example files.

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/data/dataset.h"
#include "tutti/io/parsing.h"

namespace tutti::data::experimental {

/// Element `index` without a pass: of range, counter, from_tensors, from_tensor_slices and windows,
/// and of map, batch, take, skip, shard, repeat, zip, concatenate, enumerate, prefetch,
/// assert_cardinality, with_options and cache (in memory, which it does not fill) over them.
/// Unimplemented elsewhere; OutOfRange when there is no such element. Of a function that draws
/// random numbers each index has its own, which are no pass's.
template <class Element>
Element at(const Dataset<Element>& dataset, int64_t index) {
  return from_nest<Element>(plans::element_at(*dataset.plan(), index));
}

/// `dataset.apply(pad_to_cardinality(n))`: maps with one more entry, the bool `mask_key`: true for
/// the dataset's own elements, false for those of zeros ("" for strings) behind them, n in all.
/// InvalidArgument unless the dataset says how many elements it has, n at most, that their shapes
/// are known, and that they are maps without that entry.
struct PadToCardinality {
  int64_t cardinality;
  std::string mask_key;
  template <class Element>
  requires std::same_as<Element, Nest> || std::same_as<Element, std::map<std::string, Tensor>> ||
      std::same_as<Element, std::map<std::string, Nest>>
          Dataset<Element>
  operator()(const Dataset<Element>& dataset) const {
    return Dataset<Element>(plans::pad_to_cardinality(dataset.plan(), cardinality, mask_key));
  }
};
inline PadToCardinality pad_to_cardinality(int64_t cardinality, std::string mask_key = "valid") {
  return {cardinality, std::move(mask_key)};
}

/// `init_func(key)` gives a state, `reduce_func(state, element)` the next one, whose dtypes stay,
/// `finalize_func(state)` the element of the result.
template <class Init, class Reduce, class Finalize>
struct Reducer {
  Init init_func;
  Reduce reduce_func;
  Finalize finalize_func;
};
template <class Init, class Reduce, class Finalize>
Reducer(Init, Reduce, Finalize) -> Reducer<Init, Reduce, Finalize>;

template <class Key, class Init, class Reduce, class Finalize>
struct GroupByReducer {
  Key key_func;
  Reducer<Init, Reduce, Finalize> reducer;
  template <class Element>
  auto operator()(const Dataset<Element>& dataset) const {
    using State = std::decay_t<std::invoke_result_t<const Init&, int64_t>>;
    using Result = std::decay_t<decltype(data::internal::call_with_element(reducer.finalize_func,
                                                                           std::declval<State>()))>;
    Reduction reduction{
        [key = key_func](const Nest& nest) mutable -> int64_t {
          return data::internal::one_integer(
              "group_by_reducer", data::internal::call_with_element(key, from_nest<Element>(nest)));
        },
        [init = reducer.init_func](int64_t key) { return to_nest<State>(init(key)); },
        [reduce = reducer.reduce_func](const Nest& state, const Nest& nest) mutable {
          return to_nest<State>(data::internal::call_with_element(reduce, from_nest<Element>(nest),
                                                                  from_nest<State>(state)));
        },
        [finalize = reducer.finalize_func](const Nest& state) mutable {
          return to_nest<Result>(
              data::internal::call_with_element(finalize, from_nest<State>(state)));
        }};
    return Dataset<Result>(plans::group_by_reducer(dataset.plan(), std::move(reduction)));
  }
};
/// `dataset.apply(group_by_reducer(key_func, reducer))`: one element for each key that
/// `key_func(element)` (an integer, or one integral Tensor) gives, keys rising. A pass reads the
/// whole dataset before its first element; the states of all keys are in memory.
template <class Key, class Init, class Reduce, class Finalize>
GroupByReducer<Key, Init, Reduce, Finalize> group_by_reducer(
    Key key_func, Reducer<Init, Reduce, Finalize> reducer) {
  return {std::move(key_func), std::move(reducer)};
}

/// `records.batch(n).apply(parse_example_dataset(features))`: io::parse_example of each vector of
/// records. InvalidArgument without features, or when elements are no strings.
struct ParseExampleDataset {
  io::FeatureConfigs features;
  /// As MapOptions has them.
  int64_t num_parallel_calls = 1;
  std::optional<bool> deterministic = std::nullopt;
  Dataset<Nest> operator()(const Dataset<Nest>& records) const;
};
inline ParseExampleDataset parse_example_dataset(io::FeatureConfigs features,
                                                 int64_t num_parallel_calls = 1,
                                                 std::optional<bool> deterministic = std::nullopt) {
  return {std::move(features), num_parallel_calls, deterministic};
}

struct MakeBatchedFeaturesDatasetOptions {
  /// The records of a file; unset: TFRecordDataset of it.
  std::function<Dataset<StringTensor>(const std::string& filename)> reader = nullptr;
  /// Elements are then (features, label).
  std::optional<std::string> label_key = std::nullopt;
  /// Unset: for ever; then all batches are whole.
  std::optional<int64_t> num_epochs = std::nullopt;
  /// The files, and the records in a buffer.
  bool shuffle = true;
  int64_t shuffle_buffer_size = 10000;
  std::optional<int64_t> shuffle_seed = std::nullopt;
  int64_t prefetch_buffer_size = kAutotune;
  /// Files that are read at once, one record of each by turns.
  int64_t reader_num_threads = 1;
  int64_t parser_num_threads = 2;
  /// True: records may overtake each other where several files are read at once.
  bool sloppy_ordering = false;
  bool drop_final_batch = false;
};
/// Batches of the records of the files that match, each an Example: {feature: tensor}, or a tuple
/// of that and the label's tensor. InvalidArgument when no file matches, without features, or when
/// `label_key` is none of them.
Dataset<Nest> make_batched_features_dataset(const std::vector<std::string>& file_patterns,
                                            int64_t batch_size, const io::FeatureConfigs& features,
                                            const MakeBatchedFeaturesDatasetOptions& options = {});
Dataset<Nest> make_batched_features_dataset(const std::string& file_pattern, int64_t batch_size,
                                            const io::FeatureConfigs& features,
                                            const MakeBatchedFeaturesDatasetOptions& options = {});

}  // namespace tutti::data::experimental
