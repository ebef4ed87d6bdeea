// The files under data/, and decoded_by_tensorflow.npz, were written by TensorFlow 2.21.

#include "tutti/io/image.h"

#include <ATen/ATen.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
// jpeglib.h wants stdio before it
#include <jpeglib.h>

#include "io/fixtures.h"
#include "support/expect.h"
#include "tutti/io/npy.h"

namespace tutti::io {
namespace {

const std::map<std::string, Tensor>& by_tensorflow() {
  static const auto kArrays = load_npz(fixture("decoded_by_tensorflow.npz"));
  return kArrays;
}

int largest_difference(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes()) return 1 << 20;
  return (a.to(at::kInt) - b.to(at::kInt)).abs().max().item<int>();
}

TEST(Images, PngsAreDecodedToTheBytesOfTensorFlow) {
  for (const char* name : {"rgb", "rgba", "gray", "wide"}) {
    for (int64_t channels : {0, 3, 4}) {
      SCOPED_TRACE(cat(name, " to ", channels));
      const Tensor found = decode_png(bytes_of(fixture(cat(name, ".png"))), {.channels = channels});
      EXPECT_TENSOR_EQ(found, by_tensorflow().at(cat(name, ".png_", channels)));
    }
  }
}

TEST(Images, PngsBecomeGrayAndWide) {
  for (const char* name : {"rgb", "rgba", "gray"}) {
    const Tensor found = decode_png(bytes_of(fixture(cat(name, ".png"))), {.channels = 1});
    EXPECT_LE(largest_difference(found, by_tensorflow().at(cat(name, ".png_1"))), 1) << name;
  }
  const Tensor wide = decode_png(bytes_of(fixture("wide.png")), {.dtype = at::kUInt16});
  EXPECT_EQ(wide.scalar_type(), at::kUInt16);
  EXPECT_EQ(largest_difference(wide, by_tensorflow().at("wide.png_u2")), 0);
}

// Builds of libjpeg may round differently by one.
TEST(Images, JpegsAreDecodedAsByTensorFlow) {
  for (const char* name : {"rgb", "gray"}) {
    for (int64_t channels : {0, 1, 3}) {
      SCOPED_TRACE(cat(name, " to ", channels));
      const Tensor found =
          decode_jpeg(bytes_of(fixture(cat(name, ".jpg"))), {.channels = channels});
      EXPECT_LE(largest_difference(found, by_tensorflow().at(cat(name, ".jpg_", channels))), 2);
    }
  }
  const std::string rgb = bytes_of(fixture("rgb.jpg"));
  EXPECT_LE(largest_difference(decode_jpeg(rgb, {.ratio = 2}), by_tensorflow().at("rgb.jpg_r2")),
            2);
  EXPECT_LE(largest_difference(
                decode_jpeg(rgb, {.fancy_upscaling = false, .dct_method = "INTEGER_ACCURATE"}),
                by_tensorflow().at("rgb.jpg_plain")),
            2);
}

TEST(Images, TheFirstBytesTellTheFormat) {
  EXPECT_TENSOR_EQ(decode_image(bytes_of(fixture("gray.png"))),
                   decode_png(bytes_of(fixture("gray.png"))));
  EXPECT_TENSOR_EQ(decode_image(bytes_of(fixture("rgb.jpg"))),
                   decode_jpeg(bytes_of(fixture("rgb.jpg"))));
  const Tensor floats = decode_image(bytes_of(fixture("gray.png")), {.dtype = at::kFloat});
  EXPECT_TENSOR_EQ(floats, decode_png(bytes_of(fixture("gray.png"))).to(at::kFloat) / 255);
  EXPECT_ERROR(decode_image("GIF89a"), Unimplemented, "GIF");
  EXPECT_ERROR(decode_image(""), InvalidArgument, "unknown first bytes");
  EXPECT_TRUE(is_jpeg(bytes_of(fixture("rgb.jpg"))));
  EXPECT_FALSE(is_jpeg(bytes_of(fixture("rgb.png"))));
}

TEST(Images, PngKeepsEveryByte) {
  for (int64_t channels : {1, 2, 3, 4}) {
    const Tensor image = at::randint(256, {5, 7, channels}).to(at::kByte);
    EXPECT_TENSOR_EQ(decode_png(encode_png(image)), image);
    EXPECT_TENSOR_EQ(decode_png(encode_png(image.transpose(0, 1), 9)),
                     image.transpose(0, 1).contiguous());
  }
}

TEST(Images, JpegComesCloseAndQualityDecidesItsSize) {
  const Tensor image = decode_png(bytes_of(fixture("rgb.png")));
  const std::string best = encode_jpeg(image, {.quality = 100, .chroma_downsampling = false});
  EXPECT_LE(largest_difference(decode_jpeg(best), image), 8);
  EXPECT_LT(encode_jpeg(image, {.quality = 20}).size(), best.size());
  EXPECT_EQ(decode_jpeg(encode_jpeg(image.narrow(2, 0, 1), {.progressive = true})).size(2), 1);
}

TEST(Images, EveryTruncationIsRefused) {
  const std::string png = bytes_of(fixture("rgb.png"));
  for (std::size_t size = 0; size < png.size(); ++size)
    EXPECT_THROW(decode_png(png.substr(0, size)), InvalidArgument) << size;
  const std::string jpeg = bytes_of(fixture("rgb.jpg"));
  for (std::size_t size = 0; size + 2 < jpeg.size(); ++size)
    EXPECT_THROW(decode_jpeg(jpeg.substr(0, size)), InvalidArgument) << size;
}

TEST(Images, ACutJpegCanBeRecovered) {
  const std::string jpeg = bytes_of(fixture("rgb.jpg"));
  const Tensor part =
      decode_jpeg(jpeg.substr(0, jpeg.size() - 60), {.try_recover_truncated = true});
  EXPECT_EQ(part.sizes(), at::IntArrayRef({13, 17, 3}));
}

template <class Decode>
void flip_every_bit(const std::string& whole, Decode decode) {
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      try {
        decode(changed);
      } catch (const InvalidArgument&) {
      }
    }
  }
}

