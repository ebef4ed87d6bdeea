// Layout, little-endian:  magic "TUTTI\0\1\n" · u64 metadata bytes · u64 table bytes · u32 crc of
// metadata and table · u32 crc of these 28 bytes · metadata · table · padding to 64 · tensors, each
// at a multiple of 64.  A table entry: u32 name bytes, name, u8 dtype, u8 rank, rank x i64 sizes,
// u64 offset, u64 bytes, u32 crc of the bytes.

#include "tutti/io/tensor_file.h"

#include <ATen/ATen.h>
#include <sys/stat.h>
#include <zlib.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "io/file.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers are written as they lie in memory");
constexpr char kMagic[8] = {'T', 'U', 'T', 'T', 'I', '\0', '\1', '\n'};
constexpr std::size_t kHeader = 32;
constexpr std::size_t kAlignment = 64;
constexpr int kMaxRank = 64;  // LibTorch's
// The number of a dtype in the file is its place here; places are never changed.
constexpr std::array<at::ScalarType, 10> kDtypes{at::kFloat, at::kDouble, at::kHalf,  at::kBFloat16,
                                                 at::kByte,  at::kChar,   at::kShort, at::kInt,
                                                 at::kLong,  at::kBool};

uint32_t checksum(const void* data, std::size_t size) {
  uLong crc = crc32(0, nullptr, 0);
  const auto* bytes = static_cast<const Bytef*>(data);
  for (std::size_t at = 0; at < size;) {  // zlib counts in 32 bits
    const std::size_t part = std::min(size - at, std::size_t{1} << 30);
    crc = crc32(crc, bytes + at, static_cast<uInt>(part));
    at += part;
  }
  return static_cast<uint32_t>(crc);
}

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::size_t aligned(std::size_t offset) {
  return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

uint8_t dtype_number(const std::string& name, at::ScalarType dtype) {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (kDtypes[i] == dtype) return static_cast<uint8_t>(i);
  }
  throw Unimplemented(cat("write tensor [", name, "]: dtype ", dtype_name(dtype),
                          ", expected a real number type or bool; convert first"));
}

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw DataLoss(cat("read [", path, "]: ", what, "; the file is damaged, restore it from a copy"));
}

/// The file from front to end. Its size is known before anything is read, and nothing is taken from
/// beyond it.
class FileReader {
 public:
  explicit FileReader(const std::string& path)
      : path_(path), file_(std::fopen(path.c_str(), "rb")) {
    struct stat status = {};
    if (!file_ || fstat(fileno(file_.get()), &status) != 0) {
      throw NotFound(
          cat("read [", path, "]: ", std::strerror(errno), ", expected a readable file"));
    }
    if (!S_ISREG(status.st_mode))
      throw InvalidArgument(
          cat("read [", path, "]: not a plain file, expected one that save() wrote"));
    size_ = static_cast<uint64_t>(status.st_size);
  }
  uint64_t size() const { return size_; }
  uint64_t at() const { return at_; }
  uint64_t left() const { return size_ - at_; }
  void read(void* into, uint64_t count) {
    if (count > left())
      damaged(path_, cat("it ends at byte ", size_, ", expected ", count, " bytes from ", at_));
    if (count > 0 && std::fread(into, 1, count, file_.get()) != count)
      damaged(path_, cat("it cannot be read beyond byte ", at_));
    at_ += count;
  }
  std::string read_text(uint64_t count) {
    if (count > left())
      damaged(path_, cat("it ends at byte ", size_, ", expected ", count, " bytes from ", at_));
    std::string text(count, '\0');
    read(text.data(), count);
    return text;
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::string& path_;
  std::unique_ptr<std::FILE, Close> file_;
  uint64_t size_ = 0;
  uint64_t at_ = 0;
};

/// Takes values off the front of a text.
class TextReader {
 public:
  TextReader(const std::string& path, std::string_view text) : path_(path), text_(text) {}
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view take(std::size_t count) {
    if (count > text_.size()) damaged(path_, "its table ends early");
    const std::string_view taken = text_.substr(0, count);
    text_.remove_prefix(count);
    return taken;
  }
  bool done() const { return text_.empty(); }

 private:
  const std::string& path_;
  std::string_view text_;
};

struct Entry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint32_t crc = 0;
};

/// Bytes of a tensor of these sizes; nothing when a size is negative or the product of the others
/// does not fit.
std::optional<uint64_t> bytes_of(const std::vector<int64_t>& sizes, at::ScalarType dtype) {
  auto product = static_cast<int64_t>(c10::elementSize(dtype));
  bool empty = false;
  for (int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(product, std::max<int64_t>(size, 1), &product))
      return std::nullopt;
    empty = empty || size == 0;
  }
  return empty ? 0 : static_cast<uint64_t>(product);
}

Entry read_entry(const std::string& path, TextReader& table) {
  Entry entry;
  entry.name = table.take(table.get<uint32_t>());
  const auto dtype = table.get<uint8_t>();
  const auto rank = table.get<uint8_t>();
  if (dtype >= kDtypes.size() || rank > kMaxRank)
    damaged(path,
            cat("the tensor \"", entry.name, "\" has dtype ", int{dtype}, " and rank ", int{rank}));
  entry.dtype = kDtypes[dtype];
  for (int i = 0; i < rank; ++i) entry.sizes.push_back(table.get<int64_t>());
  entry.offset = table.get<uint64_t>();
  entry.bytes = table.get<uint64_t>();
  entry.crc = table.get<uint32_t>();
  if (bytes_of(entry.sizes, entry.dtype) != entry.bytes) {
    damaged(path, cat("the tensor \"", entry.name, "\" of shape ", shape_text(entry.sizes), " has ",
                      entry.bytes, " bytes"));
  }
  return entry;
}

