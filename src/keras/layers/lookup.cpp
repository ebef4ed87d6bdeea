// StringLookup, IntegerLookup, Hashing and HashedCrossing.

#include "keras/layers/hashes.h"
#include "keras/layers/index_table.h"
#include "tutti/keras/layers/text.h"

namespace tutti::keras::layers {
namespace {

std::vector<int64_t> tokens_of(const Tensor& data) {
  const Tensor whole = data.to(at::kCPU, at::kLong).contiguous();
  const auto* first = whole.const_data_ptr<int64_t>();
  return {first, first + whole.numel()};
}
/// What an element of a dataset counts as: each row is a document; one without rows is one.
int64_t num_documents(at::IntArrayRef sizes) { return sizes.size() < 2 ? 1 : sizes[0]; }

template <class Key>
void count_rows(IndexTable<Key>& table, std::span<const Key> tokens, int64_t documents) {
  if (documents == 0) return;
  const std::size_t width = tokens.size() / static_cast<std::size_t>(documents);
  for (int64_t i = 0; i < documents; ++i)
    table.count_document(tokens.subspan(static_cast<std::size_t>(i) * width, width));
}

// ---- StringLookup

class StringLookupImpl : public LayerImpl {
 public:
  explicit StringLookupImpl(const StringLookupOptions& options)
      : LayerImpl("StringLookup", options.name, {}), table_(*this, arguments_of(options)) {}
  std::string class_name() const override { return "StringLookup"; }
  std::string config() const override {
    Json json = base_config(*this);
    table_.write(json);
    return dumped(*this, json);
  }
  Shape compute_output_shape(const Shape& input) const override {
    return encoded_shape(input, table_.arguments().output_mode, table_.depth());
  }
  IndexTable<std::string>& table() { return table_; }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    throw InvalidArgument(
        cat(head(*this),
            "called on a tensor, expected strings, which models do not take; call "
            "it on a StringTensor in dataset.map"));
  }

 private:
  static TableArguments<std::string> arguments_of(const StringLookupOptions& options) {
    TableArguments<std::string> arguments;
    arguments.max_tokens = options.max_tokens;
    arguments.num_oov_indices = options.num_oov_indices;
    arguments.mask_token = options.mask_token;
    arguments.oov_token = options.oov_token;
    arguments.vocabulary = options.vocabulary;
    arguments.idf_weights = options.idf_weights;
    arguments.invert = options.invert;
    arguments.output_mode = options.output_mode;
    arguments.pad_to_max_tokens = options.pad_to_max_tokens;
    arguments.salt = options.salt;
    arguments.vocabulary_file = options.vocabulary_file;
    return arguments;
  }
  IndexTable<std::string> table_;
};

// ---- IntegerLookup

class IntegerLookupImpl : public LayerImpl {
 public:
  explicit IntegerLookupImpl(const IntegerLookupOptions& options)
      : LayerImpl("IntegerLookup", options.name, options.input_shape),
        table_(*this, arguments_of(options)) {
    if (!options.salt.empty() && options.oov_method != "farmhash")
      throw InvalidArgument(cat(head(*this), "a salt with oov_method \"", options.oov_method,
                                "\", expected \"farmhash\""));
  }
  std::string class_name() const override { return "IntegerLookup"; }
  std::string config() const override {
    Json json = base_config(*this);
    table_.write(json);
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    return encoded_shape(input, table_.arguments().output_mode, table_.depth());
  }
  IndexTable<int64_t>& table() { return table_; }

 protected:
  bool autocasts() const override { return false; }
  Tensor call(const Tensor& input, bool training) override {
    table_.check_known();
    const std::vector<int64_t> tokens = tokens_of(input);
    if (!table_.arguments().invert)
      return table_.lookup(tokens, input.sizes().vec()).to(input.device());
    Tensor found = at::empty(input.sizes(), at::kLong);
    auto* out = found.mutable_data_ptr<int64_t>();
    for (int64_t index : tokens) *out++ = table_.token_of(index);
    return found.to(input.device());
  }

