// The graph: its order, its places, its runs. The order of the layers is Keras': by the longest way
// to an output, then as a search from the outputs meets them.

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "keras/layers/config.h"
#include "keras/model/model_body.h"

namespace tutti::keras {

using layers::CallArguments;
using layers::KerasTensor;
using layers::Layer;
using layers::LayerImpl;
using layers::Shape;
using layers::SymbolicCall;

namespace {

using CallPtr = std::shared_ptr<const SymbolicCall>;

/// Calls on the way from the outputs to `ends`, producers first; `visit` sees each when it is met.
class Search {
 public:
  explicit Search(const std::vector<KerasTensor>& ends) : ends_(ends) {}
  void from(const KerasTensor& output) {
    enter(output);
    while (!open_.empty()) {
      const CallPtr call = open_.back().call;
      if (open_.back().next < open_.back().inputs) {
        enter(call->inputs[open_.back().next++]);
      } else {
        done_.push_back(call);
        open_.pop_back();
      }
    }
  }
  const std::vector<CallPtr>& calls() const { return done_; }
  const std::vector<LayerImpl*>& layers() const { return layers_; }

 private:
  struct Open {
    CallPtr call;
    std::size_t inputs;
    std::size_t next = 0;
  };
  void enter(const KerasTensor& tensor) {
    const CallPtr& call = tensor.call();
    if (!seen_.insert(call.get()).second) return;
    if (std::find(layers_.begin(), layers_.end(), call->layer.get()) == layers_.end())
      layers_.push_back(call->layer.get());
    bool end = false;
    for (const KerasTensor& other : ends_) end = end || other.is_same(tensor);
    open_.push_back({call, end ? 0 : call->inputs.size()});
  }

  const std::vector<KerasTensor>& ends_;
  std::set<const SymbolicCall*> seen_;
  std::vector<Open> open_;
  std::vector<CallPtr> done_;
  std::vector<LayerImpl*> layers_;
};

/// The same graph with an Input in place of each input that is something else's output.
void cut(std::vector<KerasTensor>& inputs, std::vector<KerasTensor>& outputs) {
  Search search(inputs);
  for (const KerasTensor& output : outputs) search.from(output);
  std::map<std::pair<const SymbolicCall*, std::size_t>, KerasTensor> made;
  for (KerasTensor& input : inputs) {
    if (input.call()->inputs.empty()) continue;
    Shape shape = input.shape();
    shape.erase(shape.begin());
    const layers::Input begin(shape, layers::InputOptions{.dtype = input.dtype()});
    made.emplace(std::pair(input.call().get(), input.index()), begin.tensor());
    input = begin.tensor();
  }
  if (made.empty()) return;
  auto now = [&](const KerasTensor& tensor) {
    const auto found = made.find({tensor.call().get(), tensor.index()});
    return found == made.end() ? tensor : found->second;
  };
  for (const CallPtr& call : search.calls()) {
    const bool moved =
        std::any_of(call->inputs.begin(), call->inputs.end(), [&](const KerasTensor& input) {
          return made.count({input.call().get(), input.index()}) > 0;
        });
    if (!moved) continue;
    auto copy = std::make_shared<SymbolicCall>(*call);
    for (KerasTensor& input : copy->inputs) input = now(input);
    copy->place = copy->layer->next_symbolic_call();
    for (std::size_t i = 0; i < copy->shapes.size(); ++i)
      made.emplace(std::pair(call.get(), i), KerasTensor(copy, i));
  }
  for (KerasTensor& output : outputs) output = now(output);
}

}  // namespace

FunctionalBody::FunctionalBody(const std::string& name, std::vector<KerasTensor> inputs,
                               std::vector<KerasTensor> outputs)
    : ModelBody("Functional", name, {}), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
  check_ends();
  cut(inputs_, outputs_);
  order_calls();
  look_for_masks();
  plan();
  chain_ = looks_like_chain();
  std::vector<Shape> shapes;
  for (const KerasTensor& input : inputs_) shapes.push_back(input.shape());
  build_for(shapes);
}

