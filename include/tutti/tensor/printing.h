#pragma once
// Tensors as NumPy and TensorFlow print them.

#include <string>

#include "tutti/tensor/tensor.h"

namespace tutti {

/// The values in NumPy's layout: `[[0.7]\n [0.7]]`, `[1 2 3]`, `1.5`, `True`; `...` in the middle
/// above 1000 elements.
std::string values_to_string(const Tensor& tensor);

/// `Tensor(0.7, shape=(), dtype=float32)`, `Tensor([1 2], shape=(2,), dtype=int64)`; from rank 2
/// the values start on a new line.
std::string to_string(const Tensor& tensor);

/// One number as Python prints it with the digits that the dtype needs: `0.7` for the float 0.7f,
/// `1.0`, `1e-05`, `nan`.
std::string number_to_string(double value, bool single_precision);

}  // namespace tutti
