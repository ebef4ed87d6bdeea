// Structure of models: weights, summary, Sequential.

#include "tutti/keras/model.h"

#include <cstdio>
#include <iostream>

#include "distribute/variable_checkpoint.h"
#include "keras/training/training_state.h"
#include "tutti/keras/layers.h"

namespace tutti::keras {
namespace {

void check_built(const Model& model, const char* operation) {
  if (model.built()) return;
  throw FailedPrecondition(
      cat(operation, " [", model.name(),
          "]: the model is not built, so it has no weights yet; give the first layer an "
          "input_shape, call build(), or call the model once"));
}

}  // namespace

Tensor Model::operator()(const Tensor& x, bool training) {
  if (!x.defined() || x.dim() == 0) {
    throw InvalidArgument(cat("model [", name_, "]: an input ",
                              x.defined() ? "that is a scalar" : "that is undefined",
                              ", expected a batch"));
  }
  if (!built()) {
    layers::Shape shape = x.sizes().vec();
    shape[0] = -1;
    distribute::once_for_all_replicas("build", [&] { build(shape); });
  }
  return call(x.scalar_type() == at::kFloat ? x : x.to(at::kFloat), training);
}

std::vector<Variable> Model::weights() const {
  check_built(*this, "weights");
  std::vector<Variable> all;
  for (const layers::Layer& layer : layers()) {
    for (const Variable& weight : layer->weights()) all.push_back(weight);
  }
  return all;
}

std::vector<Variable> Model::trainable_variables() const {
  check_built(*this, "trainable_variables");
  std::vector<Variable> all;
  for (const layers::Layer& layer : layers()) {
    for (const Variable& weight : layer->trainable_weights()) all.push_back(weight);
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

std::vector<Tensor> Model::get_weights() const {
  std::vector<Tensor> values;
  for (const Variable& weight : weights()) values.push_back(weight.read_value().contiguous());
  return values;
}

void Model::set_weights(const std::vector<Tensor>& values) {
  const std::vector<Variable> own = weights();
  if (values.size() != own.size()) {
    throw InvalidArgument(cat("set_weights [", name_, "]: ", values.size(), " tensors for ",
                              own.size(), " weights, expected one each"));
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!values[i].defined()) {
      throw InvalidArgument(cat("set_weights [", name_, "]: an undefined tensor for ",
                                own[i].name(), ", expected ", shape_text(own[i].sizes()),
                                "; nothing was changed"));
    }
    if (values[i].sizes() != own[i].sizes()) {
      throw InvalidArgument(cat("set_weights [", name_, "]: shape ", shape_text(values[i].sizes()),
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
  for (const layers::Layer& layer : layers()) {
    for (Tensor& loss : layer->losses()) all.push_back(std::move(loss));
  }
  return all;
}

void Model::summary() const { summary(std::cout); }

// ---- the table

namespace {

std::string with_commas(int64_t number) {
  std::string digits = std::to_string(number);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

std::string memory_text(int64_t bytes) {
  const char* units[] = {"B", "KB", "MB", "GB", "TB"};
  double size = static_cast<double>(bytes);
  int unit = 0;
  for (; size >= 1024 && unit < 4; ++unit) size /= 1024;
  char text[64];
  std::snprintf(text, sizeof(text), "%.2f %s", size, units[unit]);
  return text;
}

std::string padded(const std::string& text, std::size_t width, bool right = false) {
  const std::string fill(width - std::min(width, text.size()), ' ');
  return right ? fill + text : text + fill;
}

std::string rule(const char* left, const char* middle, const char* right, const char* dash) {
  std::string line = left;
  const int widths[] = {33, 24, 15};
  for (int column = 0; column < 3; ++column) {
    for (int i = 0; i < widths[column]; ++i) line += dash;
    line += column < 2 ? middle : right;
  }
  return line + "\n";
}

/// Cut at blanks, and where a word is too long inside it, so that no line is longer than `width`.
std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines{""};
  for (std::string word : split(text, ' ')) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width)
      lines.emplace_back();
    for (; word.size() > width; word.erase(0, width)) {
      lines.back() = word.substr(0, width);
      lines.emplace_back();
    }
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

struct Counts {
  int64_t number = 0;
  int64_t bytes = 0;
  void add(const Variable& variable) {
    number += variable.numel();
    bytes += variable.numel() * static_cast<int64_t>(c10::elementSize(variable.dtype()));
  }
  std::string text() const { return cat(with_commas(number), " (", memory_text(bytes), ")"); }
};

}  // namespace

void Model::summary(std::ostream& out) const {
  check_built(*this, "summary");
  std::string text = cat("Model: \"", name_, "\"\n");
  text += rule("┏", "┳", "┓", "━");
  text += cat("┃ ", padded("Layer (type)", 31), " ┃ ", padded("Output Shape", 22), " ┃ ",
              padded("Param #", 13, true), " ┃\n");
  text += rule("┡", "╇", "┩", "━");
  layers::Shape shape;
  if (const auto* sequential = dynamic_cast<const Sequential*>(this))
    shape = sequential->input_shape();
  bool first = true;
  for (const layers::Layer& layer : layers()) {
    if (!shape.empty()) shape = layer->compute_output_shape(shape);
    if (layer->class_name() == "InputLayer") continue;
    if (!first) text += rule("├", "┼", "┤", "─");
    first = false;
    int64_t params = 0;
    for (const Variable& weight : layer->weights()) params += weight.numel();
    const auto names = wrapped(cat(layer->name(), " (", layer->class_name(), ")"), 31);
    const auto shapes = wrapped(shape.empty() ? "?" : shape_text(shape), 22);
    for (std::size_t i = 0; i < std::max(names.size(), shapes.size()); ++i) {
      text += cat("│ ", padded(i < names.size() ? names[i] : "", 31), " │ ",
                  padded(i < shapes.size() ? shapes[i] : "", 22), " │ ",
                  padded(i == 0 ? with_commas(params) : "", 13, true), " │\n");
    }
  }
  text += rule("└", "┴", "┘", "─");
  Counts trainable, others, optimizer;
  for (const Variable& variable : trainable_variables()) trainable.add(variable);
  for (const Variable& variable : non_trainable_variables()) others.add(variable);
  if (training_->compiled && training_->optimizer.built()) {
    for (const std::string& slot : training_->optimizer.slot_names()) {
      for (const Variable& variable : training_->optimizer.slots(slot)) optimizer.add(variable);
    }
    optimizer.number += 2;  // iteration and learning rate, as Keras counts them
    optimizer.bytes += 12;
  }
  const Counts total{trainable.number + others.number + optimizer.number,
                     trainable.bytes + others.bytes + optimizer.bytes};
  text += cat(" Total params: ", total.text(), "\n Trainable params: ", trainable.text(),
              "\n Non-trainable params: ", others.text(), "\n");
  if (optimizer.number > 0) text += cat(" Optimizer params: ", optimizer.text(), "\n");
  out << text << std::flush;
}

// ---- Sequential

namespace {

/// Weights belong to the model's strategy, wherever the model is built from.
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

layers::Shape output_shape(const std::vector<layers::Layer>& layers, layers::Shape shape) {
  for (const layers::Layer& layer : layers) shape = layer->compute_output_shape(shape);
  return shape;
}

}  // namespace

Sequential::Sequential(std::vector<layers::Layer> layers, const SequentialOptions& options)
    : Model(options.name) {
  for (const layers::Layer& layer : layers) append(layer);
  build_if_known();
}

Sequential::~Sequential() = default;

void Sequential::append(const layers::Layer& layer) {
  if (layer.impl() == nullptr)
    throw InvalidArgument(
        cat("Sequential [", name(), "]: an empty layer handle, expected a layer"));
  for (const layers::Layer& earlier : layers_) {
    if (earlier->name() == layer->name()) {
      throw InvalidArgument(cat("Sequential [", name(), "]: a second layer of the name \"",
                                layer->name(),
                                "\", expected each name once; give it "
                                "another .name"));
    }
  }
  layers_.push_back(layer);
}

void Sequential::build_if_known() {
  if (built_ || layers_.empty() || layers_[0]->input_shape().empty()) return;
  layers::Shape shape = layers_[0]->input_shape();
  shape.insert(shape.begin(), -1);
  build(shape);
}

void Sequential::add(const layers::Layer& layer) {
  const layers::Shape shape = built_ ? output_shape(layers_, input_shape_) : layers::Shape{};
  append(layer);
  try {
    if (built_) {
      in_strategy_of(*this, [&] { layer->build_for(shape); });
    } else {
      build_if_known();
    }
  } catch (...) {
    layers_.pop_back();
    throw;
  }
}

void Sequential::build(const layers::Shape& input_shape) {
  if (built_) return;
  if (layers_.empty())
    throw FailedPrecondition(
        cat("build [", name(), "]: a model without layers, expected at least one; call add()"));
  output_shape(layers_, input_shape);  // says what does not fit before any weight is made
  in_strategy_of(*this, [&] {
    layers::Shape shape = input_shape;
    for (const layers::Layer& layer : layers_) {
      layer->build_for(shape);
      shape = layer->compute_output_shape(shape);
    }
  });
  input_shape_ = input_shape;
  built_ = true;
}

Tensor Sequential::call(const Tensor& x, bool training) {
  Tensor output = x;
  for (const layers::Layer& layer : layers_) output = layer(output, training);
  return output;
}

}  // namespace tutti::keras
