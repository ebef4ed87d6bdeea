#pragma once
// tf.train.Example and SequenceExample: records of named lists of values.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::train {

struct BytesList {
  std::vector<std::string> value;
  bool operator==(const BytesList&) const = default;
};
struct FloatList {
  std::vector<float> value;
  bool operator==(const FloatList&) const = default;
};
struct Int64List {
  std::vector<int64_t> value;
  bool operator==(const Int64List&) const = default;
};

/// One of the three lists, or none.
class Feature {
 public:
  Feature() = default;
  Feature(BytesList list) : kind_(std::move(list)) {}  // NOLINT: a list is a feature
  Feature(FloatList list) : kind_(std::move(list)) {}  // NOLINT
  Feature(Int64List list) : kind_(std::move(list)) {}  // NOLINT

  bool has_bytes_list() const { return kind_.index() == 1; }
  bool has_float_list() const { return kind_.index() == 2; }
  bool has_int64_list() const { return kind_.index() == 3; }
  /// Of that kind; InvalidArgument when it is of another.
  const BytesList& bytes_list() const;
  const FloatList& float_list() const;
  const Int64List& int64_list() const;
  bool operator==(const Feature&) const = default;

 private:
  std::variant<std::monostate, BytesList, FloatList, Int64List> kind_;
};

struct Features {
  std::map<std::string, Feature> feature;
  bool operator==(const Features&) const = default;
};

/// Example({{"label", Int64List{{3}}}, {"image", BytesList{{png}}}})
struct Example {
  Example() = default;
  explicit Example(std::map<std::string, Feature> feature) : features{std::move(feature)} {}
  Features features;
  /// The message's bytes: equal examples give equal ones. InvalidArgument above 2 GiB.
  std::string serialize() const;
  /// InvalidArgument when `bytes` are no such message; what this library does not know is passed
  /// over.
  static Example parse(std::string_view bytes);
  bool operator==(const Example&) const = default;
};

struct FeatureList {
  std::vector<Feature> feature;
  bool operator==(const FeatureList&) const = default;
};
struct FeatureLists {
  std::map<std::string, FeatureList> feature_list;
  bool operator==(const FeatureLists&) const = default;
};

/// Features of the whole, and lists of features of its parts.
struct SequenceExample {
  Features context;
  FeatureLists feature_lists;
  std::string serialize() const;
  static SequenceExample parse(std::string_view bytes);
  bool operator==(const SequenceExample&) const = default;
};

}  // namespace tutti::train
