#include <ATen/ATen.h>

#include <cstring>

#include "base/environment.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/datasets/datasets.h"
#include "io/file.h"

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

Tensor read_idx(const std::string& path) {
  const std::vector<uint8_t> bytes = io::read_file(path, kLimit);
  auto damaged = [&](const std::string& what) {
    throw DataLoss(
        cat("read_idx [", path, "]: ", what, ", expected an IDX file of bytes; ", kPackage));
  };
  if (bytes.size() < 4 || bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8)
    damaged(cat("no IDX header in ", bytes.size(), " bytes"));
  const std::size_t rank = bytes[3];
  const std::size_t header = 4 + 4 * rank;
  if (rank == 0 || rank > 4 || bytes.size() < header)
    damaged(cat("rank ", rank, " in ", bytes.size(), " bytes"));
  std::vector<int64_t> sizes;
  int64_t numel = 1;
  for (std::size_t i = 0; i < rank; ++i) {
    sizes.push_back(big_endian(bytes.data() + 4 + 4 * i));
    if (__builtin_mul_overflow(numel, sizes.back(), &numel)) damaged("sizes too large");
  }
  if (static_cast<uint64_t>(numel) != bytes.size() - header) {
    damaged(cat("sizes ", shape_text(sizes), " with ", bytes.size() - header, " bytes of data"));
  }
  Tensor tensor = at::empty(sizes, at::kByte);
  if (numel > 0)
    std::memcpy(tensor.data_ptr(), bytes.data() + header, static_cast<std::size_t>(numel));
  return tensor;
}

ImageDataset fashion_mnist() { return {read_split("train"), read_split("t10k")}; }

}  // namespace tutti::datasets
