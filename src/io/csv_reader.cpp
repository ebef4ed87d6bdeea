#include "io/csv_reader.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::io {
namespace {
/// A quote that nobody closes would take the rest of the file.
constexpr std::size_t kLongestRecord = std::size_t{1} << 28;
/// An empty field is one byte of the file and more in memory.
constexpr std::size_t kMostFields = std::size_t{1} << 22;
}  // namespace

bool CsvReader::ends_field(char c) {
  if (c == format_.field_delim) {
    end_field();
    state_ = State::kFieldStart;
    return true;
  }
  if (c == '\n' || c == '\r') {
    end_field();
    carriage_return_ = c == '\r';
    state_ = State::kRecordEnd;
    return true;
  }
  return false;
}

std::size_t CsvReader::plain_run(std::string_view chunk, std::size_t at) const {
  const std::size_t start = at;
  if (state_ == State::kQuoted) {
    at = std::min(chunk.find('"', at), chunk.size());
  } else {
    while (at < chunk.size() && chunk[at] != format_.field_delim && chunk[at] != '\n' &&
           chunk[at] != '\r' && (chunk[at] != '"' || !format_.use_quote_delim))
      ++at;
  }
  return at - start;
}

std::size_t CsvReader::scan(std::string_view chunk) {
  std::size_t at = 0;
  while (at < chunk.size() && state_ != State::kRecordEnd) {
    const char c = chunk[at];
    if (state_ == State::kFieldStart && c == '"' && format_.use_quote_delim) {
      state_ = State::kQuoted;
      ++at;
    } else if (state_ == State::kQuoteInQuoted) {
      if (!ends_field(c)) {
        if (c != '"') mistake_ = "a quote inside a quoted field is not doubled";
        text_ += c;
        state_ = State::kQuoted;
      }
      ++at;
    } else if (state_ == State::kQuoted && c == '"') {
      state_ = State::kQuoteInQuoted;
      ++at;
    } else if (state_ != State::kQuoted && ends_field(c)) {
      ++at;
    } else {
      if (state_ == State::kFieldStart) state_ = State::kPlain;
      if (state_ == State::kPlain && c == '"' && format_.use_quote_delim) {
        mistake_ = "a field without quotes around it has a quote inside";
        text_ += chunk[at++];
        continue;
      }
      const std::size_t run = plain_run(chunk, at);
      text_.append(chunk, at, run);
      at += run;
    }
  }
  return at;
}

bool CsvReader::next(std::vector<std::string_view>& fields) {
  fields.clear();
  if (lost_) return false;
  text_.clear();
  ends_.clear();
  mistake_ = nullptr;
  carriage_return_ = false;
  state_ = State::kFieldStart;
  record_offset_ = stream_.offset();
  lost_ = true;  // until the end of the record is known
  const auto refuse = [this](const char* found) {
    throw InvalidArgument(cat("read CSV [", path(), ", byte ", record_offset_, "]: ", found,
                              ", expected quotes around the whole field and two for one inside"));
  };
  while (state_ != State::kRecordEnd) {
    const std::string_view chunk = stream_.view();
    if (chunk.empty()) break;
    stream_.consume(scan(chunk));
    if (text_.size() > kLongestRecord) refuse("a record of more than 256 MiB");
    if (ends_.size() > kMostFields) refuse("a record of more than 4194304 fields");
  }
  if (state_ != State::kRecordEnd) {
    if (stream_.offset() == record_offset_) {
      lost_ = false;
      return false;
    }
    if (state_ == State::kQuoted) refuse("a quoted field that the end of the file does not close");
    end_field();
  }
  if (carriage_return_ && stream_.view().substr(0, 1) == "\n") stream_.consume(1);
  lost_ = false;
  if (mistake_ != nullptr) refuse(mistake_);
  std::size_t begin = 0;
  for (std::size_t end : ends_) {
    fields.push_back(std::string_view(text_).substr(begin, end - begin));
    begin = end;
  }
  return true;
}

}  // namespace tutti::io
