// Elements as bytes: what a cache in files holds. A file that another wrote has right checksums
// around anything.

#include "data/element_codec.h"

#include "support/expect.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::data {
namespace {

std::string number(uint64_t value) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}
/// A tensor of these sizes, whatever they are.
std::string tensor_bytes(const std::string& dtype, const std::vector<uint64_t>& sizes,
                         const std::string& content) {
  std::string bytes = std::string(1, 1) + number(dtype.size()) + dtype + number(sizes.size());
  for (uint64_t size : sizes) bytes += number(size);
  return bytes + content;
}
std::string strings_bytes(const std::vector<uint64_t>& sizes) {
  std::string bytes = std::string(1, 2) + number(sizes.size());
  for (uint64_t size : sizes) bytes += number(size);
  return bytes;
}

TEST(ElementBytes, GiveBackNestsOfTensorsAndStrings) {
  const Nest element =
      Nest::map({{"a", Nest::tuple({at::tensor({1, 0, 1}).to(at::kBool), Nest()})},
                 {"b", Nest(StringTensor({"x", ""}, {2, 1}))},
                 {"c", Nest::list({at::zeros({0, 3}), at::scalar_tensor(2.5, at::kDouble)})}});
  std::string bytes;
  append_element(element, bytes);
  const Nest back = element_of(bytes);
  EXPECT_EQ(back.structure(), element.structure());
  EXPECT_TENSOR_EQ(back["a"].items()[0].leaf(), element["a"].items()[0].leaf());
  EXPECT_EQ(back["b"].strings(), element["b"].strings());
  EXPECT_EQ(back["c"].items()[0].leaf().sizes(), at::IntArrayRef({0, 3}));
  EXPECT_TENSOR_EQ(back["c"].items()[1].leaf(), element["c"].items()[1].leaf());
}

TEST(ElementBytes, ThatCannotBeAreDataLoss) {
  const uint64_t huge = uint64_t{1} << 62;
  EXPECT_TENSOR_EQ(element_of(tensor_bytes("bool", {2}, std::string("\0\1", 2))).leaf(),
                   at::tensor({0, 1}).to(at::kBool));
  for (const std::string& bytes :
       {tensor_bytes("bool", {2}, "\1\2"), tensor_bytes("float32", {huge}, "xxxx"),
        tensor_bytes("float32", {huge, huge}, ""), tensor_bytes("float32", {0, huge, huge}, ""),
        tensor_bytes("float32", {huge, huge, 0}, ""), tensor_bytes("float32", {~uint64_t{0}}, ""),
        tensor_bytes("float32", {1}, "xxx"), tensor_bytes("float32", {1}, "xxxxx"),
        tensor_bytes("string", {0}, ""), tensor_bytes("float", {0}, ""), strings_bytes({huge}),
        strings_bytes({0, huge, huge}), std::string(1, 3) + number(huge),
        std::string(1, 5) + number(1) + number(huge), std::string(), std::string(1, 9)}) {
    EXPECT_ERROR(element_of(bytes), DataLoss, "cached element");
  }
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += std::string(1, 4) + number(1);
  EXPECT_ERROR(element_of(deep + '\0'), DataLoss, "cached element");
}

}  // namespace
}  // namespace tutti::data