 private:
  static TableArguments<int64_t> arguments_of(const IntegerLookupOptions& options) {
    TableArguments<int64_t> arguments;
    arguments.max_tokens = options.max_tokens;
    arguments.num_oov_indices = options.num_oov_indices;
    arguments.mask_token = options.mask_token;
    arguments.oov_token = options.oov_token;
    arguments.vocabulary = options.vocabulary;
    arguments.idf_weights = options.idf_weights;
    arguments.invert = options.invert;
    arguments.output_mode = options.output_mode;
    arguments.pad_to_max_tokens = options.pad_to_max_tokens;
    arguments.oov_method = options.oov_method;
    arguments.salt = options.salt;
    return arguments;
  }
  IndexTable<int64_t> table_;
};

// ---- Hashing

class HashingImpl : public LayerImpl {
 public:
  HashingImpl(int64_t num_bins, const HashingOptions& options)
      : LayerImpl("Hashing", options.name, options.input_shape),
        num_bins_(num_bins),
        options_(options) {
    check_count(*this, "num_bins", num_bins);
    check_word(*this, "output_mode", options.output_mode, {"int", "one_hot", "multi_hot", "count"});
    check_salt(*this, options.salt);
  }
  std::string class_name() const override { return "Hashing"; }
  std::string config() const override {
    Json json = base_config(*this);
    json["num_bins"] = num_bins_;
    put(json, "mask_value", options_.mask_value);
    if (!options_.salt.empty()) json["salt"] = options_.salt;
    json["output_mode"] = options_.output_mode;
    return dumped(*this, json);
  }
  Shape compute_output_shape(const Shape& input) const override {
    return encoded_shape(input, options_.output_mode, num_bins_);
  }
  Tensor hashed(const StringTensor& values) const {
    Tensor bins = at::empty(values.sizes(), at::kLong);
    auto* out = bins.mutable_data_ptr<int64_t>();
    for (const std::string& value : values.values()) *out++ = bin_of(value);
    return as_output(bins);
  }

 protected:
  bool autocasts() const override { return false; }
  Tensor call(const Tensor& input, bool training) override {
    Tensor bins = at::empty(input.sizes(), at::kLong);
    auto* out = bins.mutable_data_ptr<int64_t>();
    for (int64_t value : tokens_of(input)) *out++ = bin_of(std::to_string(value));
    return as_output(bins).to(input.device());
  }

 private:
  /// Bin 0 is the mask's, where there is one and more than one bin.
  int64_t bin_of(const std::string& value) const {
    const bool masks = options_.mask_value && num_bins_ > 1;
    if (masks && value == *options_.mask_value) return 0;
    return hash_bucket(value, num_bins_ - (masks ? 1 : 0), options_.salt) + (masks ? 1 : 0);
  }
  Tensor as_output(const Tensor& bins) const {
    return options_.output_mode == "int"
               ? bins
               : encode_categories(bins, options_.output_mode, num_bins_, at::kFloat);
  }

  int64_t num_bins_;
  HashingOptions options_;
};

// ---- HashedCrossing

class HashedCrossingImpl : public LayerImpl {
 public:
  HashedCrossingImpl(int64_t num_bins, const HashedCrossingOptions& options)
      : LayerImpl("HashedCrossing", options.name, options.input_shape),
        num_bins_(num_bins),
        mode_(options.output_mode) {
    check_count(*this, "num_bins", num_bins);
    check_word(*this, "output_mode", mode_, {"int", "one_hot"});
  }
  std::string class_name() const override { return "HashedCrossing"; }
  std::string config() const override {
    Json json = base_config(*this);
    json.update({{"num_bins", num_bins_}, {"output_mode", mode_}});
    return json.dump();
  }
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override {
    if (inputs.size() < 2)
      throw InvalidArgument(cat(head(*this), inputs.size(), " features, expected at least two"));
    for (const Shape& input : inputs) {
      if (input != inputs[0] || input.size() > 2 || (input.size() == 2 && input[1] != 1))
        throw InvalidArgument(cat(head(*this), "features of shapes ", shape_text(inputs[0]),
                                  " and ", shape_text(input),
                                  ", expected all of one shape: (), (batch) or (batch, 1)"));
    }
    return {encoded_shape(inputs[0], mode_, num_bins_)};
  }
  Tensor crossed(const std::vector<Nest>& features) const {
    std::vector<Shape> shapes;
    for (const Nest& feature : features) {
      if (!feature.is_strings() && !(feature.is_leaf() && feature.leaf().defined()))
        throw InvalidArgument(
            cat(head(*this), "a feature ", feature.structure(), ", expected strings or integers"));
      shapes.push_back(feature.is_strings() ? feature.strings().sizes()
                                            : feature.leaf().sizes().vec());
    }
    compute_output_shapes(shapes);
    // TensorFlow's key, and then one feature after the other.
    constexpr uint64_t kKey = 0xDECAFCAFFE;
    Tensor bins = at::empty(shapes[0], at::kLong);
    std::vector<uint64_t> hashes(static_cast<std::size_t>(bins.numel()), kKey);
    for (const Nest& feature : features) add(hashes, feature);
    auto* out = bins.mutable_data_ptr<int64_t>();
    for (uint64_t hash : hashes)
      *out++ = static_cast<int64_t>(hash % static_cast<uint64_t>(num_bins_));
    return mode_ == "int" ? bins : encode_categories(bins, mode_, num_bins_, at::kFloat);
  }

