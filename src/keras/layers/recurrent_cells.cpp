// What all cells have, and cells one after another.

#include "keras/layers/recurrent_impl.h"

namespace tutti::keras::layers {

namespace {

/// A user's cell, step by step through its call.
class CallPass : public RNNCellImpl::Pass {
 public:
  CallPass(RNNCellImpl& cell, bool training) : cell_(cell), arguments_{training} {}
  std::vector<Tensor> step(const Tensor& input, const std::vector<Tensor>& states) override {
    std::vector<Tensor> inputs{input};
    inputs.insert(inputs.end(), states.begin(), states.end());
    return cell_(inputs, arguments_);
  }

 private:
  RNNCellImpl& cell_;
  CallArguments arguments_;
};

}  // namespace

std::unique_ptr<RNNCellImpl::Pass> RNNCellImpl::begin(const Tensor& input, bool training) {
  return std::make_unique<CallPass>(*this, training);
}

std::vector<Tensor> RNNCellImpl::initial_states(int64_t batch, const Tensor& like) const {
  std::vector<Tensor> states;
  for (int64_t size : state_size()) states.push_back(at::zeros({batch, size}, like.options()));
  return states;
}

std::vector<Shape> RNNCellImpl::compute_output_shapes(const std::vector<Shape>& inputs) const {
  const std::vector<int64_t> sizes = state_size();
  if (inputs.empty() || inputs[0].size() < 2 ||
      (inputs.size() != 1 && inputs.size() != 1 + sizes.size())) {
    throw InvalidArgument(
        cat(head(*this), inputs.size(), " inputs",
            inputs.empty() ? "" : cat(", the first of shape ", shape_text(inputs[0])),
            ", expected (batch, features) and ", sizes.size(), " states"));
  }
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].size() == 2 && inputs[i][1] == sizes[i - 1]) continue;
    throw InvalidArgument(cat(head(*this), "state ", i - 1, " of shape ", shape_text(inputs[i]),
                              ", expected (batch, ", sizes[i - 1], ")"));
  }
  std::vector<Shape> outputs{{inputs[0][0], output_size()}};
  for (int64_t size : sizes) outputs.push_back({inputs[0][0], size});
  return outputs;
}

std::vector<Tensor> RNNCellImpl::call_all(const std::vector<Tensor>& inputs,
                                          const CallArguments& arguments) {
  std::vector<Shape> shapes;
  for (const Tensor& input : inputs) shapes.push_back(input.sizes().vec());
  compute_output_shapes(shapes);
  std::vector<Tensor> states(inputs.begin() + 1, inputs.end());
  if (states.empty()) states = initial_states(inputs[0].size(0), inputs[0]);
  const auto pass = begin(inputs[0], arguments.training);
  return pass->step(pass->project(inputs[0]), states);
}

RNNCell cell_from(const Layer& layer) {
  auto cell = std::dynamic_pointer_cast<RNNCellImpl>(layer.impl());
  if (cell == nullptr)
    throw DataLoss(cat("configuration [cell]: a ", layer->class_name(),
                       ", expected a recurrent cell; the file is damaged"));
  return RNNCell(std::move(cell));
}

namespace {

class StackedPass : public RNNCellImpl::Pass {
 public:
  StackedPass(std::vector<std::unique_ptr<Pass>> passes, std::vector<std::size_t> num_states)
      : passes_(std::move(passes)), num_states_(std::move(num_states)) {}
  Tensor project(const Tensor& inputs) override { return passes_[0]->project(inputs); }
  std::vector<Tensor> step(const Tensor& projected, const std::vector<Tensor>& states) override {
    std::vector<Tensor> results(1);
    Tensor input = projected;
    auto from = states.begin();
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      const auto to = from + static_cast<std::ptrdiff_t>(num_states_[i]);
      std::vector<Tensor> stepped = passes_[i]->step(i == 0 ? input : passes_[i]->project(input),
                                                     std::vector<Tensor>(from, to));
      input = stepped[0];
      results.insert(results.end(), stepped.begin() + 1, stepped.end());
      from = to;
    }
    results[0] = input;
    return results;
  }

 private:
  std::vector<std::unique_ptr<Pass>> passes_;
  std::vector<std::size_t> num_states_;
};

class StackedRNNCellsImpl : public RNNCellImpl {
 public:
  StackedRNNCellsImpl(const std::vector<RNNCell>& cells, const StackedRNNCellsOptions& options)
      : RNNCellImpl("StackedRNNCells", options.name, {}), cells_(cells) {
    if (cells.empty()) throw InvalidArgument(cat(head(*this), "no cells, expected at least one"));
    for (const RNNCell& cell : cells) {
      if (cell.cell() == nullptr)
        throw InvalidArgument(cat(head(*this), "an empty handle, expected a cell"));
      track(cell.cell());
    }
  }
  std::string class_name() const override { return "StackedRNNCells"; }
  std::string config() const override {
    Json json = base_config(*this);
    json["cells"] = Json::array();
    for (const RNNCell& cell : cells_) json["cells"].push_back(nested_json(*cell.cell()));
    return json.dump();
  }
  std::vector<int64_t> state_size() const override {
    std::vector<int64_t> sizes;
    for (const RNNCell& cell : cells_) {
      for (int64_t size : cell.cell()->state_size()) sizes.push_back(size);
    }
    return sizes;
  }
  int64_t output_size() const override { return cells_.back().cell()->output_size(); }
  std::unique_ptr<Pass> begin(const Tensor& input, bool training) override {
    std::vector<std::unique_ptr<Pass>> passes;
    std::vector<std::size_t> num_states;
    Tensor like = input;
    for (const RNNCell& cell : cells_) {
      passes.push_back(cell.cell()->begin(like, training));
      num_states.push_back(cell.cell()->state_size().size());
      like = at::empty({input.size(0), cell.cell()->output_size()}, input.options());
    }
    return std::make_unique<StackedPass>(std::move(passes), std::move(num_states));
  }

 protected:
  void build(const Shape& input) override {
    Shape shape = input;
    for (const RNNCell& cell : cells_) {
      if (!cell->built()) cell->set_dtype_policy(dtype_policy());
      build_inside(*this, *cell.cell(), {shape});
      shape = {input[0], cell.cell()->output_size()};
    }
  }

 private:
  std::vector<RNNCell> cells_;
};

Layer stacked_from(const Json& json, const LayerBase& base) {
  std::vector<RNNCell> cells;
  for (const Json& description : member<std::vector<Json>>(json, "cells", {}))
    cells.push_back(cell_from(nested_layer(description)));
  return StackedRNNCells(cells, {base.name});
}

constexpr LayerEntry kCells[] = {{"StackedRNNCells", stacked_from}};

}  // namespace

StackedRNNCells::StackedRNNCells(const std::vector<RNNCell>& cells,
                                 const StackedRNNCellsOptions& options)
    : RNNCell(std::make_shared<StackedRNNCellsImpl>(cells, options)) {}

LayerFamily recurrent_cells() { return kCells; }

}  // namespace tutti::keras::layers
