#include "tutti/keras/functional.h"

#include <algorithm>

#include "keras/model/model_body.h"
#include "keras/model/scope.h"
#include "tutti/base/log.h"

namespace tutti::keras {
namespace {

/// Keys of a map, else the names of the layers that the tensors come from.
std::vector<std::string> names_of(const SymbolicNest& nest) {
  if (nest.kind() == NestKind::kMap) return nest.keys();
  std::vector<std::string> names;
  for (const KerasTensor& tensor : flatten(nest)) names.push_back(tensor.layer()->name());
  return names;
}

/// Two outputs of one layer get a number, so that logs can tell them apart.
std::vector<std::string> unique(std::vector<std::string> names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string base = names[i];
    for (int number = 1; std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i),
                                   names[i]) != names.begin() + static_cast<std::ptrdiff_t>(i);
         ++number)
      names[i] = cat(base, "_", number);
  }
  return names;
}

/// The weights of all layers must be those of the strategy under which the model is made.
void check_strategy(const Model& model) {
  for (const Variable& weight : model.weights()) {
    if (&weight.strategy() == &model.strategy()) continue;
    throw FailedPrecondition(cat("Functional [", model.name(), "]: the weight \"", weight.name(),
                                 "\" was made under ", weight.strategy().name(),
                                 ", the model under ", model.strategy().name(),
                                 ", expected both in one scope; call the layers inside it too"));
  }
}

}  // namespace

SymbolicNest::SymbolicNest(const std::vector<KerasTensor>& list)
    : NestOf(NestOf::list({list.begin(), list.end()})) {}
SymbolicNest::SymbolicNest(const std::map<std::string, KerasTensor>& by_name)
    : NestOf(NestOf::map({by_name.begin(), by_name.end()})) {}

Functional::Functional(std::shared_ptr<FunctionalBody> graph, const SymbolicNest& inputs,
                       const SymbolicNest& outputs)
    : Model(std::static_pointer_cast<ModelBody>(graph)),
      inputs_(inputs),
      outputs_(outputs),
      output_names_(unique(names_of(outputs))),
      graph_(graph.get()) {
  if (inputs.kind() == NestKind::kMap) {
    input_names_ = inputs.keys();
  } else {
    for (const KerasTensor& input : graph_->inputs()) input_names_.push_back(input.layer()->name());
  }
  check_strategy(*this);
}

Functional::Functional(const SymbolicNest& inputs, const SymbolicNest& outputs,
                       const FunctionalName& options)
    : Functional(std::make_shared<FunctionalBody>(options.name, flatten<KerasTensor>(inputs),
                                                  flatten<KerasTensor>(outputs)),
                 inputs, outputs) {}

Functional::Functional(const FunctionalOptions& options)
    : Functional(options.inputs, options.outputs, FunctionalName{options.name}) {}

Functional::~Functional() = default;

std::vector<layers::Layer> Functional::layers() const { return graph_->layers(); }

KerasTensor Functional::layer_output(const std::string& name) const {
  const layers::Layer layer = get_layer(name);
  for (const auto& call : graph_->calls()) {
    if (call->layer == layer.impl()) return KerasTensor(call, 0);
  }
  throw Internal(cat("layer_output [", this->name(), "]: \"", name, "\" is never called"));
}

std::vector<Tensor> Functional::in_order(const Nest& inputs) const {
  if (inputs.kind() != NestKind::kMap) return flatten(inputs);
  if (inputs.keys() == input_names_) return flatten(inputs);
  std::vector<Tensor> ordered;
  for (const std::string& name : input_names_) {
    const auto& keys = inputs.keys();
    const auto at = std::find(keys.begin(), keys.end(), name);
    if (at == keys.end())
      throw InvalidArgument(cat("Functional [", this->name(), "]: inputs ", join(keys, ", "),
                                " without \"", name, "\", expected ", join(input_names_, ", ")));
    ordered.push_back(inputs.items()[static_cast<std::size_t>(at - keys.begin())].leaf());
  }
  if (inputs.size() > ordered.size()) {
    std::call_once(extra_inputs_, [&] {
      log_warning("Functional [", this->name(), "]: inputs ", join(inputs.keys(), ", "),
                  ", of which only ", join(input_names_, ", "), " are the model's");
    });
  }
  return ordered;
}

std::vector<Tensor> Functional::run(std::vector<Tensor> inputs, bool training) {
  graph_->adjust(inputs);
  if (!graph_->uses_masks()) return graph_->run(inputs, training);
  std::vector<Tensor> masks;
  std::vector<Tensor> outputs = graph_->run_masked(inputs, {training, {}}, masks);
  note_masks(outputs, masks);
  return outputs;
}

Tensor Functional::call(const Tensor& x, bool training) {
  std::vector<Tensor> outputs = run({x}, training);
  if (outputs.size() != 1)
    throw InvalidArgument(cat("Functional [", name(), "]: ", outputs.size(),
                              " outputs, expected one; call it with a Nest"));
  return std::move(outputs[0]);
}

Nest Functional::call_all(const Nest& inputs, bool training) {
  std::vector<Tensor> outputs = run(in_order(inputs), training);
  if (outputs_.is_leaf()) return std::move(outputs[0]);
  return pack_as(outputs_, std::move(outputs));
}

// ---- the table

std::vector<SummaryRow> Functional::summary_rows() const {
  std::vector<SummaryRow> rows = Model::summary_rows();
  std::size_t at = 0;
  for (const layers::Layer& layer : graph_->layers()) {
    SummaryRow& row = rows[at++];
    std::vector<const layers::SymbolicCall*> calls;
    for (const auto& call : graph_->calls()) {
      if (call->layer == layer.impl()) calls.push_back(call.get());
    }
    std::sort(calls.begin(), calls.end(),
              [](const auto* a, const auto* b) { return a->place < b->place; });
    std::vector<std::string> shapes, connections;
    for (const layers::Shape& shape : calls[0]->shapes) shapes.push_back(shape_text(shape));
    row.output_shape = shapes.size() == 1 ? shapes[0] : cat("[", join(shapes, ", "), "]");
    if (graph_->is_chain()) continue;
    for (const auto* call : calls) {
      for (const KerasTensor& input : call->inputs)
        connections.push_back(
            cat(input.layer()->name(), "[", input.call()->place, "][", input.index(), "]"));
    }
    row.connected_to = connections.empty() ? "-" : join(connections, ", ");
  }
  return rows;
}

}  // namespace tutti::keras
