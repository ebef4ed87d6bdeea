// Categories as vectors, data to adapt to, and CategoryEncoding.

#include "keras/layers/encoding.h"

#include "tutti/distribute/strategy.h"
#include "tutti/keras/layers/preprocessing.h"

namespace tutti::keras::layers {

Tensor encode_categories(const Tensor& indices, const std::string& mode, int64_t depth,
                         at::ScalarType dtype, const Tensor& weights) {
  Tensor index = indices.to(at::kLong);
  if (index.dim() == 0) index = index.unsqueeze(0);
  // What is out of range is put into one column more, which is cut off.
  index = at::where(index.lt(0).logical_or(index.ge(depth)), depth, index);
  if (mode == "one_hot") {
    if (index.dim() > 1 && index.size(-1) == 1) index = index.squeeze(-1);
    index = index.unsqueeze(-1);
  }
  std::vector<int64_t> sizes = index.sizes().vec();
  sizes.back() = depth + 1;
  Tensor encoded = at::zeros(sizes, index.options().dtype(dtype));
  if (mode != "count") {
    encoded.scatter_(-1, index, 1);
  } else {
    encoded.scatter_add_(-1, index,
                         weights.defined() ? weights.to(dtype).expand_as(index)
                                           : at::ones_like(index, encoded.options()));
  }
  return encoded.narrow(-1, 0, depth).contiguous();
}

Shape encoded_shape(const Shape& input, const std::string& mode, int64_t depth) {
  if (mode == "int") return input;
  Shape output = input.empty() ? Shape{1} : input;
  if (mode == "one_hot" && (output.size() == 1 || output.back() != 1)) output.push_back(1);
  output.back() = depth;
  return output;
}

void for_each_batch(const LayerImpl& layer, const data::Dataset<Nest>& data,
                    std::optional<int64_t> steps, FunctionRef<void(const Nest&)> take) {
  if (!steps && data.cardinality() == data::kInfinite)
    throw InvalidArgument(cat("adapt [", layer.name(),
                              "]: a dataset without end, expected a finite one; give steps"));
  auto iterator = steps ? data.take(*steps).iterator() : data.iterator();
  bool any = false;
  while (const auto element = iterator.next()) {
    const bool first = element->kind() == NestKind::kTuple && element->size() > 0;
    take(first ? (*element)[0] : *element);
    any = true;
  }
  if (!any)
    throw InvalidArgument(
        cat("adapt [", layer.name(), "]: a dataset without elements, expected at least one"));
}

void check_adapts_here(const LayerImpl& layer) {
  distribute::ReplicaContext* replica = distribute::get_replica_context();
  if (replica == nullptr || replica->strategy().is_default()) return;
  throw FailedPrecondition(cat("adapt [", layer.name(), "]: called in replica ",
                               replica->replica_id_in_sync_group(),
                               ", expected outside replicas, before the layer is used"));
}

const Tensor& tensor_of(const LayerImpl& layer, const Nest& element) {
  if (element.is_leaf() && element.leaf().defined()) return element.leaf();
  throw InvalidArgument(
      cat("adapt [", layer.name(), "]: an element ", element.structure(), ", expected a tensor"));
}

std::vector<double> flat_numbers(const Json& json, const char* key) {
  std::vector<double> numbers;
  const auto add = [&](const Json& value, const auto& again) -> void {
    if (value.is_number()) numbers.push_back(value.get<double>());
    if (!value.is_array()) return;
    for (const Json& item : value) again(item, again);
  };
  if (json.contains(key)) add(json[key], add);
  return numbers;
}

namespace {

class CategoryEncodingImpl : public LayerImpl {
 public:
  CategoryEncodingImpl(int64_t num_tokens, const CategoryEncodingOptions& options)
      : LayerImpl("CategoryEncoding", options.name, options.input_shape),
        num_tokens_(num_tokens),
        mode_(options.output_mode) {
    check_count(*this, "num_tokens", num_tokens);
    check_word(*this, "output_mode", mode_, {"one_hot", "multi_hot", "count"});
  }
  std::string class_name() const override { return "CategoryEncoding"; }
  std::string config() const override {
    Json json = base_config(*this);
    json.update({{"num_tokens", num_tokens_}, {"output_mode", mode_}});
    return json.dump();
  }
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override {
    if (inputs.empty() || inputs.size() > 2 || (inputs.size() == 2 && mode_ != "count"))
      throw InvalidArgument(cat(head(*this), inputs.size(), " inputs, expected indices",
                                mode_ == "count" ? " and perhaps what they count" : ""));
    return {encoded_shape(inputs[0], mode_, num_tokens_)};
  }

 protected:
  bool autocasts() const override { return false; }
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) override {
    const Tensor& indices = inputs[0];
    if (indices.is_cpu() && indices.numel() > 0) {
      const auto low = indices.min().item<double>(), high = indices.max().item<double>();
      if (!(low >= 0 && high < static_cast<double>(num_tokens_)))
        throw InvalidArgument(cat(head(*this), "indices from ", low, " to ", high,
                                  ", expected 0 or more and below ", num_tokens_));
    }
    return {encode_categories(indices, mode_, num_tokens_, dtype_policy().compute_dtype(),
                              inputs.size() > 1 ? inputs[1] : Tensor())};
  }

 private:
  int64_t num_tokens_;
  std::string mode_;
};

Layer category_from(const Json& json, const LayerBase& base) {
  return CategoryEncoding(
      member<int64_t>(json, "num_tokens", 0),
      {member<std::string>(json, "output_mode", "multi_hot"), base.name, base.input_shape});
}

constexpr LayerEntry kEncodingLayers[] = {{"CategoryEncoding", category_from}};

}  // namespace

CategoryEncoding::CategoryEncoding(int64_t num_tokens, const CategoryEncodingOptions& options)
    : Layer(std::make_shared<CategoryEncodingImpl>(num_tokens, options)) {}

LayerFamily encoding_layers() { return kEncodingLayers; }

}  // namespace tutti::keras::layers
