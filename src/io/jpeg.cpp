// libjpeg leaves an error by longjmp. What it would jump over has no destructors: each step stands
// in a function of its own that has nothing to destroy.

#include <ATen/ATen.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
// jpeglib.h wants stdio before it
#include <jerror.h>
#include <jpeglib.h>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/io/image.h"

namespace tutti::io {
namespace {

constexpr int64_t kMostValues = int64_t{1} << 29;  // as TensorFlow

struct Errors {
  jpeg_error_mgr manager;  // first, so that libjpeg's pointer is ours
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
  bool recover;    // go on behind an early end
  bool truncated;  // there was one
};

void on_exit(j_common_ptr info) {
  auto* errors = reinterpret_cast<Errors*>(info->err);
  errors->manager.format_message(info, errors->message);
  std::longjmp(errors->jump, 1);
}

/// A scan of a few bytes goes over the whole image. Encoders make about ten.
constexpr int kMostScans = 500;

void check_scans(j_common_ptr info) {
  if (!info->is_decompressor ||
      reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans)
    return;
  auto* errors = reinterpret_cast<Errors*>(info->err);
  std::snprintf(errors->message, sizeof(errors->message), "more than %d scans", kMostScans);
  std::longjmp(errors->jump, 1);
}

/// Warnings are damage that libjpeg papers over: what it then shows is not the image.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  auto* errors = reinterpret_cast<Errors*>(info->err);
  const bool ends =
      errors->manager.msg_code == JWRN_JPEG_EOF || errors->manager.msg_code == JWRN_HIT_MARKER;
  errors->truncated = errors->truncated || ends;
  if (errors->recover && ends) return;
  on_exit(info);
}

void prepare(Errors& errors, bool recover) {
  jpeg_std_error(&errors.manager);
  errors.manager.error_exit = on_exit;
  errors.manager.emit_message = on_message;
  errors.recover = recover;
}

class Decoder {
 public:
  Decoder(std::string_view contents, bool recover) {
    prepare(errors_, recover);
    info_.err = &errors_.manager;
    if (!create(contents)) {
      jpeg_destroy_decompress(&info_);
      refuse();
    }
  }
  ~Decoder() { jpeg_destroy_decompress(&info_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  bool start(const DecodeJpegOptions& options) {
    if (setjmp(errors_.jump) != 0) return false;
    if (options.channels != 0)
      info_.out_color_space = options.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    if (options.channels == 0 && info_.jpeg_color_space != JCS_GRAYSCALE)
      info_.out_color_space =
          info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK ? JCS_CMYK
                                                                                   : JCS_RGB;
    const bool four = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    if (four) info_.out_color_space = JCS_CMYK;  // libjpeg makes nothing else of it
    info_.scale_num = 1;
    info_.scale_denom = static_cast<unsigned>(options.ratio);
    info_.do_fancy_upsampling = options.fancy_upscaling ? TRUE : FALSE;
    info_.dct_method = options.dct_method == "INTEGER_ACCURATE" ? JDCT_ISLOW : JDCT_IFAST;
    jpeg_calc_output_dimensions(&info_);
    return true;
  }
  /// Rows of `channels` bytes a pixel into `rows`.
  bool read(uint8_t* rows, std::size_t row_bytes) {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = rows + info_.output_scanline * row_bytes;
      if (jpeg_read_scanlines(&info_, &row, 1) != 1) return false;
    }
    jpeg_finish_decompress(&info_);
    return true;
  }
  const jpeg_decompress_struct& info() const { return info_; }
  [[noreturn]] void refuse() const {
    throw InvalidArgument(cat("decode_jpeg: ", errors_.message[0] ? errors_.message : "no image",
                              ", expected a whole JPEG file"));
  }

 private:
  bool create(std::string_view contents) {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_decompress(&info_);
    progress_.progress_monitor = check_scans;
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(contents.data()), contents.size());
    return jpeg_read_header(&info_, TRUE) == JPEG_HEADER_OK;
  }
  Errors errors_ = {};
  jpeg_progress_mgr progress_ = {};
  jpeg_decompress_struct info_ = {};
};

/// CMYK as Adobe's programs store it, inverted, to RGB.
Tensor rgb_of_cmyk(const Tensor& image, bool inverted) {
  Tensor ink = image.to(at::kFloat);
  if (!inverted) ink = 255 - ink;
  const Tensor light = ink.narrow(2, 0, 3) * ink.narrow(2, 3, 1) / 255;
  return light.round().to(at::kByte);
}

struct Encoded {
  unsigned char* data;
  unsigned long size;  // NOLINT: libjpeg's type
};

bool encode(jpeg_compress_struct& info, Errors& errors, const EncodeJpegOptions& options,
            const uint8_t* pixels, Encoded& result) {
  if (setjmp(errors.jump) != 0) return false;
  jpeg_mem_dest(&info, &result.data, &result.size);
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, static_cast<int>(options.quality), TRUE);
  if (options.progressive) jpeg_simple_progression(&info);
  info.optimize_coding = options.optimize_size ? TRUE : FALSE;
  if (!options.chroma_downsampling) {
    for (int i = 0; i < info.num_components; ++i)
      info.comp_info[i].h_samp_factor = info.comp_info[i].v_samp_factor = 1;
  }
  jpeg_start_compress(&info, TRUE);
  const std::size_t row_bytes =
      static_cast<std::size_t>(info.image_width) * static_cast<std::size_t>(info.input_components);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(pixels + info.next_scanline * row_bytes);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  return true;
}

}  // namespace

