#pragma once
// For tests of graphs and masks: small layers of several inputs or outputs, or with masks.

#include <ATen/ATen.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tutti/keras/layers.h"
#include "tutti/keras/model.h"

namespace tutti::keras::testing {

using layers::CallArguments;
using layers::LayerImpl;
using layers::Shape;

/// Inputs joined along the last axis; Keras' Concatenate.
class JoinImpl : public LayerImpl {
 public:
  explicit JoinImpl(const std::string& name = "") : LayerImpl("Concatenate", name, {}) {}
  std::string class_name() const override { return "Concatenate"; }
  std::string config() const override { return "{}"; }
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override {
    Shape shape = inputs.at(0);
    for (std::size_t i = 1; i < inputs.size(); ++i) shape.back() += inputs[i].back();
    return {shape};
  }

 protected:
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs, const CallArguments&) override {
    return {at::cat(inputs, -1)};
  }
};
inline layers::Layer join_layer(const std::string& name = "") {
  return std::make_shared<JoinImpl>(name);
}

/// The sum of the inputs; Keras' Add.
class TotalImpl : public LayerImpl {
 public:
  TotalImpl() : LayerImpl("Add", "", {}) {}
  std::string class_name() const override { return "Add"; }
  std::string config() const override { return "{}"; }
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override {
    return {inputs.at(0)};
  }

 protected:
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs, const CallArguments&) override {
    Tensor sum = inputs[0];
    for (std::size_t i = 1; i < inputs.size(); ++i) sum = sum + inputs[i];
    return {sum};
  }
};
inline layers::Layer total_layer() { return std::make_shared<TotalImpl>(); }

/// x, and -x.
class BothImpl : public LayerImpl {
 public:
  explicit BothImpl(const std::string& name = "") : LayerImpl("Both", name, {}) {}
  std::string class_name() const override { return "Both"; }
  std::string config() const override { return "{}"; }
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override {
    return {inputs.at(0), inputs.at(0)};
  }

 protected:
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs, const CallArguments&) override {
    return {inputs.at(0), -inputs[0]};
  }
};

/// Steps of zeros do not count; Keras' Masking.
class SkipZerosImpl : public LayerImpl {
 public:
  SkipZerosImpl() : LayerImpl("Masking", "", {}) {}
  std::string class_name() const override { return "Masking"; }
  std::string config() const override { return "{}"; }
  Shape compute_output_shape(const Shape& input) const override { return input; }
  bool uses_masks() const override { return true; }
  bool supports_masking() const override { return true; }
  Tensor compute_mask(const std::vector<Tensor>& inputs, const CallArguments&) const override {
    return inputs[0].ne(0).any(-1);
  }

 protected:
  Tensor call(const Tensor& input, bool training) override { return input; }
};
inline layers::Layer skip_zeros() { return std::make_shared<SkipZerosImpl>(); }

/// 2 x, which hands masks on.
class TwiceImpl : public LayerImpl {
 public:
  explicit TwiceImpl(bool hands_on = true) : LayerImpl("Twice", "", {}), hands_on_(hands_on) {}
  std::string class_name() const override { return "Twice"; }
  std::string config() const override { return "{}"; }
  Shape compute_output_shape(const Shape& input) const override { return input; }
  bool supports_masking() const override { return hands_on_; }

 protected:
  Tensor call(const Tensor& input, bool training) override { return 2 * input; }

 private:
  bool hands_on_;
};

/// The mean over the steps that count; [N, T, C] → [N, C].
class MeanOverStepsImpl : public LayerImpl {
 public:
  MeanOverStepsImpl() : LayerImpl("MeanOverSteps", "", {}) {}
  std::string class_name() const override { return "MeanOverSteps"; }
  std::string config() const override { return "{}"; }
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override {
    return {{inputs.at(0)[0], inputs[0].back()}};
  }
  bool uses_masks() const override { return true; }

 protected:
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) override {
    const Tensor mask = arguments.mask(0);
    if (!mask.defined()) return {inputs[0].mean(1)};
    const Tensor counts = mask.to(inputs[0].scalar_type()).unsqueeze(-1);
    return {(inputs[0] * counts).sum(1) / counts.sum(1)};
  }
};

inline std::string summary_of(const Model& model) {
  std::ostringstream out;
  model.summary(out);
  return out.str();
}

/// Every weight filled with -.3, -.2, … .3, -.3, ….
inline void fill_weights(Model& model) {
  std::vector<Tensor> values;
  for (const Tensor& weight : model.get_weights())
    values.push_back(
        ((at::arange(weight.numel(), at::kFloat).remainder(7) - 3) / 10).view(weight.sizes()));
  model.set_weights(values);
}

}  // namespace tutti::keras::testing
