#pragma once
// What a Sequential or Functional model is made of: a layer of layers, which may stand in other
// models too.

#include <vector>

#include "keras/json.h"
#include "keras/model/symbolic.h"
#include "tutti/keras/layer.h"

namespace tutti::keras {

class ModelBody : public layers::LayerImpl {
 public:
  ModelBody(const std::string& class_name, const std::string& name, layers::Shape input_shape)
      : LayerImpl(class_name, name, std::move(input_shape)) {
    set_holds_layers();
  }
  /// Each once, in Keras' order.
  const std::vector<layers::Layer>& layers() const { return layers_; }
  void set_trainable(bool trainable) override;
  std::vector<Variable> weights() const override;
  std::vector<Variable> trainable_weights() const override;
  std::vector<Tensor> losses() const override;
  void limit_weights(int64_t numel) override;
  bool supports_masking() const override { return true; }
  bool uses_masks() const override { return masked_; }
  /// After layers_ or what is in them changed: whether any of them has to do with masks.
  void look_for_masks();

 protected:
  void forget_losses() override;
  bool has_weights() const override { return true; }
  bool casts_integers() const override { return false; }  // its layers decide, each for itself
  void check_name(const layers::Layer& layer, const char* kind) const;

  std::vector<layers::Layer> layers_;
  bool masked_ = false;
};

/// A stack of layers.
class SequentialBody : public ModelBody {
 public:
  explicit SequentialBody(const std::string& name) : ModelBody("Sequential", name, {}) {}
  std::string class_name() const override { return "Sequential"; }
  std::string config() const override;
  void append(const layers::Layer& layer);
  void remove_last();
  layers::Shape compute_output_shape(const layers::Shape& input) const override;
  Tensor run(const Tensor& input, bool training) {
    Tensor output = input;
    for (const layers::Layer& layer : layers_) output = layer(output, training);
    return output;
  }
  /// run, with the mask of input and, afterwards, output.
  Tensor run_masked(const Tensor& input, bool training, Tensor& mask);

 protected:
  void build(const layers::Shape& input) override;
  Tensor call(const Tensor& input, bool training) override {
    Tensor mask;
    return masked_ ? run_masked(input, training, mask) : run(input, training);
  }
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const layers::CallArguments& arguments) override;
  std::vector<Tensor> call_masked(const std::vector<Tensor>& inputs,
                                  const layers::CallArguments& arguments,
                                  std::vector<Tensor>& masks) override;
};

/// A graph of layers, whose order of execution and places of tensors are fixed when it is made.
class FunctionalBody : public ModelBody {
 public:
  /// InvalidArgument for a graph that the inputs do not reach everywhere, names that come twice, or
  /// inputs that are none.
  FunctionalBody(const std::string& name, std::vector<layers::KerasTensor> inputs,
                 std::vector<layers::KerasTensor> outputs);
  std::string class_name() const override { return "Functional"; }
  std::string config() const override;
  const std::vector<layers::KerasTensor>& inputs() const { return inputs_; }
  const std::vector<layers::KerasTensor>& outputs() const { return outputs_; }
  /// The calls of this graph, in the order in which they are made; Inputs too.
  const std::vector<std::shared_ptr<const layers::SymbolicCall>>& calls() const { return calls_; }
  /// No two calls at the same depth, and none of several inputs or of a layer that is called twice.
  bool is_chain() const { return chain_; }
  std::vector<layers::Shape> compute_output_shapes(
      const std::vector<layers::Shape>& inputs) const override;
  /// As the graph wants them: a last axis of 1 added or dropped, floats for an integer Input made
  /// integers. InvalidArgument for another number or for shapes that do not fit.
  void adjust(std::vector<Tensor>& inputs) const;
  /// Without a look at shapes.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs, bool training);
  std::vector<Tensor> run_masked(const std::vector<Tensor>& inputs,
                                 const layers::CallArguments& arguments,
                                 std::vector<Tensor>& masks);

 protected:
  void build_all(const std::vector<layers::Shape>&) override {}
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const layers::CallArguments& arguments) override;
  std::vector<Tensor> call_masked(const std::vector<Tensor>& inputs,
                                  const layers::CallArguments& arguments,
                                  std::vector<Tensor>& masks) override;

 private:
  struct Step {
    layers::LayerImpl* layer;
    std::vector<int> inputs;   ///< places of its inputs
    std::vector<int> outputs;  ///< and of its outputs; -1: nobody reads it
    std::vector<int> last;     ///< places that are free after it
  };
  void check_ends();
  void order_calls();
  void order_layers(const std::vector<layers::LayerImpl*>& met);
  void plan();
  bool looks_like_chain() const;
  void check_count(std::size_t inputs) const;
  bool is_input(const layers::KerasTensor& tensor) const;

  std::vector<layers::KerasTensor> inputs_;
  std::vector<layers::KerasTensor> outputs_;
  std::vector<std::shared_ptr<const layers::SymbolicCall>> calls_;
  std::vector<int64_t> depths_;  ///< of calls_
  std::vector<Step> steps_;
  std::vector<int> input_places_;
  std::vector<int> output_places_;
  std::size_t places_ = 0;
  bool chain_ = false;
};

/// {"class_name": …, "config": {…}}; a name and what is not trainable are in it whatever config()
/// says. InvalidArgument when a class of the user's own says what is no JSON object.
Json layer_json(const layers::Layer& layer);
Json layers_json(const std::vector<layers::Layer>& layers);

}  // namespace tutti::keras
