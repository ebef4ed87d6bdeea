#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "proto/event_codec.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/io/events.h"
#include "tutti/io/tf_record.h"

namespace tutti::io {
namespace {

using proto::EventData;
using proto::SummaryValueData;
using proto::TensorData;

/// What a few bytes may stand for at most in one event, when the last value is said to be repeated.
constexpr int64_t kMostRepeated = int64_t{8} << 20;

std::optional<at::ScalarType> scalar_type(int dtype) {
  switch (dtype) {
    case proto::kDtFloat:
      return at::kFloat;
    case proto::kDtDouble:
      return at::kDouble;
    case proto::kDtInt32:
      return at::kInt;
    case proto::kDtUint8:
      return at::kByte;
    case proto::kDtInt16:
      return at::kShort;
    case proto::kDtInt8:
      return at::kChar;
    case proto::kDtInt64:
      return at::kLong;
    case proto::kDtBool:
      return at::kBool;
    case proto::kDtBfloat16:
      return at::kBFloat16;
    case proto::kDtUint16:
      return at::kUInt16;
    case proto::kDtHalf:
      return at::kHalf;
    default:
      return std::nullopt;
  }
}

/// Number of values of the shape, when it is sound and there are `have` values for it. What stands
/// for more takes its bytes, `item_bytes` each, from `budget`.
int64_t checked_numel(const std::vector<int64_t>& shape, std::size_t have, std::size_t item_bytes,
                      int64_t& budget) {
  int64_t numel = 1;
  bool empty = false;
  for (int64_t size : shape) {
    // The others count beside an empty axis too: LibTorch has strides for them.
    if (size < 0 || __builtin_mul_overflow(numel, std::max<int64_t>(size, 1), &numel))
      throw DataLoss(cat("a tensor of the shape ", shape_text(shape), ", expected sound sizes"));
    empty = empty || size == 0;
  }
  if (empty) numel = 0;
  const auto values = static_cast<int64_t>(have);
  int64_t more = 0;
  const bool too_many = __builtin_mul_overflow(numel - std::min(values, numel),
                                               static_cast<int64_t>(item_bytes), &more) ||
                        more > budget;
  if (values > numel || too_many || shape.size() > 64) {
    throw DataLoss(cat("a tensor of ", values, " values for the shape ", shape_text(shape),
                       ", expected as many as it holds"));
  }
  budget -= more;
  return numel;
}

Nest strings_of(const TensorData& data, int64_t& budget) {
  const std::string last = data.strings.empty() ? "" : data.strings.back();
  const int64_t numel =
      checked_numel(data.shape, data.strings.size(), sizeof(last) + last.size(), budget);
  std::vector<std::string> strings = data.strings;
  strings.resize(static_cast<std::size_t>(numel), last);
  return StringTensor(std::move(strings), data.shape);
}

Nest tensor_of(const TensorData& data, int64_t& budget) {
  if (data.dtype == proto::kDtString) return strings_of(data, budget);
  const auto dtype = scalar_type(data.dtype);
  if (!dtype) return {};
  const std::size_t item = proto::dtype_size(data.dtype);
  if (data.content.size() % item != 0) {
    throw DataLoss(
        cat("a tensor of ", data.content.size(), " bytes, expected a multiple of ", item));
  }
  const int64_t numel = checked_numel(data.shape, data.content.size() / item, item, budget);
  Tensor tensor = at::zeros(data.shape, at::TensorOptions().dtype(*dtype));
  if (numel == 0 || data.content.empty()) return tensor;
  auto* bytes = static_cast<char*>(tensor.data_ptr());
  std::memcpy(bytes, data.content.data(), data.content.size());
  const char* last = data.content.data() + data.content.size() - item;
  for (std::size_t at = data.content.size(); at < tensor.nbytes(); at += item)
    std::memcpy(bytes + at, last, item);
  if (*dtype == at::kBool) {  // any other byte would be no bool
    for (std::size_t at = 0; at < tensor.nbytes(); ++at) bytes[at] = bytes[at] != 0 ? 1 : 0;
  }
  return tensor;
}

/// The buckets that have values; ends are those of the values.
Tensor buckets_of(const proto::HistogramData& histogram) {
  const std::size_t size = std::min(histogram.limits.size(), histogram.counts.size());
  std::size_t first = 0, end = size;
  while (first < end && histogram.counts[first] <= 0) ++first;
  while (end > first && histogram.counts[end - 1] <= 0) --end;
  Tensor rows = at::zeros({static_cast<int64_t>(end - first), 3}, at::kDouble);
  auto* row = rows.data_ptr<double>();
  for (std::size_t i = first; i < end; ++i, row += 3) {
    row[0] = i == first ? histogram.min : histogram.limits[i - 1];
    row[1] = i + 1 == end ? histogram.max : histogram.limits[i];
    row[2] = histogram.counts[i];
  }
  return rows;
}

SummaryValue value_of(SummaryValueData& data, int64_t& budget) {
  SummaryValue value{.tag = std::move(data.tag),
                     .plugin_name = std::move(data.plugin_name),
                     .plugin_content = std::move(data.plugin_content),
                     .display_name = std::move(data.display_name),
                     .summary_description = std::move(data.description),
                     .data_class = data.data_class};
  const char* plugin = "";
  switch (data.kind) {
    case SummaryValueData::Kind::kSimple:
      plugin = "scalars";
      value.value = at::scalar_tensor(data.simple, at::kFloat);
      break;
    case SummaryValueData::Kind::kTensor:
      value.tensor_dtype = data.tensor.dtype;
      value.value = tensor_of(data.tensor, budget);
      break;
    case SummaryValueData::Kind::kHistogram:
      plugin = "histograms";
      value.value = buckets_of(data.histogram);
      break;
    case SummaryValueData::Kind::kImage:
      plugin = "images";
      value.value = StringTensor({std::to_string(data.image.width),
                                  std::to_string(data.image.height), data.image.encoded});
      break;
    case SummaryValueData::Kind::kNone:
      break;
  }
  if (value.plugin_name.empty()) value.plugin_name = plugin;
  return value;
}

Event::Kind kind_of(EventData::What what) {
  switch (what) {
    case EventData::What::kFileVersion:
      return Event::Kind::kFileVersion;
    case EventData::What::kGraph:
      return Event::Kind::kGraph;
    case EventData::What::kSummary:
      return Event::Kind::kSummary;
    case EventData::What::kLog:
      return Event::Kind::kLog;
    case EventData::What::kSession:
      return Event::Kind::kSession;
    case EventData::What::kRunMetadata:
      return Event::Kind::kRunMetadata;
    case EventData::What::kNone:
      break;
  }
  return Event::Kind::kNone;
}

}  // namespace

std::optional<double> SummaryValue::scalar() const {
  if (!value.is_leaf() || value.leaf().numel() != 1 || value.leaf().dim() != 0) return std::nullopt;
  return value.leaf().to(at::kDouble).item<double>();
}

struct EventFileReader::Core {
  explicit Core(const std::string& path) : path(path), records(path) {}
  std::string path;
  TFRecordReader records;
};

EventFileReader::EventFileReader(const std::string& path) : core_(std::make_unique<Core>(path)) {}
EventFileReader::~EventFileReader() = default;
EventFileReader::EventFileReader(EventFileReader&&) noexcept = default;
EventFileReader& EventFileReader::operator=(EventFileReader&&) noexcept = default;

std::optional<Event> EventFileReader::next() {
  const int64_t start = core_->records.offset();
  const auto record = core_->records.next();
  if (!record) return std::nullopt;
  const auto where = [&] { return cat("read event [", core_->path, ", byte ", start, "]: "); };
  EventData data;
  if (!proto::parse_event(*record, data)) {
    throw DataLoss(cat(where(), record->size(),
                       " bytes that are no event, expected one; is it an "
                       "event file?"));
  }
  Event event{.wall_time = data.wall_time,
              .step = data.step,
              .kind = kind_of(data.what),
              .file_version = std::move(data.file_version)};
  int64_t budget = kMostRepeated;
  for (SummaryValueData& value : data.values) {
    try {
      event.values.push_back(value_of(value, budget));
    } catch (const DataLoss& error) {
      throw DataLoss(cat(where(), error.what()));
    }
  }
  return event;
}

std::vector<std::string> event_files(const std::string& log_dir) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(log_dir, error)) {
    if (entry.is_regular_file() &&
        entry.path().filename().string().find("tfevents") != std::string::npos)
      files.push_back(entry.path().string());
  }
  if (error) {
    throw NotFound(cat("event_files [", log_dir, "]: ", error.message(),
                       ", expected a folder that can be read"));
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace tutti::io
