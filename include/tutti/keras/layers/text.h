#pragma once
// Words and numbers → the indices by which a model knows them.
//
// Strings are StringTensors, which models do not take: call these layers in `dataset.map`, or on a
// StringTensor. A table is a copy in each process, read by all its replicas. `adapt` counts what it
// is given, a tensor or a dataset (tuples: their first component), `steps` elements of it or all,
// and keeps the tokens by falling frequency; call it outside replicas, before the layer is used.
// Configurations hold the vocabulary, so that a saved layer needs no adapt.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/data/dataset.h"
#include "tutti/keras/layer.h"
#include "tutti/tensor/string_tensor.h"

namespace tutti::keras::layers {

struct StringLookupOptions {
  /// Of the vocabulary, special tokens included; unset: no limit.
  std::optional<int64_t> max_tokens = std::nullopt;
  /// Indices for what is not in the vocabulary, in front of it; several are shared out by a hash.
  /// 0: such a token is InvalidArgument.
  int64_t num_oov_indices = 1;
  /// This token is index 0 ("int"), or left out.
  std::optional<std::string> mask_token = std::nullopt;
  std::string oov_token = "[UNK]";
  /// In order, with or without the special tokens in front; empty: adapt finds it.
  std::vector<std::string> vocabulary = {};
  std::vector<double> idf_weights = {};
  /// True: from indices to tokens.
  bool invert = false;
  /// "int" (int64), "one_hot", "multi_hot", "count" or "tf_idf" (float32; the last three for the
  /// last axis together).
  std::string output_mode = "int";
  bool pad_to_max_tokens = false;
  /// Keys of the hash, one for both or two.
  std::vector<int64_t> salt = {};
  std::string name = "";
  /// Instead of `vocabulary`: a file with one token a line, without special tokens.
  std::string vocabulary_file = "";
};
class StringLookup : public Layer {
 public:
  explicit StringLookup(const StringLookupOptions& options = {});
  /// Another layer's handle, made by layer_from_config, say; InvalidArgument for other classes.
  explicit StringLookup(const Layer& layer);
  /// FailedPrecondition before there is a vocabulary.
  Tensor operator()(const StringTensor& tokens) const;
  /// With `invert`.
  StringTensor operator()(const Tensor& indices) const;
  /// Each row is a document ("tf_idf"). InvalidArgument after a vocabulary was given.
  void adapt(const StringTensor& data) const;
  void adapt(const data::Dataset<Nest>& data, std::optional<int64_t> steps = std::nullopt) const;
  std::vector<std::string> get_vocabulary(bool include_special_tokens = true) const;
  void set_vocabulary(const std::vector<std::string>& vocabulary,
                      const std::vector<double>& idf_weights = {}) const;
  int64_t vocabulary_size() const;
};

struct IntegerLookupOptions {
  std::optional<int64_t> max_tokens = std::nullopt;
  /// Several are shared out by the remainder, or with a salt by a hash.
  int64_t num_oov_indices = 1;
  std::optional<int64_t> mask_token = std::nullopt;
  int64_t oov_token = -1;
  std::vector<int64_t> vocabulary = {};
  std::vector<double> idf_weights = {};
  bool invert = false;
  std::string output_mode = "int";
  bool pad_to_max_tokens = false;
  /// "floormod" or "farmhash".
  std::string oov_method = "floormod";
  std::vector<int64_t> salt = {};
  std::string name = "";
  Shape input_shape = {};
};
/// StringLookup for int64 tokens; a layer for models too. Looks up on the CPU.
class IntegerLookup : public Layer {
 public:
  explicit IntegerLookup(const IntegerLookupOptions& options = {});
  explicit IntegerLookup(const Layer& layer);
  void adapt(const Tensor& data) const;
  void adapt(const data::Dataset<Nest>& data, std::optional<int64_t> steps = std::nullopt) const;
  std::vector<int64_t> get_vocabulary(bool include_special_tokens = true) const;
  void set_vocabulary(const std::vector<int64_t>& vocabulary,
                      const std::vector<double>& idf_weights = {}) const;
  int64_t vocabulary_size() const;
};

struct HashingOptions {
  /// This value is bin 0, the others share the rest.
  std::optional<std::string> mask_value = std::nullopt;
  /// Keys, one for both or two: SipHash; empty: FarmHash's fingerprint.
  std::vector<int64_t> salt = {};
  /// "int" (int64), "one_hot", "multi_hot" or "count".
  std::string output_mode = "int";
  std::string name = "";
  Shape input_shape = {};
};
/// Strings, or integers by their decimal text (floats are cut), → one of num_bins bins, the same as
/// TensorFlow's and on every platform.
class Hashing : public Layer {
 public:
  explicit Hashing(int64_t num_bins, const HashingOptions& options = {});
  explicit Hashing(const Layer& layer);
  using Layer::operator();
  Tensor operator()(const StringTensor& values) const;
};

struct HashedCrossingOptions {
  /// "int" (int64) or "one_hot".
  std::string output_mode = "int";
  std::string name = "";
  Shape input_shape = {};
};
/// Two or more features, of strings or integers, → for each row the bin of their combination, one
/// of num_bins, the same as TensorFlow's. Each is a scalar, [batch] or [batch, 1], all alike
/// (InvalidArgument).
class HashedCrossing : public Layer {
 public:
  explicit HashedCrossing(int64_t num_bins, const HashedCrossingOptions& options = {});
  explicit HashedCrossing(const Layer& layer);
  using Layer::operator();
  /// The features as a tuple, a list or a map (by its keys' order), as an element of a dataset has
  /// them.
  Tensor operator()(const Nest& features) const;
};

struct TextVectorizationOptions {
  std::optional<int64_t> max_tokens = std::nullopt;
  /// "lower_and_strip_punctuation", "lower", "strip_punctuation" (all of ASCII) or "none".
  std::string standardize = "lower_and_strip_punctuation";
  /// "whitespace", "character" (of UTF-8) or "none".
  std::string split = "whitespace";
  /// Sizes of the word groups that are tokens: {1, 2} for Keras' 2. Empty: words are.
  std::vector<int64_t> ngrams = {};
  /// "int", "multi_hot", "count" or "tf_idf".
  std::string output_mode = "int";
  /// Rows of "int" are cut and filled with 0 to this length; unset: to the longest of the batch.
  std::optional<int64_t> output_sequence_length = std::nullopt;
  bool pad_to_max_tokens = false;
  std::vector<std::string> vocabulary = {};
  std::vector<double> idf_weights = {};
  std::string name = "";
  /// Instead of the words above: functions of the user's own. Such a layer has no configuration
  /// (Unimplemented).
  std::function<std::string(const std::string&)> standardize_function = {};
  std::function<std::vector<std::string>(const std::string&)> split_function = {};
};
/// Texts [batch] or [batch, 1], or one text → int64 [batch, tokens] (0 is padding, 1 stands for
/// what is not in the vocabulary), or float32 [batch, vocabulary].
class TextVectorization : public Layer {
 public:
  explicit TextVectorization(const TextVectorizationOptions& options = {});
  explicit TextVectorization(const Layer& layer);
  Tensor operator()(const StringTensor& texts) const;
  void adapt(const StringTensor& data) const;
  void adapt(const data::Dataset<Nest>& data, std::optional<int64_t> steps = std::nullopt) const;
  std::vector<std::string> get_vocabulary(bool include_special_tokens = true) const;
  void set_vocabulary(const std::vector<std::string>& vocabulary,
                      const std::vector<double>& idf_weights = {}) const;
  int64_t vocabulary_size() const;
};

}  // namespace tutti::keras::layers
