#pragma once
// Records of Example and SequenceExample as tensors.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/tensor/nest.h"
#include "tutti/tensor/string_tensor.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::io {

// What is wanted of a feature. dtypes: float32, int64 and kString.

/// Always as many values as `shape` holds. `default_value` (as many) for records without the
/// feature; unset: that is an error.
struct FixedLenFeature {
  std::vector<int64_t> shape;
  at::ScalarType dtype;
  std::optional<Nest> default_value = std::nullopt;
};
/// Any number of values. Of one record: the vector of them. Of several: {"row_splits": int64
/// [rows + 1], "values": all of them}, row r being values[row_splits[r]] …
/// values[row_splits[r + 1] - 1]; ragged_to_dense makes one tensor of it.
struct VarLenFeature {
  at::ScalarType dtype;
};
/// The same; `value_key`, unless empty, is the feature's name in the record.
struct RaggedFeature {
  at::ScalarType dtype;
  std::string value_key = "";
};
/// Any number of values of `shape` each: [number] + shape. Several records are filled up with
/// `default_value` (one value; unset: 0 or "") to the longest. In a SequenceExample: one feature a
/// part, each of `shape`. `allow_missing`: records without it have none; else that is an error.
struct FixedLenSequenceFeature {
  std::vector<int64_t> shape;
  at::ScalarType dtype;
  bool allow_missing = false;
  std::optional<Nest> default_value = std::nullopt;
};
using FeatureConfig =
    std::variant<FixedLenFeature, VarLenFeature, RaggedFeature, FixedLenSequenceFeature>;
using FeatureConfigs = std::map<std::string, FeatureConfig>;

/// A map of the features asked for. InvalidArgument, with the name of the feature, when it is
/// missing and has no default, has another number of values or another type, or when `serialized`
/// is no Example.
Nest parse_single_example(std::string_view serialized, const FeatureConfigs& features);
/// The same of a vector of records; row r of each tensor is record r's.
Nest parse_example(const StringTensor& serialized, const FeatureConfigs& features);
/// (context, parts) of a SequenceExample.
std::pair<Nest, Nest> parse_single_sequence_example(std::string_view serialized,
                                                    const FeatureConfigs& context_features,
                                                    const FeatureConfigs& sequence_features);

/// [rows, longest row] of {"row_splits", "values"}, filled up with `default_value` (a scalar of the
/// values' kind; unset: 0 or "").
Nest ragged_to_dense(const Nest& ragged, const std::optional<Nest>& default_value = std::nullopt);

}  // namespace tutti::io
