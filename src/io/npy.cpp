// The layout of .npy: "\x93NUMPY", major and minor version, the size of the header (u16, from
// version 2 on u32), a Python literal such as {'descr': '<f4', 'fortran_order': False, 'shape': (3,
// 4), }, and the values. (numpy/lib/format.py has the description.)

#include "tutti/io/npy.h"

#include <ATen/ATen.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "io/file.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::io {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr std::size_t kLargestHeader = 1 << 16;
constexpr uint64_t kLargestFile = uint64_t{1} << 46;
constexpr int kMaxRank = 64;

struct TypeCode {
  char kind;
  int size;
  at::ScalarType dtype;
};
constexpr std::array<TypeCode, 14> kTypes{{{'b', 1, at::kBool},
                                           {'i', 1, at::kChar},
                                           {'i', 2, at::kShort},
                                           {'i', 4, at::kInt},
                                           {'i', 8, at::kLong},
                                           {'u', 1, at::kByte},
                                           {'u', 2, at::kUInt16},
                                           {'u', 4, at::kUInt32},
                                           {'u', 8, at::kUInt64},
                                           {'f', 2, at::kHalf},
                                           {'f', 4, at::kFloat},
                                           {'f', 8, at::kDouble},
                                           {'c', 8, at::kComplexFloat},
                                           {'c', 16, at::kComplexDouble}}};

/// Bytes from somewhere, as far as they go; `left` is known before anything is read.
class Source {
 public:
  virtual ~Source() = default;
  virtual void read(void* into, std::size_t count) = 0;
  uint64_t left = 0;
  std::string where;

  [[noreturn]] void damaged(const std::string& what) const {
    throw DataLoss(cat("read [", where, "]: ", what, "; the file is damaged, get it again"));
  }
  std::string take(std::size_t count) {
    if (count > left) damaged(cat("it ends ", count - left, " bytes early"));
    std::string bytes(count, '\0');
    read(bytes.data(), count);
    return bytes;
  }
};

struct Header {
  const TypeCode* type = nullptr;
  bool big_endian = false;
  bool fortran = false;
  std::vector<int64_t> shape;
};

/// Reads the one Python literal that a header is: a dict of str, bool and tuples of int.
class HeaderReader {
 public:
  HeaderReader(const Source& source, std::string_view text) : source_(source), text_(text) {}

  Header read() {
    Header header;
    bool order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr") {
        set_type(header);
      } else if (key == "fortran_order") {
        header.fortran = boolean();
        order = true;
      } else if (key == "shape") {
        header.shape = numbers();
        shape = true;
      } else {
        source_.damaged(cat("the key '", key, "' in its header"));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (header.type == nullptr || !order || !shape) source_.damaged("its header has not all keys");
    return header;
  }

 private:
  void skip_blanks() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) text_.remove_prefix(1);
  }
  bool accept(char c) {
    skip_blanks();
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) source_.damaged(cat("no '", c, "' where its header needs one"));
  }
  bool accept_word(std::string_view word) {
    skip_blanks();
    if (text_.substr(0, word.size()) != word) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  std::string_view quoted() {
    skip_blanks();
    const char quote = text_.empty() ? ' ' : text_[0];
    const std::size_t end = text_.find(quote, 1);
    if ((quote != '\'' && quote != '"') || end == std::string_view::npos)
      source_.damaged("no text in quotes where its header needs one");
    const std::string_view found = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return found;
  }
  bool boolean() {
    if (accept_word("True")) return true;
    if (!accept_word("False")) source_.damaged("no True or False where its header needs one");
    return false;
  }
  std::vector<int64_t> numbers() {
    std::vector<int64_t> found;
    expect('(');
    while (!accept(')')) {
      skip_blanks();
      int64_t number = -1;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), number);
      if (error != std::errc() || number < 0 || found.size() >= kMaxRank)
        source_.damaged("a shape that is none");
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      accept_word("L");  // Python 2
      found.push_back(number);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return found;
  }
  void set_type(Header& header) {
    skip_blanks();
    const bool plain = !text_.empty() && text_[0] != '[';
    const std::string_view code = plain ? quoted() : "a structure";
    for (const TypeCode& type : kTypes) {
      if (plain && code == cat(code.substr(0, 1), type.kind, type.size)) header.type = &type;
    }
    const char order = code.empty() ? ' ' : code[0];
    if (header.type == nullptr || std::string_view("<>=|").find(order) == std::string_view::npos)
      throw InvalidArgument(cat("read [", source_.where, "]: an array of ", code,
                                ", expected numbers or bool; save it with another dtype"));
    header.big_endian = order == '>';
  }

  const Source& source_;
  std::string_view text_;
};