bool is_jpeg(std::string_view contents) { return contents.substr(0, 3) == "\xff\xd8\xff"; }

Tensor decode_jpeg(std::string_view contents, const DecodeJpegOptions& options) {
  if (options.channels != 0 && options.channels != 1 && options.channels != 3)
    throw InvalidArgument(cat("decode_jpeg: ", options.channels, " channels, expected 0, 1 or 3"));
  if (options.ratio != 1 && options.ratio != 2 && options.ratio != 4 && options.ratio != 8)
    throw InvalidArgument(cat("decode_jpeg: ratio ", options.ratio, ", expected 1, 2, 4 or 8"));
  if (options.dct_method != "" && options.dct_method != "INTEGER_FAST" &&
      options.dct_method != "INTEGER_ACCURATE")
    throw InvalidArgument(cat("decode_jpeg: dct_method \"", options.dct_method,
                              "\", expected INTEGER_FAST, INTEGER_ACCURATE or nothing"));
  if (!is_jpeg(contents))
    throw InvalidArgument("decode_jpeg: no JPEG signature, expected a JPEG file");
  Decoder decoder(contents, options.try_recover_truncated);
  const jpeg_decompress_struct& info = decoder.info();
  const int64_t most = static_cast<int64_t>(info.image_width) * info.image_height * 4;
  if (most > kMostValues)
    throw InvalidArgument(cat("decode_jpeg: an image of ", info.image_width, " x ",
                              info.image_height, ", expected at most 2^29 values"));
  if (!decoder.start(options)) decoder.refuse();
  const int64_t height = info.output_height, width = info.output_width;
  const int64_t channels = info.out_color_components;
  Tensor image = options.try_recover_truncated ? at::zeros({height, width, channels}, at::kByte)
                                               : at::empty({height, width, channels}, at::kByte);
  if (!decoder.read(static_cast<uint8_t*>(image.data_ptr()),
                    static_cast<std::size_t>(width * channels)))
    decoder.refuse();
  if (channels != 4) return image;
  const Tensor rgb = rgb_of_cmyk(image, info.saw_Adobe_marker != 0);
  if (options.channels != 1) return rgb;
  const Tensor weights = at::tensor({0.299f, 0.587f, 0.114f});
  return rgb.to(at::kFloat).matmul(weights).round().to(at::kByte).unsqueeze(-1);
}

std::string encode_jpeg(const Tensor& image, const EncodeJpegOptions& options) {
  const bool fits = image.defined() && image.dim() == 3 && image.scalar_type() == at::kByte &&
                    (image.size(2) == 1 || image.size(2) == 3) && image.numel() > 0 &&
                    image.size(0) <= JPEG_MAX_DIMENSION && image.size(1) <= JPEG_MAX_DIMENSION;
  if (!fits)
    throw InvalidArgument(
        cat("encode_jpeg: ", image.defined() ? shape_text(image.sizes()) : "an undefined tensor",
            ", expected uint8 [height, width, 1 or 3] of at most ", JPEG_MAX_DIMENSION,
            " rows and columns"));
  if (options.quality < 0 || options.quality > 100)
    throw InvalidArgument(cat("encode_jpeg: quality ", options.quality, ", expected 0 to 100"));
  const Tensor pixels = image.cpu().contiguous();
  Errors errors = {};
  prepare(errors, /*recover=*/false);
  jpeg_compress_struct info = {};
  info.err = &errors.manager;
  jpeg_create_compress(&info);
  info.image_height = static_cast<JDIMENSION>(pixels.size(0));
  info.image_width = static_cast<JDIMENSION>(pixels.size(1));
  info.input_components = static_cast<int>(pixels.size(2));
  info.in_color_space = pixels.size(2) == 1 ? JCS_GRAYSCALE : JCS_RGB;
  Encoded encoded{nullptr, 0};
  const bool done = encode(info, errors, options, pixels.const_data_ptr<uint8_t>(), encoded);
  jpeg_destroy_compress(&info);
  std::string bytes(reinterpret_cast<const char*>(encoded.data), done ? encoded.size : 0);
  std::free(encoded.data);
  if (!done) throw Internal(cat("encode_jpeg: ", errors.message));
  return bytes;
}

Tensor decode_image(std::string_view contents, const DecodeImageOptions& options) {
  if (options.dtype != at::kByte && options.dtype != at::kFloat)
    throw InvalidArgument("decode_image: another dtype, expected uint8 or float32");
  if (contents.substr(0, 3) == "GIF" || contents.substr(0, 2) == "BM")
    throw Unimplemented("decode_image: a GIF or BMP file, expected PNG or JPEG");
  Tensor image;
  if (is_jpeg(contents)) {
    image = decode_jpeg(contents, {.channels = options.channels});
  } else if (contents.substr(0, 4) == "\x89PNG") {
    image = decode_png(contents, {.channels = options.channels});
  } else {
    throw InvalidArgument("decode_image: unknown first bytes, expected a PNG or JPEG file");
  }
  return options.dtype == at::kByte ? image : image.to(at::kFloat).div_(255);
}

}  // namespace tutti::io
