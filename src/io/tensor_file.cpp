// A safetensors file: u64 bytes of the header · header, a JSON object, blanks behind it · the
// tensors, one after another. The object has an entry {dtype, shape, data_offsets} for each tensor,
// and in front of them `__metadata__` with our text and checksums, which other readers pass over
// (docs/formats.md).

#include "tutti/io/tensor_file.h"

#include <ATen/ATen.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "io/file.h"
#include "io/tensor_bytes.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::io {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers are written as they lie in memory");
using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // looks a key up from the front on: only for writing

constexpr char kFormat[] = "tutti 1";
constexpr std::size_t kAlignment = 64;          // of the first tensor
constexpr uint64_t kLargestHeader = 100 << 20;  // as the safetensors library has it
constexpr int kMaxRank = 64;                    // LibTorch's

struct DtypeCode {
  const char* code;
  at::ScalarType dtype;
};
constexpr std::array<DtypeCode, 15> kDtypes{{{"F32", at::kFloat},
                                             {"F64", at::kDouble},
                                             {"F16", at::kHalf},
                                             {"BF16", at::kBFloat16},
                                             {"U8", at::kByte},
                                             {"I8", at::kChar},
                                             {"I16", at::kShort},
                                             {"I32", at::kInt},
                                             {"I64", at::kLong},
                                             {"BOOL", at::kBool},
                                             {"U16", at::kUInt16},
                                             {"U32", at::kUInt32},
                                             {"U64", at::kUInt64},
                                             {"F8_E4M3", at::kFloat8_e4m3fn},
                                             {"F8_E5M2", at::kFloat8_e5m2}}};

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

std::string hex(uint32_t number) {
  char text[9];
  std::snprintf(text, sizeof(text), "%08x", number);
  return text;
}

const char* dtype_code(const std::string& name, at::ScalarType dtype) {
  for (const DtypeCode& known : kDtypes) {
    if (known.dtype == dtype) return known.code;
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
  /// Of bytes at hand, which messages call `path`.
  FileReader(const std::string& path, std::string_view bytes)
      : path_(path), bytes_(bytes.data()), size_(bytes.size()) {}
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
    if (count > 0 && bytes_ != nullptr) {
      std::memcpy(into, bytes_ + at_, count);
    } else if (count > 0 && std::fread(into, 1, count, file_.get()) != count) {
      damaged(path_, cat("it cannot be read beyond byte ", at_));
    }
    at_ += count;
  }
  /// The next byte, which stays the next.
  char peek() {
    if (bytes_ != nullptr) return bytes_[at_];
    const int byte = std::fgetc(file_.get());
    if (byte == EOF) damaged(path_, cat("it cannot be read beyond byte ", at_));
    std::ungetc(byte, file_.get());
    return static_cast<char>(byte);
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
  const char* bytes_ = nullptr;
  uint64_t size_ = 0;
  uint64_t at_ = 0;
};

struct Entry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;
  uint64_t begin = 0;  // from the first tensor's first byte on
  uint64_t end = 0;
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

std::vector<int64_t> whole_numbers(const std::string& path, const std::string& name,
                                   const Json& list) {
  std::vector<int64_t> numbers;
  const auto refuse = [&] {
    damaged(path, cat("the tensor \"", name, "\" has sizes or offsets that are none"));
  };
  if (!list.is_array() || list.size() > kMaxRank) refuse();
  for (const Json& number : list) {  // in place: a copy of what is nested deep takes all the stack
    if (!number.is_number_unsigned() || number.get<uint64_t>() > INT64_MAX) refuse();
    numbers.push_back(number.get<int64_t>());
  }
  return numbers;
}

Entry read_entry(const std::string& path, const std::string& name, const Json& json) {
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string() ||
      !json.contains("shape") || !json.contains("data_offsets"))
    damaged(path, cat("the tensor \"", name, "\" has no dtype, shape and data_offsets"));
  Entry entry;
  entry.name = name;
  const std::string code = json["dtype"];
  const auto known = std::find_if(kDtypes.begin(), kDtypes.end(),
                                  [&](const DtypeCode& dtype) { return code == dtype.code; });
  if (known == kDtypes.end())
    throw Unimplemented(cat("read [", path, "]: the tensor \"", name, "\" of dtype ", code,
                            ", expected one that LibTorch computes with"));
  entry.dtype = known->dtype;
  entry.sizes = whole_numbers(path, name, json["shape"]);
  const std::vector<int64_t> offsets = whole_numbers(path, name, json["data_offsets"]);
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    damaged(path, cat("the tensor \"", name, "\" has no beginning and end"));
  entry.begin = static_cast<uint64_t>(offsets[0]);
  entry.end = static_cast<uint64_t>(offsets[1]);
  if (bytes_of(entry.sizes, entry.dtype) != entry.end - entry.begin) {
    damaged(path, cat("the tensor \"", entry.name, "\" of shape ", shape_text(entry.sizes), " has ",
                      entry.end - entry.begin, " bytes"));
  }
  return entry;
}