Header read_header(Source& source) {
  const std::string front = source.left < 10 ? "" : source.take(8);
  if (front.compare(0, 6, kMagic) != 0)
    throw InvalidArgument(cat("read [", source.where, "]: no .npy file, expected one of NumPy's"));
  const int version = static_cast<unsigned char>(front[6]);
  if (version < 1 || version > 3)
    throw InvalidArgument(
        cat("read [", source.where, "]: version ", version, " of the format, expected 1, 2 or 3"));
  const std::string digits = source.take(version == 1 ? 2 : 4);
  std::size_t size = 0;
  for (std::size_t i = digits.size(); i-- > 0;)
    size = size << 8 | static_cast<unsigned char>(digits[i]);
  if (size > kLargestHeader) source.damaged(cat("a header of ", size, " bytes"));
  const std::string text = source.take(size);
  return HeaderReader(source, text).read();
}

void swap_bytes(Tensor& array, int size) {
  auto* bytes = static_cast<unsigned char*>(array.data_ptr());
  for (std::size_t at = 0; at < array.nbytes(); at += static_cast<std::size_t>(size))
    std::reverse(bytes + at, bytes + at + size);
}

Tensor read_array(Source& source) {
  const Header header = read_header(source);
  int64_t bytes = header.type->size;
  bool empty = false;
  for (int64_t size : header.shape) {
    empty = empty || size == 0;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes))
      source.damaged("a shape that no memory holds");
  }
  if (empty) bytes = 0;
  if (static_cast<uint64_t>(bytes) != source.left)
    source.damaged(cat("shape ", shape_text(header.shape), " needs ", bytes, " bytes, there are ",
                       source.left));
  std::vector<int64_t> stored = header.shape;
  if (header.fortran) std::reverse(stored.begin(), stored.end());
  const bool boolean = header.type->dtype == at::kBool;
  Tensor array = at::empty(stored, boolean ? at::kByte : header.type->dtype);
  source.read(array.data_ptr(), array.nbytes());
  if (header.big_endian && header.type->size > 1) {
    const bool pairs = header.type->kind == 'c';
    swap_bytes(array, pairs ? header.type->size / 2 : header.type->size);
  }
  if (boolean) array = array.ne(0);
  if (!header.fortran || array.dim() < 2) return array;
  std::vector<int64_t> axes;
  for (int64_t axis = array.dim(); axis-- > 0;) axes.push_back(axis);
  return array.permute(axes);
}

class FileSource : public Source {
 public:
  explicit FileSource(const std::string& path) : file_(path) {
    std::error_code failed;
    left = std::filesystem::file_size(path, failed);
    where = path;
    if (failed) throw InvalidArgument(cat("read [", path, "]: not a plain file, expected one"));
  }
  void read(void* into, std::size_t count) override {
    if (count > left || file_.read(into, count) != count) damaged("it ends early");
    left -= count;
  }

 private:
  FileStream file_;
};

struct CloseZip {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
using Zip = std::unique_ptr<zip_t, CloseZip>;

class ZipSource : public Source {
 public:
  ZipSource(const std::string& path, zip_t* archive, zip_uint64_t index, const zip_stat_t& about)
      : file_(zip_fopen_index(archive, index, 0)) {
    where = cat(path, ": ", about.name);
    left = about.size;
    if (!file_) damaged(zip_strerror(archive));
  }
  void read(void* into, std::size_t count) override {
    if (count > left || zip_fread(file_.get(), into, count) != static_cast<zip_int64_t>(count))
      damaged("it cannot be unpacked");
    left -= count;
  }
  /// libzip tells a wrong checksum only when asked for one byte more.
  void check_end() {
    char none = 0;
    if (zip_fread(file_.get(), &none, 1) != 0) damaged("its checksum is wrong");
  }

