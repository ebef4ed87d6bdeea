// Messages of remote calls as bytes: what one side says the other reads, and nothing else is read.
#include "rpc/message.h"

#include <gtest/gtest.h>

#include "rpc/limits.h"
#include "support/expect_error.h"
#include "tutti/remote.pb.h"

namespace tutti::rpc {
namespace {

using remote::v1::Header;
using remote::v1::Node;

std::string text_of(const Pieces& pieces) {
  std::string text;
  for (const Piece& piece : pieces) text.append(piece.data, piece.size);
  return text;
}

MessageNode tensor(std::vector<int64_t> shape, uint64_t bytes) {
  MessageNode node;
  node.kind = NodeKind::kTensor;
  node.dtype = "float32";
  node.shape = std::move(shape);
  node.bytes = bytes;
  return node;
}
MessageNode inner(NodeKind kind, uint32_t items, std::vector<std::string> keys = {}) {
  MessageNode node;
  node.kind = kind;
  node.items = items;
  node.keys = std::move(keys);
  return node;
}

Message a_message() {
  Message message;
  message.method = "add";
  message.nodes = {inner(NodeKind::kTuple, 2), tensor({2}, 8), inner(NodeKind::kMap, 1, {"a"}),
                   tensor({}, 4)};
  message.data = {piece_of("12345678"), piece_of("abcd")};
  return message;
}

/// The wire's bytes with a header and data of any kind.
std::string wire(const Header& header, const std::string& data) {
  remote::v1::Message message;
  *message.mutable_header() = header;
  message.set_data(data);
  std::string bytes = message.SerializeAsString();
  if (data.empty()) bytes += std::string("\x12\0", 2);  // protobuf leaves an empty field out
  return bytes;
}
Message decoded(const std::string& bytes) { return decode_message({piece_of(bytes)}); }

TEST(RemoteMessage, IsProtobufsOwnEncoding) {
  const std::string bytes = text_of(encode_message(a_message(), "test"));
  remote::v1::Message parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  EXPECT_EQ(parsed.header().method(), "add");
  EXPECT_EQ(parsed.header().nodes_size(), 4);
  EXPECT_EQ(parsed.data(), "12345678abcd");
  EXPECT_EQ(text_of(decoded(parsed.SerializeAsString()).data), "12345678abcd");
}

TEST(RemoteMessage, SendsTensorsFromWhereTheyLieAndLeavesThemWhereTheyCame) {
  const Message message = a_message();
  const Pieces pieces = encode_message(message, "test");
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[1].data, message.data[0].data);
  EXPECT_EQ(pieces[2].data, message.data[1].data);
  const Message read = decode_message(pieces);
  ASSERT_EQ(read.data.size(), 2u);
  EXPECT_EQ(read.data[0].data, message.data[0].data);
  EXPECT_EQ(read.data[1].data, message.data[1].data);
}

TEST(RemoteMessage, IsReadWhereverItsBytesAreCut) {
  const std::string bytes = text_of(encode_message(a_message(), "test"));
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const Message read =
        decode_message({piece_of(bytes.substr(0, cut)), piece_of(bytes.substr(cut))});
    EXPECT_EQ(read.method, "add");
    ASSERT_EQ(read.nodes.size(), 4u);
    EXPECT_EQ(read.nodes[2].keys, std::vector<std::string>{"a"});
    EXPECT_EQ(text_of(read.data), "12345678abcd") << cut;
  }
}

TEST(RemoteMessage, CarriesAnErrorWithItsCode) {
  Message message;
  message.failure = {ErrorCode::kOutOfRange, "end of \xc3 sequence" + std::string(1 << 20, '.')};
  const Message read = decode_message(encode_message(message, "test"));
  ASSERT_TRUE(read.failure.has_value());
  EXPECT_EQ(read.failure->code, ErrorCode::kOutOfRange);
  EXPECT_EQ(read.failure->message.substr(0, 17), "end of \xc3 sequence");
  EXPECT_EQ(read.failure->message.size(), kMostFailureText);
}

