#include "data/file_records.h"

#include <ATen/ATen.h>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::data {
namespace {

using Files = std::shared_ptr<const std::vector<std::string>>;

constexpr int64_t kNoFile = -1;
constexpr int64_t kAtEnd = -1;

/// One of the files that are read by turns.
struct Slot {
  int64_t file = kNoFile;
  std::unique_ptr<RecordFile> records;  // null with a file: it is at its end
};

/// A slot whose file ends is filled at its next turn, as tf.data's interleave does.
class FilesPass : public Iterator {
 public:
  FilesPass(Files files, std::shared_ptr<const FileSource> source)
      : files_(std::move(files)),
        source_(std::move(source)),
        slots_(static_cast<std::size_t>(source_->num_parallel_reads)) {}

  std::optional<Nest> next() override {
    while (num_open_ > 0 || next_file_ < num_files()) {
      Slot& slot = slots_[turn_];
      if (slot.file == kNoFile) {
        if (next_file_ < num_files()) {
          open(slot);
        } else {
          advance();
        }
        continue;
      }
      // Also when it throws: what is wrong stands in an element's place.
      const std::size_t turn = turn_;
      advance();
      std::optional<Nest> element;
      if (slot.records) element = slot.records->next();
      if (element) return element;
      slots_[turn] = {};
      --num_open_;
    }
    return std::nullopt;
  }

  Nest save() const override {
    std::vector<int64_t> places;
    for (const Slot& slot : slots_) {
      places.push_back(slot.file);
      places.push_back(slot.records ? slot.records->offset() : kAtEnd);
    }
    const auto slots = static_cast<int64_t>(slots_.size());
    return Nest::map({{"files", at::scalar_tensor(num_files(), at::kLong)},
                      {"next_file", at::scalar_tensor(next_file_, at::kLong)},
                      {"open_files", at::tensor(places, at::kLong).reshape({slots, 2})},
                      {"turn", at::scalar_tensor(static_cast<int64_t>(turn_), at::kLong)}});
  }

  void restore(const Nest& state) override {
    const auto number = [&](const char* key, int64_t below) {
      const Tensor& value = state[key].leaf();
      if (value.scalar_type() != at::kLong || value.dim() != 0) refuse(key);
      const auto found = value.item<int64_t>();
      if (found < 0 || found >= below) refuse(key);
      return found;
    };
    if (number("files", INT64_MAX) != num_files()) refuse("files");
    next_file_ = number("next_file", num_files() + 1);
    turn_ = static_cast<std::size_t>(number("turn", static_cast<int64_t>(slots_.size())));
    const Tensor places = state["open_files"].leaf().cpu().contiguous();
    const auto slots = static_cast<int64_t>(slots_.size());
    if (places.scalar_type() != at::kLong || places.dim() != 2 || places.size(0) != slots ||
        places.size(1) != 2)
      refuse("open_files");
    const auto* place = places.const_data_ptr<int64_t>();
    for (Slot& slot : slots_) {
      restore(slot, place[0], place[1]);
      place += 2;
    }
  }

 private:
  int64_t num_files() const { return static_cast<int64_t>(files_->size()); }
  void advance() { turn_ = (turn_ + 1) % slots_.size(); }
  const std::string& path(int64_t file) const { return (*files_)[static_cast<std::size_t>(file)]; }

  void open(Slot& slot) {
    const int64_t file = next_file_++;  // also when it cannot be opened
    slot.records = source_->open(path(file));
    slot.file = file;
    ++num_open_;
  }

  void restore(Slot& slot, int64_t file, int64_t offset) {
    slot = {};
    if (file == kNoFile) return;
    if (file < 0 || file >= next_file_ || offset < kAtEnd) refuse("open_files");
    slot.file = file;
    ++num_open_;
    if (offset == kAtEnd) return;
    slot.records = source_->open(path(file));
    slot.records->seek(offset);
  }

  [[noreturn]] void refuse(const char* part) const {
    throw InvalidArgument(cat("restore iterator [", source_->name, "]: \"", part,
                              "\" of another pipeline, expected a place in ", num_files(),
                              " files, ", slots_.size(), " open at once"));
  }

  Files files_;
  std::shared_ptr<const FileSource> source_;
  std::vector<Slot> slots_;
  std::size_t turn_ = 0;
  int64_t num_open_ = 0;
  int64_t next_file_ = 0;
};

class FilesPlan : public Plan {
 public:
  FilesPlan(Files files, std::shared_ptr<const FileSource> source)
      : Plan({}), files_(std::move(files)), source_(std::move(source)) {}
  std::string name() const override { return source_->name; }
  int64_t cardinality() const override { return files_->empty() ? 0 : kUnknown; }
  SpecNest element_spec() const override { return source_->element_spec; }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<FilesPass>(files_, source_);
  }
  const std::vector<std::string>* files() const override { return files_.get(); }
  PlanPtr with_files(std::vector<std::string> files) const override {
    return std::make_shared<FilesPlan>(
        std::make_shared<const std::vector<std::string>>(std::move(files)), source_);
  }

 private:
  Files files_;
  std::shared_ptr<const FileSource> source_;
};

}  // namespace

PlanPtr read_files(std::vector<std::string> files, FileSource source) {
  if (source.num_parallel_reads < 1 || source.num_parallel_reads > 1024) {
    throw InvalidArgument(cat(source.name, ": num_parallel_reads ", source.num_parallel_reads,
                              ", expected 1 to 1024"));
  }
  return std::make_shared<FilesPlan>(
      std::make_shared<const std::vector<std::string>>(std::move(files)),
      std::make_shared<const FileSource>(std::move(source)));
}

}  // namespace tutti::data
