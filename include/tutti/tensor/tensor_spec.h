#pragma once
// What is known of a tensor before it exists: its shape and dtype.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "tutti/tensor/nest.h"

namespace tutti {

/// The dtype of a StringTensor in a spec, `string`. LibTorch has no such dtype, and a spec no
/// undefined one.
inline constexpr at::ScalarType kString = at::ScalarType::Undefined;

/// Shape and dtype; a dimension of -1 is unknown (printed None). `unknown_rank` says that not even
/// the rank is known.
struct TensorSpec {
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::ScalarType::Float;
  bool unknown_rank = false;

  static TensorSpec of(const Tensor& tensor);
  static TensorSpec of(const StringTensor& strings);
  /// `TensorSpec(shape=(None, 28), dtype=float32)`.
  std::string to_string() const;
  /// True when a tensor of `other`'s shape and dtype may stand where this is asked for.
  bool accepts(const TensorSpec& other) const;
  /// The narrowest spec that accepts both; dtypes must agree (InvalidArgument).
  TensorSpec relaxed_with(const TensorSpec& other) const;
  bool is_static() const;
  bool operator==(const TensorSpec&) const = default;
};
std::ostream& operator<<(std::ostream& out, const TensorSpec& spec);

/// A nest of specs, with the layout that `element_spec()` prints (one line up to 80 columns, else
/// one component a line).
using SpecNest = NestOf<TensorSpec>;
/// Tensors and strings become specs, an object what stands for it in one.
SpecNest spec_of(const Nest& nest);
std::ostream& operator<<(std::ostream& out, const SpecNest& spec);

/// TensorFlow's name of a dtype: "float32", "int64", "bool", "string", "bfloat16", … and back
/// (InvalidArgument for an unknown name).
std::string dtype_name(at::ScalarType dtype);
at::ScalarType dtype_from_name(const std::string& name);

/// Text of any nest whose leaves have text: on one line when it fits in 80 columns, else one
/// component a line, aligned behind the bracket (the layout of `element_spec`).
std::string layout_nest_text(const NestOf<std::string>& nest, std::size_t columns = 80);

}  // namespace tutti
