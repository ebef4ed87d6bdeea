#include "io/byte_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::io {
namespace {

constexpr std::size_t kAtOnce = std::size_t{1} << 30;  // zlib and read count in 32 bits

std::size_t checked_buffer(const std::string& path, int64_t size) {
  if (size < 1) {
    throw InvalidArgument(
        cat("open [", path, "]: a buffer of ", size, " bytes, expected at least 1"));
  }
  return static_cast<std::size_t>(std::min<int64_t>(size, int64_t{1} << 28));
}

[[noreturn]] void refuse_to_open(const std::string& path, int error, const char* wanted) {
  const std::string message =
      cat("open [", path, "]: ", std::strerror(error), ", expected ", wanted);
  if (error == EACCES || error == EPERM) throw PermissionDenied(message);
  if (error == EEXIST) throw AlreadyExists(message);
  if (error == EISDIR) throw FailedPrecondition(message);
  if (error == EMFILE || error == ENFILE || error == ENOSPC) throw ResourceExhausted(message);
  throw NotFound(message);
}

int window_bits(Compression compression) {
  return compression == Compression::kGzip ? MAX_WBITS + 16 : MAX_WBITS;
}

}  // namespace

Compression compression_from_name(const char* operation, const std::string& name) {
  if (name.empty()) return Compression::kNone;
  if (name == "GZIP") return Compression::kGzip;
  if (name == "ZLIB") return Compression::kZlib;
  throw InvalidArgument(
      cat(operation, ": compression_type \"", name, "\", expected \"\", \"GZIP\" or \"ZLIB\""));
}

struct ByteStream::Unpacking {
  explicit Unpacking(Compression compression, std::size_t buffer_size) : packed(buffer_size) {
    if (inflateInit2(&stream, window_bits(compression)) != Z_OK)
      throw ResourceExhausted("unpack: no memory for zlib");
  }
  ~Unpacking() { inflateEnd(&stream); }
  Unpacking(const Unpacking&) = delete;
  Unpacking& operator=(const Unpacking&) = delete;
  void restart() {
    inflateReset(&stream);
    stream.avail_in = 0;
    between_members = true;
  }
  z_stream stream = {};
  std::vector<char> packed;
  bool between_members = true;  // the file may end here
};

ByteStream::ByteStream(std::string path, Compression compression, int64_t buffer_size)
    : path_(std::move(path)), buffer_(checked_buffer(path_, buffer_size)) {
  file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) refuse_to_open(path_, errno, "a readable file");
  struct stat status = {};
  const bool known = fstat(file_, &status) == 0;
  if (known && S_ISDIR(status.st_mode)) {
    ::close(file_);
    refuse_to_open(path_, EISDIR, "a file");
  }
  is_regular_ = known && S_ISREG(status.st_mode);
  if (compression == Compression::kNone) return;
  try {
    unpacking_ = std::make_unique<Unpacking>(compression, buffer_.size());
  } catch (...) {
    ::close(file_);
    throw;
  }
}

ByteStream::~ByteStream() { ::close(file_); }

std::size_t ByteStream::read_file(char* into, std::size_t size) {
  for (;;) {
    const ssize_t got = ::read(file_, into, std::min(size, kAtOnce));
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EINTR) continue;
    failed_ = true;
    throw Unavailable(cat("read [", path_, ", byte ", end_offset_, "]: ", std::strerror(errno),
                          ", expected readable data; look after the disk"));
  }
}