/// The header's object, and its keys as they stand in the text.
struct Header {
  Json json;
  std::vector<std::string> names;
};

Header parse_header(const std::string& path, const std::string& text) {
  Header header;
  const auto note_names = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key)
      header.names.push_back(parsed.get<std::string>());
    return true;
  };
  header.json = Json::parse(text, note_names, /*allow_exceptions=*/false);
  if (!header.json.is_object()) damaged(path, "its header is no JSON object");
  if (header.json.size() != header.names.size()) damaged(path, "its header has a name twice");
  return header;
}

/// The table, after its claims were held against the size of the file: tensors follow one another
/// without holes up to its end.
std::vector<Entry> read_table(const std::string& path, const Header& header, uint64_t bytes) {
  std::vector<Entry> entries;
  for (const std::string& name : header.names) {
    if (name != "__metadata__") entries.push_back(read_entry(path, name, header.json.at(name)));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != end || entry.end > bytes) {
      damaged(path, cat("the tensor \"", entry.name, "\" is said to be at byte ", entry.begin,
                        " of ", bytes, ", expected ", end));
    }
    end = entry.end;
  }
  if (end != bytes) damaged(path, cat("its tensors have ", bytes, " bytes, expected ", end));
  return entries;
}

/// `crc`: eight hex digits, or nothing where the file has no checksums.
Tensor read_tensor(const std::string& path, const Entry& entry, std::string_view crc,
                   FileReader& file) {
  // A bool of another byte than 0 or 1 would be undefined behaviour: it is read as a number first.
  Tensor tensor = at::empty(entry.sizes, entry.dtype == at::kBool ? at::kByte : entry.dtype);
  file.read(tensor.data_ptr(), tensor.nbytes());
  if (!crc.empty() && hex(checksum(tensor.const_data_ptr(), tensor.nbytes())) != crc)
    damaged(path, cat("the checksum of the tensor \"", entry.name, "\" is wrong"));
  return entry.dtype == at::kBool ? tensor.ne(0) : tensor;
}

constexpr char kHeaderCrc[] = "\"header_crc32\":\"";

/// Where the eight digits of the header's own checksum stand in its text; npos when it has none.
std::size_t place_of_header_crc(const std::string& text) {
  const std::size_t found = text.find(kHeaderCrc);
  const std::size_t place = found == std::string::npos ? found : found + sizeof(kHeaderCrc) - 1;
  return place == std::string::npos || text.size() - place < 8 ? std::string::npos : place;
}

/// Of the size and the text, with zeros where the checksum stands.
uint32_t header_checksum(std::string text, std::size_t place) {
  text.replace(place, 8, 8, '0');
  const uint64_t size = text.size();
  text.insert(0, reinterpret_cast<const char*>(&size), sizeof(size));
  return checksum(text.data(), text.size());
}

/// What `__metadata__` says, after the header's checksum was found right.
struct Described {
  std::string metadata;
  std::vector<std::string> crcs;  // one a tensor; none in files of others
};

Described read_metadata(const std::string& path, const Json& header, const std::string& text) {
  const auto found = header.find("__metadata__");
  if (found == header.end()) return {};
  const auto entry = [&](const char* key) -> std::string {
    const auto value = found->is_object() ? found->find(key) : found->end();
    return !found->is_object() || value == found->end() || !value->is_string()
               ? ""
               : value->get<std::string>();
  };
  const std::string format = entry("format");
  const bool ours = format.rfind("tutti", 0) == 0 || found->contains("tutti") ||
                    found->contains("crc32") || found->contains("header_crc32");
  if (!ours) return {};
  const std::size_t place = place_of_header_crc(text);
  if (place == std::string::npos || entry("header_crc32") != text.substr(place, 8) ||
      hex(header_checksum(text, place)) != entry("header_crc32"))
    damaged(path, "the checksum of the header is wrong");
  if (format != kFormat)
    throw InvalidArgument(cat("read [", path, "]: format \"", format, "\", expected \"", kFormat,
                              "\": another version wrote it"));
  const std::string crcs = entry("crc32");
  return {entry("tutti"), crcs.empty() ? std::vector<std::string>{} : split(crcs, ' ')};
}

/// `name`, or where it stands already with a number behind it: JSON has each key once.
std::string unused_name(const std::string& name, std::set<std::string>& used) {
  std::string found = name;
  for (int number = 2; !used.insert(found).second; ++number) found = cat(name, "#", number);
  return found;
}

