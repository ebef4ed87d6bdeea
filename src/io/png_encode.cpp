#include "io/png_encode.h"

#include <png.h>

#include <csetjmp>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::io {
namespace {

void append(png_structp png, png_bytep data, std::size_t size) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<char*>(data), size);
}
void flush(png_structp) {}

/// False when libpng gave up. Nothing here has a destructor that its longjmp would pass over.
bool write_image(png_structp png, png_infop info, const png_image& size, int colour,
                 png_bytepp rows) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_IHDR(png, info, size.width, size.height, 8, colour, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  png_write_image(png, rows);
  png_write_end(png, nullptr);
  return true;
}

}  // namespace

std::string encode_png(const uint8_t* pixels, int64_t height, int64_t width, int64_t channels,
                       int compression) {
  constexpr int kColours[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                              PNG_COLOR_TYPE_RGB_ALPHA};
  constexpr int64_t kLargest = 1 << 20;
  if (channels < 1 || channels > 4 || height < 1 || width < 1 || height > kLargest ||
      width > kLargest || height * width * channels > (int64_t{1} << 30)) {
    throw InvalidArgument(cat("encode_png: ", height, " x ", width, " pixels of ", channels,
                              " channels, expected 1 to 4 channels and 1 to ", kLargest,
                              " rows and columns, 1 GiB at most"));
  }
  std::string bytes;
  std::vector<png_bytep> rows;
  for (int64_t row = 0; row < height; ++row)
    rows.push_back(const_cast<png_bytep>(pixels + row * width * channels));
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png != nullptr ? png_create_info_struct(png) : nullptr;
  if (info == nullptr) {
    png_destroy_write_struct(&png, nullptr);
    throw ResourceExhausted("encode_png: no memory for the encoder");
  }
  png_set_write_fn(png, &bytes, append, flush);
  if (compression >= 0) png_set_compression_level(png, compression);
  png_image size = {};
  size.width = static_cast<png_uint_32>(width);
  size.height = static_cast<png_uint_32>(height);
  const bool done = write_image(png, info, size, kColours[channels - 1], rows.data());
  png_destroy_write_struct(&png, &info);
  if (!done) throw Internal("encode_png: libpng failed");
  return bytes;
}

}  // namespace tutti::io