 protected:
  bool autocasts() const override { return false; }
  void build_all(const std::vector<Shape>& inputs) override {}
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) override {
    return {crossed({inputs.begin(), inputs.end()}).to(inputs.at(0).device())};
  }

 private:
  void add(std::vector<uint64_t>& hashes, const Nest& feature) const {
    std::size_t at = 0;
    const auto next = [&](uint64_t hash) {
      hashes[at] = fingerprint_cat64(hashes[at], hash);
      ++at;
    };
    if (feature.is_strings()) {
      for (const std::string& value : feature.strings().values()) next(fingerprint64(value));
      return;
    }
    if (!at::isIntegralType(feature.leaf().scalar_type(), /*includeBool=*/false))
      throw InvalidArgument(cat(head(*this), "a feature of dtype ",
                                c10::toString(feature.leaf().scalar_type()),
                                ", expected integers or strings"));
    for (int64_t value : tokens_of(feature.leaf())) next(static_cast<uint64_t>(value));
  }

  int64_t num_bins_;
  std::string mode_;
};

// ---- from descriptions

template <class Options, class Key>
Options table_options(const Json& json, const LayerBase& base) {
  Options options;
  TableArguments<Key> arguments;
  arguments.oov_token = options.oov_token;
  if constexpr (requires { options.oov_method; }) arguments.oov_method = options.oov_method;
  read_table(json, arguments);
  options.max_tokens = arguments.max_tokens;
  options.num_oov_indices = arguments.num_oov_indices;
  options.mask_token = arguments.mask_token;
  options.oov_token = arguments.oov_token;
  options.vocabulary = arguments.vocabulary;
  options.idf_weights = arguments.idf_weights;
  options.invert = arguments.invert;
  options.output_mode = arguments.output_mode;
  options.pad_to_max_tokens = arguments.pad_to_max_tokens;
  if constexpr (requires { options.oov_method; }) options.oov_method = arguments.oov_method;
  options.salt = arguments.salt;
  options.name = base.name;
  return options;
}
StringLookupImpl& string_lookup(const Layer& layer) {
  return impl_of<StringLookupImpl>(layer, "StringLookup");
}
IntegerLookupImpl& integer_lookup(const Layer& layer) {
  return impl_of<IntegerLookupImpl>(layer, "IntegerLookup");
}
HashingImpl& hashing(const Layer& layer) { return impl_of<HashingImpl>(layer, "Hashing"); }

Layer string_lookup_from(const Json& json, const LayerBase& base) {
  const StringLookup layer(table_options<StringLookupOptions, std::string>(json, base));
  if (!member<bool>(json, "has_input_vocabulary", true))
    string_lookup(layer).table().mark_learned();
  return layer;
}
Layer integer_lookup_from(const Json& json, const LayerBase& base) {
  auto options = table_options<IntegerLookupOptions, int64_t>(json, base);
  options.input_shape = base.input_shape;
  const IntegerLookup layer(options);
  if (!member<bool>(json, "has_input_vocabulary", true))
    integer_lookup(layer).table().mark_learned();
  return layer;
}
Layer hashing_from(const Json& json, const LayerBase& base) {
  return Hashing(member<int64_t>(json, "num_bins", 0),
                 {optional_member<std::string>(json, "mask_value"), integers(json, "salt"),
                  member<std::string>(json, "output_mode", "int"), base.name, base.input_shape});
}

HashedCrossingImpl& crossing(const Layer& layer) {
  return impl_of<HashedCrossingImpl>(layer, "HashedCrossing");
}
Layer crossing_from(const Json& json, const LayerBase& base) {
  return HashedCrossing(
      member<int64_t>(json, "num_bins", 0),
      {member<std::string>(json, "output_mode", "int"), base.name, base.input_shape});
}

constexpr LayerEntry kLookupLayers[] = {{"StringLookup", string_lookup_from},
                                        {"IntegerLookup", integer_lookup_from},
                                        {"Hashing", hashing_from},
                                        {"HashedCrossing", crossing_from}};

}  // namespace

StringLookup::StringLookup(const StringLookupOptions& options)
    : Layer(std::make_shared<StringLookupImpl>(options)) {}
