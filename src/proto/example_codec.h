#pragma once
// Example and SequenceExample between bytes and plain spans. Nothing of protobuf shows here.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::proto {

enum class FeatureKind { kNone, kBytes, kFloat, kInt64 };
/// "bytes", "float", "int64", "no".
std::string_view kind_name(FeatureKind kind);

/// What is to be written.
struct FeatureData {
  FeatureKind kind = FeatureKind::kNone;
  std::span<const std::string> bytes = {};
  std::span<const float> floats = {};
  std::span<const int64_t> int64s = {};
};
struct NamedFeature {
  std::string_view name;
  FeatureData feature;
};
struct NamedFeatureList {
  std::string_view name;
  std::vector<FeatureData> features;
};
/// The same features in the same order are always the same bytes. InvalidArgument above 2 GiB.
std::string serialize_example(std::span<const NamedFeature> features);
std::string serialize_sequence_example(std::span<const NamedFeature> context,
                                       std::span<const NamedFeatureList> lists);

/// A feature of a parsed message.
class FeatureView {
 public:
  FeatureView() = default;
  FeatureView(FeatureKind kind, const void* list) : kind_(kind), list_(list) {}
  FeatureKind kind() const { return kind_; }
  /// Number of values.
  std::size_t size() const;
  // Of the kind that the name says.
  std::span<const float> floats() const;
  std::span<const int64_t> int64s() const;
  std::string_view bytes(std::size_t index) const;

 private:
  FeatureKind kind_ = FeatureKind::kNone;
  const void* list_ = nullptr;
};
struct NamedFeatureView {
  std::string_view name;
  FeatureView feature;
};
struct NamedFeatureListView {
  std::string_view name;
  std::vector<FeatureView> features;
};

/// The feature of `name`, or null. `features` as ParsedExample has them.
const FeatureView* find_feature(const std::vector<NamedFeatureView>& features,
                                std::string_view name);

/// A message that is parsed into again and again. Views live until the next parse.
class ParsedExample {
 public:
  ParsedExample();
  ~ParsedExample();
  /// False: `bytes` are no such message.
  bool parse(std::string_view bytes);
  /// In the order of their names; of several of one name the last one.
  const std::vector<NamedFeatureView>& features() const { return features_; }

 private:
  struct Message;
  std::unique_ptr<Message> message_;
  std::vector<NamedFeatureView> features_;
};

class ParsedSequenceExample {
 public:
  ParsedSequenceExample();
  ~ParsedSequenceExample();
  bool parse(std::string_view bytes);
  const std::vector<NamedFeatureView>& context() const { return context_; }
  const std::vector<NamedFeatureListView>& lists() const { return lists_; }

 private:
  struct Message;
  std::unique_ptr<Message> message_;
  std::vector<NamedFeatureView> context_;
  std::vector<NamedFeatureListView> lists_;
};

}  // namespace tutti::proto