std::size_t ByteStream::unpack(char* into, std::size_t size) {
  Unpacking& unpacking = *unpacking_;
  z_stream& stream = unpacking.stream;
  stream.next_out = reinterpret_cast<Bytef*>(into);
  stream.avail_out = static_cast<uInt>(std::min(size, kAtOnce));
  const auto wanted = static_cast<std::size_t>(stream.avail_out);
  const auto fail = [&](const std::string& found) {
    failed_ = true;
    throw DataLoss(cat("read [", path_, ", unpacked byte ", end_offset_, "]: ", found,
                       ", expected whole gzip or zlib data; get the file again"));
  };
  while (stream.avail_out == wanted) {  // until there is a byte at least
    if (stream.avail_in == 0) {
      const std::size_t got = read_file(unpacking.packed.data(), unpacking.packed.size());
      if (got == 0 && unpacking.between_members) return 0;
      if (got == 0) fail("the packed data end early");
      stream.next_in = reinterpret_cast<Bytef*>(unpacking.packed.data());
      stream.avail_in = static_cast<uInt>(got);
    }
    unpacking.between_members = false;
    const int result = inflate(&stream, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      inflateReset(&stream);
      unpacking.between_members = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      fail(stream.msg != nullptr ? stream.msg : "damaged packed data");
    }
  }
  return wanted - stream.avail_out;
}

std::size_t ByteStream::produce(char* into, std::size_t size) {
  if (failed_ || size == 0) return 0;
  const std::size_t got = unpacking_ ? unpack(into, size) : read_file(into, size);
  end_offset_ += static_cast<int64_t>(got);
  return got;
}

std::string_view ByteStream::view() {
  if (begin_ == end_) {
    begin_ = end_ = 0;
    end_ = produce(buffer_.data(), buffer_.size());
  }
  return {buffer_.data() + begin_, end_ - begin_};
}

std::size_t ByteStream::read(void* into, std::size_t size) {
  auto* to = static_cast<char*>(into);
  std::size_t have = 0;
  while (have < size) {
    std::size_t part = std::min(end_ - begin_, size - have);
    if (part > 0) {
      std::memcpy(to + have, buffer_.data() + begin_, part);
      begin_ += part;
    } else if (size - have >= buffer_.size()) {
      part = produce(to + have, size - have);  // past the buffer
      if (part == 0) break;
    } else if (view().empty()) {
      break;
    }
    have += part;
  }
  return have;
}

void ByteStream::rewind_to(int64_t offset) {
  begin_ = end_ = 0;
  end_offset_ = offset;
  if (lseek(file_, unpacking_ ? 0 : offset, SEEK_SET) < 0) {
    throw FailedPrecondition(cat("seek [", path_, "]: ", std::strerror(errno),
                                 ", expected a file that can be read again"));
  }
  if (unpacking_) unpacking_->restart();
}

void ByteStream::seek(int64_t offset) {
  if (offset < 0)
    throw InvalidArgument(cat("seek [", path_, "]: byte ", offset, ", expected 0 or more"));
  const bool anew = std::exchange(failed_, false);
  const int64_t start = unpacking_ ? 0 : offset;
  struct stat status = {};
  const bool behind_end =
      !unpacking_ && is_regular_ && fstat(file_, &status) == 0 && offset > status.st_size;
  if (unpacking_ ? anew || offset < this->offset() : !behind_end) rewind_to(start);
  while (!behind_end && this->offset() < offset) {
    const auto part =
        std::min<int64_t>(static_cast<int64_t>(view().size()), offset - this->offset());
    if (part == 0) break;
    consume(static_cast<std::size_t>(part));
  }
  if (behind_end || this->offset() != offset) {
    throw DataLoss(cat("seek [", path_, "]: the file ends in front of byte ", offset,
                       ", expected at least that many; is it the same file?"));
  }
}

std::optional<int64_t> ByteStream::bytes_left() const {
  struct stat status = {};
  if (unpacking_ || !is_regular_ || fstat(file_, &status) != 0) return std::nullopt;
  return std::max<int64_t>(static_cast<int64_t>(status.st_size) - offset(), 0);
}

bool ByteStream::may_have(uint64_t size) const {
  if (size <= end_ - begin_) return true;
  const auto left = bytes_left();
  return left ? size <= static_cast<uint64_t>(*left) : size < LLONG_MAX;
}

