#include "tutti/io/parsing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "proto/example_codec.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::io {
namespace {

using proto::FeatureKind;
using proto::FeatureView;

/// Whose error it is.
struct Place {
  const char* operation;
  int64_t row;  // -1: there is only one
  std::string_view feature;

  [[noreturn]] void refuse(const std::string& found_expected) const {
    const std::string of_row = row < 0 ? "" : cat("record ", row, ", ");
    throw InvalidArgument(
        cat(operation, " [", of_row, "feature \"", feature, "\"]: ", found_expected));
  }
};

std::string name_of(at::ScalarType dtype) {
  return dtype == kString ? "string" : dtype_name(dtype);
}

FeatureKind kind_of(at::ScalarType dtype) {
  if (dtype == kString) return FeatureKind::kBytes;
  return dtype == at::kFloat ? FeatureKind::kFloat : FeatureKind::kInt64;
}

void check_dtype(const Place& place, at::ScalarType dtype) {
  if (dtype == kString || dtype == at::kFloat || dtype == at::kLong) return;
  place.refuse(cat("dtype ", name_of(dtype),
                   ", expected float32, int64 or string, which records have; "
                   "convert afterwards"));
}

int64_t checked_numel(const Place& place, const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(numel, size, &numel))
      place.refuse(cat("the shape ", shape_text(shape), ", expected sizes that are known"));
  }
  return numel;
}

/// The feature if it is there, of the right kind.
const FeatureView* present(const Place& place, const FeatureView* view, at::ScalarType dtype) {
  if (view == nullptr || view->kind() == FeatureKind::kNone) return nullptr;
  if (view->kind() != kind_of(dtype)) {
    place.refuse(cat("data types do not match: ", proto::kind_name(view->kind()),
                     " values, expected ", name_of(dtype)));
  }
  return view;
}

[[noreturn]] void refuse_missing(const Place& place, at::ScalarType dtype) {
  place.refuse(cat("it is required but could not be found, expected values of ", name_of(dtype),
                   "; give it a default_value if records may be without it"));
}

/// Values of one dtype, one after the other.
class Values {
 public:
  explicit Values(at::ScalarType dtype) : dtype_(dtype) {}
  /// Room for so many rows; above a million values it grows as they come, since they may not.
  void reserve(int64_t rows, int64_t values_of_row) {
    constexpr int64_t kMost = 1 << 20;
    const int64_t values = std::min(rows, kMost) * std::min(values_of_row, kMost);
    const auto count = static_cast<std::size_t>(std::min(values, kMost));
    if (dtype_ == kString) {
      strings_.reserve(count);
    } else {
      numbers_.reserve(count * item_size());
    }
  }
  void append(const FeatureView& view) {
    if (view.kind() == FeatureKind::kFloat) return append_raw(view.floats().data(), view.size());
    if (view.kind() == FeatureKind::kInt64) return append_raw(view.int64s().data(), view.size());
    for (std::size_t i = 0; i < view.size(); ++i) strings_.emplace_back(view.bytes(i));
  }
  void append(const Values& other, int64_t first, int64_t count) {
    const auto from = static_cast<std::size_t>(first);
    const auto many = static_cast<std::size_t>(count);
    if (dtype_ == kString) {
      const auto begin = other.strings_.begin() + first;
      strings_.insert(strings_.end(), begin, begin + count);
    } else {
      append_raw(other.numbers_.data() + from * item_size(), many);
    }
  }
  void append(const Values& other) { append(other, 0, other.count()); }
  int64_t count() const {
    return static_cast<int64_t>(dtype_ == kString ? strings_.size()
                                                  : numbers_.size() / item_size());
  }
  Nest take(std::vector<int64_t> shape) {
    if (dtype_ == kString) return StringTensor(std::move(strings_), std::move(shape));
    Tensor tensor = at::empty(shape, at::TensorOptions().dtype(dtype_));
    if (!numbers_.empty()) std::memcpy(tensor.data_ptr(), numbers_.data(), numbers_.size());
    return tensor;
  }
  /// Of a default value: as many as it has; InvalidArgument when it is of another kind.
  static Values of(const Place& place, const Nest& nest, at::ScalarType dtype) {
    Values values(dtype);
    if (dtype == kString && nest.is_strings()) {
      const auto strings = nest.strings().values();
      values.strings_.assign(strings.begin(), strings.end());
    } else if (dtype != kString && nest.is_leaf()) {
      const Tensor tensor = nest.leaf().detach().cpu().to(dtype).contiguous();
      values.append_raw(tensor.const_data_ptr(), static_cast<std::size_t>(tensor.numel()));
    } else {
      place.refuse(cat("a default_value of the structure ", nest.structure(), ", expected ",
                       dtype == kString ? "a StringTensor" : "a Tensor"));
    }
    return values;
  }
  static Values zero(at::ScalarType dtype) {
    Values values(dtype);
    if (dtype == kString)
      values.strings_.emplace_back();
    else
      values.numbers_.resize(values.item_size());
    return values;
  }

