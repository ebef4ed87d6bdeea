// The files under data/, and decoded_by_tensorflow.npz, were written by TensorFlow 2.21.

#include "tutti/io/image.h"

#include <ATen/ATen.h>

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

}  // namespace
}  // namespace tutti::io
