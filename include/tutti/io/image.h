#pragma once
// PNG and JPEG images as tensors [height, width, channels], as tf.io reads and writes them.

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/tensor/tensor.h"

namespace tutti::io {

struct DecodePngOptions {
  /// 0: those of the file; 1 gray, 2 gray and alpha, 3 RGB, 4 RGB and alpha: converted.
  int64_t channels = 0;
  /// uint8, or uint16 (at::kUInt16).
  at::ScalarType dtype = at::ScalarType::Byte;
};
/// InvalidArgument: no PNG, a damaged or cut one, or one of more than 2^29 values; nothing is taken
/// for an image before its size is known to be possible.
Tensor decode_png(std::string_view contents, const DecodePngOptions& options = {});

struct DecodeJpegOptions {
  /// 0: those of the file; 1 gray or 3 RGB: converted.
  int64_t channels = 0;
  /// Makes the image smaller while it is decoded: 1, 2, 4 or 8 times.
  int64_t ratio = 1;
  bool fancy_upscaling = true;
  /// A cut file gives the rows that are there, and black ones.
  bool try_recover_truncated = false;
  /// "" or "INTEGER_FAST", what TensorFlow does; "INTEGER_ACCURATE" is closer to the image.
  std::string dct_method = "";
};
/// uint8. InvalidArgument as for decode_png.
Tensor decode_jpeg(std::string_view contents, const DecodeJpegOptions& options = {});

struct DecodeImageOptions {
  int64_t channels = 0;
  /// uint8 or float32 (then from 0 to 1).
  at::ScalarType dtype = at::ScalarType::Byte;
};
/// PNG or JPEG, told by the first bytes. Unimplemented for GIF and BMP.
Tensor decode_image(std::string_view contents, const DecodeImageOptions& options = {});

/// True when the bytes begin as a JPEG file does.
bool is_jpeg(std::string_view contents);

/// uint8 [height, width, 1 to 4]. `compression` is zlib's, 0 to 9, or -1 for its default.
/// InvalidArgument for another dtype or shape.
std::string encode_png(const Tensor& image, int64_t compression = -1);
struct EncodeJpegOptions {
  /// 0 to 100.
  int64_t quality = 95;
  bool progressive = false;
  /// Smaller files for more time.
  bool optimize_size = false;
  bool chroma_downsampling = true;
};
/// uint8 [height, width, 1 or 3].
std::string encode_jpeg(const Tensor& image, const EncodeJpegOptions& options = {});

}  // namespace tutti::io
