// Symbolic tensors: where they begin, and what layers make of them.

#include "keras/layers/config.h"
#include "keras/model/symbolic.h"

namespace tutti::keras::layers {
namespace {

class InputImpl : public LayerImpl {
 public:
  InputImpl(const Shape& shape, const InputOptions& options)
      : LayerImpl("InputLayer", options.name, shape), dtype_(options.dtype) {}
  std::string class_name() const override { return "InputLayer"; }
  std::string config() const override {
    Json json = base_config(*this);
    json["shape"] = input_shape();
    json["input_dtype"] = c10::toString(dtype_);
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override { return input; }
  bool supports_masking() const override { return true; }
  /// A new symbolic tensor; `self` is this layer.
  KerasTensor tensor(const std::shared_ptr<LayerImpl>& self) const {
    auto call = std::make_shared<SymbolicCall>();
    call->layer = self;
    call->place = 0;  // a tensor made anew stands in the place of the first one
    call->shapes = {input_shape()};
    call->shapes[0].insert(call->shapes[0].begin(), -1);
    call->dtype = dtype_;
    return KerasTensor(std::move(call), 0);
  }

 protected:
  Tensor call(const Tensor& input, bool training) override { return input; }

 private:
  at::ScalarType dtype_;
};

at::ScalarType dtype_from(const std::string& name) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<at::ScalarType>(i);
    if (name == c10::toString(dtype)) return dtype;
  }
  throw DataLoss(cat("InputLayer: dtype \"", name,
                     "\", expected one of LibTorch's; the file is "
                     "damaged"));
}

Layer input_from(const Json& json, const LayerBase& base) {
  return Input(member<Shape>(json, "shape", base.input_shape),
               InputOptions{.dtype = dtype_from(member<std::string>(json, "input_dtype", "Float")),
                            .name = base.name});
}

constexpr LayerEntry kInputLayers[] = {{"InputLayer", input_from}};

const SymbolicCall& checked(const std::shared_ptr<const SymbolicCall>& call) {
  if (call == nullptr)
    throw InvalidArgument(
        "KerasTensor: an empty handle, expected one that a layer's call or an Input gave");
  return *call;
}

KerasTensor only(std::vector<KerasTensor> outputs, const LayerImpl& layer) {
  if (outputs.size() != 1) {
    throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: ", outputs.size(),
                              " outputs, expected one; use call_all"));
  }
  return std::move(outputs[0]);
}

}  // namespace

LayerFamily input_layers() { return kInputLayers; }

KerasTensor tensor_of_input(const Layer& layer) {
  const auto* input = dynamic_cast<const InputImpl*>(layer.impl().get());
  if (input == nullptr)
    throw DataLoss(cat("layer [", layer->name(), "]: a ", layer->class_name(),
                       " that is never called, expected an InputLayer; the file is damaged"));
  return input->tensor(layer.impl());
}

Input::Input(const Shape& shape, const InputOptions& options)
    : Layer(std::make_shared<InputImpl>(shape, options)), tensor_(tensor_of_input(*this)) {}

const Shape& KerasTensor::shape() const { return checked(call_).shapes[index_]; }
at::ScalarType KerasTensor::dtype() const { return checked(call_).dtype; }
const std::shared_ptr<LayerImpl>& KerasTensor::layer() const { return checked(call_).layer; }

Tensor Layer::operator()(const std::vector<Tensor>& inputs, bool training) const {
  std::vector<Tensor> outputs = (*impl_)(inputs, CallArguments{training, {}});
  if (outputs.size() != 1) {
    throw InvalidArgument(cat(impl_->class_name(), " [", impl_->name(), "]: ", outputs.size(),
                              " outputs, expected one; use call_all"));
  }
  return std::move(outputs[0]);
}

std::vector<KerasTensor> Layer::call_all(const std::vector<KerasTensor>& inputs) const {
  if (impl_ == nullptr) throw InvalidArgument("layer: an empty handle called, expected a layer");
  if (inputs.empty())
    throw InvalidArgument(cat(impl_->class_name(), " [", impl_->name(),
                              "]: called without inputs, expected at least one"));
  auto call = std::make_shared<SymbolicCall>();
  call->layer = impl_;
  call->inputs = inputs;
  std::vector<Shape> shapes;
  for (const KerasTensor& input : inputs) shapes.push_back(input.shape());
  impl_->build_for(shapes);
  call->shapes = impl_->compute_output_shapes(shapes);
  call->dtype = impl_->dtype_policy().compute_dtype();
  call->place = impl_->next_symbolic_call();
  std::vector<KerasTensor> outputs;
  for (std::size_t i = 0; i < call->shapes.size(); ++i) outputs.emplace_back(call, i);
  return outputs;
}

KerasTensor Layer::operator()(const std::vector<KerasTensor>& inputs) const {
  return only(call_all(inputs), *impl_);
}

KerasTensor Layer::operator()(const KerasTensor& input) const {
  return only(call_all(std::vector<KerasTensor>{input}), *impl_);
}

}  // namespace tutti::keras::layers