TEST(RemoteMessage, WithEveryPrefixAndEveryChangedByteIsReadOrRefused) {
  const std::string bytes = text_of(encode_message(a_message(), "test"));
  for (std::size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_ERROR(decoded(bytes.substr(0, cut)), InvalidArgument, "remote message");
  EXPECT_ERROR(decoded(bytes + "x"), InvalidArgument, "remote message");
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      try {
        const Message read = decoded(changed);
        uint64_t said = 0;
        for (const MessageNode& node : read.nodes) said += node.bytes;
        EXPECT_EQ(said, size_of(read.data));
      } catch (const Error&) {
      }
    }
  }
}

TEST(RemoteMessage, OfNodesThatAreNoNestIsRefused) {
  const auto refused = [](const std::vector<MessageNode>& nodes, const std::string& data) {
    Message message;
    message.nodes = nodes;
    if (!data.empty()) message.data = {piece_of(data)};
    const std::string bytes = text_of(encode_message(message, "test"));
    EXPECT_ERROR(decoded(bytes), InvalidArgument, "remote message");
  };
  refused({tensor({2}, 8)}, "1234");                         // fewer bytes than declared
  refused({tensor({2}, 8)}, "123456789");                    // more
  refused({tensor({2}, ~uint64_t{0})}, "1");                 // far more
  refused({inner(NodeKind::kTuple, 2), tensor({}, 0)}, "");  // a child is missing
  refused({inner(NodeKind::kTuple, 4'000'000'000u)}, "");    // very many are
  refused({tensor({}, 0), tensor({}, 0)}, "");               // two nests
  refused({inner(NodeKind::kMap, 1), tensor({}, 0)}, "");    // a map without keys
  refused({inner(NodeKind::kMap, 2, {"b", "a"}), tensor({}, 0), tensor({}, 0)}, "");
  refused({inner(NodeKind::kTuple, 1, {"a"}), tensor({}, 0)}, "");  // a tuple with keys
  MessageNode leaf_with_children = tensor({}, 0);
  leaf_with_children.items = 1;
  refused({leaf_with_children, tensor({}, 0)}, "");
  refused(std::vector<MessageNode>(200, inner(NodeKind::kTuple, 1)), "");  // no end
  std::vector<MessageNode> deep(kDeepestNest + 1, inner(NodeKind::kList, 1));
  deep.push_back(tensor({}, 0));
  refused(deep, "");
}

TEST(RemoteMessage, OfAKindThatIsNotKnownIsRefused) {
  Header header;
  header.add_nodes()->set_kind(static_cast<Node::Kind>(999));
  EXPECT_ERROR(decoded(wire(header, "")), InvalidArgument, "a node of kind 999");
}

TEST(RemoteMessage, WithACodeThatIsNoneIsAnInternalError) {
  Header header;
  header.mutable_failure()->set_code(999);
  EXPECT_EQ(decoded(wire(header, "")).failure->code, ErrorCode::kInternal);
  header.mutable_failure()->set_code(-1);
  EXPECT_EQ(decoded(wire(header, "")).failure->code, ErrorCode::kInternal);
}

TEST(RemoteMessage, AboveTheCapsIsRefusedByTheSenderAndByTheReader) {
  Message message;
  message.nodes = {inner(NodeKind::kTuple, 300'000)};
  message.nodes.resize(300'001);
  EXPECT_ERROR(encode_message(message, "Client.call [add]"), ResourceExhausted,
               "Client.call [add]: a nest whose description takes");
  message.nodes = {tensor({1 << 24}, 1 << 26)};
  message.data = {piece_of(std::string(1 << 26, 'x'))};
  EXPECT_ERROR(encode_message(message, "Client.call [add]"), ResourceExhausted,
               "expected at most 67108864; send the tensors in parts");
  // A million fields, and a length of 2 GiB.
  Header header;
  for (int i = 0; i < 1'000'000; ++i) header.add_nodes();
  EXPECT_ERROR(decoded(wire(header, "")), ResourceExhausted, "a header of 2000000 bytes");
  EXPECT_ERROR(decoded(std::string("\x0a\xff\xff\xff\xff\x07", 6)), ResourceExhausted,
               "a header of 2147483647 bytes");
}

}  // namespace
}  // namespace tutti::rpc
