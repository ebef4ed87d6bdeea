#pragma once
// Where datasets come from.

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tutti/data/dataset.h"

namespace tutti::data {

/// 0 … stop - 1 as scalars.
inline Dataset<Tensor> range(int64_t stop, const RangeOptions& options = {}) {
  return Dataset<Tensor>(plans::range(0, stop, 1, options));
}
/// start, start + step, … in front of stop; a negative step goes down. Empty when nothing fits.
inline Dataset<Tensor> range(int64_t start, int64_t stop, int64_t step = 1,
                             const RangeOptions& options = {}) {
  return Dataset<Tensor>(plans::range(start, stop, step, options));
}
/// start, start + step, … without end.
inline Dataset<Tensor> counter(const CounterOptions& options = {}) {
  return Dataset<Tensor>(plans::counter(options));
}
/// Random int64 scalars from 0 to below 2^32, without end. Seeds are as shuffle's.
inline Dataset<Tensor> random(const RandomOptions& options = {}) {
  return Dataset<Tensor>(plans::random(options));
}

/// Names of the files that match (glob(3)), sorted and then shuffled. InvalidArgument when no file
/// does.
inline Dataset<std::string> list_files(const std::vector<std::string>& patterns,
                                       const ListFilesOptions& options = {}) {
  return Dataset<std::string>(plans::list_files(patterns, options));
}
template <std::convertible_to<std::string_view> Pattern>
Dataset<std::string> list_files(const Pattern& pattern, const ListFilesOptions& options = {}) {
  return list_files(std::vector<std::string>{std::string(pattern)}, options);
}

/// One element: the whole structure, the tensors themselves in every pass. Several arguments make a
/// tuple.
template <NestLike... Items>
auto from_tensors(const Items&... items) {
  if constexpr (sizeof...(Items) == 1) {
    return Dataset<typename internal::ElementOf<Items...>::Type>(
        plans::from_tensors((to_nest(items), ...)));
  } else {
    return Dataset<typename internal::ElementOf<Items...>::Type>(
        plans::from_tensors(Nest::tuple({to_nest(items)...})));
  }
}

/// Slices along the first axis of every component; all must have the same length. A list of
/// strings is sliced into strings, a StringTensor into StringTensors.
template <NestLike... Items>
auto from_tensor_slices(const Items&... items) {
  using Element =
      typename internal::ElementOf<typename internal::Sliced<std::decay_t<Items>>::Type...>::Type;
  if constexpr (sizeof...(Items) == 1) {
    return Dataset<Element>(
        plans::from_tensor_slices((internal::Sliced<std::decay_t<Items>>::nest(items), ...)));
  } else {
    return Dataset<Element>(plans::from_tensor_slices(
        Nest::tuple({internal::Sliced<std::decay_t<Items>>::nest(items)...})));
  }
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
/// where a file that cannot be opened has its turn, DataLoss where a packed one is damaged; the
/// pass can go on behind it, with the next file.
inline Dataset<std::string> text_lines(std::vector<std::string> files) {
  return Dataset<std::string>(plans::text_lines(std::move(files)));
}
template <std::convertible_to<std::string_view> File>
Dataset<std::string> text_lines(const File& file) {
  return text_lines(std::vector<std::string>{std::string(file)});
}

/// What Dataset::save wrote. NotFound, or DataLoss for damaged files, now or at the element;
/// FailedPrecondition at a pass when it has been replaced since, which passes under way do not
/// notice. `Element`: the type that was saved, or Nest for any. Of unknown cardinality with a
/// `reader_func`.
template <class Element = Nest>
Dataset<Element> load(const std::string& path, const LoadOptions<Element>& options = {}) {
  return Dataset<Element>(
      plans::load(path, internal::reader_of_plans<Element>(options.reader_func)));
}

/// Tuples of one element of each; as long as the shortest.
template <class... Elements>
Dataset<std::tuple<Elements...>> zip(const Dataset<Elements>&... datasets) {
  return Dataset<std::tuple<Elements...>>(plans::zip({datasets.plan()...}));
}

namespace internal {
template <class Element>
std::vector<PlanPtr> plans_of(const std::vector<Dataset<Element>>& datasets) {
  std::vector<PlanPtr> all;
  for (const auto& dataset : datasets) all.push_back(dataset.plan());
  return all;
}
}  // namespace internal

/// Each element is the next one of a dataset that is drawn at random. Structures and dtypes must
/// agree (InvalidArgument).
template <class Element>
Dataset<Element> sample_from_datasets(const std::vector<Dataset<Element>>& datasets,
                                      const SampleOptions& options = {}) {
  return Dataset<Element>(plans::sample_from_datasets(internal::plans_of(datasets), options));
}
/// Each element is the next one of the dataset whose number `choices` gives, as int64 scalars; a
/// number that is no dataset's is InvalidArgument.
template <class Element>
Dataset<Element> choose_from_datasets(const std::vector<Dataset<Element>>& datasets,
                                      const Dataset<Tensor>& choices,
                                      const ChooseOptions& options = {}) {
  return Dataset<Element>(
      plans::choose_from_datasets(internal::plans_of(datasets), choices.plan(), options));
}

}  // namespace tutti::data
