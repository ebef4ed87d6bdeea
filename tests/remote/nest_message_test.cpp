// Nests as messages: every kind and dtype comes back, and what cannot be is refused before memory
// is taken.
#include "remote/nest_message.h"

#include "support/expect.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::remote {
namespace {

using tutti::rpc::Message;
using tutti::rpc::MessageNode;
using tutti::rpc::NodeKind;

Nest round_trip(const Nest& nest) {
  Message message;
  append_nest(nest, "test", Sharing::kKeep, message);
  return nest_of(tutti::rpc::decode_message(tutti::rpc::encode_message(message, "test")));
}

/// A message of one tensor, whatever it says.
Message tensor_message(const std::string& dtype, std::vector<int64_t> shape, std::string bytes) {
  Message message;
  MessageNode node;
  node.kind = NodeKind::kTensor;
  node.dtype = dtype;
  node.shape = std::move(shape);
  node.bytes = bytes.size();
  message.nodes = {node};
  message.data = {tutti::rpc::piece_of(std::move(bytes))};
  return message;
}
Message strings_message(std::vector<int64_t> shape, std::string bytes) {
  Message message = tensor_message("", std::move(shape), std::move(bytes));
  message.nodes[0].kind = NodeKind::kStrings;
  return message;
}

TEST(NestMessage, GivesBackNestsOfTensorsAndStrings) {
  const Nest nest =
      Nest::map({{"a", Nest::tuple({at::tensor({1, 0, 1}).to(at::kBool), Nest()})},
                 {"b", Nest(StringTensor({"x", "", std::string("\0\xff", 2)}, {3, 1}))},
                 {"c", Nest::list({at::zeros({0, 3}), at::scalar_tensor(2.5, at::kDouble)})},
                 {"d", Nest::tuple({})},
                 {"\xff not UTF-8", Nest::list({})}});
  const Nest back = round_trip(nest);
  EXPECT_EQ(back.structure(), nest.structure());
  EXPECT_TENSOR_EQ(back["a"].items()[0].leaf(), nest["a"].items()[0].leaf());
  EXPECT_EQ(back["b"].strings(), nest["b"].strings());
  EXPECT_EQ(back["c"].items()[0].leaf().sizes(), at::IntArrayRef({0, 3}));
  EXPECT_TENSOR_EQ(back["c"].items()[1].leaf(), nest["c"].items()[1].leaf());
}

TEST(NestMessage, GivesBackEveryDtype) {
  for (const at::ScalarType dtype :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
        at::kFloat, at::kDouble, at::kComplexFloat, at::kComplexDouble}) {
    const Tensor tensor = at::tensor({0, 1, 2, 3, 1}).to(dtype);
    const Tensor back = round_trip(tensor).leaf();
    EXPECT_EQ(back.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(back, tensor)) << dtype;
  }
}

TEST(NestMessage, SendsViewsAsWhatTheyShow) {
  const Tensor base = at::arange(12, at::kFloat).reshape({3, 4});
  EXPECT_TENSOR_EQ(round_trip(base.t()).leaf(), base.t());
  EXPECT_TENSOR_EQ(round_trip(base.narrow(1, 1, 2)).leaf(), base.narrow(1, 1, 2));
  EXPECT_TENSOR_EQ(round_trip(base.narrow(0, 1, 2)).leaf(), base.narrow(0, 1, 2));
  EXPECT_TENSOR_EQ(round_trip(at::ones({1}).expand({5})).leaf(), at::ones({5}));
  const Tensor complex = at::complex(at::ones({2}), at::ones({2})).conj();
  EXPECT_TRUE(at::equal(round_trip(complex).leaf(), complex));
  Tensor weight = at::ones({2});
  weight.requires_grad_();
  EXPECT_FALSE(round_trip(weight).leaf().requires_grad());
}

TEST(NestMessage, CopiesATensorOnlyIfOthersHoldItAndTheCallerAsksForIt) {
  const Tensor held = at::ones({1000});
  Message kept, copied, sole;
  append_nest(Nest(held), "test", Sharing::kKeep, kept);
  EXPECT_EQ(kept.data[0].data, held.const_data_ptr());
  append_nest(Nest(held), "test", Sharing::kCopy, copied);
  EXPECT_NE(copied.data[0].data, held.const_data_ptr());
  Nest result(at::ones({1000}));
  const void* place = result.leaf().const_data_ptr();
  append_nest(result, "test", Sharing::kCopy, sole);
  EXPECT_EQ(sole.data[0].data, place);
}

TEST(NestMessage, OfATensorThatCannotBeIsRefused) {
  EXPECT_TENSOR_EQ(nest_of(tensor_message("bool", {2}, std::string("\0\1", 2))).leaf(),
                   at::tensor({0, 1}).to(at::kBool));
  const int64_t huge = int64_t{1} << 62;
  for (const Message& message : {tensor_message("bool", {2}, "\1\2"),
                                 tensor_message("float32", {huge}, "xxxx"),
                                 tensor_message("float32", {huge, huge}, ""),
                                 tensor_message("float32", {0, huge, huge}, ""),
                                 tensor_message("float32", {huge, huge, 0}, ""),
                                 tensor_message("float32", {-1}, "xxxx"),
                                 tensor_message("float32", {-1, -1}, "xxxx"),
                                 tensor_message("float32", {1}, "xxx"),
                                 tensor_message("float32", {1}, "xxxxx"),
                                 tensor_message("float32", {2}, "xxxx"),
                                 tensor_message("string", {0}, ""),
                                 tensor_message("float", {0}, ""),
                                 tensor_message("999", {0}, ""),
                                 tensor_message("", {0}, ""),
                                 tensor_message("int8", std::vector<int64_t>(65, 1), "x"),
                                 strings_message({huge}, ""),
                                 strings_message({0, huge, huge}, ""),
                                 strings_message({-1}, ""),
                                 strings_message({1}, "1234567"),
                                 strings_message({}, std::string(7, '\0') + "\x7f"),
                                 strings_message({}, std::string(9, '\0')),
                                 strings_message({1}, std::string("\2\0\0\0\0\0\0\0x", 9))}) {
    EXPECT_ERROR(nest_of(message), InvalidArgument, "remote message: ");
  }
  EXPECT_ERROR(nest_of(Message{}), InvalidArgument, "no nest");
}

TEST(NestMessage, OfWhatCannotBeSentIsRefused) {
  Message message;
  EXPECT_ERROR(append_nest(Nest(Tensor()), "Client.call [f]", Sharing::kKeep, message),
               InvalidArgument, "Client.call [f]: an undefined tensor");
  EXPECT_ERROR(append_nest(Nest(at::eye(2).to_sparse()), "test", Sharing::kKeep, message),
               InvalidArgument, "not dense");
}

}  // namespace
}  // namespace tutti::remote
