#pragma once
// A vocabulary and its indices, for strings and for integers: Keras' IndexLookup.
//
// Indices: the mask token (0, only with "int"), then those for what is not in the vocabulary, then
// the tokens.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "keras/layers/encoding.h"

namespace tutti::keras::layers {

template <class Key>
struct TableArguments {
  std::optional<int64_t> max_tokens;
  int64_t num_oov_indices = 1;
  std::optional<Key> mask_token;
  Key oov_token{};
  std::vector<Key> vocabulary;
  std::vector<double> idf_weights;
  bool invert = false;
  std::string output_mode = "int";
  bool pad_to_max_tokens = false;
  std::string oov_method = "farmhash";
  std::vector<int64_t> salt;
  std::string vocabulary_file;
};

/// Looking up is safe from any thread; all else is not while somebody looks up.
template <class Key>
class IndexTable {
 public:
  /// `layer`: whom messages name; it lives as long as the table.
  IndexTable(const LayerImpl& layer, TableArguments<Key> arguments);

  const TableArguments<Key>& arguments() const { return arguments_; }
  bool has_vocabulary() const { return known_; }
  /// What is known was learned, and may be learned anew.
  void mark_learned() { given_ = false; }
  int64_t vocabulary_size() const { return token_start() + static_cast<int64_t>(tokens_.size()); }
  std::vector<Key> vocabulary(bool include_special_tokens) const;
  void set_vocabulary(const std::vector<Key>& vocabulary, const std::vector<double>& idf_weights);
  /// Size of the last axis of encoded outputs; -1 while it is not known.
  int64_t depth() const;

  void begin_counting();
  void count_document(std::span<const Key> tokens);
  /// By falling count, equal ones by falling token, as Keras does.
  void finish_counting();

  /// -1: left out (the mask token, where the output is no index). InvalidArgument for a token
  /// outside the vocabulary where there are no indices for them.
  int64_t index_of(const Key& token) const;
  const Key& token_of(int64_t index) const;
  /// FailedPrecondition without a vocabulary.
  void check_known() const;
  /// int64 of these sizes, or as the output mode says.
  Tensor lookup(std::span<const Key> tokens, const std::vector<int64_t>& sizes) const;
  /// Indices (-1: left out) as the output mode, which is not "int", says.
  Tensor encoded(const Tensor& indices) const;

  void write(Json& json) const;

 private:
  int64_t oov_start() const {
    return arguments_.mask_token && arguments_.output_mode == "int" ? 1 : 0;
  }
  int64_t token_start() const { return oov_start() + arguments_.num_oov_indices; }
  std::vector<Key> special_tokens() const;
  void set_tokens(std::vector<Key> tokens);
  void set_idf(std::vector<double> weights);

  const LayerImpl& layer_;
  TableArguments<Key> arguments_;
  bool known_ = false;
  bool given_ = false;
  std::vector<Key> tokens_;
  std::unordered_map<Key, int64_t> indices_;
  std::vector<double> idf_;  ///< special tokens included
  Tensor idf_weights_;       ///< float32 [depth]
  std::unordered_map<Key, int64_t> counts_, document_counts_;
  int64_t num_documents_ = 0;
};

/// What a description says, for a table whose key is `Key`.
template <class Key>
void read_table(const Json& json, TableArguments<Key>& arguments);

extern template class IndexTable<std::string>;
extern template class IndexTable<int64_t>;
extern template void read_table(const Json&, TableArguments<std::string>&);
extern template void read_table(const Json&, TableArguments<int64_t>&);

/// The bucket of a text among `buckets`; `salt` empty: by its fingerprint.
int64_t hash_bucket(const std::string& text, int64_t buckets, const std::vector<int64_t>& salt);
/// A salt of none, one or two numbers; InvalidArgument otherwise.
void check_salt(const LayerImpl& layer, const std::vector<int64_t>& salt);
/// The strings of a dataset's element; bytes (uint8 vectors) are one string.
StringTensor strings_of(const LayerImpl& layer, const Nest& element);
/// JSON text; InvalidArgument for strings that are not UTF-8.
std::string dumped(const LayerImpl& layer, const Json& json);

}  // namespace tutti::keras::layers