 private:
  struct Close {
    void operator()(zip_file_t* file) const { zip_fclose(file); }
  };
  std::unique_ptr<zip_file_t, Close> file_;
};

std::string zip_reason(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  return reason;
}

const TypeCode& type_of(const std::string& where, const Tensor& array) {
  if (!array.defined())
    throw InvalidArgument(cat("write [", where, "]: an undefined tensor, expected an array"));
  for (const TypeCode& type : kTypes) {
    if (type.dtype == array.scalar_type()) return type;
  }
  throw Unimplemented(cat("write [", where, "]: dtype ", dtype_name(array.scalar_type()),
                          ", which NumPy has not; convert first"));
}

/// Magic, version and header of an array that follows in C order.
std::string header_of(const std::string& where, const Tensor& array) {
  const TypeCode& type = type_of(where, array);
  std::string shape;
  for (int64_t size : array.sizes()) shape += cat(size, array.dim() == 1 ? "," : ", ");
  if (array.dim() > 1) shape.resize(shape.size() - 2);
  std::string text = cat("{'descr': '", type.size == 1 ? '|' : '<', type.kind, type.size,
                         "', 'fortran_order': False, 'shape': (", shape, "), }");
  while ((10 + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  const auto size = static_cast<uint16_t>(text.size());
  return std::string(kMagic, 6) + '\1' + '\0' + static_cast<char>(size & 0xff) +
         static_cast<char>(size >> 8) + text;
}

}  // namespace

Tensor load_npy(const std::string& path) {
  FileSource source(path);
  return read_array(source);
}

std::map<std::string, Tensor> load_npz(const std::string& path) {
  if (!file_exists(path)) throw NotFound(cat("read [", path, "]: no such file, expected one"));
  int code = 0;
  const Zip archive(zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code));
  if (!archive)
    throw InvalidArgument(
        cat("read [", path, "]: ", zip_reason(code), ", expected a whole .npz file"));
  std::map<std::string, Tensor> arrays;
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  std::error_code failed;
  uint64_t packed_left = std::filesystem::file_size(path, failed);
  if (failed) throw InvalidArgument(cat("read [", path, "]: not a plain file, expected one"));
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t about;
    const auto index = static_cast<zip_uint64_t>(i);
    constexpr zip_uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE;
    if (zip_stat_index(archive.get(), index, 0, &about) != 0 ||
        (about.valid & kNeeded) != kNeeded || about.size > kLargestFile ||
        // deflate packs a thousand to one at best: more is a claim that memory is not taken for
        about.size / 1100 > about.comp_size + 1)
      throw DataLoss(cat("read [", path, "]: entry ", i, " has no name or no possible size"));
    // Entries that share their bytes would make any size of a small file.
    if (about.comp_size > packed_left)
      throw DataLoss(cat("read [", path, "]: the entries overlap, expected one behind the other"));
    packed_left -= about.comp_size;
    std::string name = about.name;
    if (name.size() > 4 && name.compare(name.size() - 4, 4, ".npy") == 0)
      name.resize(name.size() - 4);
    if (arrays.count(name) > 0)
      throw DataLoss(cat("read [", path, "]: two arrays of the name ", name, ", expected one"));
    ZipSource source(path, archive.get(), index, about);
    Tensor array = read_array(source);
    source.check_end();
    arrays.emplace(std::move(name), std::move(array));
  }
  return arrays;
}

void save_npy(const std::string& path, const Tensor& array) {
  const std::string header = header_of(path, array);
  const Tensor values = array.detach().cpu().contiguous();
  write_file_atomically(
      path, {{header.data(), header.size()}, {values.const_data_ptr(), values.nbytes()}});
}

void save_npz(const std::string& path, const std::map<std::string, Tensor>& arrays) {
  std::vector<std::string> entries;  // live until the archive is closed
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* memory = zip_source_buffer_create(nullptr, 0, 0, &error);
  zip_t* archive = memory != nullptr ? zip_open_from_source(memory, ZIP_TRUNCATE, &error) : nullptr;
  if (archive == nullptr) {
    zip_source_free(memory);
    throw ResourceExhausted(cat("write [", path, "]: ", zip_error_strerror(&error)));
  }
  zip_source_keep(memory);
  Zip open(archive);
  const auto fail = [&](const char* what) {
    zip_source_free(memory);
    throw Internal(cat("write [", path, "]: ", what));
  };
  try {
    for (const auto& [name, array] : arrays) {
      const Tensor values = array.defined() ? array.detach().cpu().contiguous() : array;
      std::string bytes = header_of(cat(path, ": ", name), array);
      bytes.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
      entries.push_back(std::move(bytes));
    }
  } catch (...) {
    open.reset();
    zip_source_free(memory);
    throw;
  }
  std::size_t at = 0;
  for (const auto& [name, array] : arrays) {
    const std::string& bytes = entries[at++];
    zip_source_t* entry = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
    const zip_int64_t index =
        zip_file_add(archive, cat(name, ".npy").c_str(), entry, ZIP_FL_ENC_UTF_8);
    if (index < 0) fail(zip_strerror(archive));
    zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0);
  }
  if (zip_close(archive) != 0) fail(zip_strerror(archive));
  static_cast<void>(open.release());
  zip_source_open(memory);
  zip_source_seek(memory, 0, SEEK_END);
  std::string bytes(static_cast<std::size_t>(zip_source_tell(memory)), '\0');
  zip_source_seek(memory, 0, SEEK_SET);
  const zip_int64_t got = zip_source_read(memory, bytes.data(), bytes.size());
  zip_source_close(memory);
  if (got != static_cast<zip_int64_t>(bytes.size())) fail("the archive cannot be read back");
  zip_source_free(memory);
  write_file_atomically(path, {{bytes.data(), bytes.size()}});
}

}  // namespace tutti::io