/// The table, after its claims were held against the size of the file: tensors follow one another
/// without holes up to its end.
std::vector<Entry> read_table(const std::string& path, std::string_view text,
                              const FileReader& file) {
  TextReader table(path, text);
  std::vector<Entry> entries;
  uint64_t end = file.at();
  while (!table.done()) {
    entries.push_back(read_entry(path, table));
    const Entry& entry = entries.back();
    if (entry.offset != aligned(end) || entry.offset > file.size() ||
        entry.bytes > file.size() - entry.offset) {
      damaged(path, cat("the tensor \"", entry.name, "\" is said to be at byte ", entry.offset,
                        " of ", file.size()));
    }
    end = entry.offset + entry.bytes;
  }
  if (end != file.size()) damaged(path, cat("it has ", file.size(), " bytes, expected ", end));
  return entries;
}

Tensor read_tensor(const std::string& path, const Entry& entry, FileReader& file) {
  const std::string padding = file.read_text(entry.offset - file.at());
  if (padding.find_first_not_of('\0') != std::string::npos)
    damaged(path, cat("there is something before the tensor \"", entry.name, "\""));
  // A bool of another byte than 0 or 1 would be undefined behaviour: it is read as a number first.
  Tensor tensor = at::empty(entry.sizes, entry.dtype == at::kBool ? at::kByte : entry.dtype);
  file.read(tensor.data_ptr(), entry.bytes);
  if (checksum(tensor.const_data_ptr(), entry.bytes) != entry.crc)
    damaged(path, cat("the checksum of the tensor \"", entry.name, "\" is wrong"));
  return entry.dtype == at::kBool ? tensor.ne(0) : tensor;
}

}  // namespace

void write_tensor_file(const std::string& path, const TensorFile& file) {
  std::vector<Tensor> contiguous;
  std::size_t table_size = 0;
  for (const auto& [name, tensor] : file.tensors) {
    if (!tensor.defined())
      throw InvalidArgument(
          cat("write tensor [", name, "]: an undefined tensor, expected one with values"));
    contiguous.push_back(tensor.detach().cpu().contiguous());
    table_size += 4 + name.size() + 2 + static_cast<std::size_t>(tensor.dim()) * 8 + 20;
  }
  std::string table;
  std::size_t offset = aligned(kHeader + file.metadata.size() + table_size);
  for (std::size_t i = 0; i < contiguous.size(); ++i) {
    const std::string& name = file.tensors[i].first;
    put(table, static_cast<uint32_t>(name.size()));
    table += name;
    put(table, dtype_number(name, contiguous[i].scalar_type()));
    put(table, static_cast<uint8_t>(contiguous[i].dim()));
    for (int64_t size : contiguous[i].sizes()) put(table, size);
    put(table, static_cast<uint64_t>(offset));
    put(table, static_cast<uint64_t>(contiguous[i].nbytes()));
    put(table, checksum(contiguous[i].const_data_ptr(), contiguous[i].nbytes()));
    offset = aligned(offset + contiguous[i].nbytes());
  }
  std::string front(kMagic, sizeof(kMagic));
  put(front, static_cast<uint64_t>(file.metadata.size()));
  put(front, static_cast<uint64_t>(table.size()));
  const std::string described = file.metadata + table;
  put(front, checksum(described.data(), described.size()));
  put(front, checksum(front.data(), front.size()));
  front += described;
  static const char kZeros[kAlignment] = {};
  std::vector<std::pair<const void*, std::size_t>> parts{{front.data(), front.size()}};
  std::size_t at = front.size();
  for (const Tensor& tensor : contiguous) {
    parts.emplace_back(kZeros, aligned(at) - at);
    parts.emplace_back(tensor.const_data_ptr(), tensor.nbytes());
    at = aligned(at) + tensor.nbytes();
  }
  write_file_atomically(path, parts);
}

TensorFile read_tensor_file(const std::string& path) {
  FileReader file(path);
  if (file.size() < kHeader)
    damaged(path, cat("it has ", file.size(), " bytes, expected a header of ", kHeader));
  const std::string front = file.read_text(kHeader);
  if (std::memcmp(front.data(), kMagic, sizeof(kMagic)) != 0) {
    const bool version = std::memcmp(front.data(), kMagic, 6) == 0;
    throw InvalidArgument(cat("read [", path,
                              "]: ", version ? "another version of the format" : "no Tutti file",
                              ", expected one that save() of this version wrote"));
  }
  TextReader header(path, std::string_view(front).substr(sizeof(kMagic)));
  const auto metadata_size = header.get<uint64_t>();
  const auto table_size = header.get<uint64_t>();
  const auto described_crc = header.get<uint32_t>();
  if (checksum(front.data(), kHeader - 4) != header.get<uint32_t>())
    damaged(path, "the checksum of the header is wrong");
  if (metadata_size > file.left() || table_size > file.left() - metadata_size)
    damaged(path, "it is shorter than its header says");
  const std::string described = file.read_text(metadata_size + table_size);
  if (checksum(described.data(), described.size()) != described_crc)
    damaged(path, "the checksum of the description is wrong");
  TensorFile result;
  result.metadata = described.substr(0, metadata_size);
  for (const Entry& entry :
       read_table(path, std::string_view(described).substr(metadata_size), file)) {
    result.tensors.emplace_back(entry.name, read_tensor(path, entry, file));
  }
  return result;
}

}  // namespace tutti::io
