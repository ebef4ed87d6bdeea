#pragma once
// Random numbers in functions of datasets.

namespace at {
struct Generator;
}

namespace tutti::data {

/// Inside a function that a dataset calls for an element (of map, filter, scan, flat_map,
/// interleave): a generator of CPU tensors that belongs to this call. What is drawn from it depends
/// on set_seed, the transformation, the pass and the element's number alone, not on
/// num_parallel_calls, threads or timing:
///
///     images.map([](Tensor x) { return x + at::rand(x.sizes(), data::element_random()); }, …)
///
/// Layers that draw (Dropout, Random…) use it there by themselves. FailedPrecondition elsewhere.
/// Not for other threads.
at::Generator& element_random();

}  // namespace tutti::data
