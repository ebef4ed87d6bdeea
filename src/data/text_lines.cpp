// Lines of text files.

#include <algorithm>
#include <array>
#include <cstring>

#include "data/iteration.h"
#include "data/iterator_state.h"
#include "io/file.h"
#include "tutti/data/dataset.h"

namespace tutti::data {
namespace {

constexpr std::size_t kReadBytes = std::size_t{256} << 10;
/// A packed file of a few bytes may be one line without end.
constexpr std::size_t kLongestLine = std::size_t{1} << 28;

/// The lines of one file.
class LineReader {
 public:
  explicit LineReader(const std::string& path) : path_(path), stream_(path) {}
  /// Bytes in front of the next line.
  int64_t offset() const { return offset_; }
  /// Drops bytes; false when there are not so many.
  bool skip(int64_t count) {
    while (offset_ < count) {
      if (at_ == buffer_.size() && !fetch()) return false;
      const auto step = std::min(static_cast<std::size_t>(count - offset_), buffer_.size() - at_);
      at_ += step;
      offset_ += static_cast<int64_t>(step);
    }
    return true;
  }
  std::optional<std::string> next() {
    std::size_t searched = 0;
    for (;;) {
      const std::size_t left = buffer_.size() - at_;
      const void* end = left > searched
                            ? std::memchr(buffer_.data() + at_ + searched, '\n', left - searched)
                            : nullptr;
      if (end != nullptr) {
        auto size = static_cast<std::size_t>(static_cast<const char*>(end) - buffer_.data()) - at_;
        std::string line = take(size, 1);
        if (!line.empty() && line.back() == '\r') line.pop_back();
        return line;
      }
      searched = left;
      if (left > kLongestLine)
        throw DataLoss(cat("read lines [", path_, ", byte ", offset_,
                           "]: a line of more than 256 MiB, expected text"));
      if (fetch()) continue;
      if (left == 0) return std::nullopt;
      return take(left, 0);
    }
  }

 private:
  std::string take(std::size_t size, std::size_t ending) {
    std::string line = buffer_.substr(at_, size);
    at_ += size + ending;
    offset_ += static_cast<int64_t>(size + ending);
    return line;
  }
  /// Reads on behind what the buffer has; false at the end.
  bool fetch() {
    buffer_.erase(0, at_);
    at_ = 0;
    const std::size_t before = buffer_.size();
    buffer_.resize(before + kReadBytes);
    std::size_t got = 0;
    try {
      got = stream_.read(buffer_.data() + before, kReadBytes);
    } catch (...) {
      buffer_.resize(before);
      throw;
    }
    buffer_.resize(before + got);
    return got > 0;
  }
  std::string path_;
  io::FileStream stream_;
  std::string buffer_;
  std::size_t at_ = 0;
  int64_t offset_ = 0;
};

class TextLinesPlan : public Plan {
 public:
  explicit TextLinesPlan(std::vector<std::string> files)
      : Plan({}), files_(std::make_shared<std::vector<std::string>>(std::move(files))) {}
  std::string name() const override { return "text_lines"; }
  std::string arguments() const override {
    constexpr std::size_t kShown = 3;
    std::vector<std::string> shown(files_->begin(),
                                   files_->begin() + std::min(kShown, files_->size()));
    if (files_->size() > kShown) shown.push_back(cat("… (", files_->size(), " files)"));
    return join(shown, ", ");
  }
  int64_t cardinality() const override { return files_->empty() ? 0 : kUnknown; }
  SpecNest element_spec() const override { return TensorSpec{{}, kString}; }
  std::unique_ptr<Iterator> iterator() const override { return std::make_unique<Pass>(files_); }
  const std::vector<std::string>* files() const override { return files_.get(); }
  PlanPtr with_files(std::vector<std::string> files) const override {
    return std::make_shared<TextLinesPlan>(std::move(files));
  }

 private:
  struct Pass : Iterator {
    explicit Pass(std::shared_ptr<const std::vector<std::string>> files)
        : files(std::move(files)) {}
    std::optional<Nest> next() override {
      for (;;) {
        if (!reader) {
          if (file == files->size()) return std::nullopt;
          reader.emplace((*files)[file++]);
        }
        std::optional<std::string> line;
        try {
          line = reader->next();
        } catch (...) {
          reader.reset();  // what stands behind the damage cannot be read
          throw;
        }
        if (line) return Nest(StringTensor(std::move(*line)));
        reader.reset();
      }
    }
    // "offset": -1 between two files.
    Nest save() const override {
      return Nest::map({{"file", state::number(static_cast<int64_t>(file))},
                        {"offset", state::number(reader ? reader->offset() : -1)}});
    }
    void restore(const Nest& saved) override {
      const auto most = static_cast<int64_t>(files->size());
      const int64_t offset = state::number_in(saved, "offset", -1);
      file = static_cast<std::size_t>(state::number_in(saved, "file", offset < 0 ? 0 : 1, most));
      reader.reset();
      if (offset < 0) return;
      reader.emplace((*files)[file - 1]);
      if (!reader->skip(offset)) {
        throw DataLoss(cat("restore iterator [", (*files)[file - 1], "]: shorter than ", offset,
                           " bytes, expected the file that was read before"));
      }
    }
    std::shared_ptr<const std::vector<std::string>> files;
    std::size_t file = 0;
    std::optional<LineReader> reader;
  };
  std::shared_ptr<const std::vector<std::string>> files_;
};

}  // namespace

PlanPtr plans::text_lines(std::vector<std::string> files) {
  return std::make_shared<TextLinesPlan>(std::move(files));
}

}  // namespace tutti::data
