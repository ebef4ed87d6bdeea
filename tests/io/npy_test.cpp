// The files under data/ were written by NumPy 2.4.

#include "tutti/io/npy.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <filesystem>

#include "io/fixtures.h"
#include "support/expect.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::io {
namespace {

namespace fs = std::filesystem;

class NumPyFiles : public ::testing::Test {
 protected:
  NumPyFiles() : path_((fs::temp_directory_path() / cat("tutti_npy_", getpid())).string()) {}
  ~NumPyFiles() override { fs::remove(path_); }
  void set_bytes(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::string path_;
};

TEST_F(NumPyFiles, OfEitherOrderAndEndianAreRead) {
  EXPECT_TENSOR_EQ(load_npy(fixture("f4.npy")), at::arange(6, at::kFloat).view({2, 3}) / 4);
  EXPECT_TENSOR_EQ(load_npy(fixture("big_i4.npy")), at::tensor({1, -2, 70000}, at::kInt));
  EXPECT_TENSOR_EQ(load_npy(fixture("fortran_f8.npy")),
                   at::arange(24, at::kDouble).view({2, 3, 4}));
  EXPECT_TENSOR_EQ(load_npy(fixture("bool.npy")), at::tensor({1, 0, 1}).to(at::kBool));
  EXPECT_TENSOR_EQ(load_npy(fixture("scalar_i8.npy")), at::scalar_tensor(7, at::kLong));
  const Tensor complex = load_npy(fixture("big_c8.npy"));
  EXPECT_TENSOR_EQ(at::view_as_real(complex), at::tensor({1.f, 2.f, 3.f, -4.f}).view({2, 2}));
}

TEST_F(NumPyFiles, ArchivesAreReadStoredAndDeflated) {
  const auto stored = load_npz(fixture("stored.npz"));
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_TENSOR_EQ(stored.at("x"), at::arange(4, at::kFloat));
  EXPECT_TENSOR_EQ(stored.at("y"), at::zeros({0, 3}, at::kLong));
  const auto deflated = load_npz(fixture("deflated.npz"));
  EXPECT_TENSOR_EQ(deflated.at("x"), at::arange(16, at::kByte).repeat({64}).view({32, 32}));
}

TEST_F(NumPyFiles, WhatIsWrittenIsReadAgain) {
  for (at::ScalarType dtype : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong,
                               at::kHalf, at::kFloat, at::kDouble, at::kComplexFloat}) {
    const Tensor array = at::arange(6).view({2, 3}).to(dtype).t();
    save_npy(path_, array);
    EXPECT_TENSOR_EQ(load_npy(path_), array.contiguous());
  }
  save_npy(path_, at::scalar_tensor(2.5));
  EXPECT_EQ(load_npy(path_).dim(), 0);
  save_npz(path_, {{"a", at::arange(3)}, {"b/c", at::zeros({2, 0})}});
  const auto arrays = load_npz(path_);
  EXPECT_TENSOR_EQ(arrays.at("a"), at::arange(3));
  EXPECT_TENSOR_EQ(arrays.at("b/c"), at::zeros({2, 0}));
}

TEST_F(NumPyFiles, AreWrittenByteForByteAsNumPyWritesThem) {
  save_npy(path_, at::arange(6, at::kFloat).view({2, 3}) / 4);
  EXPECT_EQ(bytes_of(path_), bytes_of(fixture("f4.npy")));
  save_npy(path_, at::scalar_tensor(7, at::kLong));
  EXPECT_EQ(bytes_of(path_), bytes_of(fixture("scalar_i8.npy")));
}

TEST_F(NumPyFiles, WhatIsNoArrayOfNumbersIsRefused) {
  EXPECT_ERROR(load_npy(fixture("text.npy")), InvalidArgument, "<U2");
  EXPECT_ERROR(load_npy(fixture("objects.npy")), InvalidArgument, "an array of |O");
  EXPECT_ERROR(load_npy(fixture("rgb.png")), InvalidArgument, "no .npy file");
  EXPECT_ERROR(load_npz(fixture("rgb.png")), InvalidArgument, "expected a whole .npz file");
  EXPECT_ERROR(load_npy("/none.npy"), NotFound, "No such file");
  EXPECT_ERROR(load_npz("/none.npz"), NotFound, "no such file");
  EXPECT_ERROR(save_npy(path_, at::zeros({1}, at::kBFloat16)), Unimplemented, "bfloat16");
  EXPECT_ERROR(save_npz(path_, {{"x", Tensor()}}), InvalidArgument, "undefined");
}

TEST_F(NumPyFiles, EveryTruncationIsRefused) {
  for (const char* name : {"f4.npy", "stored.npz", "deflated.npz"}) {
    const std::string whole = bytes_of(fixture(name));
    const bool archive = std::string(name).find(".npz") != std::string::npos;
    for (std::size_t size = 0; size < whole.size(); ++size) {
      set_bytes(whole.substr(0, size));
      try {
        archive ? static_cast<void>(load_npz(path_)) : static_cast<void>(load_npy(path_));
        ADD_FAILURE() << name << " read from " << size << " of its bytes";
      } catch (const DataLoss&) {
      } catch (const InvalidArgument&) {
      }
    }
  }
}

TEST_F(NumPyFiles, AChangedBitIsAnErrorOrAnArray) {
  for (const char* name : {"f4.npy", "fortran_f8.npy", "stored.npz", "deflated.npz"}) {
    const std::string whole = bytes_of(fixture(name));
    const bool archive = std::string(name).find(".npz") != std::string::npos;
    for (std::size_t at = 0; at < whole.size(); ++at) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
      set_bytes(changed);
      try {
        if (archive) {
          load_npz(path_);
        } else {
          load_npy(path_);
        }
      } catch (const DataLoss&) {
      } catch (const InvalidArgument&) {
      }
    }
  }
}

TEST_F(NumPyFiles, AShapeThatIsClaimedTakesNoMemory) {
  const std::string whole = bytes_of(fixture("f4.npy"));
  for (const char* shape : {"(999999999999,)", "(99999999999999, 99999999999999)", "(-1, 3), "}) {
    std::string forged = whole;
    const std::size_t at = forged.find("(2, 3), }");
    forged.replace(at, std::string(shape).size(), shape);
    set_bytes(forged);
    EXPECT_ERROR(load_npy(path_), DataLoss, "damaged");
  }
}

TEST_F(NumPyFiles, TwoArraysOfOneNameAreRefused) {  // entries "a.npy" and "a"
  EXPECT_ERROR(load_npz(fixture("twice.npz")), DataLoss, "two arrays of the name a");
}

TEST_F(NumPyFiles, EntriesThatShareTheirBytesAreRefused) {  // the second lies within the first
  EXPECT_ERROR(load_npz(fixture("overlapping.npz")), DataLoss, "overlap");
}

}  // namespace
}  // namespace tutti::io
