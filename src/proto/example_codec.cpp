#include "proto/example_codec.h"

#include <google/protobuf/arena.h>

#include <algorithm>

#include "proto/messages.h"
#include "tutti/example.pb.h"

namespace tutti::proto {
namespace {

void fill(wire::Feature& feature, const FeatureData& data) {
  switch (data.kind) {
    case FeatureKind::kNone:
      break;
    case FeatureKind::kBytes: {
      auto* list = feature.mutable_bytes_list();
      for (const std::string& value : data.bytes) list->add_value(value);
      break;
    }
    case FeatureKind::kFloat:
      feature.mutable_float_list()->mutable_value()->Add(data.floats.begin(), data.floats.end());
      break;
    case FeatureKind::kInt64:
      feature.mutable_int64_list()->mutable_value()->Add(data.int64s.begin(), data.int64s.end());
      break;
  }
}

void fill(wire::Features& features, std::span<const NamedFeature> data) {
  for (const NamedFeature& item : data) {
    auto* entry = features.add_feature();
    entry->set_key(item.name.data(), item.name.size());
    fill(*entry->mutable_value(), item.feature);
  }
}

FeatureView view_of(const wire::Feature& feature) {
  switch (feature.kind_case()) {
    case wire::Feature::kBytesList:
      return {FeatureKind::kBytes, &feature.bytes_list()};
    case wire::Feature::kFloatList:
      return {FeatureKind::kFloat, &feature.float_list()};
    case wire::Feature::kInt64List:
      return {FeatureKind::kInt64, &feature.int64_list()};
    case wire::Feature::KIND_NOT_SET:
      break;
  }
  return {};
}

/// By name, and of several of one name the last one alone.
template <class Named>
void settle(std::vector<Named>& items) {
  const auto ascending = [](const Named& a, const Named& b) { return a.name < b.name; };
  const auto not_below = [](const Named& a, const Named& b) { return a.name >= b.name; };
  if (std::adjacent_find(items.begin(), items.end(), not_below) == items.end()) return;
  std::stable_sort(items.begin(), items.end(), ascending);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (kept > 0 && items[kept - 1].name == items[i].name) --kept;
    if (kept != i) items[kept] = std::move(items[i]);
    ++kept;
  }
  items.resize(kept);
}

void view(const wire::Features& features, std::vector<NamedFeatureView>& views) {
  views.clear();
  for (const auto& entry : features.feature())
    views.push_back({entry.key(), view_of(entry.value())});
  settle(views);
}

/// Room for one message, used anew for each: a parse takes no memory of the heap unless it is
/// large.
template <class Message>
class OnArena {
 public:
  OnArena() : block_(new char[kBlock]), arena_(block_.get(), kBlock) {}
  /// Null: `bytes` are no such message.
  const Message* parse(std::string_view bytes) {
    arena_.Reset();
    auto* message = google::protobuf::Arena::CreateMessage<Message>(&arena_);
    return parse_message(*message, bytes) ? message : nullptr;
  }

 private:
  static constexpr std::size_t kBlock = 1 << 15;
  std::unique_ptr<char[]> block_;
  google::protobuf::Arena arena_;
};

}  // namespace

std::string_view kind_name(FeatureKind kind) {
  switch (kind) {
    case FeatureKind::kBytes:
      return "bytes";
    case FeatureKind::kFloat:
      return "float";
    case FeatureKind::kInt64:
      return "int64";
    case FeatureKind::kNone:
      break;
  }
  return "no";
}

std::string serialize_example(std::span<const NamedFeature> features) {
  wire::Example message;
  fill(*message.mutable_features(), features);
  return serialize_message(message, "Example");
}

std::string serialize_sequence_example(std::span<const NamedFeature> context,
                                       std::span<const NamedFeatureList> lists) {
  wire::SequenceExample message;
  fill(*message.mutable_context(), context);
  for (const NamedFeatureList& list : lists) {
    auto* entry = message.mutable_feature_lists()->add_feature_list();
    entry->set_key(list.name.data(), list.name.size());
    auto* features = entry->mutable_value();
    for (const FeatureData& data : list.features) fill(*features->add_feature(), data);
  }
  return serialize_message(message, "SequenceExample");
}

std::size_t FeatureView::size() const {
  switch (kind_) {
    case FeatureKind::kBytes:
      return static_cast<std::size_t>(static_cast<const wire::BytesList*>(list_)->value_size());
    case FeatureKind::kFloat:
      return floats().size();
    case FeatureKind::kInt64:
      return int64s().size();
    case FeatureKind::kNone:
      break;
  }
  return 0;
}

std::span<const float> FeatureView::floats() const {
  const auto& values = static_cast<const wire::FloatList*>(list_)->value();
  return {values.data(), static_cast<std::size_t>(values.size())};
}

std::span<const int64_t> FeatureView::int64s() const {
  const auto& values = static_cast<const wire::Int64List*>(list_)->value();
  return {values.data(), static_cast<std::size_t>(values.size())};
}

std::string_view FeatureView::bytes(std::size_t index) const {
  return static_cast<const wire::BytesList*>(list_)->value(static_cast<int>(index));
}

const FeatureView* find_feature(const std::vector<NamedFeatureView>& features,
                                std::string_view name) {
  const auto found = std::lower_bound(
      features.begin(), features.end(), name,
      [](const NamedFeatureView& item, std::string_view wanted) { return item.name < wanted; });
  return found == features.end() || found->name != name ? nullptr : &found->feature;
}

struct ParsedExample::Message : OnArena<wire::Example> {};
ParsedExample::ParsedExample() : message_(std::make_unique<Message>()) {}
ParsedExample::~ParsedExample() = default;

bool ParsedExample::parse(std::string_view bytes) {
  features_.clear();
  const wire::Example* message = message_->parse(bytes);
  if (message == nullptr) return false;
  view(message->features(), features_);
  return true;
}

struct ParsedSequenceExample::Message : OnArena<wire::SequenceExample> {};
ParsedSequenceExample::ParsedSequenceExample() : message_(std::make_unique<Message>()) {}
ParsedSequenceExample::~ParsedSequenceExample() = default;

bool ParsedSequenceExample::parse(std::string_view bytes) {
  context_.clear();
  lists_.clear();
  const wire::SequenceExample* message = message_->parse(bytes);
  if (message == nullptr) return false;
  view(message->context(), context_);
  for (const auto& entry : message->feature_lists().feature_list()) {
    NamedFeatureListView& list = lists_.emplace_back();
    list.name = entry.key();
    for (const auto& feature : entry.value().feature()) list.features.push_back(view_of(feature));
  }
  settle(lists_);
  return true;
}

}  // namespace tutti::proto
