// The binary version of CIFAR-10: records of a label byte, then 32 x 32 red, green and blue bytes.

#include <ATen/ATen.h>

#include "base/environment.h"
#include "io/file.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/datasets/datasets.h"

namespace tutti::datasets {
namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kRecord = 1 + 3 * kSide * kSide;
constexpr int64_t kClasses = 10;
constexpr std::size_t kLargest = std::size_t{1} << 28;
constexpr const char* kWhere =
    "get the binary version from https://www.cs.toronto.edu/~kriz/cifar.html and set "
    "TUTTI_DATASETS "
    "to the folder in which it was unpacked";
constexpr const char* kTrainFiles[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                       "data_batch_4.bin", "data_batch_5.bin"};
constexpr const char* kTestFile = "test_batch.bin";

std::vector<std::string> folders() {
  const auto named = environment("TUTTI_DATASETS");
  if (!named) return {};
  return {*named + "/cifar-10-batches-bin", *named + "/cifar10", *named};
}

std::string find(const std::string& name) {
  for (const std::string& folder : folders()) {
    for (const char* suffix : {"", ".gz"}) {
      const std::string path = cat(folder, "/", name, suffix);
      if (io::file_exists(path)) return path;
    }
  }
  throw NotFound(
      cat("cifar10 [", name, "]: no such file (nor with .gz)",
          folders().empty() ? ", TUTTI_DATASETS is not set" : cat(" in ", join(folders(), " or ")),
          "; ", kWhere));
}

/// The records of a file, [N, 3073].
Tensor read_records(const std::string& path) {
  const std::vector<uint8_t> bytes = io::read_file(path, kLargest);
  const auto size = static_cast<int64_t>(bytes.size());
  if (size == 0 || size % kRecord != 0)
    throw DataLoss(cat("cifar10 [", path, "]: ", size, " bytes, expected a multiple of ", kRecord,
                       "; ", kWhere));
  const Tensor records =
      at::from_blob(const_cast<uint8_t*>(bytes.data()), {size / kRecord, kRecord}, at::kByte)
          .clone();
  const auto worst = records.select(1, 0).max().item<int64_t>();
  if (worst >= kClasses)
    throw DataLoss(cat("cifar10 [", path, "]: the label ", worst, ", expected 0 to ", kClasses - 1,
                       "; ", kWhere));
  return records;
}

Split split_of(const std::vector<std::string>& paths) {
  std::vector<Tensor> parts;
  for (const std::string& path : paths) parts.push_back(read_records(path));
  const Tensor all = at::cat(parts);
  const int64_t rows = environment_int("TUTTI_DATASETS_LIMIT", all.size(0), 1, all.size(0));
  const Tensor records = all.narrow(0, 0, rows);
  const Tensor planes = records.narrow(1, 1, kRecord - 1).reshape({rows, 3, kSide, kSide});
  return {planes.permute({0, 2, 3, 1}).contiguous(), records.select(1, 0).to(at::kLong)};
}

}  // namespace

ImageDataset cifar10() {
  std::vector<std::string> train;
  for (const char* name : kTrainFiles) train.push_back(find(name));
  const std::string test = find(kTestFile);
  return {split_of(train), split_of({test})};
}

bool has_cifar10() {
  try {
    for (const char* name : kTrainFiles) find(name);
    find(kTestFile);
    return true;
  } catch (const NotFound&) {
    return false;
  }
}

}  // namespace tutti::datasets
