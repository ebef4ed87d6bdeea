#include "tutti/datasets/datasets.h"

#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "support/expect.h"

namespace tutti::datasets {
namespace {

namespace fs = std::filesystem;

/// A folder of its own for each test, which TUTTI_DATASETS names until the test ends.
class Files : public ::testing::Test {
 protected:
  Files() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / cat("tutti_", test->name(), "_", getpid());
    fs::create_directories(folder_);
    if (const char* value = std::getenv("TUTTI_DATASETS")) before_ = value;
    setenv("TUTTI_DATASETS", folder_.c_str(), 1);
  }
  ~Files() override {
    if (before_) {
      setenv("TUTTI_DATASETS", before_->c_str(), 1);
    } else {
      unsetenv("TUTTI_DATASETS");
    }
    fs::remove_all(folder_);
  }

  std::string write(const std::string& name, const std::string& bytes) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path.string();
  }
  /// Images [2, 2, 3] and labels [2] for both splits.
  void write_small_set(const std::string& folder) const {
    for (const std::string split : {"train", "t10k"}) {
      write(folder + split + "-images-idx3-ubyte", idx({2, 2, 3}, std::string(12, 'x')));
      write(folder + split + "-labels-idx1-ubyte", idx({2}, "\x07\x03"));
    }
  }

  static std::string idx(const std::vector<uint32_t>& sizes, const std::string& data) {
    std::string bytes{0, 0, 8, static_cast<char>(sizes.size())};
    for (uint32_t size : sizes) {
      for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift & 255);
    }
    return bytes + data;
  }
  std::string gzip(const std::string& bytes) const {
    const std::string path = (folder_ / "packed.tmp").string();
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
    std::ifstream packed(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(packed), std::istreambuf_iterator<char>()};
  }

  fs::path folder_;
  std::optional<std::string> before_;
};

const std::string kData{1, 2, 3, 4, 5, static_cast<char>(255)};
at::Tensor wanted() { return at::tensor({1, 2, 3, 4, 5, 255}).to(at::kByte).view({2, 3}); }

TEST_F(Files, ReadIdxReadsAPlainFile) {
  const Tensor read = read_idx(write("x", idx({2, 3}, kData)));
  EXPECT_EQ(read.scalar_type(), at::kByte);
  EXPECT_TENSOR_EQ(read, wanted());
}

TEST_F(Files, ReadIdxReadsAGzipFile) {
  EXPECT_TENSOR_EQ(read_idx(write("x.gz", gzip(idx({2, 3}, kData)))), wanted());
}

TEST_F(Files, ReadIdxReadsAFileWithoutData) {
  EXPECT_EQ(read_idx(write("x", idx({0, 3}, ""))).sizes(), at::IntArrayRef({0, 3}));
}

TEST_F(Files, ReadIdxRefusesEveryTruncation) {
  const std::string plain = idx({2, 3}, kData);
  for (const std::string& whole : {plain, gzip(plain)}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      SCOPED_TRACE(size);
      EXPECT_ERROR(read_idx(write("x", whole.substr(0, size))), DataLoss, "x");
    }
  }
}

TEST_F(Files, ReadIdxRefusesSizesThatTheDataDoesNotHave) {
  EXPECT_ERROR(read_idx(write("x", idx({2, 4}, kData))), DataLoss, "(2, 4) with 6 bytes");
  EXPECT_ERROR(read_idx(write("x", idx({2, 2}, kData))), DataLoss, "(2, 2) with 6 bytes");
  EXPECT_ERROR(read_idx(write("x", idx({40000, 40000}, kData))), DataLoss,
               "(40000, 40000) with 6 bytes");
  EXPECT_ERROR(read_idx(write("x", idx({~0u, ~0u, ~0u}, kData))), DataLoss, "sizes too large");
  EXPECT_ERROR(read_idx(write("x", idx({0, ~0u, ~0u, ~0u}, ""))), DataLoss, "sizes too large");
}

TEST_F(Files, ReadIdxRefusesAnotherMagicOrRank) {
  std::string bytes = idx({2, 3}, kData);
  bytes[2] = 0x0d;  // floats
  EXPECT_ERROR(read_idx(write("x", bytes)), DataLoss, "no IDX header");
  EXPECT_ERROR(read_idx(write("x", idx({}, ""))), DataLoss, "rank 0");
  EXPECT_ERROR(read_idx(write("x", idx({1, 1, 1, 1, 1}, "x"))), DataLoss, "rank 5");
}

TEST_F(Files, ReadIdxOfAMissingFileIsNotFound) {
  EXPECT_ERROR(read_idx((folder_ / "none").string()), NotFound, "none");
}

