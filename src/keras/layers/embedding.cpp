#include "tutti/keras/layers/embedding.h"

#include "keras/layers/nested.h"
#include "tutti/distribute/nn.h"

namespace tutti::keras::layers {
namespace {

/// Indices may come as floats: a model's input is cast to one dtype.
Tensor as_indices(const Tensor& input) {
  const bool integer = input.scalar_type() == at::kInt || input.scalar_type() == at::kLong;
  return integer ? input : input.to(at::kLong);
}

class EmbeddingImpl : public LayerImpl {
 public:
  EmbeddingImpl(int64_t input_dim, int64_t output_dim, const EmbeddingOptions& options)
      : LayerImpl("Embedding", options.name, options.input_shape),
        input_dim_(input_dim),
        output_dim_(output_dim),
        options_(options) {
    check_count(*this, "input_dim", input_dim);
    check_count(*this, "output_dim", output_dim);
  }
  std::string class_name() const override { return "Embedding"; }
  std::string config() const override {
    Json json = base_config(*this);
    json.update({{"input_dim", input_dim_},
                 {"output_dim", output_dim_},
                 {"embeddings_initializer", to_json(options_.embeddings_initializer)},
                 {"embeddings_regularizer", to_json(options_.embeddings_regularizer)},
                 {"embeddings_constraint", to_json(options_.embeddings_constraint)},
                 {"mask_zero", options_.mask_zero}});
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    Shape output = input;
    output.push_back(output_dim_);
    return output;
  }
  Tensor compute_mask(const std::vector<Tensor>& inputs,
                      const CallArguments& arguments) const override {
    return options_.mask_zero ? inputs.at(0).ne(0) : Tensor();
  }
  bool supports_masking() const override { return options_.mask_zero; }
  bool uses_masks() const override { return options_.mask_zero; }

 protected:
  bool has_weights() const override { return true; }
  bool autocasts() const override { return false; }
  void build(const Shape& input) override {
    embeddings_ = add_weight({.name = "embeddings",
                              .shape = {input_dim_, output_dim_},
                              .initializer = options_.embeddings_initializer,
                              .regularizer = options_.embeddings_regularizer,
                              .constraint = options_.embeddings_constraint.function()});
  }
  Tensor call(const Tensor& input, bool training) override {
    const Tensor rows = nn::embedding_lookup(embeddings_, as_indices(input));
    return rows.scalar_type() == dtype_policy().compute_dtype()
               ? rows
               : rows.to(dtype_policy().compute_dtype());
  }

 private:
  int64_t input_dim_;
  int64_t output_dim_;
  EmbeddingOptions options_;
  Variable embeddings_;
};

class MaskingImpl : public LayerImpl {
 public:
  MaskingImpl(double mask_value, const MaskingOptions& options)
      : LayerImpl("Masking", options.name, options.input_shape), mask_value_(mask_value) {}
  std::string class_name() const override { return "Masking"; }
  std::string config() const override {
    Json json = base_config(*this);
    json["mask_value"] = mask_value_;
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    if (input.size() < 2)
      throw InvalidArgument(cat(head(*this), "input of shape ", shape_text(input),
                                ", expected (batch, time, …, features)"));
    return input;
  }
  Tensor compute_mask(const std::vector<Tensor>& inputs,
                      const CallArguments& arguments) const override {
    return inputs.at(0).ne(mask_value_).any(-1);
  }
  bool supports_masking() const override { return true; }
  bool uses_masks() const override { return true; }

 protected:
  Tensor call(const Tensor& input, bool training) override {
    return input.masked_fill(input.eq(mask_value_).all(-1, /*keepdim=*/true), 0);
  }

 private:
  double mask_value_;
};

Layer embedding_from(const Json& json, const LayerBase& base) {
  EmbeddingOptions options;
  options.embeddings_initializer =
      argument_from(json, "embeddings_initializer", options.embeddings_initializer, base);
  options.embeddings_regularizer =
      argument_from(json, "embeddings_regularizer", options.embeddings_regularizer, base);
  options.embeddings_constraint =
      argument_from(json, "embeddings_constraint", options.embeddings_constraint, base);
  options.mask_zero = member<bool>(json, "mask_zero", false);
  options.name = base.name;
  options.input_shape = base.input_shape;
  return Embedding(member<int64_t>(json, "input_dim", 0), member<int64_t>(json, "output_dim", 0),
                   options);
}

constexpr LayerEntry kEmbeddingLayers[] = {
    {"Embedding", embedding_from},
    {"Masking", [](const Json& json, const LayerBase& base) -> Layer {
       return Masking(member<double>(json, "mask_value", 0), {base.name, base.input_shape});
     }}};

}  // namespace

Embedding::Embedding(int64_t input_dim, int64_t output_dim, const EmbeddingOptions& options)
    : Layer(std::make_shared<EmbeddingImpl>(input_dim, output_dim, options)) {}
Masking::Masking(double mask_value, const MaskingOptions& options)
    : Layer(std::make_shared<MaskingImpl>(mask_value, options)) {}

LayerFamily embedding_layers() { return kEmbeddingLayers; }

}  // namespace tutti::keras::layers
