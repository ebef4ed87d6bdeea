#pragma once
// TensorBoard's event files: what a run measured, tag by tag and step by step.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/tensor/nest.h"
#include "tutti/tensor/tensor.h"

namespace tutti::io {

struct EventFileWriterOptions {
  /// So many events wait in memory at most; then they are written.
  int max_queue = 20;
  /// An event that comes so long after the last flush flushes.
  double flush_secs = 120;
  /// Behind the file's name.
  std::string filename_suffix = ".v2";
  /// Seconds since 1970; unset: the system's clock.
  std::function<double()> clock = {};
};
struct HistogramOptions {
  int64_t buckets = 30;
};
struct ImageOptions {
  int64_t max_outputs = 3;
};

/// Writes one event file `events.out.tfevents.<time>.<host>.<pid>.<uid>.v2` into a folder, which is
/// made if need be; TensorBoard shows several files of a folder as one run. One thread at a time.
/// What could not be written is Unavailable, or ResourceExhausted where the disk is full; the
/// events that waited are lost then.
class EventFileWriter {
 public:
  /// Makes the file. NotFound or PermissionDenied when that cannot be.
  explicit EventFileWriter(const std::string& log_dir, const EventFileWriterOptions& options = {});
  /// close(), and a warning in the log where that fails.
  ~EventFileWriter();
  EventFileWriter(EventFileWriter&&) noexcept;
  EventFileWriter& operator=(EventFileWriter&&) noexcept;

  /// Kept as float32.
  void scalar(const std::string& tag, double value, int64_t step);
  /// How many of the values (any shape and number type) fall into each of `buckets` parts, equally
  /// wide, from the smallest to the largest; values that are not finite are left out.
  void histogram(const std::string& tag, const Tensor& values, int64_t step,
                 const HistogramOptions& options = {});
  /// [height, width, channels] or a batch of them, of which the first `max_outputs` are kept; 1 to
  /// 4 channels; uint8, or floats from 0 to 1 (others are cut off). InvalidArgument for anything
  /// else.
  void image(const std::string& tag, const Tensor& images, int64_t step,
             const ImageOptions& options = {});
  /// Shown as Markdown.
  void text(const std::string& tag, const std::string& markdown, int64_t step);

  /// Hands what waits to the operating system.
  void flush();
  /// flush(), and the file is closed; a second time does nothing. FailedPrecondition for whatever
  /// is added afterwards.
  void close();
  /// Of the file.
  const std::string& path() const;

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

/// One value of a summary.
struct SummaryValue {
  std::string tag;
  /// "scalars", "histograms", "images", "text", …; of older files without plugins: told from the
  /// value's kind.
  std::string plugin_name;
  std::string plugin_content;
  std::string display_name;
  std::string summary_description;
  /// 0 unknown, 1 scalar, 2 tensor, 3 blob sequence.
  int data_class = 0;
  /// TensorFlow's number of the tensor's dtype (1 float32, 2 float64, 7 string, …); 0: no tensor.
  int tensor_dtype = 0;
  /// A Tensor or a StringTensor. Older histograms are brought to [buckets, 3] (left, right, count),
  /// older images to the strings (width, height, PNG bytes). Empty for what is neither.
  Nest value;

  /// The one number of a scalar, else nothing.
  std::optional<double> scalar() const;
};

/// One record of an event file.
struct Event {
  enum class Kind { kNone, kFileVersion, kGraph, kSummary, kLog, kSession, kRunMetadata };
  double wall_time = 0;
  int64_t step = 0;
  Kind kind = Kind::kNone;
  std::string file_version;          ///< of kFileVersion
  std::vector<SummaryValue> values;  ///< of kSummary
};

/// The events of a file from front to back. One thread at a time.
class EventFileReader {
 public:
  /// NotFound when it cannot be opened.
  explicit EventFileReader(const std::string& path);
  ~EventFileReader();
  EventFileReader(EventFileReader&&) noexcept;
  EventFileReader& operator=(EventFileReader&&) noexcept;
  /// The next event, or nothing at the end. DataLoss, with the file and the byte, for one that is
  /// damaged; the next call goes on behind it, where that place is known.
  std::optional<Event> next();

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

/// The event files of a folder (not of those in it), in the order of their names.
std::vector<std::string> event_files(const std::string& log_dir);

}  // namespace tutti::io

namespace tutti::summary {

/// tf.summary.create_file_writer; the options keep their names there.
inline io::EventFileWriter create_file_writer(const std::string& logdir,
                                              const io::EventFileWriterOptions& options = {}) {
  return io::EventFileWriter(logdir, options);
}

}  // namespace tutti::summary