void FunctionalBody::check_ends() {
  if (inputs_.empty() || outputs_.empty())
    throw InvalidArgument(cat("Functional [", name(), "]: ", inputs_.size(), " inputs and ",
                              outputs_.size(), " outputs, expected at least one of each"));
  for (const auto* list : {&inputs_, &outputs_}) {
    for (const KerasTensor& tensor : *list) tensor.shape();  // throws for an empty handle
  }
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (inputs_[i].is_same(inputs_[j]))
        throw InvalidArgument(cat("Functional [", name(), "]: the input \"",
                                  inputs_[i].layer()->name(),
                                  "\" twice, expected each input once"));
    }
  }
}

bool FunctionalBody::is_input(const KerasTensor& tensor) const {
  return std::any_of(inputs_.begin(), inputs_.end(),
                     [&](const KerasTensor& input) { return input.is_same(tensor); });
}

void FunctionalBody::order_calls() {
  Search search(inputs_);
  for (const KerasTensor& output : outputs_) search.from(output);
  std::vector<CallPtr> calls = search.calls();
  for (const CallPtr& call : calls) {
    if (!call->inputs.empty() || is_input(KerasTensor(call, 0))) continue;
    std::vector<std::string> names;
    for (const KerasTensor& input : inputs_) names.push_back(input.layer()->name());
    throw InvalidArgument(cat("Functional [", name(),
                              "]: the graph is disconnected: the outputs "
                              "need the Input \"",
                              call->layer->name(), "\", which is not among the inputs (",
                              join(names, ", "), "); add it to them"));
  }
  std::unordered_map<const SymbolicCall*, int64_t> depth;
  std::unordered_map<const LayerImpl*, int64_t> layer_depth;
  for (auto at = calls.rbegin(); at != calls.rend(); ++at) {
    const SymbolicCall* call = at->get();
    const int64_t own = std::max(depth[call], layer_depth[call->layer.get()]);
    depth[call] = layer_depth[call->layer.get()] = own;
    for (const KerasTensor& input : call->inputs) {
      int64_t& producer = depth[input.call().get()];
      producer = std::max(producer, own + 1);
    }
  }
  // Inputs that no output needs stand in front at the end.
  std::vector<LayerImpl*> met;
  for (const KerasTensor& input : inputs_) {
    if (depth.count(input.call().get()) > 0) continue;
    depth[input.call().get()] = layer_depth[input.layer().get()] = 0;
    calls.push_back(input.call());
    met.push_back(input.layer().get());
  }
  met.insert(met.end(), search.layers().begin(), search.layers().end());
  std::stable_sort(met.begin(), met.end(), [&](const LayerImpl* a, const LayerImpl* b) {
    return layer_depth[a] > layer_depth[b];
  });
  std::stable_sort(calls.begin(), calls.end(), [&](const CallPtr& a, const CallPtr& b) {
    return depth[a.get()] > depth[b.get()];
  });
  calls_ = std::move(calls);
  for (const CallPtr& call : calls_) depths_.push_back(depth[call.get()]);
  order_layers(met);
}

void FunctionalBody::order_layers(const std::vector<LayerImpl*>& met) {
  for (LayerImpl* layer : met) {
    const auto call = std::find_if(calls_.begin(), calls_.end(), [&](const CallPtr& candidate) {
      return candidate->layer.get() == layer;
    });
    check_name((*call)->layer, "Functional");
    layers_.emplace_back((*call)->layer);
  }
}

