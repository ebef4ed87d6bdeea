#include <ATen/ATen.h>

#include <algorithm>

#include "base/environment.h"
#include "io/file.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/datasets/datasets.h"

namespace tutti::datasets {
namespace {

constexpr std::size_t kLimit = std::size_t{1} << 30;
constexpr const char* kPackage =
    "install Debian's package dataset-fashion-mnist, or set TUTTI_DATASETS to a folder with the "
    "IDX files";

uint32_t big_endian(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

std::vector<std::string> folders() {
  if (const auto named = environment("TUTTI_DATASETS")) return {*named + "/fashion-mnist", *named};
  return {"/usr/share/dataset/fashion-mnist", "/usr/share/datasets/fashion-mnist"};
}

std::string find(const std::string& name) {
  for (const std::string& folder : folders()) {
    for (const char* suffix : {"", ".gz"}) {
      const std::string path = cat(folder, "/", name, suffix);
      if (io::file_exists(path)) return path;
    }
  }
  throw NotFound(cat("fashion_mnist [", name, "]: no such file (nor with .gz) in ",
                     join(folders(), " or "), "; ", kPackage));
}

Split read_split(const std::string& prefix) {
  const std::string images_path = find(prefix + "-images-idx3-ubyte");
  const std::string labels_path = find(prefix + "-labels-idx1-ubyte");
  const Tensor images = read_idx(images_path);
  const Tensor labels = read_idx(labels_path);
  if (images.dim() != 3 || labels.dim() != 1 || images.size(0) != labels.size(0)) {
    throw DataLoss(cat("fashion_mnist [", images_path, "]: images ", shape_text(images.sizes()),
                       " and labels ", shape_text(labels.sizes()),
                       ", expected one label for each of [N, height, width]; ", kPackage));
  }
  const int64_t rows = environment_int("TUTTI_DATASETS_LIMIT", images.size(0), 1, images.size(0));
  return {images.narrow(0, 0, rows).unsqueeze(-1), labels.narrow(0, 0, rows).to(at::kLong)};
}

}  // namespace

// The bytes go from the file into the tensor: a second copy of the training images beside it would
// be the largest block of memory of a small job.
Tensor read_idx(const std::string& path) {
  io::FileStream file(path);
  std::size_t have = 0;
  auto read = [&](void* into, std::size_t size) {
    const std::size_t got = file.read(into, size);
    have += got;
    return got == size;
  };
  auto read_to_the_end = [&] {
    std::vector<uint8_t> rest(std::size_t{1} << 16);
    while (have <= kLimit && read(rest.data(), rest.size())) continue;
  };
  auto damaged = [&](const std::string& what) {
    throw DataLoss(
        cat("read_idx [", path, "]: ", what, ", expected an IDX file of bytes; ", kPackage));
  };
  uint8_t magic[4] = {};
  if (!read(magic, 4) || magic[0] != 0 || magic[1] != 0 || magic[2] != 8) {
    read_to_the_end();
    damaged(cat("no IDX header in ", have, " bytes"));
  }
  const std::size_t rank = magic[3];
  uint8_t header[4 * 4] = {};
  if (rank == 0 || rank > 4 || !read(header, 4 * rank)) {
    read_to_the_end();
    damaged(cat("rank ", rank, " in ", have, " bytes"));
  }
  std::vector<int64_t> sizes;
  int64_t numel = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    sizes.push_back(big_endian(header + 4 * i));
    // The others count beside an empty axis too: LibTorch has strides for them.
    if (__builtin_mul_overflow(numel, std::max<int64_t>(sizes.back(), 1), &numel))
      damaged("sizes too large");
  }
  const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  const bool too_large = static_cast<uint64_t>(numel) > kLimit;
  if (empty) numel = 0;
  Tensor tensor = too_large ? Tensor() : at::empty(sizes, at::kByte);
  have = 0;
  if (!too_large) read(tensor.data_ptr(), static_cast<std::size_t>(numel));
  read_to_the_end();
  if (too_large || static_cast<uint64_t>(numel) != have)
    damaged(cat("sizes ", shape_text(sizes), " with ", have, " bytes of data"));
  return tensor;
}

ImageDataset fashion_mnist() { return {read_split("train"), read_split("t10k")}; }

}  // namespace tutti::datasets
