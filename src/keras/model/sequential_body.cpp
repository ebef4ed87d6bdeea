// What models of layers share, and the stack.

#include "keras/layers/config.h"
#include "keras/model/model_body.h"

namespace tutti::keras {

using layers::Layer;
using layers::Shape;

void ModelBody::set_trainable(bool trainable) {
  LayerImpl::set_trainable(trainable);
  for (const Layer& layer : layers_) layer->set_trainable(trainable);
}

std::vector<Variable> ModelBody::weights() const {
  if (!built()) return LayerImpl::weights();  // says what to do
  std::vector<Variable> all;
  for (const Layer& layer : layers_) {
    for (Variable& weight : layer->weights()) all.push_back(std::move(weight));
  }
  return all;
}

std::vector<Variable> ModelBody::trainable_weights() const {
  std::vector<Variable> all;
  if (!trainable()) return all;
  for (const Layer& layer : layers_) {
    for (Variable& weight : layer->trainable_weights()) all.push_back(std::move(weight));
  }
  return all;
}

std::vector<Tensor> ModelBody::losses() const {
  std::vector<Tensor> all;
  for (const Layer& layer : layers_) {
    for (Tensor& loss : layer->losses()) all.push_back(std::move(loss));
  }
  return all;
}

void ModelBody::forget_losses() {
  LayerImpl::forget_losses();
  for (const Layer& layer : layers_) layer->clear_losses();
}

void ModelBody::limit_weights(int64_t numel) {
  LayerImpl::limit_weights(numel);
  for (const Layer& layer : layers_) layer->limit_weights(numel);
}

void ModelBody::check_name(const Layer& layer, const char* kind) const {
  if (layer.impl() == nullptr)
    throw InvalidArgument(cat(kind, " [", name(), "]: an empty layer handle, expected a layer"));
  for (const Layer& earlier : layers_) {
    if (earlier->name() == layer->name()) {
      throw InvalidArgument(cat(kind, " [", name(), "]: a second layer of the name \"",
                                layer->name(),
                                "\", expected each name once; give it "
                                "another .name"));
    }
  }
}

void ModelBody::look_for_masks() {
  masked_ = false;
  for (const Layer& layer : layers_) masked_ = masked_ || layer->uses_masks();
}

Json layer_json(const Layer& layer) {
  Json config = Json::parse(layer->config(), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object())
    throw InvalidArgument(cat(layer->class_name(), " [", layer->name(), "]: a configuration ",
                              layer->config(), ", expected the text of a JSON object"));
  config["name"] = layer->name();
  if (!layer->trainable()) config["trainable"] = false;
  return {{"class_name", layer->class_name()}, {"config", std::move(config)}};
}

Json layers_json(const std::vector<Layer>& layers) {
  Json list = Json::array();
  for (const Layer& layer : layers) list.push_back(layer_json(layer));
  return list;
}

// ---- the stack

void SequentialBody::append(const Layer& layer) {
  check_name(layer, "Sequential");
  layers_.push_back(layer);
  look_for_masks();
}

void SequentialBody::remove_last() {
  layers_.pop_back();
  look_for_masks();
  if (layers_.empty()) set_built(false);
}

Shape SequentialBody::compute_output_shape(const Shape& input) const {
  Shape shape = input;
  for (const Layer& layer : layers_) shape = layer->compute_output_shape(shape);
  return shape;
}

void SequentialBody::build(const Shape& input) {
  Shape shape = input;
  for (const Layer& layer : layers_) {
    layer->build_for(shape);
    shape = layer->compute_output_shape(shape);
  }
  look_for_masks();  // a layer of layers knows only now
}

Tensor SequentialBody::run_masked(const Tensor& input, bool training, Tensor& mask) {
  std::vector<Tensor> values{input}, masks{mask};
  for (const Layer& layer : layers_) {
    const layers::CallArguments arguments{training, masks};
    values = layer->call_with_masks(values, arguments, masks);
  }
  mask = masks.empty() ? Tensor() : masks[0];
  if (values.size() != 1)
    throw InvalidArgument(cat("Sequential [", name(), "]: a last layer of ", values.size(),
                              " outputs, expected one; use a Functional"));
  return std::move(values[0]);
}

std::vector<Tensor> SequentialBody::call_all(const std::vector<Tensor>& inputs,
                                             const layers::CallArguments& arguments) {
  std::vector<Tensor> masks;
  return call_masked(inputs, arguments, masks);
}

std::vector<Tensor> SequentialBody::call_masked(const std::vector<Tensor>& inputs,
                                                const layers::CallArguments& arguments,
                                                std::vector<Tensor>& masks) {
  if (inputs.size() != 1)
    throw InvalidArgument(
        cat("Sequential [", name(), "]: ", inputs.size(), " inputs, expected one"));
  Tensor mask = arguments.mask(0);
  if (!masked_ && !mask.defined()) {
    masks.assign(1, Tensor());
    return {run(inputs[0], arguments.training)};
  }
  Tensor output = run_masked(inputs[0], arguments.training, mask);
  masks.assign(1, mask);
  return {std::move(output)};
}

std::string SequentialBody::config() const {
  Json json = layers::base_config(*this);
  json["layers"] = layers_json(layers_);
  if (!built_shapes().empty()) json["build_shape"] = built_shapes()[0];
  return json.dump();
}

}  // namespace tutti::keras