struct ByteSink::Packing {
  Packing(Compression compression, int level) {
    const int result =
        deflateInit2(&stream, level, Z_DEFLATED, window_bits(compression), 9, Z_DEFAULT_STRATEGY);
    if (result == Z_MEM_ERROR) throw ResourceExhausted("pack: no memory for zlib");
    if (result != Z_OK)
      throw InvalidArgument(cat("pack: compression_level ", level, ", expected -1 to 9"));
  }
  ~Packing() { deflateEnd(&stream); }
  Packing(const Packing&) = delete;
  Packing& operator=(const Packing&) = delete;
  z_stream stream = {};
};

ByteSink::ByteSink(std::string path, const Options& options)
    : path_(std::move(path)), buffer_(checked_buffer(path_, options.buffer_size)) {
  if (options.compression != Compression::kNone)
    packing_ = std::make_unique<Packing>(options.compression, options.level);
  file_ = open(path_.c_str(),
               O_WRONLY | O_CREAT | O_CLOEXEC | (options.must_be_new ? O_EXCL : O_TRUNC), 0666);
  if (file_ < 0) refuse_to_open(path_, errno, "a file that can be written");
}

ByteSink::~ByteSink() {
  if (file_ >= 0) ::close(file_);
}

void ByteSink::write_file(const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t done = ::write(file_, data, std::min(size, kAtOnce));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) {
      const bool full = errno == ENOSPC || errno == EDQUOT;
      const std::string message =
          cat("write [", path_, "]: ", std::strerror(errno), ", expected room and a sound disk");
      if (full) throw ResourceExhausted(message);
      throw Unavailable(message);
    }
    data += done;
    size -= static_cast<std::size_t>(done);
  }
}

void ByteSink::write_buffer() {
  const std::size_t size = std::exchange(filled_, 0);
  write_file(buffer_.data(), size);
}

void ByteSink::pack(std::string_view bytes, int mode) {
  z_stream& stream = packing_->stream;
  do {
    const std::string_view part = bytes.substr(0, kAtOnce);
    bytes.remove_prefix(part.size());
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
    stream.avail_in = static_cast<uInt>(part.size());
    const int now = bytes.empty() ? mode : Z_NO_FLUSH;
    do {
      if (filled_ == buffer_.size()) write_buffer();
      stream.next_out = reinterpret_cast<Bytef*>(buffer_.data() + filled_);
      stream.avail_out = static_cast<uInt>(buffer_.size() - filled_);
      deflate(&stream, now);
      filled_ = buffer_.size() - stream.avail_out;
    } while (stream.avail_out == 0);
  } while (!bytes.empty());
}

void ByteSink::write(std::string_view bytes) {
  if (file_ < 0) {
    throw FailedPrecondition(
        cat("write [", path_, "]: the file is closed, expected an open one; make a new writer"));
  }
  if (bytes.empty()) return;
  if (packing_) return pack(bytes, Z_NO_FLUSH);
  if (filled_ + bytes.size() > buffer_.size()) write_buffer();
  if (bytes.size() >= buffer_.size()) return write_file(bytes.data(), bytes.size());
  std::memcpy(buffer_.data() + filled_, bytes.data(), bytes.size());
  filled_ += bytes.size();
}

void ByteSink::flush() {
  if (file_ < 0) {
    throw FailedPrecondition(
        cat("flush [", path_, "]: the file is closed, expected an open one; make a new writer"));
  }
  if (packing_) pack({}, Z_SYNC_FLUSH);
  write_buffer();
}

void ByteSink::close() {
  if (file_ < 0) return;
  const auto shut = [this] { return ::close(std::exchange(file_, -1)); };
  try {
    if (packing_) pack({}, Z_FINISH);
    write_buffer();
  } catch (...) {
    shut();
    throw;
  }
  if (shut() != 0) {
    throw Unavailable(
        cat("close [", path_, "]: ", std::strerror(errno), ", expected a sound disk"));
  }
}

}  // namespace tutti::io
