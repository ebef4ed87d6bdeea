#pragma once
// Records of comma-separated files (RFC 4180): lines of fields, which may stand in quotes.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/byte_stream.h"

namespace tutti::io {

struct CsvFormat {
  char field_delim = ',';
  /// False: quotes are characters like others.
  bool use_quote_delim = true;
  Compression compression = Compression::kNone;
  int64_t buffer_size = 256 << 10;
};

/// One thread at a time.
class CsvReader {
 public:
  CsvReader(std::string path, const CsvFormat& format)
      : format_(format), stream_(std::move(path), format.compression, format.buffer_size) {}

  /// The fields of the next record, valid until the next call; false at the end. An empty line is
  /// a record of one empty field. InvalidArgument, with the file and the byte, for a record whose
  /// quotes are wrong; the next call goes on behind it. Errors of ByteStream; nothing can be read
  /// behind them.
  bool next(std::vector<std::string_view>& fields);
  /// Where the last record began.
  int64_t record_offset() const { return record_offset_; }
  /// Of the next record; -1 when nothing can be read any more.
  int64_t offset() const { return lost_ ? -1 : stream_.offset(); }
  void seek(int64_t offset) {
    stream_.seek(offset);
    lost_ = false;
  }
  const std::string& path() const { return stream_.path(); }

 private:
  enum class State { kFieldStart, kPlain, kQuoted, kQuoteInQuoted, kRecordEnd };
  /// Reads on in `chunk` until the record ends or there is no more; how many bytes were taken.
  std::size_t scan(std::string_view chunk);
  std::size_t plain_run(std::string_view chunk, std::size_t at) const;
  void end_field() { ends_.push_back(text_.size()); }
  /// Whether `c` ended the field.
  bool ends_field(char c);

  CsvFormat format_;
  ByteStream stream_;
  State state_ = State::kFieldStart;
  std::string text_;               // of all fields, without quotes
  std::vector<std::size_t> ends_;  // of the fields in it
  const char* mistake_ = nullptr;
  bool carriage_return_ = false;
  bool lost_ = false;
  int64_t record_offset_ = 0;
};

}  // namespace tutti::io
