#include "data/element_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "data/element_codec.h"
#include "data/iterator_state.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFormat = 2;

[[noreturn]] void fail(const char* operation, const std::string& path) {
  const int reason = errno;
  const std::string text = cat(operation, " [", path, "]: ", std::strerror(reason));
  if (reason == EACCES || reason == EPERM || reason == EROFS) throw PermissionDenied(text);
  if (reason == ENOSPC || reason == EDQUOT) throw ResourceExhausted(text);
  if (reason == ENOENT || reason == ENOTDIR)
    throw NotFound(text + ", expected a folder that is there; make it first");
  throw Unavailable(text);
}

/// A file or a folder, to the disk.
void flush(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail("cache", path);
  const int synced = fsync(file);
  close(file);
  if (synced != 0) fail("cache", path);
}

std::string folder_of(const ElementFiles& files) {
  const fs::path folder = fs::path(files.prefix).parent_path();
  return folder.empty() ? "." : folder.string();
}

/// `visit(path, generation)` for each data file.
template <class Visit>
void visit_data(const ElementFiles& files, Visit visit) {
  const std::string start = fs::path(files.prefix).filename().string() + ".data-";
  std::error_code error;
  for (fs::directory_iterator entry(folder_of(files), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.compare(0, start.size(), start) != 0) continue;
    int64_t generation = -1;
    const char* last = name.data() + name.size();
    const auto number = std::from_chars(name.data() + start.size(), last, generation);
    if (number.ec == std::errc() && number.ptr != last && *number.ptr == '-' && generation >= 0 &&
        generation < INT64_MAX)
      visit(entry->path(), generation);
  }
}

int64_t size_of(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_size) : -1;
}

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw DataLoss(
      cat("read cache [", path, "]: ", what,
          ", expected what one complete pass wrote; remove the files to make them anew"));
}

}  // namespace

std::string ElementFiles::data(int64_t generation, int64_t shard) const {
  return cat(prefix, ".data-", generation, "-", shard);
}

bool ElementFiles::complete() const { return size_of(index()) >= 0; }

int64_t ElementIndex::size() const {
  return std::accumulate(elements.begin(), elements.end(), int64_t{0});
}

ElementIndex ElementIndex::read(const ElementFiles& files) {
  const std::string path = files.index();
  io::TFRecordReader records(path);
  const auto record = records.next();
  if (!record) damaged(path, "an empty index");
  return of(element_of(*record), path);
}

ElementIndex ElementIndex::of(const Nest& about, const std::string& path) {
  const int64_t format = state::number_in(about, "format", 1);
  if (format != kFormat) {
    throw InvalidArgument(cat("read cache [", path, "]: format ", format, ", expected ", kFormat,
                              "; remove the files to make them anew"));
  }
  const Nest& compression = state::part(about, "compression");
  if (!compression.is_strings() || compression.strings().numel() != 1)
    damaged(path, "no compression");
  ElementIndex index{state::number_in(about, "generation", 0), compression.strings().item(),
                     state::numbers_in(about, "elements"), state::numbers_in(about, "data_bytes")};
  const bool shards = !index.elements.empty() && index.num_shards() <= kMostShards &&
                      index.data_bytes.size() == index.elements.size();
  if (!shards) damaged(path, "no shards");
  int64_t total = 0;
  for (std::size_t i = 0; i < index.elements.size(); ++i) {
    if (index.elements[i] < 0 || index.data_bytes[i] < 0 ||
        __builtin_add_overflow(total, index.elements[i], &total))
      damaged(path, "numbers of no shard");
  }
  return index;
}

Nest ElementIndex::about() const {
  return Nest::map({{"format", state::number(kFormat)},
                    {"generation", state::number(generation)},
                    {"elements", state::numbers(elements)},
                    {"data_bytes", state::numbers(data_bytes)},
                    {"compression", Nest(StringTensor(compression))}});
}

std::unique_ptr<WriterLock> WriterLock::take(const ElementFiles& files) {
  const std::string path = files.lock();
  for (;;) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) fail("cache", path);
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
      const bool held = errno == EWOULDBLOCK;
      close(file);
      if (held) return nullptr;
      fail("cache", path);
    }
    // Who had it before may have removed the file in between.
    struct stat mine {
    }, there{};
    if (fstat(file, &mine) == 0 && stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino)
      return std::unique_ptr<WriterLock>(new WriterLock(path, file));
    close(file);
  }
}

