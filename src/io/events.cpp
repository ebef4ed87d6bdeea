#include "tutti/io/events.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "io/byte_stream.h"
#include "io/png_encode.h"
#include "io/record_format.h"
#include "proto/event_codec.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::io {
namespace {

using proto::EventData;
using proto::SummaryValueData;
using proto::TensorData;

double seconds_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error || std::filesystem::is_directory(folder)) return;
  const std::string message =
      cat("EventFileWriter [", folder, "]: ", error.message(), ", expected a folder or its parent");
  if (error == std::errc::permission_denied) throw PermissionDenied(message);
  throw NotFound(message);
}

/// Names have no counter of the process: writers of one second, one process and one folder try uid
/// after uid.
std::unique_ptr<ByteSink> make_file(const std::string& folder, double time,
                                    const std::string& suffix) {
  for (int uid = 0;; ++uid) {
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%010lld", static_cast<long long>(time));
    const std::string path = cat(folder, "/events.out.tfevents.", seconds, ".", host_name(), ".",
                                 getpid(), ".", uid, suffix);
    try {
      return std::make_unique<ByteSink>(path, ByteSink::Options{.must_be_new = true});
    } catch (const AlreadyExists&) {
      continue;
    }
  }
}

SummaryValueData value_of_plugin(const std::string& tag, const char* plugin, TensorData tensor) {
  SummaryValueData value;
  value.tag = tag;
  value.plugin_name = plugin;
  value.kind = SummaryValueData::Kind::kTensor;
  value.tensor = std::move(tensor);
  return value;
}

std::string bytes_of(const Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

/// [buckets, 3]: left end, right end, count. The last value of a bucket is the first of the next
/// one, but the largest value is in the last one. Equal values: all are in the last one.
Tensor histogram_of(const Tensor& given, int64_t buckets) {
  Tensor values = given.detach().cpu().to(at::kDouble).reshape({-1});
  values = values.masked_select(at::isfinite(values));
  Tensor histogram = at::zeros({buckets, 3}, at::kDouble);
  if (values.numel() == 0) return histogram;
  const Tensor ends = histogram.narrow(1, 0, 2);
  const Tensor counts = histogram.select(1, 2);
  double low = values.min().item<double>();
  double high = values.max().item<double>();
  if (low == high) {
    ends.fill_(low);
    counts[buckets - 1].fill_(values.numel());
    return histogram;
  }
  const double scale = std::isfinite(high - low) ? 1 : 0.25;
  low *= scale;
  high *= scale;
  const double width = (high - low) / static_cast<double>(buckets);
  const Tensor edges = low + width * at::arange(buckets + 1, at::kDouble);
  edges[buckets].fill_(high);
  ends.select(1, 0).copy_(edges.narrow(0, 0, buckets) / scale);
  ends.select(1, 1).copy_(edges.narrow(0, 1, buckets) / scale);
  const Tensor places = ((values * scale - low) / width).floor();
  const auto last = static_cast<double>(buckets - 1);
  counts.copy_(at::bincount(places.clamp(0, last).to(at::kLong), {}, buckets));
  return histogram;
}

/// [count, height, width, channels] of bytes.
Tensor pixels_of(const std::string& tag, const Tensor& images, int64_t max_outputs) {
  Tensor batch = images.dim() == 3 ? images.unsqueeze(0) : images;
  const bool is_byte = images.scalar_type() == at::kByte;
  if (batch.dim() != 4 || batch.size(3) < 1 || batch.size(3) > 4 ||
      !(is_byte || images.is_floating_point())) {
    throw InvalidArgument(cat("image summary [", tag, "]: ", dtype_name(images.scalar_type()),
                              " of the shape ", shape_text(images.sizes()),
                              ", expected uint8 or floats, [height, width, channels] or a batch of "
                              "them, 1 to 4 channels"));
  }
  batch = batch.narrow(0, 0, std::min(batch.size(0), max_outputs)).detach().cpu();
  if (is_byte) return batch.contiguous();
  // Each byte has as wide a part of [0, 1] as the others.
  return (batch.to(at::kFloat) * 255.5F).nan_to_num(0).clamp(0, 255).to(at::kByte).contiguous();
}

}  // namespace