 private:
  std::size_t item_size() const { return dtype_ == at::kFloat ? 4 : 8; }
  void append_raw(const void* data, std::size_t count) {
    const auto* bytes = static_cast<const char*>(data);
    numbers_.insert(numbers_.end(), bytes, bytes + count * item_size());
  }
  at::ScalarType dtype_;
  std::vector<char> numbers_;
  std::vector<std::string> strings_;
};

/// What one feature of the records becomes: each record is added in turn.
class Column {
 public:
  virtual ~Column() = default;
  virtual void add(const Place& place, const FeatureView* view) = 0;
  /// Of all rows, or of the only one.
  virtual Nest finish(bool is_batch) = 0;
};

class FixedColumn : public Column {
 public:
  FixedColumn(const Place& place, const FixedLenFeature& config, int64_t rows)
      : shape_(config.shape),
        dtype_(config.dtype),
        numel_(checked_numel(place, config.shape)),
        values_(config.dtype) {
    check_dtype(place, dtype_);
    if (config.default_value) {
      default_ = Values::of(place, *config.default_value, dtype_);
      if (default_->count() != numel_) {
        place.refuse(cat("a default_value of ", default_->count(), " values, expected ", numel_,
                         " for the shape ", shape_text(shape_)));
      }
    }
    values_.reserve(rows, numel_);
  }
  void add(const Place& place, const FeatureView* view) override {
    ++rows_;
    view = present(place, view, dtype_);
    if (view == nullptr && !default_) refuse_missing(place, dtype_);
    if (view == nullptr) return values_.append(*default_);
    if (static_cast<int64_t>(view->size()) != numel_) {
      place.refuse(cat("the number of ", name_of(dtype_), " values is ", view->size(),
                       ", expected ", numel_, " for the shape ", shape_text(shape_)));
    }
    values_.append(*view);
  }
  Nest finish(bool is_batch) override {
    std::vector<int64_t> shape = shape_;
    if (is_batch) shape.insert(shape.begin(), rows_);
    return values_.take(std::move(shape));
  }

 private:
  std::vector<int64_t> shape_;
  at::ScalarType dtype_;
  int64_t numel_;
  Values values_;
  std::optional<Values> default_;
  int64_t rows_ = 0;
};

class RaggedColumn : public Column {
 public:
  RaggedColumn(const Place& place, at::ScalarType dtype) : dtype_(dtype), values_(dtype) {
    check_dtype(place, dtype);
  }
  void add(const Place& place, const FeatureView* view) override {
    view = present(place, view, dtype_);
    if (view != nullptr) values_.append(*view);
    splits_.push_back(values_.count());
  }
  Nest finish(bool is_batch) override {
    const int64_t count = values_.count();
    Nest values = values_.take({count});
    if (!is_batch) return values;
    return Nest::map(
        {{"row_splits", at::tensor(splits_, at::kLong)}, {"values", std::move(values)}});
  }

 private:
  at::ScalarType dtype_;
  Values values_;
  std::vector<int64_t> splits_ = {0};
};

