#pragma once
// PNG files in memory.

#include <cstdint>
#include <string>

namespace tutti::io {

/// Rows of pixels of `channels` bytes: 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha.
/// `compression` is zlib's, -1 for its default. InvalidArgument for other numbers of channels and
/// for an empty image.
std::string encode_png(const uint8_t* pixels, int64_t height, int64_t width, int64_t channels,
                       int compression = -1);

}  // namespace tutti::io
