#include "tutti/keras/layers/sequence_wrappers.h"

#include "keras/layers/recurrent_impl.h"

namespace tutti::keras::layers {
namespace {

std::shared_ptr<RecurrentImpl> recurrent_of(const RNN& layer) {
  return std::static_pointer_cast<RecurrentImpl>(layer.impl());
}

/// A new layer like this one, under another name.
std::shared_ptr<RecurrentImpl> copy_of(const RecurrentImpl& layer, const std::string& direction,
                                       bool go_backwards) {
  Json json = Json::parse(layer.config());
  const std::string prefix = direction + "_";
  if (layer.name().rfind(prefix, 0) != 0) json["name"] = prefix + layer.name();
  json["go_backwards"] = go_backwards;
  return recurrent_of(RNN(layer_from_config(layer.class_name(), json.dump())));
}

class BidirectionalImpl : public LayerImpl {
 public:
  BidirectionalImpl(const RNN& layer, const BidirectionalOptions& options)
      : LayerImpl("Bidirectional", options.name, options.input_shape),
        merge_mode_(options.merge_mode) {
    check_word(*this, "merge_mode", merge_mode_, {"concat", "sum", "mul", "ave", "none"});
    const auto given = recurrent_of(layer);
    if (options.backward_layer) {
      forward_ = given;
      backward_ = recurrent_of(*options.backward_layer);
    } else {
      forward_ = copy_of(*given, "forward", given->options().go_backwards);
      backward_ = copy_of(*given, "backward", !given->options().go_backwards);
    }
    const RNNOptions &one = forward_->options(), &other = backward_->options();
    if (one.go_backwards == other.go_backwards || one.stateful != other.stateful ||
        one.return_sequences != other.return_sequences || one.return_state != other.return_state ||
        forward_->num_states() != backward_->num_states()) {
      throw InvalidArgument(cat(head(*this),
                                "a backward layer that does not go with the forward one, expected "
                                "the other go_backwards, and return_sequences, return_state, "
                                "stateful and the number of states alike"));
    }
    sequences_ = one.return_sequences;
    forward_->zero_output_for_mask(sequences_);
    backward_->zero_output_for_mask(sequences_);
    track(forward_);
    track(backward_);
  }
  std::string class_name() const override { return "Bidirectional"; }
  std::string config() const override {
    Json json = base_config(*this);
    json.update({{"merge_mode", merge_mode_},
                 {"layer", nested_json(*forward_)},
                 {"backward_layer", nested_json(*backward_)}});
    return json.dump();
  }
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override {
    const auto forward = forward_->compute_output_shapes(half_of(inputs, 0));
    const auto backward = backward_->compute_output_shapes(half_of(inputs, 1));
    std::vector<Shape> outputs{forward[0]};
    if (merge_mode_ == "concat") outputs[0].back() += backward[0].back();
    if (merge_mode_ == "none") outputs.push_back(backward[0]);
    if (merge_mode_ != "concat" && merge_mode_ != "none" && forward[0] != backward[0]) {
      throw InvalidArgument(cat(head(*this), "outputs of shapes ", shape_text(forward[0]), " and ",
                                shape_text(backward[0]), " with merge_mode \"", merge_mode_,
                                "\", expected equal ones"));
    }
    outputs.insert(outputs.end(), forward.begin() + 1, forward.end());
    outputs.insert(outputs.end(), backward.begin() + 1, backward.end());
    return outputs;
  }
  Tensor compute_mask(const std::vector<Tensor>& inputs,
                      const CallArguments& arguments) const override {
    return sequences_ ? arguments.mask(0) : Tensor();
  }
  bool supports_masking() const override { return true; }
  bool uses_masks() const override { return true; }
  void reset_state() {
    forward_->reset_state();
    backward_->reset_state();
  }

 protected:
  bool casts_integers() const override { return false; }  // the layer inside decides
  bool has_weights() const override { return true; }
  void build_all(const std::vector<Shape>& inputs) override {
    build_inside(*this, *forward_, half_of(inputs, 0));
    build_inside(*this, *backward_, half_of(inputs, 1));
  }
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) override {
    const CallArguments passed{arguments.training, {arguments.mask(0)}};
    std::vector<Tensor> forward = (*forward_)(half_of(inputs, 0), passed);
    std::vector<Tensor> backward = (*backward_)(half_of(inputs, 1), passed);
    if (sequences_) backward[0] = backward[0].flip(1);  // to the order of the forward one's steps
    std::vector<Tensor> outputs = merged(forward[0], backward[0]);
    outputs.insert(outputs.end(), forward.begin() + 1, forward.end());
    outputs.insert(outputs.end(), backward.begin() + 1, backward.end());
    return outputs;
  }

