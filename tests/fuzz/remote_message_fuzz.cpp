// A message of a remote call: its nodes, and the nest that they and the data make.

#include "fuzz/target.h"
#include "remote/nest_message.h"
#include "rpc/message.h"

namespace tutti::fuzz {
namespace {

std::string text_of(const rpc::Pieces& pieces) {
  std::string text;
  for (const rpc::Piece& piece : pieces) text.append(piece.data, piece.size);
  return text;
}

}  // namespace

void read_input(std::string_view bytes) {
  // In two pieces, as they come from a socket.
  const std::size_t cut = bytes.size() / 3;
  const rpc::Message message =
      rpc::decode_message({rpc::piece_of(std::string(bytes.substr(0, cut))),
                           rpc::piece_of(std::string(bytes.substr(cut)))});
  if (message.failure || message.nodes.empty()) return;
  // What was read is said and read again without loss.
  rpc::Message again;
  again.method = message.method;
  remote::append_nest(remote::nest_of(message), "fuzz", remote::Sharing::kKeep, again);
  const std::string said = text_of(rpc::encode_message(again, "fuzz"));
  rpc::Message third;
  third.method = again.method;
  remote::append_nest(remote::nest_of(rpc::decode_message({rpc::piece_of(said)})), "fuzz",
                      remote::Sharing::kKeep, third);
  if (text_of(rpc::encode_message(third, "fuzz")) != said) std::abort();
}

}  // namespace tutti::fuzz
