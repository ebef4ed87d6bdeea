#include <algorithm>

#include "keras/layers/index_table.h"
#include "tutti/keras/layers/text.h"

namespace tutti::keras::layers {
namespace {

using Words = std::vector<std::string>;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_punctuation(char c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

Words words_of(const std::string& text) {
  Words words;
  std::string word;
  for (char c : text) {
    if (!is_space(c)) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

/// Bytes of the UTF-8 character at the beginning; 0: there is no valid one.
std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t size = first < 0x80                    ? 1
                           : first >= 0xC2 && first < 0xE0 ? 2
                           : first >= 0xE0 && first < 0xF0 ? 3
                           : first >= 0xF0 && first < 0xF5 ? 4
                                                           : 0;
  if (size == 0 || size > text.size()) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool no_character =
      (first == 0xED && byte(1) >= 0xA0) || (first == 0xF4 && byte(1) >= 0x90);
  return overlong || no_character ? 0 : size;
}

/// Each byte that is part of none becomes U+FFFD.
Words characters_of(const std::string& text) {
  Words characters;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = character_size(std::string_view(text).substr(at));
    characters.push_back(size == 0 ? "\xEF\xBF\xBD" : text.substr(at, size));
    at += std::max<std::size_t>(size, 1);
  }
  return characters;
}

/// For each size in turn, the groups of so many words.
Words grouped(const Words& words, const std::vector<int64_t>& sizes) {
  Words groups;
  for (int64_t size : sizes) {
    const auto width = static_cast<std::size_t>(size);
    for (std::size_t first = 0; first + width <= words.size(); ++first) {
      std::string group = words[first];
      for (std::size_t i = 1; i < width; ++i) group += " " + words[first + i];
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

class TextVectorizationImpl : public LayerImpl {
 public:
  explicit TextVectorizationImpl(const TextVectorizationOptions& options)
      : LayerImpl("TextVectorization", options.name, {}),
        options_(options),
        table_(*this, arguments_of(options)) {
    check_word(*this, "standardize", options.standardize,
               {"lower_and_strip_punctuation", "lower", "strip_punctuation", "none"});
    check_word(*this, "split", options.split, {"whitespace", "character", "none"});
    check_word(*this, "output_mode", options.output_mode, {"int", "multi_hot", "count", "tf_idf"});
    for (int64_t size : options.ngrams) check_count(*this, "ngrams", size);
    if (!options.output_sequence_length) return;
    check_count(*this, "output_sequence_length", *options.output_sequence_length);
    if (options.output_mode != "int")
      throw InvalidArgument(cat(head(*this), "output_sequence_length with output_mode \"",
                                options.output_mode, "\", expected \"int\""));
  }
  std::string class_name() const override { return "TextVectorization"; }
  std::string config() const override {
    if (options_.standardize_function || options_.split_function)
      throw Unimplemented(cat("config [", name(),
                              "]: a layer with functions of the user's own, expected one without; "
                              "make it in code and set its vocabulary"));
    Json json = base_config(*this);
    table_.write(json);
    for (const char* own : {"invert", "mask_token", "oov_token", "num_oov_indices", "oov_method"})
      json.erase(own);
    json.update({{"standardize", options_.standardize}, {"split", options_.split}});
    if (!options_.ngrams.empty()) json["ngrams"] = options_.ngrams;
    put(json, "output_sequence_length", options_.output_sequence_length);
    return dumped(*this, json);
  }
  Shape compute_output_shape(const Shape& input) const override {
    Shape output(input.begin(), input.begin() + std::min<std::ptrdiff_t>(1, std::ssize(input)));
    output.push_back(options_.output_mode == "int" ? options_.output_sequence_length.value_or(-1)
                                                   : table_.depth());
    return output;
  }
  IndexTable<std::string>& table() { return table_; }

  void count(const StringTensor& texts) {
    for (const Words& row : rows_of(texts)) table_.count_document(row);
  }
  Tensor vectors(const StringTensor& texts) const {
    table_.check_known();
    const std::vector<Words> rows = rows_of(texts);
    std::size_t longest = 0;
    for (const Words& row : rows) longest = std::max(longest, row.size());
    const bool as_int = options_.output_mode == "int";
    const int64_t length =
        as_int ? options_.output_sequence_length.value_or(static_cast<int64_t>(longest))
               : static_cast<int64_t>(longest);
    // 0 is padding; where indices are counted, padding is left out.
    Tensor indices =
        at::full({static_cast<int64_t>(rows.size()), length}, as_int ? 0 : -1, at::kLong);
    auto* out = indices.mutable_data_ptr<int64_t>();
    for (const Words& row : rows) {
      const std::size_t used = std::min(row.size(), static_cast<std::size_t>(length));
      for (std::size_t i = 0; i < used; ++i) out[i] = table_.index_of(row[i]);
      out += length;
    }
    const Tensor result = as_int ? indices : table_.encoded(indices);
    return texts.dim() == 0 ? result.squeeze(0) : result;
  }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    throw InvalidArgument(
        cat(head(*this),
            "called on a tensor, expected strings, which models do not take; call "
            "it on a StringTensor in dataset.map"));
  }

 private:
  static TableArguments<std::string> arguments_of(const TextVectorizationOptions& options) {
    TableArguments<std::string> arguments;
    arguments.max_tokens = options.max_tokens;
    arguments.mask_token = "";
    arguments.oov_token = "[UNK]";
    arguments.vocabulary = options.vocabulary;
    arguments.idf_weights = options.idf_weights;
    arguments.output_mode = options.output_mode;
    arguments.pad_to_max_tokens = options.pad_to_max_tokens;
    return arguments;
  }
  std::string standardized(const std::string& text) const {
    if (options_.standardize_function) return options_.standardize_function(text);
    const bool lower = options_.standardize.rfind("lower", 0) == 0;
    const bool strip = options_.standardize.find("strip") != std::string::npos;
    if (!lower && !strip) return text;
    std::string result;
    result.reserve(text.size());
    for (char c : text) {
      if (strip && is_punctuation(c)) continue;
      result += lower && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return result;
  }
  Words tokens_of(const std::string& text) const {
    const std::string standard = standardized(text);
    Words words = options_.split_function          ? options_.split_function(standard)
                  : options_.split == "whitespace" ? words_of(standard)
                  : options_.split == "character"  ? characters_of(standard)
                                                   : Words{standard};
    return options_.ngrams.empty() ? words : grouped(words, options_.ngrams);
  }
  /// The tokens of each text; without splitting the texts of a row are its words.
  std::vector<Words> rows_of(const StringTensor& texts) const {
    const bool splits = options_.split != "none" || options_.split_function;
    if (texts.dim() > 2 || (splits && texts.dim() == 2 && texts.size(1) != 1))
      throw InvalidArgument(cat(head(*this), "strings of shape ", shape_text(texts.sizes()),
                                ", expected (batch) or (batch, 1)"));
    std::vector<Words> rows;
    if (splits || texts.dim() < 2) {
      for (const std::string& text : texts.values()) rows.push_back(tokens_of(text));
      return rows;
    }
    const auto width = static_cast<std::size_t>(texts.size(1));
    for (int64_t i = 0; i < texts.size(0); ++i) {
      Words words;
      for (const std::string& text :
           texts.values().subspan(static_cast<std::size_t>(i) * width, width))
        words.push_back(standardized(text));
      rows.push_back(options_.ngrams.empty() ? words : grouped(words, options_.ngrams));
    }
    return rows;
  }

  TextVectorizationOptions options_;
  IndexTable<std::string> table_;
};

TextVectorizationImpl& vectorization(const Layer& layer) {
  return impl_of<TextVectorizationImpl>(layer, "TextVectorization");
}

/// Keras' ngrams: a number n stands for 1 … n.
std::vector<int64_t> ngrams_from(const Json& json) {
  const auto found = json.find("ngrams");
  if (found == json.end() || !found->is_number_integer()) return integers(json, "ngrams");
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= found->get<int64_t>(); ++size) sizes.push_back(size);
  return sizes;
}

Layer vectorization_from(const Json& json, const LayerBase& base) {
  TableArguments<std::string> arguments;
  read_table(json, arguments);
  TextVectorizationOptions options;
  options.max_tokens = arguments.max_tokens;
  options.standardize = optional_member<std::string>(json, "standardize").value_or("none");
  if (!json.contains("standardize")) options.standardize = "lower_and_strip_punctuation";
  options.split = optional_member<std::string>(json, "split").value_or("none");
  if (!json.contains("split")) options.split = "whitespace";
  options.ngrams = ngrams_from(json);
  options.output_mode = arguments.output_mode;
  options.output_sequence_length = optional_member<int64_t>(json, "output_sequence_length");
  options.pad_to_max_tokens = arguments.pad_to_max_tokens;
  options.vocabulary = arguments.vocabulary;
  options.idf_weights = arguments.idf_weights;
  options.name = base.name;
  const TextVectorization layer(options);
  if (!member<bool>(json, "has_input_vocabulary", true))
    vectorization(layer).table().mark_learned();
  return layer;
}

constexpr LayerEntry kTextLayers[] = {{"TextVectorization", vectorization_from}};

}  // namespace

TextVectorization::TextVectorization(const TextVectorizationOptions& options)
    : Layer(std::make_shared<TextVectorizationImpl>(options)) {}
TextVectorization::TextVectorization(const Layer& layer) : Layer(layer) { vectorization(layer); }
Tensor TextVectorization::operator()(const StringTensor& texts) const {
  return vectorization(*this).vectors(texts);
}
void TextVectorization::adapt(const StringTensor& data) const {
  TextVectorizationImpl& impl = vectorization(*this);
  impl.table().begin_counting();
  impl.count(data);
  impl.table().finish_counting();
}
void TextVectorization::adapt(const data::Dataset<Nest>& data, std::optional<int64_t> steps) const {
  TextVectorizationImpl& impl = vectorization(*this);
  impl.table().begin_counting();
  for_each_batch(impl, data, steps,
                 [&](const Nest& element) { impl.count(strings_of(impl, element)); });
  impl.table().finish_counting();
}
std::vector<std::string> TextVectorization::get_vocabulary(bool include_special_tokens) const {
  return vectorization(*this).table().vocabulary(include_special_tokens);
}
void TextVectorization::set_vocabulary(const std::vector<std::string>& vocabulary,
                                       const std::vector<double>& idf_weights) const {
  vectorization(*this).table().set_vocabulary(vocabulary, idf_weights);
}
int64_t TextVectorization::vocabulary_size() const {
  return vectorization(*this).table().vocabulary_size();
}

LayerFamily text_layers() { return kTextLayers; }

}  // namespace tutti::keras::layers