 private:
  /// The sequences, and the forward or the backward states where there are any.
  template <class T>
  std::vector<T> half_of(const std::vector<T>& inputs, std::size_t half) const {
    const std::size_t states = forward_->num_states();
    if (inputs.size() <= 1) return inputs;
    if (inputs.size() != 1 + 2 * states) {
      throw InvalidArgument(
          cat(head(*this), inputs.size() - 1, " initial states, expected none or ", 2 * states));
    }
    const auto first = inputs.begin() + 1 + static_cast<std::ptrdiff_t>(half * states);
    std::vector<T> part{inputs[0]};
    part.insert(part.end(), first, first + static_cast<std::ptrdiff_t>(states));
    return part;
  }
  std::vector<Tensor> merged(const Tensor& a, const Tensor& b) const {
    if (merge_mode_ == "concat") return {at::cat({a, b}, -1)};
    if (merge_mode_ == "sum") return {a + b};
    if (merge_mode_ == "mul") return {a * b};
    if (merge_mode_ == "ave") return {(a + b) / 2};
    return {a, b};
  }

  std::string merge_mode_;
  std::shared_ptr<RecurrentImpl> forward_;
  std::shared_ptr<RecurrentImpl> backward_;
  bool sequences_ = false;
};

class TimeDistributedImpl : public LayerImpl {
 public:
  TimeDistributedImpl(const Layer& layer, const TimeDistributedOptions& options)
      : LayerImpl("TimeDistributed", options.name, options.input_shape), layer_(layer.impl()) {
    if (layer_ == nullptr)
      throw InvalidArgument(cat(head(*this), "an empty handle, expected a layer"));
    track(layer_);
  }
  std::string class_name() const override { return "TimeDistributed"; }
  std::string config() const override {
    Json json = base_config(*this);
    json["layer"] = nested_json(*layer_);
    return json.dump();
  }
  Shape compute_output_shape(const Shape& input) const override {
    Shape output = layer_->compute_output_shape(of_one_step(input));
    output.insert(output.begin() + 1, input[1]);
    return output;
  }
  bool supports_masking() const override { return true; }
  bool uses_masks() const override { return true; }

 protected:
  bool casts_integers() const override { return false; }  // the layer inside decides
  void build(const Shape& input) override { build_inside(*this, *layer_, {of_one_step(input)}); }
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) override {
    if (inputs.size() != 1)
      throw InvalidArgument(cat(head(*this), inputs.size(), " inputs, expected one"));
    const Tensor& input = inputs[0];
    of_one_step(input.sizes().vec());
    const Tensor mask = arguments.mask(0);
    if (mask.defined() &&
        (mask.dim() < 2 || mask.size(0) != input.size(0) || mask.size(1) != input.size(1))) {
      throw InvalidArgument(cat(head(*this), "a mask of shape ", shape_text(mask.sizes()),
                                " for an input of shape ", shape_text(input.sizes()),
                                ", expected its batch and time in front"));
    }
    CallArguments passed{arguments.training, {}};
    if (mask.defined() && mask.dim() > 2) passed.masks = {mask.flatten(0, 1)};
    const std::vector<Tensor> outputs = (*layer_)({input.flatten(0, 1)}, passed);
    if (outputs.size() != 1)
      throw InvalidArgument(
          cat(head(*this), "a layer of ", outputs.size(), " outputs, expected one"));
    std::vector<int64_t> sizes = outputs[0].sizes().vec();
    sizes[0] = input.size(0);
    sizes.insert(sizes.begin() + 1, input.size(1));
    return {outputs[0].reshape(sizes)};
  }

 private:
  Shape of_one_step(const Shape& input) const {
    if (input.size() < 3)
      throw InvalidArgument(cat(head(*this), "input of shape ", shape_text(input),
                                ", expected (batch, time, …) of at least 3 axes"));
    Shape step = input;
    step.erase(step.begin() + 1);
    return step;
  }

  std::shared_ptr<LayerImpl> layer_;
};

Layer bidirectional_from(const Json& json, const LayerBase& base) {
  BidirectionalOptions options;
  options.merge_mode =
      optional_member<std::string>(json, "merge_mode").value_or("none");  // Keras writes null
  if (!json.contains("merge_mode")) options.merge_mode = "concat";
  options.name = base.name;
  options.input_shape = base.input_shape;
  const Layer forward = nested_layer(json, "layer");
  if (member<Json>(json, "backward_layer", {}).is_object())
    options.backward_layer = RNN(nested_layer(json, "backward_layer"));
  return Bidirectional(RNN(forward), options);
}

constexpr LayerEntry kWrappers[] = {
    {"Bidirectional", bidirectional_from},
    {"TimeDistributed", [](const Json& json, const LayerBase& base) -> Layer {
       return TimeDistributed(nested_layer(json, "layer"), {base.name, base.input_shape});
     }}};

}  // namespace

Bidirectional::Bidirectional(const RNN& layer, const BidirectionalOptions& options)
    : Layer(std::make_shared<BidirectionalImpl>(layer, options)) {}
void Bidirectional::reset_state() const { static_cast<BidirectionalImpl&>(*impl()).reset_state(); }
TimeDistributed::TimeDistributed(const Layer& layer, const TimeDistributedOptions& options)
    : Layer(std::make_shared<TimeDistributedImpl>(layer, options)) {}

LayerFamily sequence_wrappers() { return kWrappers; }

}  // namespace tutti::keras::layers
