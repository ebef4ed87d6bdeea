#include "tutti/io/example.h"

#include "proto/example_codec.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::train {
namespace {

using proto::FeatureData;
using proto::FeatureKind;
using proto::FeatureView;

FeatureKind kind_of(const Feature& feature) {
  if (feature.has_bytes_list()) return FeatureKind::kBytes;
  if (feature.has_float_list()) return FeatureKind::kFloat;
  return feature.has_int64_list() ? FeatureKind::kInt64 : FeatureKind::kNone;
}

[[noreturn]] void refuse_kind(const Feature& feature, const char* wanted) {
  throw InvalidArgument(cat("Feature: a ", proto::kind_name(kind_of(feature)), " list, expected a ",
                            wanted, " list"));
}

FeatureData data_of(const Feature& feature) {
  FeatureData data{.kind = kind_of(feature)};
  if (feature.has_bytes_list()) data.bytes = feature.bytes_list().value;
  if (feature.has_float_list()) data.floats = feature.float_list().value;
  if (feature.has_int64_list()) data.int64s = feature.int64_list().value;
  return data;
}

std::vector<proto::NamedFeature> named(const Features& features) {
  std::vector<proto::NamedFeature> all;
  for (const auto& [name, feature] : features.feature) all.push_back({name, data_of(feature)});
  return all;
}

Feature feature_of(const FeatureView& view) {
  switch (view.kind()) {
    case FeatureKind::kBytes: {
      BytesList list;
      list.value.reserve(view.size());
      for (std::size_t i = 0; i < view.size(); ++i) list.value.emplace_back(view.bytes(i));
      return list;
    }
    case FeatureKind::kFloat:
      return FloatList{{view.floats().begin(), view.floats().end()}};
    case FeatureKind::kInt64:
      return Int64List{{view.int64s().begin(), view.int64s().end()}};
    case FeatureKind::kNone:
      break;
  }
  return {};
}

Features features_of(const std::vector<proto::NamedFeatureView>& views) {
  Features features;
  for (const auto& [name, feature] : views)
    features.feature.emplace(std::string(name), feature_of(feature));
  return features;
}

[[noreturn]] void refuse_bytes(const char* what, std::string_view bytes) {
  throw InvalidArgument(cat(what, "::parse: ", bytes.size(), " bytes that are no such message",
                            ", expected a serialized ", what));
}

}  // namespace

const BytesList& Feature::bytes_list() const {
  if (!has_bytes_list()) refuse_kind(*this, "bytes");
  return std::get<1>(kind_);
}
const FloatList& Feature::float_list() const {
  if (!has_float_list()) refuse_kind(*this, "float");
  return std::get<2>(kind_);
}
const Int64List& Feature::int64_list() const {
  if (!has_int64_list()) refuse_kind(*this, "int64");
  return std::get<3>(kind_);
}

std::string Example::serialize() const { return proto::serialize_example(named(features)); }

Example Example::parse(std::string_view bytes) {
  proto::ParsedExample parsed;
  if (!parsed.parse(bytes)) refuse_bytes("Example", bytes);
  Example example;
  example.features = features_of(parsed.features());
  return example;
}

std::string SequenceExample::serialize() const {
  std::vector<proto::NamedFeatureList> lists;
  for (const auto& [name, list] : feature_lists.feature_list) {
    auto& named_list = lists.emplace_back();
    named_list.name = name;
    for (const Feature& feature : list.feature) named_list.features.push_back(data_of(feature));
  }
  return proto::serialize_sequence_example(named(context), lists);
}

SequenceExample SequenceExample::parse(std::string_view bytes) {
  proto::ParsedSequenceExample parsed;
  if (!parsed.parse(bytes)) refuse_bytes("SequenceExample", bytes);
  SequenceExample example{features_of(parsed.context()), {}};
  for (const auto& [name, views] : parsed.lists()) {
    FeatureList& list = example.feature_lists.feature_list[std::string(name)];
    for (const FeatureView& view : views) list.feature.push_back(feature_of(view));
  }
  return example;
}

}  // namespace tutti::train