void FunctionalBody::plan() {
  constexpr std::size_t kAlways = static_cast<std::size_t>(-1);
  using Key = std::pair<const SymbolicCall*, std::size_t>;
  std::vector<const SymbolicCall*> order;
  for (const CallPtr& call : calls_) {
    if (!call->inputs.empty()) order.push_back(call.get());
  }
  std::map<Key, std::size_t> last_use;
  for (std::size_t step = 0; step < order.size(); ++step) {
    for (const KerasTensor& input : order[step]->inputs)
      last_use[{input.call().get(), input.index()}] = step;
  }
  for (const KerasTensor& output : outputs_)
    last_use[{output.call().get(), output.index()}] = kAlways;

  std::map<Key, int> places;
  std::vector<int> free;
  auto take = [&](const Key& key) {
    if (last_use.count(key) == 0) return -1;
    int place = static_cast<int>(places_);
    if (free.empty()) {
      ++places_;
    } else {
      place = free.back();
      free.pop_back();
    }
    places[key] = place;
    return place;
  };
  for (const KerasTensor& input : inputs_)
    input_places_.push_back(take({input.call().get(), input.index()}));
  for (std::size_t at = 0; at < order.size(); ++at) {
    const SymbolicCall* call = order[at];
    Step step{call->layer.get(), {}, {}, {}};
    for (const KerasTensor& input : call->inputs) {
      const Key key{input.call().get(), input.index()};
      step.inputs.push_back(places.at(key));
      const bool again = std::count(step.last.begin(), step.last.end(), places.at(key)) > 0;
      if (last_use.at(key) == at && !again) step.last.push_back(places.at(key));
    }
    for (std::size_t i = 0; i < call->shapes.size(); ++i) step.outputs.push_back(take({call, i}));
    free.insert(free.end(), step.last.begin(), step.last.end());
    steps_.push_back(std::move(step));
  }
  for (const KerasTensor& output : outputs_)
    output_places_.push_back(places.at({output.call().get(), output.index()}));
}

bool FunctionalBody::looks_like_chain() const {
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    if (calls_[i]->inputs.size() > 1 || (i > 0 && depths_[i] == depths_[i - 1])) return false;
  }
  return calls_.size() == layers_.size();
}

// ---- shapes and inputs

void FunctionalBody::check_count(std::size_t inputs) const {
  if (inputs == inputs_.size()) return;
  throw InvalidArgument(
      cat("Functional [", name(), "]: ", inputs, " inputs, expected ", inputs_.size()));
}

std::vector<Shape> FunctionalBody::compute_output_shapes(const std::vector<Shape>& inputs) const {
  check_count(inputs.size());
  std::map<std::pair<const SymbolicCall*, std::size_t>, Shape> shapes;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Shape& own = inputs_[i].shape();
    bool fits = inputs[i].size() == own.size();
    for (std::size_t d = 1; fits && d < own.size(); ++d)
      fits = own[d] < 0 || inputs[i][d] < 0 || own[d] == inputs[i][d];
    if (!fits) {
      throw InvalidArgument(cat("Functional [", name(), "]: shape ", shape_text(inputs[i]),
                                " for the input \"", inputs_[i].layer()->name(), "\", expected ",
                                shape_text(own)));
    }
    shapes[{inputs_[i].call().get(), inputs_[i].index()}] = inputs[i];
  }
  for (const CallPtr& call : calls_) {
    if (call->inputs.empty()) continue;
    std::vector<Shape> given;
    for (const KerasTensor& input : call->inputs)
      given.push_back(shapes.at({input.call().get(), input.index()}));
    const std::vector<Shape> made = call->layer->compute_output_shapes(given);
    for (std::size_t i = 0; i < made.size(); ++i) shapes[{call.get(), i}] = made[i];
  }
  std::vector<Shape> result;
  for (const KerasTensor& output : outputs_)
    result.push_back(shapes.at({output.call().get(), output.index()}));
  return result;
}

void FunctionalBody::adjust(std::vector<Tensor>& inputs) const {
  check_count(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensor& input = inputs[i];
    const Shape& own = inputs_[i].shape();
    if (!input.defined())
      throw InvalidArgument(cat("Functional [", name(), "]: an undefined input \"",
                                inputs_[i].layer()->name(), "\", expected a batch"));
    const auto rank = static_cast<int64_t>(own.size());
    if (input.dim() == rank + 1 && input.size(-1) == 1) input = input.squeeze(-1);
    if (input.dim() == rank - 1 && rank > 1 && own.back() == 1) input = input.unsqueeze(-1);
    bool fits = input.dim() == rank;
    for (int64_t d = 1; fits && d < rank; ++d) {
      const int64_t size = own[static_cast<std::size_t>(d)];
      fits = size < 0 || size == input.size(d);
    }
    if (!fits) {
      throw InvalidArgument(cat("Functional [", name(), "]: shape ", shape_text(input.sizes()),
                                " for the input \"", inputs_[i].layer()->name(), "\", expected ",
                                shape_text(own)));
    }
    const at::ScalarType dtype = inputs_[i].dtype();
    if (input.is_floating_point() && !c10::isFloatingType(dtype)) input = input.to(dtype);
  }
}

