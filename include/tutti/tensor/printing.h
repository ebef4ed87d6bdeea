#pragma once
// Tensors as NumPy and TensorFlow print them.

#include <iosfwd>
#include <string>

#include "tutti/tensor/nest.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

/// The values in the layout of NumPy's `str` (2.3 and later): `[[0.7]\n [0.7]]`, `[1 2 3]`, `1.5`,
/// `True`; `...` in the middle above 1000 elements. bfloat16, which NumPy lacks, follows the rules
/// of float16. Complex entries are printed each as Python does: `(1+2j)`; quantised and sparse
/// tensors by ATen; one without data (meta) is `<unprintable>`.
std::string values_to_string(const Tensor& tensor);

/// `Tensor(0.7, shape=(), dtype=float32)`, `Tensor([1 2], shape=(2,), dtype=int64)`; as in
/// TensorFlow, values of several lines start on a line of their own.
std::string to_string(const Tensor& tensor);

/// An element of a dataset, in the layout of `element_spec`; strings as
/// `Tensor([b'a' b'b'], shape=(2,), dtype=string)`.
std::string to_string(const Nest& nest);
std::ostream& operator<<(std::ostream& out, const Nest& nest);

/// One number as NumPy prints a scalar, with the digits that the dtype needs: `0.7` for the float
/// 0.7f, `1.0`, `1e-05`, `nan`. From 1e6 (single precision) or 1e16 on there is an exponent.
std::string number_to_string(double value, bool single_precision);

}  // namespace tutti
