// Structure of models: building, weights, models as layers.

#include "tutti/keras/model.h"

#include <c10/util/Type.h>

#include "distribute/variable_checkpoint.h"
#include "keras/layers/call_losses.h"
#include "keras/model/model_body.h"
#include "keras/model/scope.h"
#include "keras/training/training_state.h"
#include "tutti/distribute/nn.h"
#include "tutti/keras/layers.h"

namespace tutti::keras {

std::string automatic_name(const std::string& class_name);

namespace {

/// `ns::Outer::Net<int>` → Net.
std::string class_name_of(const Model& model) {
  std::string name = c10::demangle(typeid(model).name());
  name = name.substr(0, name.find('<'));
  const auto colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

bool outside_replicas() {
  const distribute::ReplicaContext* replica = distribute::get_replica_context();
  return replica == nullptr || replica->strategy().is_default();
}

}  // namespace

void in_strategy_of(const Model& model, FunctionRef<void()> make_weights) {
  distribute::Strategy& current = distribute::get_strategy();
  if (&current == &model.strategy()) return make_weights();
  if (!current.is_default()) {
    throw FailedPrecondition(
        cat("build [", model.name(), "]: called under ", current.name(), ", expected under ",
            model.strategy().name(),
            ", to which the model belongs; make the model inside the scope in which it is used"));
  }
  auto scope = model.strategy().scope();
  make_weights();
}

int64_t Batch::rows() const {
  if (x.defined()) return x.size(0);
  int64_t rows = -1;
  auto look = [&](auto&& self, const Nest& nest) -> void {
    if (rows >= 0) return;
    if (nest.is_leaf()) rows = nest.leaf().size(0);
    if (nest.is_strings()) rows = nest.strings().size(0);
    for (const Nest& item : nest.items()) self(self, item);
  };
  look(look, x_nest);
  return std::max<int64_t>(rows, 0);
}

Model::Model(std::string name)
    : name_(std::move(name)),
      strategy_(&distribute::get_strategy()),
      policy_(mixed_precision::global_policy()),
      training_(std::make_unique<Training>(strategy_->num_local_replicas())) {}

Model::Model(std::shared_ptr<ModelBody> body) : Model(body->name()) { body_ = std::move(body); }

Model::~Model() { delete call_losses_.load(); }

const std::string& Model::name() const {
  // Only now is the class of the user's own known.
  std::call_once(named_, [&] {
    if (name_.empty()) name_ = automatic_name(class_name_of(*this));
  });
  return name_;
}

void Model::set_name(const std::string& name) {
  this->name();
  name_ = name;
  if (body_) body_->set_name(name);
}

// ---- calls

Tensor Model::call(const Tensor& x, bool training) {
  Nest outputs = call_all(Nest(x), training);
  if (!outputs.is_leaf())
    throw InvalidArgument(cat("model [", name(), "]: outputs of the structure ",
                              outputs.structure(), ", expected one tensor; call it with a Nest"));
  return std::move(outputs.leaf());
}

Nest Model::call_all(const Nest& inputs, bool training) {
  if (!inputs.is_leaf())
    throw InvalidArgument(cat("model [", name(), "]: inputs of the structure ", inputs.structure(),
                              ", expected one tensor; a model of several inputs overrides "
                              "call_all"));
  return call(inputs.leaf(), training);
}

Tensor Model::ready(const Tensor& x) const {
  if (!x.defined() || x.dim() == 0) {
    throw InvalidArgument(cat("model [", name(), "]: an input ",
                              x.defined() ? "that is a scalar" : "that is undefined",
                              ", expected a batch"));
  }
  const at::ScalarType compute = policy_.compute_dtype();
  return x.scalar_type() == compute || !x.is_floating_point() ? x : x.to(compute);
}

void Model::build_before_call(const Nest& inputs) {
  const std::vector<Tensor> leaves = flatten(inputs);
  if (leaves.empty()) return;
  layers::Shape shape = leaves[0].sizes().vec();
  shape[0] = -1;
  distribute::once_for_all_replicas("build", [&] {
    if (!built()) {
      struct Mark {
        bool& mark;
        ~Mark() { mark = false; }
      } in_call{in_first_call_};
      in_first_call_ = true;
      build(shape);
    }
    if (waiting_state_ == nullptr) return;
    // The call itself would build what is not built, too late for its own weights.
    if (!built()) call_with_zeros(inputs);
    take_waiting_state();
  });
}

void Model::enter(layers::CallScope& scope) {
  if (scope.enter()) clear_losses();
}

void Model::clear_losses() {
  if (auto* own = call_losses_.load(std::memory_order_acquire)) own->clear();
  if (body_) return body_->clear_losses();
  for (const layers::Layer& layer : layers_) layer->clear_losses();
  if (!layers_.empty()) return;
  for (const layers::Layer& layer : layers()) layer->clear_losses();
}

Tensor Model::operator()(const Tensor& x, bool training) {
  const Tensor input = ready(x);
  if (!built() || waiting_state_ != nullptr) build_before_call(Nest(input));
  layers::CallScope scope;
  enter(scope);
  Tensor output = call(input, training);
  if (!called_) called_ = true;
  return output;
}

Nest Model::operator()(const Nest& inputs, bool training) {
  Nest cast;
  if (inputs.is_leaf()) {
    cast = Nest(ready(inputs.leaf()));
  } else {
    cast = inputs.map_leaves([&](const Tensor& leaf) { return ready(leaf); });
  }
  if (!built() || waiting_state_ != nullptr) build_before_call(cast);
  layers::CallScope scope;
  enter(scope);
  Nest outputs = call_all(cast, training);
  if (!called_) called_ = true;
  return outputs;
}

Nest Model::operator()(const std::vector<Tensor>& inputs, bool training) {
  return (*this)(to_nest(inputs), training);
}

void Model::build(const layers::Shape& input_shape) {
  if (in_first_call_ || built()) return;  // the call itself builds
  layers::Shape one_row = input_shape;
  for (int64_t& size : one_row) size = size < 0 ? 1 : size;
  call_with_zeros(Nest(at::zeros(one_row, at::TensorOptions(policy_.compute_dtype()))));
  take_waiting_state();
}

void Model::call_with_zeros(const Nest& like) {
  in_strategy_of(*this, [&] {
    at::NoGradGuard no_grad;
    const auto zeros = [](const Tensor& leaf) {
      std::vector<int64_t> sizes = leaf.sizes().vec();
      sizes[0] = 1;
      return at::zeros(sizes, leaf.options());
    };
    call_all(like.map_leaves(zeros), /*training=*/false);
  });
  called_ = true;
}

bool Model::built() const {
  if (called_) return true;
  const auto all = layers();
  for (const layers::Layer& layer : all) {
    if (!layer->built()) return false;
  }
  return !all.empty() || !variables_.empty();
}

// ---- layers

std::vector<layers::Layer> Model::layers() const { return layers_; }

layers::Layer Model::get_layer(const std::string& name) const {
  std::vector<std::string> names;
  for (const layers::Layer& layer : layers()) {
    if (layer->name() == name) return layer;
    names.push_back(layer->name());
  }
  throw NotFound(
      cat("get_layer [", this->name(), "]: \"", name, "\", expected one of ", join(names, ", ")));
}

void Model::track_layer(const layers::Layer& layer) {
  if (layer.impl() == nullptr)
    throw InvalidArgument("track: an empty layer handle, expected a layer");
  for (const layers::Layer& known : layers_) {
    if (known.impl() == layer.impl()) return;
  }
  layers_.push_back(layer);
}

Variable Model::track(const Variable& variable) {
  if (!variable.defined())
    throw InvalidArgument("track: an empty variable, expected one that has a value");
  variables_.push_back(variable);
  return variable;
}

layers::Layer Model::layer() const {
  if (body_ == nullptr)
    throw InvalidArgument(cat("model [", name(),
                              "]: of a class of your own, which is no layer by itself; pass a "
                              "std::shared_ptr of it to as_layer"));
  return layers::Layer(body_);
}

/// A model of the user's own class inside another one.
class ModelLayer : public layers::LayerImpl {
 public:
  explicit ModelLayer(std::shared_ptr<Model> model)
      : LayerImpl("Model", model->name(), {}), model_(std::move(model)) {
    set_holds_layers();
  }
  std::string class_name() const override { return class_name_of(*model_); }
  std::string config() const override { return Json{{"name", name()}}.dump(); }
  std::vector<layers::Shape> compute_output_shapes(
      const std::vector<layers::Shape>& inputs) const override {
    at::NoGradGuard no_grad;
    std::vector<Nest> zeros;
    for (layers::Shape shape : inputs) {
      for (int64_t& size : shape) size = size < 0 ? 1 : size;
      zeros.emplace_back(
          at::zeros(shape, at::TensorOptions(model_->dtype_policy().compute_dtype())));
    }
    std::vector<layers::Shape> shapes;
    for (const Tensor& output : flatten((*model_)(nest_of(std::move(zeros))))) {
      shapes.push_back(output.sizes().vec());
      if (!shapes.back().empty()) shapes.back()[0] = -1;
    }
    return shapes;
  }
  void set_trainable(bool trainable) override {
    LayerImpl::set_trainable(trainable);
    model_->set_trainable(trainable);
  }
  std::vector<Variable> weights() const override { return model_->weights(); }
  std::vector<Variable> trainable_weights() const override { return model_->trainable_variables(); }
  std::vector<Tensor> losses() const override { return model_->losses(); }

