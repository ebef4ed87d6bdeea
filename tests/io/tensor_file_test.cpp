#include "tutti/io/tensor_file.h"

#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/expect.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::io {
namespace {

namespace fs = std::filesystem;

/// A folder of its own for each test, removed afterwards.
class TensorFiles : public ::testing::Test {
 protected:
  TensorFiles() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / cat("tutti_", test->name(), "_", getpid());
    fs::create_directories(folder_);
  }
  ~TensorFiles() override { fs::remove_all(folder_); }

  std::string path(const std::string& name = "x.tutti") const { return (folder_ / name).string(); }
  std::string bytes() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void set_bytes(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  /// True when reading throws DataLoss or InvalidArgument.
  bool is_refused() const {
    try {
      read_tensor_file(path());
    } catch (const DataLoss&) {
      return true;
    } catch (const InvalidArgument&) {
      return true;
    }
    return false;
  }

  fs::path folder_;
};

TensorFile small_file() {
  return {R"({"kind": "test"})",
          {{"a", at::arange(5, at::kFloat)},
           {"empty", at::zeros({0, 3})},
           {"b", at::tensor({1, 0, 1}).to(at::kBool)}}};
}

TEST_F(TensorFiles, GivesBackEveryDtypeAndShape) {
  TensorFile file{"{}", {}};
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,
                               at::kChar, at::kShort, at::kInt, at::kLong, at::kBool}) {
    file.tensors.emplace_back(dtype_name(dtype), at::arange(6).view({2, 3}).to(dtype));
  }
  file.tensors.emplace_back("scalar", at::tensor(2.5f).squeeze());
  file.tensors.emplace_back("no rows", at::zeros({0, 4}, at::kLong));
  file.tensors.emplace_back("transposed", at::arange(6).view({2, 3}).t());
  file.tensors.emplace_back("transposed", at::zeros({1, 1, 1, 1, 1}));
  write_tensor_file(path(), file);
  const TensorFile read = read_tensor_file(path());
  EXPECT_EQ(read.metadata, "{}");
  ASSERT_EQ(read.tensors.size(), file.tensors.size());
  for (std::size_t i = 0; i < file.tensors.size(); ++i) {
    EXPECT_EQ(read.tensors[i].first, file.tensors[i].first);
    EXPECT_EQ(read.tensors[i].second.scalar_type(), file.tensors[i].second.scalar_type());
    EXPECT_TENSOR_EQ(read.tensors[i].second, file.tensors[i].second);
  }
}

TEST_F(TensorFiles, GivesBackNaNsBitForBit) {
  const float nan = std::nanf("0x7");
  const at::Tensor odd = at::tensor({nan, -0.0f, std::numeric_limits<float>::infinity(), 1e-45f});
  write_tensor_file(path(), {"{}", {{"odd", odd}}});
  EXPECT_TRUE(
      at::equal(read_tensor_file(path()).tensors[0].second.view(at::kInt), odd.view(at::kInt)));
}

TEST_F(TensorFiles, TensorsLieAtMultiplesOf64) {
  write_tensor_file(
      path(), {"{}", {{"a", at::full({3}, 7, at::kByte)}, {"b", at::full({3}, 9, at::kByte)}}});
  const std::string written = bytes();
  EXPECT_EQ(written.substr(written.size() - 67, 3), std::string(3, '\7'));
  EXPECT_EQ(written.substr(written.size() - 3), std::string(3, '\11'));
  EXPECT_EQ(written.size() % 64, 3);
}

TEST_F(TensorFiles, EveryTruncationIsRefused) {
  write_tensor_file(path(), small_file());
  const std::string whole = bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    set_bytes(whole.substr(0, size));
    EXPECT_TRUE(is_refused()) << "the first " << size << " of " << whole.size() << " bytes";
  }
}

TEST_F(TensorFiles, EveryChangedByteIsRefused) {
  write_tensor_file(path(), small_file());
  const std::string whole = bytes();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int change : {0x01, 0x80, 0xff}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ change);
      set_bytes(changed);
      EXPECT_TRUE(is_refused()) << "byte " << at << " changed by " << change;
    }
  }
}

TEST_F(TensorFiles, MoreBytesThanSaidAreRefused) {
  write_tensor_file(path(), small_file());
  set_bytes(bytes() + '\0');
  EXPECT_ERROR(read_tensor_file(path()), DataLoss, "bytes, expected");
}

TEST_F(TensorFiles, OtherFilesAreRefused) {
  set_bytes(std::string(100, 'x'));
  EXPECT_ERROR(read_tensor_file(path()), InvalidArgument, "no Tutti file");
  write_tensor_file(path(), small_file());
  std::string later = bytes();
  later[6] = '\2';
  set_bytes(later);
  EXPECT_ERROR(read_tensor_file(path()), InvalidArgument, "another version");
  EXPECT_ERROR(read_tensor_file(path("none")), NotFound, "No such file");
  EXPECT_ERROR(read_tensor_file(folder_.string()), InvalidArgument, "not a plain file");
}

/// A file whose checksums are right and whose table says what a test wants.
std::string forged(const std::string& table) {
  const auto text = [](auto value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const auto crc = [](const std::string& bytes) {
    return static_cast<uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
  };
  std::string front = std::string("TUTTI\0\1\n", 8) + text(uint64_t{2}) +
                      text(uint64_t{table.size()}) + text(crc("{}" + table));
  return front + text(crc(front)) + "{}" + table;
}

std::string forged_entry(std::vector<int64_t> sizes, uint64_t offset, uint64_t bytes,
                         uint8_t dtype = 0) {
  const auto text = [](auto value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  std::string entry =
      text(uint32_t{1}) + "t" + text(dtype) + text(static_cast<uint8_t>(sizes.size()));
  for (int64_t size : sizes) entry += text(size);
  return entry + text(offset) + text(bytes) + text(uint32_t{0});
}

TEST_F(TensorFiles, WhatATableClaimsIsCheckedBeforeMemoryIsTaken) {
  const int64_t huge = int64_t{1} << 60;
  const std::vector<std::string> tables = {
      forged_entry({huge}, 128, static_cast<uint64_t>(huge) * 4),
      forged_entry({huge, huge}, 128, 0),
      forged_entry({huge, huge, 0}, 128, 0),
      forged_entry({-1}, 128, 4),
      forged_entry({1}, uint64_t{1} << 63, 4),
      forged_entry({1}, 0, 4),
      forged_entry({1}, 128, 8),
      forged_entry({1}, 128, 4, 200),
      forged_entry(std::vector<int64_t>(100, 1), 1024, 4),
      "\xff\xff\xff\xff",
  };
  for (const std::string& table : tables) {
    set_bytes(forged(table) + std::string(200, '\0'));
    EXPECT_ERROR(read_tensor_file(path()), DataLoss, "damaged");
  }
}

TEST_F(TensorFiles, AFailedWriteLeavesTheOldFileAndNoTemporaryOne) {
  write_tensor_file(path(), small_file());
  const std::string before = bytes();
  EXPECT_ERROR(write_tensor_file(path(), {"{}", {{"c", at::zeros({1}, at::kComplexFloat)}}}),
               Unimplemented, "dtype");
  EXPECT_ERROR(write_tensor_file(path(), {"{}", {{"u", at::Tensor()}}}), InvalidArgument,
               "undefined");
  EXPECT_ERROR(write_tensor_file(path("no/such/folder"), small_file()), NotFound, "No such file");
  EXPECT_EQ(bytes(), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace tutti::io