struct EventFileWriter::Core {
  Core(const std::string& log_dir, const EventFileWriterOptions& options) : options(options) {
    if (options.max_queue < 1) {
      throw InvalidArgument(cat("EventFileWriter [", log_dir, "]: max_queue ", options.max_queue,
                                ", expected at least 1"));
    }
    make_folder(log_dir);
    sink = make_file(log_dir, now(), options.filename_suffix);
    EventData version;
    version.what = EventData::What::kFileVersion;
    version.file_version = "brain.Event:2";
    add(version);
    flush();
  }
  ~Core() {
    try {
      close();
    } catch (const Error& error) {
      log_warning(error.what());
    }
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  double now() const { return options.clock ? options.clock() : seconds_now(); }
  void add(SummaryValueData value, int64_t step) {
    EventData event;
    event.step = step;
    event.what = EventData::What::kSummary;
    event.values.push_back(std::move(value));
    add(event);
  }
  void add(EventData& event) {
    if (closed) {
      throw FailedPrecondition(cat("EventFileWriter [", sink->path(),
                                   "]: an event after close(), expected none; make a new writer"));
    }
    event.wall_time = now();
    waiting.push_back(proto::serialize_event(event));
    if (static_cast<int>(waiting.size()) >= options.max_queue ||
        event.wall_time - last_flush >= options.flush_secs)
      flush();
  }
  void flush() {
    if (closed) return;
    const std::vector<std::string> records = std::exchange(waiting, {});
    for (const std::string& record : records) write_record(*sink, record);
    sink->flush();
    last_flush = now();
  }
  void close() {
    if (closed) return;
    const auto end = [this] {
      closed = true;
      sink->close();
    };
    try {
      flush();
    } catch (...) {
      end();
      throw;
    }
    end();
  }

  EventFileWriterOptions options;
  std::unique_ptr<ByteSink> sink;
  std::vector<std::string> waiting;
  double last_flush = 0;
  bool closed = false;
};

EventFileWriter::EventFileWriter(const std::string& log_dir, const EventFileWriterOptions& options)
    : core_(std::make_unique<Core>(log_dir, options)) {}
EventFileWriter::~EventFileWriter() = default;
EventFileWriter::EventFileWriter(EventFileWriter&&) noexcept = default;
EventFileWriter& EventFileWriter::operator=(EventFileWriter&&) noexcept = default;

void EventFileWriter::scalar(const std::string& tag, double value, int64_t step) {
  const auto single = static_cast<float>(value);
  TensorData tensor{.dtype = proto::kDtFloat};
  tensor.content.assign(reinterpret_cast<const char*>(&single), sizeof(single));
  core_->add(value_of_plugin(tag, "scalars", std::move(tensor)), step);
}

void EventFileWriter::histogram(const std::string& tag, const Tensor& values, int64_t step,
                                const HistogramOptions& options) {
  if (options.buckets < 1) {
    throw InvalidArgument(
        cat("histogram summary [", tag, "]: ", options.buckets, " buckets, expected at least 1"));
  }
  const Tensor histogram = histogram_of(values, options.buckets);
  core_->add(value_of_plugin(tag, "histograms",
                             {.dtype = proto::kDtDouble,
                              .shape = histogram.sizes().vec(),
                              .content = bytes_of(histogram)}),
             step);
}

void EventFileWriter::image(const std::string& tag, const Tensor& images, int64_t step,
                            const ImageOptions& options) {
  if (options.max_outputs < 0) {
    throw InvalidArgument(cat("image summary [", tag, "]: max_outputs ", options.max_outputs,
                              ", expected 0 or more"));
  }
  const Tensor pixels = pixels_of(tag, images, options.max_outputs);
  const int64_t height = pixels.size(1), width = pixels.size(2), channels = pixels.size(3);
  TensorData tensor{.dtype = proto::kDtString,
                    .strings = {std::to_string(width), std::to_string(height)}};
  const auto* bytes = pixels.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < pixels.size(0); ++i)
    tensor.strings.push_back(
        encode_png(bytes + i * height * width * channels, height, width, channels));
  tensor.shape = {static_cast<int64_t>(tensor.strings.size())};
  core_->add(value_of_plugin(tag, "images", std::move(tensor)), step);
}

void EventFileWriter::text(const std::string& tag, const std::string& markdown, int64_t step) {
  core_->add(value_of_plugin(tag, "text", {.dtype = proto::kDtString, .strings = {markdown}}),
             step);
}

void EventFileWriter::flush() { core_->flush(); }
void EventFileWriter::close() { core_->close(); }
const std::string& EventFileWriter::path() const { return core_->sink->path(); }

}  // namespace tutti::io
