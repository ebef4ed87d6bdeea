#pragma once
// Bytes of a file from front to back, and the way back: plain, gzip or zlib, with a buffer.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::io {

enum class Compression { kNone, kGzip, kZlib };
/// Of "", "GZIP" or "ZLIB"; InvalidArgument, as an error of `operation`, for anything else.
Compression compression_from_name(const char* operation, const std::string& name);

class ByteStream {
 public:
  /// NotFound, PermissionDenied or FailedPrecondition (a folder).
  ByteStream(std::string path, Compression compression, int64_t buffer_size);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  const std::string& path() const { return path_; }
  /// Unread bytes that lie in the buffer, filled when it is empty; none only at the end. Valid
  /// until the next call. DataLoss when the packed data are damaged or cut short, Unavailable when
  /// the file cannot be read; behind either the stream is at its end.
  std::string_view view();
  /// Bytes of the last view that are done with.
  void consume(std::size_t size) { begin_ += size; }
  /// Fewer bytes only at the end. Errors as view().
  std::size_t read(void* into, std::size_t size);
  /// Of the unpacked bytes, the next one's.
  int64_t offset() const { return end_offset_ - static_cast<int64_t>(end_ - begin_); }
  /// DataLoss when the file ends in front of `offset`.
  void seek(int64_t offset);
  /// Bytes from here to the end, where the size of the file tells them: it is plain.
  std::optional<int64_t> bytes_left() const;
  /// False: certainly fewer than `size` more bytes. True of what is packed, or no plain file.
  bool may_have(uint64_t size) const;

 private:
  struct Unpacking;
  /// Bytes straight from the file or the unpacking; 0 only at the end.
  std::size_t produce(char* into, std::size_t size);
  std::size_t read_file(char* into, std::size_t size);
  std::size_t unpack(char* into, std::size_t size);
  void rewind_to(int64_t offset);

  std::string path_;
  int file_ = -1;
  bool is_regular_ = false;
  bool failed_ = false;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  int64_t end_offset_ = 0;  // of what stands behind the buffer
  std::unique_ptr<Unpacking> unpacking_;
};

/// Bytes into a new file.
class ByteSink {
 public:
  struct Options {
    Compression compression = Compression::kNone;
    int64_t buffer_size = 256 << 10;
    int level = -1;
    /// A file that is there is AlreadyExists, instead of emptied.
    bool must_be_new = false;
  };
  ByteSink(std::string path, const Options& options);
  /// Closes the file, with the bytes that were flushed.
  ~ByteSink();
  ByteSink(const ByteSink&) = delete;
  ByteSink& operator=(const ByteSink&) = delete;

  const std::string& path() const { return path_; }
  /// ResourceExhausted where the disk is full, else Unavailable; FailedPrecondition after close().
  void write(std::string_view bytes);
  void flush();
  void close();

 private:
  struct Packing;
  void pack(std::string_view bytes, int mode);
  void write_buffer();
  void write_file(const char* data, std::size_t size);

  std::string path_;
  int file_ = -1;
  std::vector<char> buffer_;
  std::size_t filled_ = 0;
  std::unique_ptr<Packing> packing_;
};

}  // namespace tutti::io
