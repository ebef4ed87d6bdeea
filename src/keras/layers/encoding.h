#pragma once
// What the preprocessing layers share: categories as vectors, and data to adapt to.

#include <optional>
#include <string>
#include <vector>

#include "keras/layers/nested.h"
#include "tutti/base/function_ref.h"
#include "tutti/data/dataset.h"

namespace tutti::keras::layers {

/// "one_hot": [..., depth] for each index (a last axis of 1 is taken away); "multi_hot", "count":
/// for those along the last axis together. Indices outside [0, depth) are left out. `weights`: what
/// each index counts.
Tensor encode_categories(const Tensor& indices, const std::string& mode, int64_t depth,
                         at::ScalarType dtype, const Tensor& weights = {});
Shape encoded_shape(const Shape& input, const std::string& mode, int64_t depth);

/// Calls `take` for each element (the first component of a tuple), `steps` of them or all.
/// InvalidArgument when there is none, or no end.
void for_each_batch(const LayerImpl& layer, const data::Dataset<Nest>& data,
                    std::optional<int64_t> steps, FunctionRef<void(const Nest&)> take);
/// adapt belongs outside replicas (FailedPrecondition).
void check_adapts_here(const LayerImpl& layer);
/// The tensor of an element; InvalidArgument for strings and nests.
const Tensor& tensor_of(const LayerImpl& layer, const Nest& element);

/// The layer that stands behind a handle; InvalidArgument for another class.
template <class Impl>
Impl& impl_of(const Layer& layer, const char* class_name) {
  auto* impl = dynamic_cast<Impl*>(layer.impl().get());
  if (impl != nullptr) return *impl;
  throw InvalidArgument(cat(class_name, ": ",
                            layer.impl() == nullptr ? "an empty handle" : layer->class_name(),
                            ", expected a layer of that class"));
}

/// `impl` has begin, add and finish: what adapt is made of.
template <class Impl>
void adapt_to(Impl& impl, const Tensor& data) {
  if (!data.defined())
    throw InvalidArgument(cat("adapt [", impl.name(), "]: an undefined tensor, expected data"));
  impl.begin();
  impl.add(data);
  impl.finish();
}
template <class Impl>
void adapt_to(Impl& impl, const data::Dataset<Nest>& data, std::optional<int64_t> steps) {
  impl.begin();
  for_each_batch(impl, data, steps,
                 [&](const Nest& element) { impl.add(tensor_of(impl, element)); });
  impl.finish();
}

/// A JSON number or list of numbers, nested or not, as a flat list.
std::vector<double> flat_numbers(const Json& json, const char* key);

}  // namespace tutti::keras::layers
