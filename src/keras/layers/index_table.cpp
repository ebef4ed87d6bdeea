#include "keras/layers/index_table.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <set>

#include "keras/layers/hashes.h"

namespace tutti::keras::layers {

int64_t hash_bucket(const std::string& text, int64_t buckets, const std::vector<int64_t>& salt) {
  const auto count = static_cast<uint64_t>(buckets);
  if (salt.empty()) return static_cast<int64_t>(fingerprint64(text) % count);
  return static_cast<int64_t>(
      sip_hash(text, {static_cast<uint64_t>(salt.front()), static_cast<uint64_t>(salt.back())}) %
      count);
}

void check_salt(const LayerImpl& layer, const std::vector<int64_t>& salt) {
  if (salt.size() > 2)
    throw InvalidArgument(
        cat(head(layer), "a salt of ", salt.size(), " numbers, expected one or two"));
}

StringTensor strings_of(const LayerImpl& layer, const Nest& element) {
  if (element.is_strings()) return element.strings();
  if (element.is_leaf() && element.leaf().defined() && element.leaf().dim() == 1 &&
      element.leaf().scalar_type() == at::kByte) {
    const Tensor bytes = element.leaf().contiguous();
    const auto* first = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
    return StringTensor(std::string(first, static_cast<std::size_t>(bytes.numel())));
  }
  throw InvalidArgument(
      cat("adapt [", layer.name(), "]: an element ", element.structure(), ", expected strings"));
}

std::string dumped(const LayerImpl& layer, const Json& json) {
  try {
    return json.dump();
  } catch (const Json::exception&) {
    throw InvalidArgument(cat("config [", layer.name(),
                              "]: a token that is not UTF-8, expected text; set the vocabulary "
                              "after loading instead"));
  }
}

namespace {

std::string text_of(const std::string& token) { return token; }
std::string text_of(int64_t token) { return std::to_string(token); }

std::vector<std::string> lines_of(const LayerImpl& layer, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw NotFound(cat(head(layer), "vocabulary file \"", path,
                       "\" cannot be opened, expected one token a line"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

}  // namespace

template <class Key>
IndexTable<Key>::IndexTable(const LayerImpl& layer, TableArguments<Key> arguments)
    : layer_(layer), arguments_(std::move(arguments)) {
  check_word(layer, "output_mode", arguments_.output_mode,
             {"int", "one_hot", "multi_hot", "count", "tf_idf"});
  check_word(layer, "oov_method", arguments_.oov_method, {"floormod", "farmhash"});
  check_salt(layer, arguments_.salt);
  const bool fits = (!arguments_.max_tokens || *arguments_.max_tokens > 1) &&
                    (arguments_.max_tokens || !arguments_.pad_to_max_tokens) &&
                    arguments_.num_oov_indices >= 0;
  if (!fits)
    throw InvalidArgument(cat(head(layer), "max_tokens ", arguments_.max_tokens.value_or(0),
                              ", pad_to_max_tokens and num_oov_indices ",
                              arguments_.num_oov_indices,
                              ", expected more than 1 or unset, only with max_tokens, and 0 or "
                              "more"));
  if (arguments_.invert && arguments_.output_mode != "int")
    throw InvalidArgument(cat(head(layer), "output_mode \"", arguments_.output_mode,
                              "\" with invert, expected \"int\""));
  if (!arguments_.vocabulary_file.empty()) {
    if (!arguments_.vocabulary.empty())
      throw InvalidArgument(
          cat(head(layer), "a vocabulary and a vocabulary file, expected one of them"));
    if constexpr (std::is_same_v<Key, std::string>)
      arguments_.vocabulary = lines_of(layer, arguments_.vocabulary_file);
  }
  if (arguments_.vocabulary.empty()) return;
  set_vocabulary(arguments_.vocabulary, arguments_.idf_weights);
  arguments_.vocabulary.clear();
  arguments_.idf_weights.clear();
}

template <class Key>
std::vector<Key> IndexTable<Key>::special_tokens() const {
  std::vector<Key> tokens;
  if (oov_start() == 1) tokens.push_back(*arguments_.mask_token);
  tokens.insert(tokens.end(), static_cast<std::size_t>(arguments_.num_oov_indices),
                arguments_.oov_token);
  return tokens;
}

template <class Key>
std::vector<Key> IndexTable<Key>::vocabulary(bool include_special_tokens) const {
  std::vector<Key> all = include_special_tokens ? special_tokens() : std::vector<Key>();
  all.insert(all.end(), tokens_.begin(), tokens_.end());
  return all;
}

template <class Key>
int64_t IndexTable<Key>::depth() const {
  if (arguments_.pad_to_max_tokens) return *arguments_.max_tokens;
  return known_ ? vocabulary_size() : -1;
}

template <class Key>
void IndexTable<Key>::set_tokens(std::vector<Key> tokens) {
  tokens_ = std::move(tokens);
  indices_.clear();
  for (std::size_t i = 0; i < tokens_.size(); ++i)
    indices_.emplace(tokens_[i], token_start() + static_cast<int64_t>(i));
  known_ = true;
}

template <class Key>
void IndexTable<Key>::set_idf(std::vector<double> weights) {
  idf_ = std::move(weights);
  std::vector<double> padded = idf_;
  if (arguments_.pad_to_max_tokens)
    padded.resize(static_cast<std::size_t>(*arguments_.max_tokens), 0);
  idf_weights_ = at::tensor(padded, at::kDouble).to(at::kFloat);
}

template <class Key>
void IndexTable<Key>::set_vocabulary(const std::vector<Key>& vocabulary,
                                     const std::vector<double>& idf_weights) {
  const auto fail = [&](const std::string& what) {
    throw InvalidArgument(cat("set_vocabulary [", layer_.name(), "]: ", what));
  };
  if (vocabulary.empty()) fail("an empty vocabulary, expected at least one token");
  const bool idf = arguments_.output_mode == "tf_idf";
  if (idf != !idf_weights.empty())
    fail(cat(idf_weights.size(), " idf weights with output_mode \"", arguments_.output_mode,
             "\", expected ", idf ? "one for each token" : "none"));
  if (idf && idf_weights.size() != vocabulary.size())
    fail(cat(idf_weights.size(), " idf weights for ", vocabulary.size(),
             " tokens, expected one each"));
  const std::vector<Key> special = special_tokens();
  const bool in_front = vocabulary.size() >= special.size() &&
                        std::equal(special.begin(), special.end(), vocabulary.begin());
  const auto skipped = static_cast<std::ptrdiff_t>(in_front ? special.size() : 0);
  std::vector<Key> tokens(vocabulary.begin() + skipped, vocabulary.end());
  std::set<Key> seen;
  for (const Key& token : tokens) {
    if (!seen.insert(token).second)
      fail(cat("token \"", text_of(token), "\" more than once, expected each once"));
    if ((arguments_.mask_token && token == *arguments_.mask_token) ||
        (arguments_.invert && token == arguments_.oov_token))
      fail(cat("the special token \"", text_of(token),
               "\" among the others, expected all special tokens in front, or none"));
  }
  const auto size = token_start() + static_cast<int64_t>(tokens.size());
  if (arguments_.max_tokens && size > *arguments_.max_tokens)
    fail(cat(size, " tokens, expected at most max_tokens, ", *arguments_.max_tokens));
  set_tokens(std::move(tokens));
  given_ = true;
  if (!idf) return;
  std::vector<double> weights = idf_weights;
  if (!in_front) {
    const double mean =
        std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(weights.size());
    weights.insert(weights.begin(), special.size(), mean);
  }
  set_idf(std::move(weights));
}

template <class Key>
void IndexTable<Key>::begin_counting() {
  check_adapts_here(layer_);
  if (given_)
    throw InvalidArgument(
        cat("adapt [", layer_.name(), "]: the vocabulary was given, expected a layer without one"));
  counts_.clear();
  document_counts_.clear();
  num_documents_ = 0;
}

template <class Key>
void IndexTable<Key>::count_document(std::span<const Key> tokens) {
  for (const Key& token : tokens) ++counts_[token];
  if (arguments_.output_mode == "tf_idf") {
    for (const Key& token : std::set<Key>(tokens.begin(), tokens.end())) ++document_counts_[token];
  }
  ++num_documents_;
}

template <class Key>
void IndexTable<Key>::finish_counting() {
  if (arguments_.mask_token) counts_.erase(*arguments_.mask_token);
  counts_.erase(arguments_.oov_token);
  std::vector<std::pair<int64_t, Key>> order;
  for (const auto& [token, count] : counts_) order.emplace_back(count, token);
  std::sort(order.rbegin(), order.rend());
  if (arguments_.max_tokens) {
    const int64_t most = std::max<int64_t>(0, *arguments_.max_tokens - token_start());
    if (order.size() > static_cast<std::size_t>(most)) order.resize(static_cast<std::size_t>(most));
  }
  std::vector<Key> tokens;
  for (auto& [count, token] : order) tokens.push_back(token);
  if (arguments_.output_mode == "tf_idf") {
    std::vector<double> weights;
    for (const Key& token : tokens) {
      const auto documents = static_cast<double>(1 + document_counts_[token]);
      weights.push_back(std::log(1 + static_cast<double>(num_documents_) / documents));
    }
    const double mean = weights.empty() ? 0
                                        : std::accumulate(weights.begin(), weights.end(), 0.0) /
                                              static_cast<double>(weights.size());
    weights.insert(weights.begin(), static_cast<std::size_t>(token_start()), mean);
    set_idf(std::move(weights));
  }
  set_tokens(std::move(tokens));
  counts_.clear();
  document_counts_.clear();
}

template <class Key>
void IndexTable<Key>::check_known() const {
  if (!known_)
    throw FailedPrecondition(
        cat(head(layer_), "no vocabulary yet, expected one given, or a call of adapt before"));
}

template <class Key>
int64_t IndexTable<Key>::index_of(const Key& token) const {
  if (arguments_.mask_token && token == *arguments_.mask_token)
    return arguments_.output_mode == "int" ? 0 : -1;
  const auto found = indices_.find(token);
  if (found != indices_.end()) return found->second;
  const int64_t others = arguments_.num_oov_indices;
  if (others == 1) return oov_start();
  if (others == 0)
    throw InvalidArgument(cat(head(layer_), "token \"", text_of(token),
                              "\" is not in the vocabulary, and num_oov_indices is 0; expected a "
                              "token of the vocabulary"));
  if constexpr (std::is_same_v<Key, int64_t>) {
    if (arguments_.oov_method == "floormod")
      return oov_start() + ((token % others) + others) % others;
  }
  return oov_start() + hash_bucket(text_of(token), others, arguments_.salt);
}

template <class Key>
const Key& IndexTable<Key>::token_of(int64_t index) const {
  if (index == 0 && oov_start() == 1) return *arguments_.mask_token;
  const int64_t at = index - token_start();
  return at >= 0 && at < static_cast<int64_t>(tokens_.size())
             ? tokens_[static_cast<std::size_t>(at)]
             : arguments_.oov_token;
}

template <class Key>
Tensor IndexTable<Key>::lookup(std::span<const Key> tokens,
                               const std::vector<int64_t>& sizes) const {
  check_known();
  Tensor indices = at::empty(sizes, at::kLong);
  auto* out = indices.mutable_data_ptr<int64_t>();
  for (const Key& token : tokens) *out++ = index_of(token);
  return arguments_.output_mode == "int" ? indices : encoded(indices);
}

template <class Key>
Tensor IndexTable<Key>::encoded(const Tensor& indices) const {
  const bool idf = arguments_.output_mode == "tf_idf";
  const Tensor result =
      encode_categories(indices, idf ? "count" : arguments_.output_mode, depth(), at::kFloat);
  return idf ? result * idf_weights_ : result;
}

template <class Key>
void IndexTable<Key>::write(Json& json) const {
  put(json, "max_tokens", arguments_.max_tokens);
  put(json, "mask_token", arguments_.mask_token);
  json.update({{"num_oov_indices", arguments_.num_oov_indices},
               {"oov_token", arguments_.oov_token},
               {"invert", arguments_.invert},
               {"output_mode", arguments_.output_mode},
               {"pad_to_max_tokens", arguments_.pad_to_max_tokens},
               {"oov_method", arguments_.oov_method}});
  if (!arguments_.salt.empty()) json["salt"] = arguments_.salt;
  if (!known_) return;
  json["vocabulary"] = vocabulary(true);
  json["has_input_vocabulary"] = given_;
  if (!idf_.empty()) json["idf_weights"] = idf_;
}

template <class Key>
void read_table(const Json& json, TableArguments<Key>& arguments) {
  arguments.max_tokens = optional_member<int64_t>(json, "max_tokens");
  arguments.num_oov_indices = member<int64_t>(json, "num_oov_indices", 1);
  arguments.mask_token = optional_member<Key>(json, "mask_token");
  arguments.oov_token = member<Key>(json, "oov_token", arguments.oov_token);
  arguments.vocabulary = member<std::vector<Key>>(json, "vocabulary", {});
  arguments.idf_weights = flat_numbers(json, "idf_weights");
  arguments.invert = member<bool>(json, "invert", false);
  arguments.output_mode = member<std::string>(json, "output_mode", "int");
  arguments.pad_to_max_tokens = member<bool>(json, "pad_to_max_tokens", false);
  arguments.oov_method = member<std::string>(json, "oov_method", arguments.oov_method);
  arguments.salt = integers(json, "salt");
}

template class IndexTable<std::string>;
template class IndexTable<int64_t>;
template void read_table(const Json&, TableArguments<std::string>&);
template void read_table(const Json&, TableArguments<int64_t>&);

}  // namespace tutti::keras::layers