/// Rows of different lengths, filled up at their ends.
class SequenceColumn : public Column {
 public:
  SequenceColumn(const Place& place, const FixedLenSequenceFeature& config)
      : shape_(config.shape),
        dtype_(config.dtype),
        may_miss_(config.allow_missing),
        numel_(checked_numel(place, config.shape)),
        values_(config.dtype),
        filling_(Values::zero(config.dtype)) {
    check_dtype(place, dtype_);
    if (numel_ == 0)
      place.refuse(cat("the shape ", shape_text(shape_), ", expected one that holds values"));
    if (!config.default_value) return;
    filling_ = Values::of(place, *config.default_value, dtype_);
    if (filling_.count() != 1)
      place.refuse(cat("a default_value of ", filling_.count(), " values, expected one"));
  }
  void add(const Place& place, const FeatureView* view) override {
    view = present(place, view, dtype_);
    if (view == nullptr && !may_miss_) {
      place.refuse(cat("it is required but could not be found, expected values of ",
                       name_of(dtype_), "; set allow_missing if records may be without it"));
    }
    const int64_t count = view == nullptr ? 0 : static_cast<int64_t>(view->size());
    if (count % numel_ != 0) {
      place.refuse(cat("the number of ", name_of(dtype_), " values is ", count,
                       ", expected a multiple of ", numel_, " for the shape ", shape_text(shape_)));
    }
    if (view != nullptr) values_.append(*view);
    lengths_.push_back(count);
    longest_ = std::max(longest_, count);
  }
  Nest finish(bool is_batch) override {
    std::vector<int64_t> shape = shape_;
    shape.insert(shape.begin(), longest_ / numel_);
    if (!is_batch) return values_.take(std::move(shape));
    shape.insert(shape.begin(), static_cast<int64_t>(lengths_.size()));
    Values filled(dtype_);
    filled.reserve(static_cast<int64_t>(lengths_.size()), longest_);
    int64_t from = 0;
    for (int64_t length : lengths_) {
      filled.append(values_, from, length);
      for (int64_t i = length; i < longest_; ++i) filled.append(filling_);
      from += length;
    }
    return filled.take(std::move(shape));
  }

 private:
  std::vector<int64_t> shape_;
  at::ScalarType dtype_;
  bool may_miss_;
  int64_t numel_;
  Values values_;
  Values filling_;
  std::vector<int64_t> lengths_;
  int64_t longest_ = 0;
};

std::unique_ptr<Column> column_of(const Place& place, const FeatureConfig& config, int64_t rows) {
  if (const auto* fixed = std::get_if<FixedLenFeature>(&config))
    return std::make_unique<FixedColumn>(place, *fixed, rows);
  if (const auto* list = std::get_if<FixedLenSequenceFeature>(&config))
    return std::make_unique<SequenceColumn>(place, *list);
  const auto* ragged = std::get_if<RaggedFeature>(&config);
  return std::make_unique<RaggedColumn>(
      place, ragged != nullptr ? ragged->dtype : std::get<VarLenFeature>(config).dtype);
}

/// The feature's name in the records.
const std::string& key_of(const std::string& name, const FeatureConfig& config) {
  const auto* ragged = std::get_if<RaggedFeature>(&config);
  return ragged != nullptr && !ragged->value_key.empty() ? ragged->value_key : name;
}

struct WantedFeature {
  std::string name;
  std::string key;
  std::unique_ptr<Column> column;
};

std::vector<WantedFeature> wanted_features(const char* operation, const FeatureConfigs& features,
                                           int64_t rows) {
  std::vector<WantedFeature> wanted;
  for (const auto& [name, config] : features) {
    wanted.push_back(
        {name, key_of(name, config), column_of(Place{operation, -1, name}, config, rows)});
  }
  return wanted;
}

Nest finished(std::vector<WantedFeature>& wanted, bool is_batch) {
  std::map<std::string, Nest> all;
  for (WantedFeature& feature : wanted) all.emplace(feature.name, feature.column->finish(is_batch));
  return Nest::map(std::move(all));
}

void add_features(const char* operation, int64_t row,
                  const std::vector<proto::NamedFeatureView>& features,
                  std::vector<WantedFeature>& wanted) {
  for (WantedFeature& feature : wanted)
    feature.column->add({operation, row, feature.name}, find_feature(features, feature.key));
}

[[noreturn]] void refuse_record(const char* operation, int64_t row, std::size_t size,
                                const char* wanted) {
  const std::string where = row < 0 ? "" : cat(" [record ", row, "]");
  throw InvalidArgument(cat(operation, where, ": ", size,
                            " bytes that are no such message, expected a serialized ", wanted));
}

