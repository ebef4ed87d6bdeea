// libpng leaves a damaged file by longjmp. What it would jump over has no destructors: one function
// reads the header, one the rows, and the memory for rows is made between the two.

#include <ATen/ATen.h>
#include <png.h>

#include <csetjmp>
#include <cstring>

#include "io/png_encode.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/io/image.h"

namespace tutti::io {
namespace {

constexpr int64_t kMostValues = int64_t{1} << 29;  // as TensorFlow
constexpr std::size_t kSignature = 8;

struct Source {
  const char* data;
  std::size_t left;
  char message[200];
};

struct Header {
  png_uint_32 width, height;
  int bits, colour;
};

void on_error(png_structp png, png_const_charp message) {
  auto* source = static_cast<Source*>(png_get_error_ptr(png));
  std::snprintf(source->message, sizeof(source->message), "%s", message);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void take(png_structp png, png_bytep into, std::size_t count) {
  auto* source = static_cast<Source*>(png_get_io_ptr(png));
  if (count > source->left) png_error(png, "it ends early");
  std::memcpy(into, source->data, count);
  source->data += count;
  source->left -= count;
}

/// The two structures of libpng, made and freed together.
class Png {
 public:
  explicit Png(std::string_view contents) : source_{contents.data(), contents.size(), ""} {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source_, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw ResourceExhausted("decode_png: no memory for the decoder");
    }
    png_set_read_fn(png_, &source_, take);
    png_set_user_limits(png_, 1 << 24, 1 << 24);
    // Texts and profiles are unpacked and kept: so large, and so many of them, at most.
    png_set_chunk_malloc_max(png_, 8 << 20);
    png_set_chunk_cache_max(png_, 16);
  }
  ~Png() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  bool read_header(Header& header) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_info(png_, info_);
    header = {png_get_image_width(png_, info_), png_get_image_height(png_, info_),
              png_get_bit_depth(png_, info_), png_get_color_type(png_, info_)};
    return true;
  }

  /// `channels` 0: leaves them. Gives the bytes of a row and the channels that will come.
  bool prepare(const Header& header, int channels, bool wide, std::size_t& row_bytes, int& found) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    const bool transparent = png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
    if (header.colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (header.colour == PNG_COLOR_TYPE_GRAY && header.bits < 8)
      png_set_expand_gray_1_2_4_to_8(png_);
    const bool wants_alpha = channels == 0 || channels == 2 || channels == 4;
    if (transparent && wants_alpha) png_set_tRNS_to_alpha(png_);
    const bool has_alpha =
        (header.colour & PNG_COLOR_MASK_ALPHA) != 0 || (transparent && wants_alpha);
    const bool has_colour = (header.colour & PNG_COLOR_MASK_COLOR) != 0;
    if (channels == 1 || channels == 3) png_set_strip_alpha(png_);
    if (channels >= 3 && !has_colour) png_set_gray_to_rgb(png_);
    if ((channels == 1 || channels == 2) && has_colour) png_set_rgb_to_gray(png_, 1, 0.299, 0.587);
    if ((channels == 2 || channels == 4) && !has_alpha)
      png_set_add_alpha(png_, wide ? 0xffff : 0xff, PNG_FILLER_AFTER);
    if (header.bits == 16 && !wide) png_set_strip_16(png_);
    if (header.bits != 16 && wide) png_set_expand_16(png_);
    if (wide) png_set_swap(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    row_bytes = png_get_rowbytes(png_, info_);
    found = png_get_channels(png_, info_);
    return true;
  }

  bool read_rows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

  [[noreturn]] void refuse() const {
    throw InvalidArgument(cat("decode_png: ", source_.message[0] ? source_.message : "no image",
                              ", expected a whole PNG file"));
  }

 private:
  Source source_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

Tensor decode_png(std::string_view contents, const DecodePngOptions& options) {
  if (options.channels < 0 || options.channels > 4)
    throw InvalidArgument(
        cat("decode_png: ", options.channels, " channels, expected 0, 1, 2, 3 or 4"));
  const bool wide = options.dtype == at::kUInt16;
  if (!wide && options.dtype != at::kByte)
    throw InvalidArgument("decode_png: another dtype, expected uint8 or uint16");
  if (contents.size() < kSignature ||
      png_sig_cmp(reinterpret_cast<png_const_bytep>(contents.data()), 0, kSignature) != 0)
    throw InvalidArgument("decode_png: no PNG signature, expected a PNG file");
  Png png(contents);
  Header header{};
  if (!png.read_header(header)) png.refuse();
  const int64_t most = static_cast<int64_t>(header.width) * header.height * 4;
  if (most > kMostValues)
    throw InvalidArgument(cat("decode_png: an image of ", header.width, " x ", header.height,
                              ", expected at most 2^29 values"));
  std::size_t row_bytes = 0;
  int channels = 0;
  if (!png.prepare(header, static_cast<int>(options.channels), wide, row_bytes, channels))
    png.refuse();
  Tensor image = at::empty({header.height, header.width, channels}, options.dtype);
  if (row_bytes * header.height != image.nbytes())
    throw InvalidArgument(cat("decode_png: rows of ", row_bytes, " bytes, expected ",
                              image.nbytes() / header.height));
  std::vector<png_bytep> rows;
  for (png_uint_32 row = 0; row < header.height; ++row)
    rows.push_back(static_cast<png_bytep>(image.data_ptr()) + row * row_bytes);
  if (!png.read_rows(rows.data())) png.refuse();
  return image;
}

std::string encode_png(const Tensor& image, int64_t compression) {
  if (!image.defined() || image.dim() != 3 || image.scalar_type() != at::kByte)
    throw InvalidArgument(
        cat("encode_png: ", image.defined() ? shape_text(image.sizes()) : "an undefined tensor",
            ", expected uint8 [height, width, channels]"));
  if (compression < -1 || compression > 9)
    throw InvalidArgument(cat("encode_png: compression ", compression, ", expected -1 to 9"));
  const Tensor pixels = image.cpu().contiguous();
  return encode_png(pixels.const_data_ptr<uint8_t>(), pixels.size(0), pixels.size(1),
                    pixels.size(2), static_cast<int>(compression));
}

}  // namespace tutti::io
