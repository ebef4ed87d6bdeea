#include "io/png_encode.h"

#include <png.h>

#include <climits>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::io {

std::string encode_png(const uint8_t* pixels, int64_t height, int64_t width, int64_t channels) {
  constexpr png_uint_32 kFormats[] = {PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB,
                                      PNG_FORMAT_RGBA};
  constexpr int64_t kLargest = 1 << 20;
  if (channels < 1 || channels > 4 || height < 1 || width < 1 || height > kLargest ||
      width > kLargest || height * width * channels > (int64_t{1} << 30)) {
    throw InvalidArgument(cat("encode_png: ", height, " x ", width, " pixels of ", channels,
                              " channels, expected 1 to 4 channels and 1 to ", kLargest,
                              " rows and columns, 1 GiB at most"));
  }
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = kFormats[channels - 1];
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(image), '\0');
  png_alloc_size_t size = bytes.size();
  const int done = png_image_write_to_memory(&image, bytes.data(), &size, /*convert_to_8_bit=*/0,
                                             pixels, /*row_stride=*/0, /*colormap=*/nullptr);
  if (done == 0) throw Internal(cat("encode_png: ", image.message));
  bytes.resize(size);
  return bytes;
}

}  // namespace tutti::io
