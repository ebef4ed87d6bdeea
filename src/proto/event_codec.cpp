#include "proto/event_codec.h"

#include <cstring>

#include "proto/messages.h"
#include "tutti/event.pb.h"

namespace tutti::proto {
namespace {

using Kind = SummaryValueData::Kind;
using What = EventData::What;

void fill(wire::Tensor& tensor, const TensorData& data) {
  tensor.set_dtype(data.dtype);
  auto* shape = tensor.mutable_tensor_shape();
  for (int64_t size : data.shape) shape->add_dim()->set_size(size);
  if (data.dtype == kDtString) {
    for (const std::string& text : data.strings) tensor.add_string_val(text);
  } else if (data.dtype == kDtFloat && data.shape.empty() && data.content.size() == sizeof(float)) {
    float value = 0;  // as TensorFlow writes scalars
    std::memcpy(&value, data.content.data(), sizeof(value));
    tensor.add_float_val(value);
  } else {
    tensor.set_tensor_content(data.content);
  }
}

void fill(wire::Summary::Value& value, const SummaryValueData& data) {
  value.set_tag(data.tag);
  if (!data.plugin_name.empty() || data.data_class != 0) {
    auto* metadata = value.mutable_metadata();
    metadata->mutable_plugin_data()->set_plugin_name(data.plugin_name);
    metadata->mutable_plugin_data()->set_content(data.plugin_content);
    metadata->set_display_name(data.display_name);
    metadata->set_summary_description(data.description);
    metadata->set_data_class(data.data_class);
  }
  if (data.kind == Kind::kSimple) value.set_simple_value(data.simple);
  if (data.kind == Kind::kTensor) fill(*value.mutable_tensor(), data.tensor);
}

template <class To, class List>
void append_as(std::string& content, const List& list) {
  for (const auto item : list) {
    const To value = static_cast<To>(item);
    content.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
}

/// The list of values that belongs to the dtype.
void append_values(TensorData& data, const wire::Tensor& tensor) {
  std::string& content = data.content;
  switch (data.dtype) {
    case kDtFloat:
      return append_as<float>(content, tensor.float_val());
    case kDtDouble:
      return append_as<double>(content, tensor.double_val());
    case kDtInt32:
      return append_as<int32_t>(content, tensor.int_val());
    case kDtInt16:
      return append_as<int16_t>(content, tensor.int_val());
    case kDtUint16:
      return append_as<uint16_t>(content, tensor.int_val());
    case kDtInt8:
      return append_as<int8_t>(content, tensor.int_val());
    case kDtUint8:
      return append_as<uint8_t>(content, tensor.int_val());
    case kDtInt64:
      return append_as<int64_t>(content, tensor.int64_val());
    case kDtBool:
      return append_as<uint8_t>(content, tensor.bool_val());
    case kDtBfloat16:
    case kDtHalf:
      return append_as<uint16_t>(content, tensor.half_val());
    case kDtString:
      data.strings.assign(tensor.string_val().begin(), tensor.string_val().end());
      return;
    default:
      return;
  }
}

TensorData tensor_of(const wire::Tensor& tensor) {
  TensorData data;
  data.dtype = tensor.dtype();
  for (const auto& dim : tensor.tensor_shape().dim()) data.shape.push_back(dim.size());
  data.content = tensor.tensor_content();
  if (data.content.empty()) append_values(data, tensor);
  return data;
}

SummaryValueData value_of(const wire::Summary::Value& value) {
  SummaryValueData data;
  data.tag = value.tag();
  data.plugin_name = value.metadata().plugin_data().plugin_name();
  data.plugin_content = value.metadata().plugin_data().content();
  data.display_name = value.metadata().display_name();
  data.description = value.metadata().summary_description();
  data.data_class = value.metadata().data_class();
  switch (value.value_case()) {
    case wire::Summary::Value::kSimpleValue:
      data.kind = Kind::kSimple;
      data.simple = value.simple_value();
      break;
    case wire::Summary::Value::kTensor:
      data.kind = Kind::kTensor;
      data.tensor = tensor_of(value.tensor());
      break;
    case wire::Summary::Value::kImage:
      data.kind = Kind::kImage;
      data.image = {value.image().height(), value.image().width(),
                    value.image().encoded_image_string()};
      break;
    case wire::Summary::Value::kHisto: {
      const auto& histogram = value.histo();
      data.kind = Kind::kHistogram;
      data.histogram = {histogram.min(),
                        histogram.max(),
                        {histogram.bucket_limit().begin(), histogram.bucket_limit().end()},
                        {histogram.bucket().begin(), histogram.bucket().end()}};
      break;
    }
    case wire::Summary::Value::kAudio:
    case wire::Summary::Value::VALUE_NOT_SET:
      break;
  }
  return data;
}

}  // namespace

std::size_t dtype_size(int dtype) {
  switch (dtype) {
    case kDtFloat:
    case kDtInt32:
      return 4;
    case kDtDouble:
    case kDtInt64:
      return 8;
    case kDtInt16:
    case kDtUint16:
    case kDtBfloat16:
    case kDtHalf:
      return 2;
    case kDtInt8:
    case kDtUint8:
    case kDtBool:
      return 1;
    default:
      return 0;
  }
}

std::string serialize_event(const EventData& event) {
  wire::Event message;
  message.set_wall_time(event.wall_time);
  message.set_step(event.step);
  if (event.what == What::kFileVersion) message.set_file_version(event.file_version);
  if (event.what == What::kSummary) {
    auto* summary = message.mutable_summary();
    for (const SummaryValueData& value : event.values) fill(*summary->add_value(), value);
  }
  return serialize_message(message, "Event");
}

bool parse_event(std::string_view bytes, EventData& event) {
  wire::Event message;
  if (!parse_message(message, bytes)) return false;
  event = {};
  event.wall_time = message.wall_time();
  event.step = message.step();
  event.what = static_cast<What>(message.what_case());
  event.file_version = message.file_version();
  for (const auto& value : message.summary().value()) event.values.push_back(value_of(value));
  return true;
}

}  // namespace tutti::proto
