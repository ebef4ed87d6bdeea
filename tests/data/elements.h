#pragma once
// What the elements of a dataset are, as plain numbers.

#include <ATen/ATen.h>

#include <vector>

#include "support/expect.h"
#include "tutti/data/dataset.h"

namespace tutti::data {

inline std::vector<int64_t> numbers_of(const Tensor& tensor) {
  const Tensor values = tensor.to(at::kLong).contiguous();
  const auto* data = values.const_data_ptr<int64_t>();
  return {data, data + values.numel()};
}

/// One pass over scalars.
inline std::vector<int64_t> numbers(const Dataset<Tensor>& dataset) {
  std::vector<int64_t> all;
  for (const Tensor& element : dataset) all.push_back(element.item<int64_t>());
  return all;
}

/// One pass over tensors, each flattened.
inline std::vector<std::vector<int64_t>> rows(const Dataset<Tensor>& dataset) {
  std::vector<std::vector<int64_t>> all;
  for (const Tensor& element : dataset) all.push_back(numbers_of(element));
  return all;
}

/// 0 … count - 1 as rows of a table: the path on which batches are cut in one read.
inline Dataset<Tensor> table_of(int64_t count) { return from_tensor_slices(at::arange(count)); }

/// The same elements without the table behind them.
inline Dataset<Tensor> without_table(const Dataset<Tensor>& dataset) {
  return dataset.map([](const Tensor& element) { return element; });
}

using Numbers = std::vector<int64_t>;
using Rows = std::vector<std::vector<int64_t>>;

}  // namespace tutti::data
