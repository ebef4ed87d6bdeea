#include "tutti/io/tf_record.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "io/byte_stream.h"
#include "io/record_format.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers are written as they lie in memory");
constexpr std::size_t kLengthBytes = sizeof(uint64_t);
constexpr std::size_t kHeaderBytes = kLengthBytes + sizeof(uint32_t);
constexpr std::size_t kFooterBytes = sizeof(uint32_t);
/// What is taken at once for a record of which it is not known whether its bytes are there.
constexpr std::size_t kStep = std::size_t{1} << 20;

template <class T>
T number_at(const char* bytes) {
  T value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

/// Memory that only grows, and is not cleared.
class Scratch {
 public:
  char* data() { return data_.get(); }
  std::size_t capacity() const { return capacity_; }
  void grow(std::size_t kept, std::size_t capacity) {
    if (capacity <= capacity_) return;
    std::unique_ptr<char[]> larger(new char[capacity]);
    if (kept > 0) std::memcpy(larger.get(), data_.get(), kept);
    data_ = std::move(larger);
    capacity_ = capacity;
  }

 private:
  std::unique_ptr<char[]> data_;
  std::size_t capacity_ = 0;
};

}  // namespace

void write_record(ByteSink& sink, std::string_view record) {
  const uint64_t length = record.size();
  char header[kHeaderBytes];
  std::memcpy(header, &length, kLengthBytes);
  const uint32_t length_check = masked_crc32c({header, kLengthBytes});
  std::memcpy(header + kLengthBytes, &length_check, sizeof(length_check));
  const uint32_t check = masked_crc32c(record);
  sink.write({header, kHeaderBytes});
  sink.write(record);
  sink.write({reinterpret_cast<const char*>(&check), sizeof(check)});
}

struct TFRecordWriter::Core {
  Core(const std::string& path, const TFRecordOptions& options)
      : sink(path,
             {.compression = compression_from_name("TFRecordWriter", options.compression_type),
              .buffer_size = options.output_buffer_size,
              .level = options.compression_level}) {}
  ~Core() {
    try {
      sink.close();
    } catch (const Error& error) {
      log_warning(error.what());
    }
  }
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ByteSink sink;
};

TFRecordWriter::TFRecordWriter(const std::string& path, const TFRecordOptions& options)
    : core_(std::make_unique<Core>(path, options)) {}
TFRecordWriter::~TFRecordWriter() = default;
TFRecordWriter::TFRecordWriter(TFRecordWriter&&) noexcept = default;
TFRecordWriter& TFRecordWriter::operator=(TFRecordWriter&&) noexcept = default;
void TFRecordWriter::write(std::string_view record) { write_record(core_->sink, record); }
void TFRecordWriter::flush() { core_->sink.flush(); }
void TFRecordWriter::close() { core_->sink.close(); }

struct TFRecordReader::Core {
  Core(const std::string& path, const TFRecordOptions& options)
      : stream(path, compression_from_name("TFRecordReader", options.compression_type),
               options.input_buffer_size) {}

  std::optional<std::string_view> next();
  /// The record's bytes and its footer. Empty: cut short.
  std::string_view body(std::size_t size);
  [[noreturn]] void refuse(int64_t start, const std::string& found, const char* rest) const {
    throw DataLoss(cat("read TFRecord [", stream.path(), ", byte ", start,
                       "]: corrupted record: ", found, "; ", rest));
  }
  [[noreturn]] void give_up(int64_t start, const std::string& found) const {
    refuse(start, found, "nothing behind it in this file can be read");
  }

  ByteStream stream;
  Scratch scratch;
  bool lost = false;
};

std::string_view TFRecordReader::Core::body(std::size_t size) {
  const std::string_view at_hand = stream.view();
  if (at_hand.size() >= size) {
    stream.consume(size);
    return at_hand.substr(0, size);
  }
  std::size_t have = 0;
  while (have < size) {
    if (have == scratch.capacity()) scratch.grow(have, std::min(size, std::max(kStep, 2 * have)));
    const std::size_t part = std::min(size, scratch.capacity()) - have;
    const std::size_t got = stream.read(scratch.data() + have, part);
    have += got;
    if (got < part) return {};
  }
  return {scratch.data(), size};
}

std::optional<std::string_view> TFRecordReader::Core::next() {
  if (lost) return std::nullopt;
  const int64_t start = stream.offset();
  lost = true;  // until the place behind this record is known
  char header[kHeaderBytes];
  const std::size_t got = stream.read(header, kHeaderBytes);
  if (got == 0) {
    lost = false;
    return std::nullopt;
  }
  if (got < kHeaderBytes)
    give_up(start, cat("the file ends after ", got, " bytes of it, expected ", kHeaderBytes));
  if (masked_crc32c({header, kLengthBytes}) != number_at<uint32_t>(header + kLengthBytes))
    give_up(start, "the checksum of its length is wrong");
  const auto length = number_at<uint64_t>(header);
  if (length >= (uint64_t{1} << 62) || !stream.may_have(length + kFooterBytes))
    give_up(start, cat("its length is ", length, " bytes, more than the file has"));
  const std::string_view whole = body(length + kFooterBytes);
  if (whole.empty()) give_up(start, cat("the file ends within its ", length, " bytes"));
  lost = false;
  const std::string_view record = whole.substr(0, length);
  if (masked_crc32c(record) != number_at<uint32_t>(whole.data() + length)) {
    refuse(start, cat("the checksum of its ", length, " bytes is wrong"),
           "the next record can be read");
  }
  return record;
}

TFRecordReader::TFRecordReader(const std::string& path, const TFRecordOptions& options)
    : core_(std::make_unique<Core>(path, options)) {}
TFRecordReader::~TFRecordReader() = default;
TFRecordReader::TFRecordReader(TFRecordReader&&) noexcept = default;
TFRecordReader& TFRecordReader::operator=(TFRecordReader&&) noexcept = default;
std::optional<std::string_view> TFRecordReader::next() { return core_->next(); }
int64_t TFRecordReader::offset() const { return core_->lost ? -1 : core_->stream.offset(); }
void TFRecordReader::seek(int64_t offset) {
  core_->stream.seek(offset);
  core_->lost = false;
}

}  // namespace tutti::io
