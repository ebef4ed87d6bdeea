#include "data/element_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "data/element_codec.h"
#include "data/iterator_state.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::data {
namespace {

constexpr int64_t kFormat = 1;

[[noreturn]] void fail(const char* operation, const std::string& path) {
  const int reason = errno;
  const std::string text = cat(operation, " [", path, "]: ", std::strerror(reason));
  if (reason == EACCES || reason == EPERM || reason == EROFS) throw PermissionDenied(text);
  if (reason == ENOSPC || reason == EDQUOT) throw ResourceExhausted(text);
  if (reason == ENOENT || reason == ENOTDIR)
    throw NotFound(text + ", expected a folder that is there; make it first");
  throw Unavailable(text);
}

/// Flushed to the disk, then under its name.
void put_in_place(const std::string& temporary, const std::string& path) {
  const int file = open(temporary.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail("cache", temporary);
  const int synced = fsync(file);
  close(file);
  if (synced != 0 || std::rename(temporary.c_str(), path.c_str()) != 0) fail("cache", path);
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

bool ElementFiles::complete() const { return size_of(index()) >= 0; }

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
    : files_(files), lock_(std::move(lock)) {
  writer_.emplace(temporary(), io::TFRecordOptions{.compression_type = files.compression});
}

ElementWriter::~ElementWriter() {
  if (!writer_) return;
  writer_.reset();
  unlink(temporary().c_str());
}

void ElementWriter::add(const Nest& element) {
  bytes_.clear();
  append_element(element, bytes_);
  writer_->write(bytes_);
  ++count_;
}

void ElementWriter::finish() {
  writer_->close();
  Nest about = Nest::map({{"format", state::number(kFormat)},
                          {"elements", state::number(count_)},
                          {"data_bytes", state::number(size_of(temporary()))},
                          {"compression", Nest(StringTensor(files_.compression))}});
  const std::string index = files_.index() + ".tmp";
  {
    io::TFRecordWriter writer(index);
    bytes_.clear();
    append_element(about, bytes_);
    writer.write(bytes_);
    writer.close();
  }
  // Never an old index beside new data.
  unlink(files_.index().c_str());
  put_in_place(temporary(), files_.data());
  writer_.reset();
  put_in_place(index, files_.index());
  lock_.reset();
}

ElementReader::ElementReader(const ElementFiles& files) : files_(files) {
  io::TFRecordReader index(files.index());
  const auto record = index.next();
  if (!record) damaged(files.index(), "an empty index");
  const Nest about = element_of(*record);
  const int64_t format = state::number_in(about, "format", 1);
  if (format != kFormat) {
    throw InvalidArgument(cat("read cache [", files.index(), "]: format ", format, ", expected ",
                              kFormat, "; remove the files to make them anew"));
  }
  size_ = state::number_in(about, "elements", 0);
  const int64_t bytes = state::number_in(about, "data_bytes", 0);
  if (size_of(files.data()) != bytes) {
    damaged(files.data(),
            cat(size_of(files.data()), " bytes in place of the ", bytes, " of the index"));
  }
  const Nest& compression = state::part(about, "compression");
  if (!compression.is_strings()) damaged(files.index(), "no compression");
  files_.compression = compression.strings().item();
  records_.emplace(files.data(), io::TFRecordOptions{.compression_type = files_.compression});
}

std::optional<Nest> ElementReader::next() {
  if (done_) return std::nullopt;
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
      damaged(files_.data(), cat(number_, " elements in place of the ", size_, " of the index"));
    return std::nullopt;
  }
  ++number_;
  try {
    return element_of(*record);
  } catch (const DataLoss& error) {
    damaged(files_.data(), cat("element ", number_ - 1, ": ", error.what()));
  }
}

void ElementReader::seek(int64_t offset, int64_t number) {
  if (offset < 0 || number > size_)
    throw DataLoss(cat("restore iterator [", files_.data(), "]: element ", number, " of ", size_,
                       ", expected the files that were read before"));
  records_->seek(offset);
  number_ = number;
}

}  // namespace tutti::data