StringLookup::StringLookup(const Layer& layer) : Layer(layer) { string_lookup(layer); }
Tensor StringLookup::operator()(const StringTensor& tokens) const {
  const IndexTable<std::string>& table = string_lookup(*this).table();
  if (table.arguments().invert)
    throw InvalidArgument(cat(head(*impl()), "strings with invert, expected indices"));
  return table.lookup(tokens.values(), tokens.sizes());
}
StringTensor StringLookup::operator()(const Tensor& indices) const {
  const IndexTable<std::string>& table = string_lookup(*this).table();
  if (!table.arguments().invert)
    throw InvalidArgument(cat(head(*impl()), "indices without invert, expected strings"));
  table.check_known();
  std::vector<std::string> tokens;
  for (int64_t index : tokens_of(indices)) tokens.push_back(table.token_of(index));
  return {std::move(tokens), indices.sizes().vec()};
}
void StringLookup::adapt(const StringTensor& data) const {
  IndexTable<std::string>& table = string_lookup(*this).table();
  table.begin_counting();
  const std::vector<int64_t>& sizes = data.sizes();
  count_rows<std::string>(table, data.values(), sizes.empty() ? 1 : sizes[0]);
  table.finish_counting();
}
void StringLookup::adapt(const data::Dataset<Nest>& data, std::optional<int64_t> steps) const {
  IndexTable<std::string>& table = string_lookup(*this).table();
  table.begin_counting();
  for_each_batch(*impl(), data, steps, [&](const Nest& element) {
    const StringTensor batch = strings_of(*impl(), element);
    count_rows<std::string>(table, batch.values(), num_documents(batch.sizes()));
  });
  table.finish_counting();
}
std::vector<std::string> StringLookup::get_vocabulary(bool include_special_tokens) const {
  return string_lookup(*this).table().vocabulary(include_special_tokens);
}
void StringLookup::set_vocabulary(const std::vector<std::string>& vocabulary,
                                  const std::vector<double>& idf_weights) const {
  string_lookup(*this).table().set_vocabulary(vocabulary, idf_weights);
}
int64_t StringLookup::vocabulary_size() const {
  return string_lookup(*this).table().vocabulary_size();
}

IntegerLookup::IntegerLookup(const IntegerLookupOptions& options)
    : Layer(std::make_shared<IntegerLookupImpl>(options)) {}
IntegerLookup::IntegerLookup(const Layer& layer) : Layer(layer) { integer_lookup(layer); }
void IntegerLookup::adapt(const Tensor& data) const {
  if (!data.defined())
    throw InvalidArgument(cat("adapt [", impl()->name(), "]: an undefined tensor, expected data"));
  IndexTable<int64_t>& table = integer_lookup(*this).table();
  table.begin_counting();
  count_rows<int64_t>(table, tokens_of(data), data.dim() == 0 ? 1 : data.size(0));
  table.finish_counting();
}
void IntegerLookup::adapt(const data::Dataset<Nest>& data, std::optional<int64_t> steps) const {
  IndexTable<int64_t>& table = integer_lookup(*this).table();
  table.begin_counting();
  for_each_batch(*impl(), data, steps, [&](const Nest& element) {
    const Tensor& batch = tensor_of(*impl(), element);
    count_rows<int64_t>(table, tokens_of(batch), num_documents(batch.sizes()));
  });
  table.finish_counting();
}
std::vector<int64_t> IntegerLookup::get_vocabulary(bool include_special_tokens) const {
  return integer_lookup(*this).table().vocabulary(include_special_tokens);
}
void IntegerLookup::set_vocabulary(const std::vector<int64_t>& vocabulary,
                                   const std::vector<double>& idf_weights) const {
  integer_lookup(*this).table().set_vocabulary(vocabulary, idf_weights);
}
int64_t IntegerLookup::vocabulary_size() const {
  return integer_lookup(*this).table().vocabulary_size();
}

Hashing::Hashing(int64_t num_bins, const HashingOptions& options)
    : Layer(std::make_shared<HashingImpl>(num_bins, options)) {}
Hashing::Hashing(const Layer& layer) : Layer(layer) { hashing(layer); }
Tensor Hashing::operator()(const StringTensor& values) const {
  return hashing(*this).hashed(values);
}

HashedCrossing::HashedCrossing(int64_t num_bins, const HashedCrossingOptions& options)
    : Layer(std::make_shared<HashedCrossingImpl>(num_bins, options)) {}
HashedCrossing::HashedCrossing(const Layer& layer) : Layer(layer) { crossing(layer); }
Tensor HashedCrossing::operator()(const Nest& features) const {
  return crossing(*this).crossed(features.items());
}

LayerFamily lookup_layers() { return kLookupLayers; }

}  // namespace tutti::keras::layers