WriterLock::~WriterLock() {
  unlink(path_.c_str());
  close(file_);
}

ElementWriter::ElementWriter(const ElementFiles& files, std::unique_ptr<WriterLock> lock)
    : files_(files), lock_(std::move(lock)), generation_(0) {
  // Also behind what a writer that died has left.
  visit_data(files_, [this](const fs::path&, int64_t generation) {
    generation_ = std::max(generation_, generation + 1);
  });
}

ElementWriter::~ElementWriter() {
  if (finished_) return;
  for (auto& [shard, writer] : writers_) {
    { const io::TFRecordWriter closed = std::move(writer); }
    unlink(path(shard).c_str());
  }
}

void ElementWriter::add(const Nest& element, int64_t shard) {
  if (shard < 0 || shard >= kMostShards) {
    throw InvalidArgument(cat("save [", files_.prefix, "]: shard_func gave ", shard,
                              ", expected 0 to ", kMostShards - 1));
  }
  bytes_.clear();
  append_element(element, bytes_);
  auto writer = writers_.find(shard);
  if (writer == writers_.end()) {
    writer = writers_
                 .emplace(shard,
                          io::TFRecordWriter(path(shard), {.compression_type = files_.compression}))
                 .first;
    counts_.resize(std::max(counts_.size(), static_cast<std::size_t>(shard) + 1), 0);
  }
  writer->second.write(bytes_);
  ++counts_[static_cast<std::size_t>(shard)];
}

void ElementWriter::finish() {
  ElementIndex index{generation_, files_.compression, std::move(counts_), {}};
  if (index.elements.empty()) index.elements.push_back(0);
  index.data_bytes.resize(index.elements.size(), 0);
  for (auto& [shard, writer] : writers_) {
    writer.close();
    flush(path(shard));
    index.data_bytes[static_cast<std::size_t>(shard)] = size_of(path(shard));
  }
  const std::string temporary = files_.index() + ".tmp";
  {
    io::TFRecordWriter writer(temporary);
    bytes_.clear();
    append_element(index.about(), bytes_);
    writer.write(bytes_);
    writer.close();
  }
  flush(temporary);
  flush(folder_of(files_));
  if (std::rename(temporary.c_str(), files_.index().c_str()) != 0) fail("cache", files_.index());
  finished_ = true;
  visit_data(files_, [this](const fs::path& path, int64_t generation) {
    if (generation != generation_) unlink(path.c_str());
  });
  lock_.reset();
}

ElementReader::ElementReader(const ElementFiles& files, const ElementIndex& index, int64_t shard)
    : path_(files.data(index.generation, shard)),
      size_(index.elements.at(static_cast<std::size_t>(shard))) {
  const int64_t bytes = index.data_bytes[static_cast<std::size_t>(shard)];
  if (size_ == 0 && bytes == 0) return;
  const int64_t found = size_of(path_);
  if (found != bytes) {
    if (found < 0 && files.complete() && ElementIndex::read(files).generation != index.generation) {
      throw FailedPrecondition(cat("read cache [", path_,
                                   "]: another dataset has replaced this one, expected the one "
                                   "that was there before; load it again"));
    }
    damaged(path_, cat(found, " bytes in place of the ", bytes, " of the index"));
  }
  records_.emplace(path_, io::TFRecordOptions{.compression_type = index.compression});
}

std::optional<Nest> ElementReader::next() {
  if (done_ || !records_) return std::nullopt;
  std::optional<std::string_view> record;
  try {
    record = records_->next();
  } catch (const DataLoss&) {
    ++number_;
    throw;
  }
  if (!record) {
    done_ = true;
    if (number_ != size_)
      damaged(path_, cat(number_, " elements in place of the ", size_, " of the index"));
    return std::nullopt;
  }
  ++number_;
  try {
    return element_of(*record);
  } catch (const DataLoss& error) {
    damaged(path_, cat("element ", number_ - 1, ": ", error.what()));
  }
}

void ElementReader::seek(int64_t offset, int64_t number) {
  if (offset < 0 || number < 0 || number > size_ || (!records_ && offset > 0))
    throw DataLoss(cat("restore iterator [", path_, "]: element ", number, " of ", size_,
                       ", expected the files that were read before"));
  if (records_) records_->seek(offset);
  number_ = number;
}

}  // namespace tutti::data