 protected:
  void forget_losses() override { model_->clear_losses(); }
  bool casts_integers() const override { return false; }
  void build_all(const std::vector<layers::Shape>&) override {}  // by compute_output_shapes
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const layers::CallArguments& arguments) override {
    std::vector<Nest> items(inputs.begin(), inputs.end());
    return flatten((*model_)(nest_of(std::move(items)), arguments.training));
  }

 private:
  static Nest nest_of(std::vector<Nest> items) {
    return items.size() == 1 ? std::move(items[0]) : Nest::tuple(std::move(items));
  }
  std::shared_ptr<Model> model_;
};

layers::Layer as_layer(std::shared_ptr<Model> model) {
  if (model == nullptr) throw InvalidArgument("as_layer: an empty pointer, expected a model");
  const bool plain = typeid(*model) == typeid(Sequential) || typeid(*model) == typeid(Functional);
  if (plain) return model->layer();
  return layers::Layer(std::make_shared<ModelLayer>(std::move(model)));
}

// ---- weights

void Model::check_built(const char* operation) const {
  if (built()) {
    // A build() of the user's own does not do it.
    if (waiting_state_ != nullptr && outside_replicas()) take_waiting_state();
    return;
  }
  throw FailedPrecondition(
      cat(operation, " [", name(),
          "]: the model is not built, so it has no weights yet; give the first layer an "
          "input_shape, call build(), or call the model once"));
}

std::vector<Variable> Model::weights() const {
  check_built("weights");
  std::vector<Variable> all = variables_;
  for (const layers::Layer& layer : layers()) {
    for (Variable& weight : layer->weights()) all.push_back(std::move(weight));
  }
  return all;
}

std::vector<Variable> Model::trainable_variables() const {
  check_built("trainable_variables");
  std::vector<Variable> all;
  if (!trainable()) return all;
  for (const Variable& variable : variables_) {
    if (variable.trainable()) all.push_back(variable);
  }
  for (const layers::Layer& layer : layers()) {
    for (Variable& weight : layer->trainable_weights()) all.push_back(std::move(weight));
  }
  return all;
}

std::vector<Variable> Model::non_trainable_variables() const {
  const std::vector<Variable> trainable = trainable_variables();
  std::vector<Variable> others;
  for (const Variable& weight : weights()) {
    bool found = false;
    for (const Variable& other : trainable) found = found || other.is_same(weight);
    if (!found) others.push_back(weight);
  }
  return others;
}

std::vector<std::pair<std::string, Variable>> Model::named_variables() const {
  std::vector<std::pair<std::string, Variable>> named;
  for (Variable& weight : weights()) {
    std::string name = weight.name();
    named.emplace_back(std::move(name), std::move(weight));
  }
  return named;
}

bool Model::trainable() const { return body_ ? body_->trainable() : trainable_; }

void Model::set_trainable(bool trainable) {
  trainable_ = trainable;
  if (body_) return body_->set_trainable(trainable);
  for (const layers::Layer& layer : layers()) layer->set_trainable(trainable);
}

std::vector<Tensor> Model::get_weights() const {
  std::vector<Tensor> values;
  for (const Variable& weight : weights()) values.push_back(weight.read_value().contiguous());
  return values;
}

void Model::set_weights(const std::vector<Tensor>& values) {
  const std::vector<Variable> own = weights();
  if (values.size() != own.size()) {
    throw InvalidArgument(cat("set_weights [", name(), "]: ", values.size(), " tensors for ",
                              own.size(), " weights, expected one each"));
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!values[i].defined()) {
      throw InvalidArgument(cat("set_weights [", name(), "]: an undefined tensor for ",
                                own[i].name(), ", expected ", shape_text(own[i].sizes()),
                                "; nothing was changed"));
    }
    if (values[i].sizes() != own[i].sizes()) {
      throw InvalidArgument(cat("set_weights [", name(), "]: shape ", shape_text(values[i].sizes()),
                                " for ", own[i].name(), ", expected ", shape_text(own[i].sizes()),
                                "; nothing was changed"));
    }
  }
  for (std::size_t i = 0; i < own.size(); ++i)
    tutti::internal::restore_value(own[i], values[i].to(own[i].dtype()));
}

int64_t Model::count_params() const {
  int64_t count = 0;
  for (const Variable& weight : weights()) count += weight.numel();
  return count;
}

std::vector<Tensor> Model::losses() const {
  std::vector<Tensor> all;
  if (const auto* own = call_losses_.load(std::memory_order_acquire)) own->append_to(all);
  if (body_) {
    for (Tensor& loss : body_->losses()) all.push_back(std::move(loss));
    return all;
  }
  for (const layers::Layer& layer : layers()) {
    for (Tensor& loss : layer->losses()) all.push_back(std::move(loss));
  }
  return all;
}

void Model::add_loss(const Tensor& loss) {
  layers::CallLosses* own = call_losses_.load(std::memory_order_acquire);
  if (own == nullptr) {  // replicas may come here together
    auto made = std::make_unique<layers::CallLosses>();
    if (call_losses_.compare_exchange_strong(own, made.get())) own = made.release();
  }
  own->add(loss, name());
}

void Model::note_masks(const std::vector<Tensor>& outputs, const std::vector<Tensor>& masks) {
  training_->note_masks(nn::internal::local_replica(*strategy_), outputs, masks);
}

}  // namespace tutti::keras