TEST(Images, AChangedBitIsAnErrorOrAnImage) {
  flip_every_bit(bytes_of(fixture("rgba.png")),
                 [](const std::string& bytes) { EXPECT_GT(decode_png(bytes).numel(), 0); });
  flip_every_bit(bytes_of(fixture("rgb.jpg")),
                 [](const std::string& bytes) { EXPECT_GT(decode_jpeg(bytes).numel(), 0); });
}

TEST(Images, ASizeThatIsClaimedTakesNoMemory) {
  std::string png = bytes_of(fixture("rgb.png"));
  png.replace(16, 8, std::string("\0\xff\xff\xff\0\xff\xff\xff", 8));
  EXPECT_THROW(decode_png(png), InvalidArgument);
}

TEST(Images, BadArgumentsAreRefused) {
  const std::string png = bytes_of(fixture("rgb.png"));
  EXPECT_ERROR(decode_png(png, {.channels = 5}), InvalidArgument, "5 channels");
  EXPECT_ERROR(decode_png(png, {.dtype = at::kFloat}), InvalidArgument, "uint8 or uint16");
  EXPECT_ERROR(decode_jpeg(png), InvalidArgument, "no JPEG signature");
  EXPECT_ERROR(decode_jpeg(bytes_of(fixture("rgb.jpg")), {.ratio = 3}), InvalidArgument, "ratio 3");
  EXPECT_ERROR(encode_png(at::zeros({2, 2})), InvalidArgument, "expected uint8");
  EXPECT_ERROR(encode_png(at::zeros({2, 2, 5}, at::kByte)), InvalidArgument, "5 channels");
  EXPECT_ERROR(encode_jpeg(at::zeros({2, 2, 2}, at::kByte)), InvalidArgument, "1 or 3");
  EXPECT_ERROR(encode_jpeg(at::zeros({2, 2, 1}, at::kByte), {.quality = 101}), InvalidArgument,
               "quality 101");
}

/// A chunk of a PNG file.
std::string chunk(const std::string& type_and_data) {
  const auto number = [](uint32_t value) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
    return bytes;
  };
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(type_and_data.data()),
                         static_cast<uInt>(type_and_data.size()));
  return number(static_cast<uint32_t>(type_and_data.size() - 4)) + type_and_data +
         number(static_cast<uint32_t>(crc));
}

TEST(Images, APngWithAnyNumberOfTextsIsTheImageInIt) {
  const std::string png = bytes_of(fixture("rgb.png"));
  std::string texts;
  for (int i = 0; i < 200; ++i) texts += chunk(cat("tEXtname", i, '\0', "a text"));
  std::string large(20 << 20, 'x');  // packed: a thousandth
  uLongf size = compressBound(static_cast<uLong>(large.size()));
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(large.data()), static_cast<uLong>(large.size()));
  texts += chunk(std::string("zTXtlarge\0\0", 11) + packed.substr(0, size));
  constexpr std::size_t kBehindHeader = 8 + 25;
  EXPECT_TENSOR_EQ(decode_png(std::string(png).insert(kBehindHeader, texts)), decode_png(png));
}

/// A progressive JPEG of one scan for each coefficient and bit: 3 x (63 x 3 + 1).
std::string jpeg_of_many_scans() {
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = info.image_height = 8;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  std::vector<jpeg_scan_info> scans;
  for (int component = 0; component < 3; ++component) scans.push_back({1, {component}, 0, 0, 0, 0});
  for (int component = 0; component < 3; ++component) {
    for (int place = 1; place < 64; ++place) {
      scans.push_back({1, {component}, place, place, 0, 2});
      scans.push_back({1, {component}, place, place, 2, 1});
      scans.push_back({1, {component}, place, place, 1, 0});
    }
  }
  info.scan_info = scans.data();
  info.num_scans = static_cast<int>(scans.size());
  jpeg_start_compress(&info, TRUE);
  std::string pixels(24, 'x');
  while (info.next_scanline < info.image_height) {
    auto* row = reinterpret_cast<JSAMPROW>(pixels.data());
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string jpeg(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return jpeg;
}

TEST(Images, AJpegOfMoreScansThanAnyEncoderMakesIsRefused) {
  EXPECT_ERROR(decode_jpeg(jpeg_of_many_scans()), InvalidArgument, "more than 500 scans");
  const Tensor image = at::arange(3 * 64).reshape({8, 8, 3}).to(at::kByte);
  const std::string usual = encode_jpeg(image, {.progressive = true});
  EXPECT_EQ(decode_jpeg(usual).sizes(), image.sizes());
}

}  // namespace
}  // namespace tutti::io