TEST_F(Files, FashionMnistNamesThePackageWhenFilesAreMissing) {
  EXPECT_ERROR(fashion_mnist(), NotFound, "dataset-fashion-mnist");
  EXPECT_ERROR(fashion_mnist(), NotFound, "train-images-idx3-ubyte");
  write_small_set("");
  fs::remove(folder_ / "t10k-labels-idx1-ubyte");
  EXPECT_ERROR(fashion_mnist(), NotFound, "t10k-labels-idx1-ubyte");
}

TEST_F(Files, FashionMnistReadsTheNamedFolderOrItsSubfolder) {
  for (const std::string folder : {"", "fashion-mnist/"}) {
    write_small_set(folder);
    const ImageDataset small = fashion_mnist();
    EXPECT_EQ(small.train.images.sizes(), at::IntArrayRef({2, 2, 3, 1}));
    EXPECT_EQ(small.train.images.scalar_type(), at::kByte);
    EXPECT_EQ(small.test.labels.scalar_type(), at::kLong);
    EXPECT_TENSOR_EQ(small.test.labels, at::tensor({7, 3}));
    fs::remove(folder_ / (folder + "train-images-idx3-ubyte"));
  }
}

TEST_F(Files, FashionMnistReadsGzipFiles) {
  write_small_set("");
  for (const char* name : {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"}) {
    fs::remove(folder_ / name);
    write(cat(name, ".gz"), gzip(idx({2, 2, 3}, std::string(12, 'x'))));
  }
  EXPECT_EQ(fashion_mnist().test.images.sizes(), at::IntArrayRef({2, 2, 3, 1}));
}

TEST_F(Files, FashionMnistRefusesLabelsThatDoNotFit) {
  write_small_set("");
  write("train-labels-idx1-ubyte", idx({3}, "abc"));
  EXPECT_ERROR(fashion_mnist(), DataLoss, "labels (3,)");
}

TEST(FashionMnist, HasTheShapesOfThePackage) {
  std::optional<ImageDataset> real;
  real = fashion_mnist();
  EXPECT_EQ(real->train.images.sizes(), at::IntArrayRef({60000, 28, 28, 1}));
  EXPECT_EQ(real->test.images.sizes(), at::IntArrayRef({10000, 28, 28, 1}));
  EXPECT_EQ(real->train.images.scalar_type(), at::kByte);
  for (const auto& [labels, each] :
       {std::pair{real->train.labels, 6000}, std::pair{real->test.labels, 1000}}) {
    EXPECT_EQ(labels.scalar_type(), at::kLong);
    EXPECT_TENSOR_EQ(at::bincount(labels), at::full({10}, each));
  }
}

/// Two records: label, then planes full of one number each.
std::string cifar_records(char label) {
  std::string bytes;
  for (char record : {0, 1}) {
    bytes += label;
    for (char plane : {10, 20, 30}) bytes += std::string(1024, static_cast<char>(plane + record));
  }
  return bytes;
}

TEST_F(Files, Cifar10IsReadChannelsLast) {
  EXPECT_FALSE(has_cifar10());
  for (int i = 1; i <= 5; ++i)
    write(cat("cifar-10-batches-bin/data_batch_", i, ".bin"), cifar_records(static_cast<char>(i)));
  write("cifar-10-batches-bin/test_batch.bin.gz", gzip(cifar_records(9)));
  EXPECT_TRUE(has_cifar10());
  const ImageDataset set = cifar10();
  EXPECT_EQ(set.train.images.sizes(), at::IntArrayRef({10, 32, 32, 3}));
  EXPECT_TENSOR_EQ(set.train.labels, at::tensor({1, 1, 2, 2, 3, 3, 4, 4, 5, 5}, at::kLong));
  EXPECT_TENSOR_EQ(set.train.images[1][31][0], at::tensor({11, 21, 31}, at::kByte));
  EXPECT_TENSOR_EQ(set.test.labels, at::tensor({9, 9}, at::kLong));
}

TEST_F(Files, Cifar10SaysWhatIsMissingOrDamaged) {
  EXPECT_ERROR(cifar10(), NotFound, "data_batch_1.bin");
  for (int i = 1; i <= 5; ++i) write(cat("cifar10/data_batch_", i, ".bin"), cifar_records(1));
  EXPECT_ERROR(cifar10(), NotFound, "test_batch.bin");
  write("cifar10/test_batch.bin", cifar_records(10));
  EXPECT_ERROR(cifar10(), DataLoss, "the label 10");
  write("cifar10/test_batch.bin", cifar_records(1).substr(1));
  EXPECT_ERROR(cifar10(), DataLoss, "a multiple of 3073");
}

}  // namespace
}  // namespace tutti::datasets
