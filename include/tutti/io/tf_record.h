#pragma once
// TFRecord files: byte strings one after the other, each with checksums of its length and its
// bytes.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::io {

struct TFRecordOptions {
  /// "", "GZIP" or "ZLIB": of the whole file.
  std::string compression_type = "";
  int64_t input_buffer_size = 256 << 10;
  int64_t output_buffer_size = 256 << 10;
  /// zlib's: 0 to 9, or -1 for its default.
  int compression_level = -1;
};

/// Writes a file from its start. One thread at a time. What cannot be written is Unavailable, or
/// ResourceExhausted where the disk is full; the file is of no use then.
class TFRecordWriter {
 public:
  /// Makes the file, or empties it. NotFound or PermissionDenied when that cannot be,
  /// InvalidArgument for another compression type.
  explicit TFRecordWriter(const std::string& path, const TFRecordOptions& options = {});
  /// close(), and a warning in the log where that fails.
  ~TFRecordWriter();
  TFRecordWriter(TFRecordWriter&&) noexcept;
  TFRecordWriter& operator=(TFRecordWriter&&) noexcept;

  /// FailedPrecondition after close().
  void write(std::string_view record);
  /// Hands everything written to the operating system.
  void flush();
  /// Ends the file; a second time does nothing.
  void close();

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

/// Reads a file from front to back. One thread at a time.
class TFRecordReader {
 public:
  /// NotFound or PermissionDenied when it cannot be opened, FailedPrecondition for a folder,
  /// InvalidArgument for another compression type.
  explicit TFRecordReader(const std::string& path, const TFRecordOptions& options = {});
  ~TFRecordReader();
  TFRecordReader(TFRecordReader&&) noexcept;
  TFRecordReader& operator=(TFRecordReader&&) noexcept;

  /// The next record, valid until the next call; nothing at the end, where a file may have grown
  /// when it is called again. DataLoss, with the file and the byte where the record begins, for one
  /// that is damaged: behind damaged data the next call goes on with the next record; behind a
  /// damaged length, or a record that is cut short, nothing can be read any more, and it gives
  /// nothing. No memory is taken for bytes that are not there.
  std::optional<std::string_view> next();
  /// Where the next record begins in the file, unpacked; -1 when nothing can be read any more.
  int64_t offset() const;
  /// Goes on at such an offset (packed files are unpacked up to it). DataLoss when the file ends in
  /// front of it.
  void seek(int64_t offset);

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

/// CRC-32C (Castagnoli).
uint32_t crc32c(std::string_view bytes);
/// As it stands in the files: turned by 15 bits, plus a constant.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace tutti::io
