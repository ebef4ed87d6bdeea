// TFRecordDataset and FixedLengthRecordDataset.

#include <cstring>

#include "data/file_records.h"
#include "io/byte_stream.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/readers.h"
#include "tutti/io/tf_record.h"

namespace tutti::data {
namespace {

SpecNest string_spec() { return spec_of(Nest(StringTensor())); }

class TFRecordFile : public RecordFile {
 public:
  TFRecordFile(const std::string& path, const io::TFRecordOptions& options)
      : reader_(path, options) {}
  std::optional<Nest> next() override {
    const auto record = reader_.next();
    if (!record) return std::nullopt;
    return Nest(StringTensor(std::string(*record)));
  }
  int64_t offset() const override { return reader_.offset(); }
  void seek(int64_t offset) override { reader_.seek(offset); }

 private:
  io::TFRecordReader reader_;
};

PlanPtr tf_records(std::vector<std::string> files, const TFRecordDatasetOptions& options) {
  io::compression_from_name("TFRecordDataset", options.compression_type);
  return read_files(std::move(files),
                    {.name = "TFRecordDataset",
                     .open = [options](const std::string& path) -> std::unique_ptr<RecordFile> {
                       return std::make_unique<TFRecordFile>(
                           path, io::TFRecordOptions{.compression_type = options.compression_type,
                                                     .input_buffer_size = options.buffer_size});
                     },
                     .element_spec = string_spec(),
                     .num_parallel_reads = options.num_parallel_reads});
}

struct RecordLayout {
  int64_t header;
  int64_t record;
  int64_t footer;
};

/// Reads a footer's length ahead: of a packed file only its end tells what the footer is.
class FixedLengthFile : public RecordFile {
 public:
  FixedLengthFile(const std::string& path, const RecordLayout& layout, io::Compression compression,
                  int64_t buffer_size)
      : layout_(layout), stream_(path, compression, buffer_size) {}

  std::optional<Nest> next() override {
    if (lost_) return std::nullopt;
    lost_ = true;  // until the next record is known to follow
    if (!started_) start();
    const auto footer = static_cast<std::size_t>(layout_.footer);
    const std::size_t got = fill();
    if (got < window_.size()) {
      if (got != footer) refuse(stream_.offset() - layout_.header - layout_.footer);
      return std::nullopt;
    }
    std::string record = window_.substr(0, static_cast<std::size_t>(layout_.record));
    window_.erase(0, record.size());
    at_ += layout_.record;
    lost_ = false;
    return Nest(StringTensor(std::move(record)));
  }
  int64_t offset() const override { return lost_ ? -1 : at_; }
  void seek(int64_t offset) override {
    if (offset != 0 && (offset < layout_.header || (offset - layout_.header) % layout_.record != 0))
      throw InvalidArgument(cat("seek [", stream_.path(), "]: byte ", offset,
                                ", expected one where a record begins"));
    stream_.seek(offset);
    window_.clear();
    at_ = offset;
    started_ = offset != 0;
    lost_ = false;
  }

 private:
  void start() {
    std::string header(static_cast<std::size_t>(std::min<int64_t>(layout_.header, 1 << 16)), '\0');
    for (int64_t left = layout_.header; left > 0;) {
      const auto part = std::min<std::size_t>(header.size(), static_cast<std::size_t>(left));
      if (stream_.read(header.data(), part) < part)
        refuse(stream_.offset() - layout_.header - layout_.footer);
      left -= static_cast<int64_t>(part);
    }
    check_size();
    at_ = layout_.header;
    started_ = true;
  }
  /// At once where the size of the file tells it.
  void check_size() const {
    const auto left = stream_.bytes_left();
    if (!left) return;
    const int64_t body = *left - layout_.footer;
    if (body < 0 || body % layout_.record != 0) refuse(body);
  }
  /// Reads until the window holds a record and the footer; what it holds.
  std::size_t fill() {
    const std::size_t have = window_.size();
    window_.resize(static_cast<std::size_t>(layout_.record + layout_.footer));
    return have + stream_.read(window_.data() + have, window_.size() - have);
  }
  [[noreturn]] void refuse(int64_t body) const {
    throw InvalidArgument(cat("FixedLengthRecordDataset [", stream_.path(), "]: ", body,
                              " bytes without the header (", layout_.header,
                              " bytes) and the footer (", layout_.footer,
                              " bytes), expected an exact multiple of the record length, ",
                              layout_.record, " bytes; is it the right file?"));
  }

  RecordLayout layout_;
  io::ByteStream stream_;
  bool started_ = false;
  bool lost_ = false;
  int64_t at_ = 0;      // where the next record begins
  std::string window_;  // of the file from there on
};

PlanPtr fixed_length_records(std::vector<std::string> files, int64_t record_bytes,
                             const FixedLengthRecordDatasetOptions& options) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const RecordLayout layout{options.header_bytes, record_bytes, options.footer_bytes};
  if (record_bytes < 1 || record_bytes > kMost || layout.header < 0 || layout.footer < 0 ||
      layout.footer > kMost) {
    throw InvalidArgument(cat("FixedLengthRecordDataset: record_bytes ", record_bytes,
                              ", header_bytes ", layout.header, ", footer_bytes ", layout.footer,
                              ", expected 1 byte to 1 GiB, and none below 0"));
  }
  const auto compression =
      io::compression_from_name("FixedLengthRecordDataset", options.compression_type);
  return read_files(std::move(files),
                    {.name = "FixedLengthRecordDataset",
                     .open = [layout, compression, buffer = options.buffer_size](
                                 const std::string& path) -> std::unique_ptr<RecordFile> {
                       return std::make_unique<FixedLengthFile>(path, layout, compression, buffer);
                     },
                     .element_spec = string_spec(),
                     .num_parallel_reads = options.num_parallel_reads});
}

}  // namespace

TFRecordDataset::TFRecordDataset(std::vector<std::string> filenames,
                                 const TFRecordDatasetOptions& options)
    : Dataset(tf_records(std::move(filenames), options)) {}

FixedLengthRecordDataset::FixedLengthRecordDataset(std::vector<std::string> filenames,
                                                   int64_t record_bytes,
                                                   const FixedLengthRecordDatasetOptions& options)
    : Dataset(fixed_length_records(std::move(filenames), record_bytes, options)) {}

}  // namespace tutti::data
