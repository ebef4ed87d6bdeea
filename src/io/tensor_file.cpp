// Layout, little-endian:  magic "TUTTI\0\1\n" · u64 metadata bytes · u64 table bytes · u32 crc of metadata and table · u32 crc of these 28
// bytes · metadata · table · padding to 64 · tensors, each at a multiple of 64.  A table entry: u32 name bytes, name, u8 dtype, u8 rank,
// rank x i64 sizes, u64 offset, u64 bytes, u32 crc of the bytes.

#include "tutti/io/tensor_file.h"

#include <ATen/ATen.h>
#include <zlib.h>

#include <array>
#include <cstring>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/io/file.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::io {
namespace {

constexpr char kMagic[8] = {'T', 'U', 'T', 'T', 'I', '\0', '\1', '\n'};
constexpr std::size_t kHeader = 32;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kLimit = std::size_t{1} << 40;
// The number of a dtype in the file is its place here; places are never changed.
constexpr std::array<at::ScalarType, 10> kDtypes{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,
                                                 at::kChar,  at::kShort,  at::kInt,  at::kLong,     at::kBool};

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

std::size_t aligned(std::size_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

uint8_t dtype_number(const std::string& name, at::ScalarType dtype) {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (kDtypes[i] == dtype) return static_cast<uint8_t>(i);
  }
  throw Unimplemented(cat("write tensor [", name, "]: dtype ", dtype_name(dtype), ", expected a real number type or bool; convert first"));
}

/// Reads values out of a buffer; DataLoss when it ends early.
class Reader {
 public:
  Reader(const std::string& path, const uint8_t* data, std::size_t size) : path_(path), data_(data), size_(size) {}
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  const uint8_t* take(std::size_t count) {
    if (count > size_ - at_) throw DataLoss(cat("read [", path_, "]: the table ends early, expected more; the file is damaged"));
    at_ += count;
    return data_ + at_ - count;
  }
  bool done() const { return at_ == size_; }

 private:
  const std::string& path_;
  const uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw DataLoss(cat("read [", path, "]: ", what, "; the file is damaged, restore it from a copy"));
}

std::pair<std::string, Tensor> read_entry(const std::string& path, Reader& table, const std::vector<uint8_t>& bytes) {
  const auto name_size = table.get<uint32_t>();
  const auto* name_data = table.take(name_size);
  std::string name(reinterpret_cast<const char*>(name_data), name_size);
  const auto dtype = table.get<uint8_t>();
  const auto rank = table.get<uint8_t>();
  std::vector<int64_t> sizes;
  int64_t numel = 1;
  bool fits = dtype < kDtypes.size();
  for (int i = 0; i < rank; ++i) {
    sizes.push_back(table.get<int64_t>());
    fits = fits && sizes.back() >= 0 && !__builtin_mul_overflow(numel, sizes.back(), &numel);
  }
  const auto offset = table.get<uint64_t>();
  const auto size = table.get<uint64_t>();
  const auto crc = table.get<uint32_t>();
  int64_t expected = 0;
  fits = fits && !__builtin_mul_overflow(numel, static_cast<int64_t>(c10::elementSize(kDtypes[dtype])), &expected);
  if (!fits || static_cast<uint64_t>(expected) != size || offset > bytes.size() || size > bytes.size() - offset) {
    damaged(path, cat("the tensor \"", name, "\" lies outside the file of ", bytes.size(), " bytes"));
  }
  if (checksum(bytes.data() + offset, size) != crc) damaged(path, cat("the checksum of the tensor \"", name, "\" is wrong"));
  Tensor tensor = at::empty(sizes, kDtypes[dtype]);
  if (size > 0) std::memcpy(tensor.data_ptr(), bytes.data() + offset, size);
  return {std::move(name), std::move(tensor)};
}

}  // namespace

void write_tensor_file(const std::string& path, const TensorFile& file) {
  std::vector<Tensor> contiguous;
  std::size_t table_size = 0;
  for (const auto& [name, tensor] : file.tensors) {
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
  const std::vector<uint8_t> bytes = read_file(path, kLimit);
  if (bytes.size() < kHeader) damaged(path, cat(bytes.size(), " bytes, expected a header of ", kHeader));
  if (std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    const bool version = std::memcmp(bytes.data(), kMagic, 6) == 0;
    throw InvalidArgument(cat("read [", path, "]: ", version ? "another version of the format" : "no Tutti file",
                              ", expected one that save() of this version wrote"));
  }
  Reader header(path, bytes.data() + sizeof(kMagic), kHeader - sizeof(kMagic));
  const auto metadata_size = header.get<uint64_t>();
  const auto table_size = header.get<uint64_t>();
  const auto described_crc = header.get<uint32_t>();
  if (checksum(bytes.data(), kHeader - 4) != header.get<uint32_t>()) damaged(path, "the checksum of the header is wrong");
  const std::size_t rest = bytes.size() - kHeader;
  if (metadata_size > rest || table_size > rest - metadata_size) damaged(path, "it is shorter than its header says");
  if (checksum(bytes.data() + kHeader, metadata_size + table_size) != described_crc) damaged(path, "the checksum of the description is wrong");
  TensorFile file;
  file.metadata.assign(reinterpret_cast<const char*>(bytes.data()) + kHeader, metadata_size);
  Reader table(path, bytes.data() + kHeader + metadata_size, table_size);
  while (!table.done()) file.tensors.push_back(read_entry(path, table, bytes));
  return file;
}

}  // namespace tutti::io
