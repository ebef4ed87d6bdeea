#include "tutti/io/tensor_file.h"

#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

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
    EXPECT_EQ(read.tensors[i].first, i == 13 ? "transposed#2" : file.tensors[i].first);
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

TEST_F(TensorFiles, AreSafetensorsWhoseTensorsFollowOneAnotherFromAMultipleOf64On) {
  write_tensor_file(
      path(), {"{}", {{"a", at::full({3}, 7, at::kByte)}, {"b", at::full({3}, 9, at::kByte)}}});
  const std::string written = bytes();
  uint64_t size = 0;
  std::memcpy(&size, written.data(), sizeof(size));
  EXPECT_EQ((size + 8) % 64, 0);
  EXPECT_EQ(written.substr(size + 8), std::string(3, '\7') + std::string(3, '\11'));
  const auto header = nlohmann::json::parse(written.substr(8, size));
  EXPECT_EQ(header["b"]["dtype"], "U8");
  EXPECT_EQ(header["b"]["shape"], nlohmann::json({3}));
  EXPECT_EQ(header["b"]["data_offsets"], nlohmann::json({3, 6}));
  for (const auto& [key, value] : header["__metadata__"].items())
    EXPECT_TRUE(value.is_string()) << key;  // the format has nothing else there
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

/// What a program without our metadata writes.
std::string safetensors(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + header + data;
}

TEST_F(TensorFiles, FilesOfOtherProgramsAreReadInTheOrderOfTheirBytes) {
  const float numbers[] = {1, 2, 3};
  const std::string data(reinterpret_cast<const char*>(numbers), sizeof(numbers));
  set_bytes(safetensors(R"({"late":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},)"
                        R"("__metadata__":{"format":"pt"},)"
                        R"("early":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}  )",
                        data));
  const TensorFile read = read_tensor_file(path());
  EXPECT_EQ(read.metadata, "");
  ASSERT_EQ(read.tensors.size(), 2);
  EXPECT_EQ(read.tensors[0].first, "early");
  EXPECT_TENSOR_EQ(read.tensors[0].second, at::tensor({1.f, 2.f}).view({2, 1}));
  EXPECT_TENSOR_EQ(read.tensors[1].second, at::tensor({3.f}));
}

TEST_F(TensorFiles, AMapOfTensorsGoesAndComesByName) {
  const std::map<std::string, Tensor> tensors{{"b.weight", at::arange(6, at::kFloat).view({2, 3})},
                                              {"a", at::scalar_tensor(3, at::kLong)}};
  save_safetensors(path("map.safetensors"), tensors);
  const auto back = load_safetensors(path("map.safetensors"));
  ASSERT_EQ(back.size(), 2u);
  for (const auto& [name, tensor] : tensors) EXPECT_TENSOR_EQ(back.at(name), tensor);
  EXPECT_THROW(load_safetensors(path("none")), NotFound);
}

TEST_F(TensorFiles, MoreBytesThanSaidAreRefused) {
  write_tensor_file(path(), small_file());
  set_bytes(bytes() + '\0');
  EXPECT_ERROR(read_tensor_file(path()), DataLoss, "bytes, expected");
}

TEST_F(TensorFiles, OtherFilesAreRefused) {
  set_bytes(std::string(100, 'x'));
  EXPECT_ERROR(read_tensor_file(path()), InvalidArgument, "no safetensors file");
  EXPECT_ERROR(read_tensor_file(path("none")), NotFound, "No such file");
  EXPECT_ERROR(read_tensor_file(folder_.string()), InvalidArgument, "not a plain file");
}

TEST_F(TensorFiles, ALaterVersionIsRefused) {
  std::string header =
      R"({"__metadata__":{"format":"tutti 2","header_crc32":"00000000","tutti":"{}"}})";
  const std::string file = safetensors(header, "");
  char crc[9];
  std::snprintf(
      crc, sizeof(crc), "%08lx",
      crc32(0, reinterpret_cast<const Bytef*>(file.data()), static_cast<uInt>(file.size())));
  header.replace(header.find("00000000"), 8, crc);
  set_bytes(safetensors(header, ""));
  EXPECT_ERROR(read_tensor_file(path()), InvalidArgument, "another version");
}

TEST_F(TensorFiles, WhatATableClaimsIsCheckedBeforeMemoryIsTaken) {
  const std::string huge = "1152921504606846976";
  const auto entry = [](const std::string& shape, const std::string& offsets,
                        const std::string& dtype = "\"F32\"") {
    return cat(R"({"t":{"dtype":)", dtype, R"(,"shape":)", shape, R"(,"data_offsets":)", offsets,
               "}}");
  };
  std::string many = "[1";
  for (int i = 0; i < 100; ++i) many += ",1";
  const std::vector<std::string> headers = {
      entry("[" + huge + "]", "[0,4611686018427387904]"),
      entry("[" + huge + "," + huge + "]", "[0,0]"),
      entry("[" + huge + "," + huge + ",0]", "[0,0]"),
      entry("[-1]", "[0,4]"),
      entry("[1.5]", "[0,4]"),
      entry("[1]", "[9223372036854775808,4]"),
      entry("[1]", "[4,8]"),
      entry("[1]", "[4,0]"),
      entry("[1]", "[0]"),
      entry("[1]", "[0,8]"),
      entry("[1]", "[0,4]", "7"),
      entry(many + "]", "[0,4]"),
      R"({"t":{"dtype":"F32","shape":[1]}})",
      R"({"t":7})",
      R"({"__metadata__":{"format":"tutti 1"}})",
      R"({"__metadata__":{"tutti":"{}"}})",
      R"({"__metadata__":{"header_crc32":"00000000"}})",
      "{",
  };
  for (const std::string& header : headers) {
    set_bytes(safetensors(header, std::string(4, '\0')));
    SCOPED_TRACE(header);
    EXPECT_ERROR(read_tensor_file(path()), DataLoss, "damaged");
  }
  set_bytes(safetensors(entry("[1]", "[0,4]", "\"F4\""), std::string(4, '\0')));
  EXPECT_ERROR(read_tensor_file(path()), Unimplemented, "F4");
  set_bytes(safetensors(std::string(20, '['), std::string(4, '\0')));
  EXPECT_ERROR(read_tensor_file(path()), InvalidArgument, "no safetensors");
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

TEST_F(TensorFiles, WhatIsNestedWithoutEndInAHeaderIsRefused) {
  const std::string deep = std::string(400'000, '[') + std::string(400'000, ']');
  for (const char* key : {"shape", "data_offsets", "dtype"}) {
    std::string entry = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
    const std::string quoted = cat('"', key, "\":");
    entry.insert(entry.find(quoted) + quoted.size(), deep + ",\"old\":");
    set_bytes(safetensors("{\"t\":{" + entry + "}}", std::string(4, '\0')));
    SCOPED_TRACE(key);
    EXPECT_ERROR(read_tensor_file(path()), DataLoss, "damaged");
  }
}

TEST_F(TensorFiles, ManyTensorsWithoutBytesKeepTheirOrder) {
  constexpr int kCount = 50'000;
  std::string header = "{";
  for (int i = 0; i < kCount; ++i)
    header += cat(i > 0 ? "," : "", "\"t", kCount - i,
                  R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})");
  set_bytes(safetensors(header + "}", ""));
  const TensorFile read = read_tensor_file(path());
  ASSERT_EQ(read.tensors.size(), static_cast<std::size_t>(kCount));
  EXPECT_EQ(read.tensors[0].first, cat("t", kCount));
  EXPECT_EQ(read.tensors[kCount - 1].first, "t1");
}

TEST_F(TensorFiles, ANameThatStandsTwiceIsRefused) {
  const std::string entry = R"("t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  set_bytes(safetensors(cat("{", entry, ",", entry, "}"), std::string(4, '\0')));
  EXPECT_ERROR(read_tensor_file(path()), DataLoss, "a name twice");
}

}  // namespace
}  // namespace tutti::io