Nest parts_of(const Place& place, const proto::NamedFeatureListView* list,
              const FeatureConfig& config) {
  const auto* sequence = std::get_if<FixedLenSequenceFeature>(&config);
  if (std::holds_alternative<FixedLenFeature>(config)) {
    place.refuse(
        "a FixedLenFeature, expected FixedLenSequenceFeature, VarLenFeature or "
        "RaggedFeature for the parts of a sequence");
  }
  if (sequence != nullptr && list == nullptr && !sequence->allow_missing) {
    place.refuse(
        cat("it is required but could not be found, expected a list of features; set "
            "allow_missing if records may be without it"));
  }
  const auto rows = static_cast<int64_t>(list == nullptr ? 0 : list->features.size());
  const std::unique_ptr<Column> column =
      sequence == nullptr ? column_of(place, config, rows)
                          : std::make_unique<FixedColumn>(
                                place, FixedLenFeature{sequence->shape, sequence->dtype}, rows);
  for (int64_t row = 0; row < rows; ++row)
    column->add(place, &list->features[static_cast<std::size_t>(row)]);
  return column->finish(/*is_batch=*/true);
}

}  // namespace

Nest parse_single_example(std::string_view serialized, const FeatureConfigs& features) {
  constexpr const char* kOperation = "parse_single_example";
  std::vector<WantedFeature> wanted = wanted_features(kOperation, features, 1);
  proto::ParsedExample example;
  if (!example.parse(serialized)) refuse_record(kOperation, -1, serialized.size(), "Example");
  add_features(kOperation, -1, example.features(), wanted);
  return finished(wanted, /*is_batch=*/false);
}

Nest parse_example(const StringTensor& serialized, const FeatureConfigs& features) {
  constexpr const char* kOperation = "parse_example";
  if (serialized.dim() != 1) {
    throw InvalidArgument(cat(kOperation, ": strings of the shape ", shape_text(serialized.sizes()),
                              ", expected a vector; batch() the records, or use "
                              "parse_single_example"));
  }
  std::vector<WantedFeature> wanted = wanted_features(kOperation, features, serialized.numel());
  proto::ParsedExample example;
  int64_t row = 0;
  for (const std::string& bytes : serialized.values()) {
    if (!example.parse(bytes)) refuse_record(kOperation, row, bytes.size(), "Example");
    add_features(kOperation, row++, example.features(), wanted);
  }
  return finished(wanted, /*is_batch=*/true);
}

std::pair<Nest, Nest> parse_single_sequence_example(std::string_view serialized,
                                                    const FeatureConfigs& context_features,
                                                    const FeatureConfigs& sequence_features) {
  constexpr const char* kOperation = "parse_single_sequence_example";
  std::vector<WantedFeature> context = wanted_features(kOperation, context_features, 1);
  proto::ParsedSequenceExample example;
  if (!example.parse(serialized))
    refuse_record(kOperation, -1, serialized.size(), "SequenceExample");
  add_features(kOperation, -1, example.context(), context);
  std::map<std::string, Nest> parts;
  for (const auto& [name, config] : sequence_features) {
    const proto::NamedFeatureListView* found = nullptr;
    for (const proto::NamedFeatureListView& list : example.lists()) {
      if (list.name == key_of(name, config)) found = &list;
    }
    parts.emplace(name, parts_of({kOperation, -1, name}, found, config));
  }
  return {finished(context, /*is_batch=*/false), Nest::map(std::move(parts))};
}

Nest ragged_to_dense(const Nest& ragged, const std::optional<Nest>& default_value) {
  const Place place{"ragged_to_dense", -1, "values"};
  const Tensor splits = ragged["row_splits"].leaf().cpu().to(at::kLong).contiguous();
  const Nest& values = ragged["values"];
  const bool is_strings = values.is_strings();
  const at::ScalarType dtype = is_strings ? kString : values.leaf().scalar_type();
  check_dtype(place, dtype);
  const Values all = Values::of(place, values, dtype);
  const Values filling =
      default_value ? Values::of(place, *default_value, dtype) : Values::zero(dtype);
  if (filling.count() != 1)
    place.refuse(cat("a default_value of ", filling.count(), " values, expected one"));
  const auto* at = splits.const_data_ptr<int64_t>();
  const int64_t rows = splits.numel() - 1;
  int64_t longest = 0;
  bool rising = rows >= 0 && at[0] == 0 && at[rows] == all.count();
  for (int64_t row = 0; rising && row < rows; ++row) {
    rising = at[row] <= at[row + 1];
    longest = std::max(longest, at[row + 1] - at[row]);
  }
  if (!rising) place.refuse("row_splits that do not rise from 0 to the number of values");
  Values filled(dtype);
  for (int64_t row = 0; row < rows; ++row) {
    filled.append(all, at[row], at[row + 1] - at[row]);
    for (int64_t i = at[row + 1] - at[row]; i < longest; ++i) filled.append(filling);
  }
  return filled.take({rows, longest});
}

}  // namespace tutti::io
