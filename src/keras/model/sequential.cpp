#include "tutti/keras/sequential.h"

#include "keras/model/model_body.h"
#include "keras/model/scope.h"

namespace tutti::keras {

Sequential::Sequential(std::shared_ptr<SequentialBody> stack)
    : Model(std::static_pointer_cast<ModelBody>(stack)), stack_(stack.get()) {}

Sequential::Sequential(std::vector<layers::Layer> layers, const SequentialOptions& options)
    : Sequential(std::make_shared<SequentialBody>(options.name)) {
  for (const layers::Layer& layer : layers) stack_->append(layer);
  build_if_known();
}

Sequential::~Sequential() = default;

bool Sequential::built() const { return stack_->built(); }
std::vector<layers::Layer> Sequential::layers() const { return stack_->layers(); }

layers::Shape Sequential::input_shape() const {
  return built() ? stack_->built_shapes()[0] : layers::Shape{};
}
layers::Shape Sequential::output_shape() const {
  return built() ? stack_->compute_output_shape(input_shape()) : layers::Shape{};
}

void Sequential::build_if_known() {
  if (built() || stack_->layers().empty()) return;
  const layers::Layer& first = stack_->layers()[0];
  if (!first->input_shape().empty()) {
    layers::Shape shape = first->input_shape();
    shape.insert(shape.begin(), -1);
    return build(shape);
  }
  // A model in front is mostly built already.
  const auto* model = dynamic_cast<const ModelBody*>(first.impl().get());
  if (model != nullptr && model->built() && model->built_shapes().size() == 1)
    build(model->built_shapes()[0]);
}

void Sequential::add(const layers::Layer& layer) {
  const layers::Shape shape = output_shape();
  stack_->append(layer);
  try {
    if (built()) {
      in_strategy_of(*this, [&] {
        layer->build_for(shape);
        stack_->compute_output_shape(input_shape());
      });
      stack_->look_for_masks();
    } else {
      build_if_known();
    }
  } catch (...) {
    stack_->remove_last();
    throw;
  }
}

void Sequential::pop() {
  if (stack_->layers().empty())
    throw FailedPrecondition(
        cat("pop [", name(), "]: a model without layers, expected at least one"));
  stack_->remove_last();
}

void Sequential::build(const layers::Shape& input_shape) {
  if (built()) return;
  if (stack_->layers().empty())
    throw FailedPrecondition(
        cat("build [", name(), "]: a model without layers, expected at least one; call add()"));
  in_strategy_of(*this, [&] { stack_->build_for(input_shape); });
}

Tensor Sequential::call(const Tensor& x, bool training) {
  if (!stack_->uses_masks()) return stack_->run(x, training);
  Tensor mask;
  Tensor output = stack_->run_masked(x, training, mask);
  note_masks({output}, {mask});
  return output;
}

}  // namespace tutti::keras