/// The header's bytes, its size in front.
std::string header_for(const TensorFile& file, const std::vector<Tensor>& contiguous) {
  std::string crcs;
  for (const Tensor& tensor : contiguous)
    crcs += cat(crcs.empty() ? "" : " ", hex(checksum(tensor.const_data_ptr(), tensor.nbytes())));
  OrderedJson header;
  header["__metadata__"] = {
      {"format", kFormat}, {"header_crc32", "00000000"}, {"crc32", crcs}, {"tutti", file.metadata}};
  std::set<std::string> used{"__metadata__"};
  uint64_t offset = 0;
  for (std::size_t i = 0; i < contiguous.size(); ++i) {
    const std::string name = unused_name(file.tensors[i].first, used);
    header[name] = {{"dtype", dtype_code(name, contiguous[i].scalar_type())},
                    {"shape", contiguous[i].sizes().vec()},
                    {"data_offsets", {offset, offset + contiguous[i].nbytes()}}};
    offset += contiguous[i].nbytes();
  }
  std::string text = header.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  while ((text.size() + 8) % kAlignment != 0) text += ' ';
  const std::size_t place = place_of_header_crc(text);
  text.replace(place, 8, hex(header_checksum(text, place)));
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text;
}

}  // namespace

namespace {

/// What write_tensor_file writes: the header, and the tensors' bytes.
struct Written {
  std::string header;
  std::vector<Tensor> tensors;

  explicit Written(const TensorFile& file) {
    for (const auto& [name, tensor] : file.tensors) {
      if (!tensor.defined())
        throw InvalidArgument(
            cat("write tensor [", name, "]: an undefined tensor, expected one with values"));
      tensors.push_back(tensor.detach().cpu().contiguous());
    }
    header = header_for(file, tensors);
  }
  std::vector<std::pair<const void*, std::size_t>> parts() const {
    std::vector<std::pair<const void*, std::size_t>> all{{header.data(), header.size()}};
    for (const Tensor& tensor : tensors) all.emplace_back(tensor.const_data_ptr(), tensor.nbytes());
    return all;
  }
};

TensorFile read_tensors(const std::string& path, FileReader& file, std::string* header_text) {
  uint64_t size = 0;
  if (file.size() < sizeof(size) + 2)
    damaged(path, cat("it has ", file.size(), " bytes, expected a header"));
  file.read(&size, sizeof(size));
  char first = 0;
  if (size <= file.left() && size > 0) first = file.peek();
  if (size > kLargestHeader || (size <= file.left() && first != '{'))
    throw InvalidArgument(cat("read [", path,
                              "]: no safetensors file, expected one that save() or another program "
                              "wrote in that format"));
  const std::string text = file.read_text(size);
  const Header header = parse_header(path, text);
  Described described = read_metadata(path, header.json, text);
  const std::vector<Entry> entries = read_table(path, header, file.left());
  if (!described.crcs.empty() && described.crcs.size() != entries.size())
    damaged(path, "it has not one checksum for each tensor");
  TensorFile result;
  result.metadata = std::move(described.metadata);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string crc = described.crcs.empty() ? "" : described.crcs[i];
    result.tensors.emplace_back(entries[i].name, read_tensor(path, entries[i], crc, file));
  }
  if (header_text != nullptr) *header_text = text;
  return result;
}

}  // namespace

void write_tensor_file(const std::string& path, const TensorFile& file) {
  write_tensor_file(path, file, posix_files());
}
void write_tensor_file(const std::string& path, const TensorFile& file, FileSystem& files) {
  const Written written(file);
  write_file_atomically(path, written.parts(), files);
}
std::string tensor_bytes(const TensorFile& file) {
  const Written written(file);
  std::string bytes;
  for (const auto& [data, size] : written.parts())
    bytes.append(static_cast<const char*>(data), size);
  return bytes;
}

TensorFile read_tensor_file(const std::string& path) {
  FileReader file(path);
  return read_tensors(path, file, nullptr);
}
TensorFile read_tensor_file(const std::string& path, uint32_t& digest) {
  FileReader file(path);
  std::string header;
  TensorFile result = read_tensors(path, file, &header);
  digest = checksum(header.data(), header.size());
  return result;
}
TensorFile read_tensor_bytes(const std::string& where, std::string_view bytes) {
  FileReader file(where, bytes);
  return read_tensors(where, file, nullptr);
}

std::map<std::string, Tensor> load_safetensors(const std::string& path) {
  TensorFile file = read_tensor_file(path);
  return {file.tensors.begin(), file.tensors.end()};
}

void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors) {
  write_tensor_file(path, {"", {tensors.begin(), tensors.end()}});
}

}  // namespace tutti::io