// ---- runs

std::vector<Tensor> FunctionalBody::run(const std::vector<Tensor>& inputs, bool training) {
  c10::SmallVector<Tensor, 16> values(places_);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (input_places_[i] >= 0) values[static_cast<std::size_t>(input_places_[i])] = inputs[i];
  }
  auto at = [&](int place) -> Tensor& { return values[static_cast<std::size_t>(place)]; };
  for (const Step& step : steps_) {
    if (step.inputs.size() == 1 && step.outputs.size() == 1) {
      Tensor output = (*step.layer)(at(step.inputs[0]), training);
      if (step.outputs[0] >= 0) at(step.outputs[0]) = std::move(output);
    } else {
      std::vector<Tensor> given;
      given.reserve(step.inputs.size());
      for (int place : step.inputs) given.push_back(at(place));
      std::vector<Tensor> made = (*step.layer)(given, CallArguments{training, {}});
      for (std::size_t i = 0; i < made.size(); ++i) {
        if (step.outputs[i] >= 0) at(step.outputs[i]) = std::move(made[i]);
      }
    }
    for (int place : step.last) at(place).reset();
  }
  std::vector<Tensor> outputs;
  outputs.reserve(output_places_.size());
  for (int place : output_places_) outputs.push_back(at(place));
  return outputs;
}

std::vector<Tensor> FunctionalBody::run_masked(const std::vector<Tensor>& inputs,
                                               const CallArguments& arguments,
                                               std::vector<Tensor>& masks) {
  std::vector<Tensor> values(places_), value_masks(places_);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (input_places_[i] < 0) continue;
    values[static_cast<std::size_t>(input_places_[i])] = inputs[i];
    value_masks[static_cast<std::size_t>(input_places_[i])] = arguments.mask(i);
  }
  for (const Step& step : steps_) {
    std::vector<Tensor> given, made_masks;
    CallArguments own{arguments.training, {}};
    for (int place : step.inputs) {
      given.push_back(values[static_cast<std::size_t>(place)]);
      own.masks.push_back(value_masks[static_cast<std::size_t>(place)]);
    }
    std::vector<Tensor> made = step.layer->call_with_masks(given, own, made_masks);
    for (int place : step.last) {
      values[static_cast<std::size_t>(place)].reset();
      value_masks[static_cast<std::size_t>(place)].reset();
    }
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (step.outputs[i] < 0) continue;
      const auto place = static_cast<std::size_t>(step.outputs[i]);
      values[place] = std::move(made[i]);
      value_masks[place] = i < made_masks.size() ? made_masks[i] : Tensor();
    }
  }
  std::vector<Tensor> outputs;
  masks.clear();
  for (int place : output_places_) {
    outputs.push_back(values[static_cast<std::size_t>(place)]);
    masks.push_back(value_masks[static_cast<std::size_t>(place)]);
  }
  return outputs;
}

std::vector<Tensor> FunctionalBody::call_all(const std::vector<Tensor>& inputs,
                                             const CallArguments& arguments) {
  std::vector<Tensor> masks;
  return call_masked(inputs, arguments, masks);
}

std::vector<Tensor> FunctionalBody::call_masked(const std::vector<Tensor>& inputs,
                                                const CallArguments& arguments,
                                                std::vector<Tensor>& masks) {
  std::vector<Tensor> ready = inputs;
  adjust(ready);
  if (masked_ || arguments.has_masks()) return run_masked(ready, arguments, masks);
  masks.assign(outputs_.size(), Tensor());
  return run(ready, arguments.training);
}

}  // namespace tutti::keras
