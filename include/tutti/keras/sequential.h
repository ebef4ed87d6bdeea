#pragma once
// A stack of layers as a model.

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tutti/keras/model_base.h"

namespace tutti::keras {

class SequentialBody;  // src/keras/model/model_body.h

struct SequentialOptions {
  std::string name = "";
};

/// A stack of layers; a model may stand in it as a layer. Built at once when the first layer knows
/// its input shape (or is an Input, or a model that is built), else by the first batch.
class Sequential : public Model {
 public:
  Sequential() : Sequential(std::vector<layers::Layer>{}) {}
  Sequential(std::initializer_list<layers::Layer> layers,
             const SequentialOptions& options = {})  // NOLINT
      : Sequential(std::vector<layers::Layer>(layers), options) {}
  explicit Sequential(std::vector<layers::Layer> layers, const SequentialOptions& options = {});
  ~Sequential() override;

  /// A layer of a name that is there already, or one that does not fit, is InvalidArgument, and the
  /// model is as it was.
  void add(const layers::Layer& layer);
  /// Takes the last layer off. FailedPrecondition when there is none.
  void pop();
  Tensor call(const Tensor& x, bool training) override;
  void build(const layers::Shape& input_shape) override;
  bool built() const override;
  std::vector<layers::Layer> layers() const override;
  /// Batch dimension included; empty before the model is built.
  layers::Shape input_shape() const;
  layers::Shape output_shape() const;

 private:
  explicit Sequential(std::shared_ptr<SequentialBody> stack);
  void build_if_known();
  SequentialBody* stack_;
};

}  // namespace tutti::keras
