// Cells over sequences. Inside, time is the first axis: so steps lie in one piece each.

#include "keras/layers/recurrent_impl.h"
#include "tutti/distribute/strategy.h"

namespace tutti::keras::layers {

RecurrentImpl::RecurrentImpl(const char* class_name, std::shared_ptr<RNNCellImpl> cell,
                             bool own_cell, const RNNOptions& options)
    : LayerImpl(class_name, options.name, options.input_shape),
      class_name_(class_name),
      cell_(std::move(cell)),
      own_cell_(own_cell),
      options_(options) {
  if (cell_ == nullptr) throw InvalidArgument(cat(head(*this), "an empty handle, expected a cell"));
  track(cell_);
}

std::string RecurrentImpl::config() const {
  Json json = base_config(*this);
  if (own_cell_) {
    Json cell = Json::parse(cell_->config());
    for (const char* own : {"name", "trainable", "dtype"}) cell.erase(own);
    json.update(cell);
  } else {
    json["cell"] = nested_json(*cell_);
  }
  json.update({{"return_sequences", options_.return_sequences},
               {"return_state", options_.return_state},
               {"go_backwards", options_.go_backwards},
               {"stateful", options_.stateful},
               {"zero_output_for_mask", options_.zero_output_for_mask}});
  return json.dump();
}

std::vector<Shape> RecurrentImpl::compute_output_shapes(const std::vector<Shape>& inputs) const {
  const std::vector<int64_t> sizes = cell_->state_size();
  if (inputs.empty() || inputs[0].size() < 3 || (own_cell_ && inputs[0].size() != 3)) {
    throw InvalidArgument(cat(head(*this), "input of shape ",
                              inputs.empty() ? "()" : shape_text(inputs[0]),
                              ", expected (batch, time, features)"));
  }
  if (inputs[0][1] == 0)
    throw InvalidArgument(
        cat(head(*this), "input of shape ", shape_text(inputs[0]), ", expected at least one step"));
  if (inputs.size() != 1 && inputs.size() != 1 + sizes.size()) {
    throw InvalidArgument(
        cat(head(*this), inputs.size() - 1, " initial states, expected none or ", sizes.size()));
  }
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].size() == 2 && inputs[i][1] == sizes[i - 1]) continue;
    throw InvalidArgument(cat(head(*this), "initial state ", i - 1, " of shape ",
                              shape_text(inputs[i]), ", expected (batch, ", sizes[i - 1], ")"));
  }
  const int64_t batch = inputs[0][0];
  std::vector<Shape> outputs{{batch, cell_->output_size()}};
  if (options_.return_sequences) outputs[0] = {batch, inputs[0][1], cell_->output_size()};
  for (int64_t size : sizes) {
    if (options_.return_state) outputs.push_back({batch, size});
  }
  return outputs;
}

Tensor RecurrentImpl::compute_mask(const std::vector<Tensor>& inputs,
                                   const CallArguments& arguments) const {
  return options_.return_sequences ? arguments.mask(0) : Tensor();
}

void RecurrentImpl::build_all(const std::vector<Shape>& inputs) {
  Shape step = inputs[0];
  step.erase(step.begin() + 1);
  if (own_cell_) cell_->set_dtype_policy(dtype_policy());
  build_inside(*this, *cell_, {step});
  if (options_.stateful) {
    kept_ = std::vector<Kept>(
        static_cast<std::size_t>(distribute::get_strategy().num_local_replicas()));
  }
}

void RecurrentImpl::reset_state() {
  if (!options_.stateful)
    throw FailedPrecondition(
        cat(head(*this), "reset_state of a layer that keeps none, expected stateful = true"));
  for (Kept& kept : kept_) kept.states.clear();
}

RecurrentImpl::Kept* RecurrentImpl::kept_states() {
  if (!options_.stateful) return nullptr;
  distribute::ReplicaContext* replica = distribute::get_replica_context();
  const auto local = static_cast<std::size_t>(replica != nullptr ? replica->local_replica_id() : 0);
  if (local >= kept_.size()) {
    throw FailedPrecondition(cat(head(*this), "replica ", local, " of a layer that was built for ",
                                 kept_.size(),
                                 " of them, expected the strategy under which it was built"));
  }
  return &kept_[local];
}

std::vector<Tensor> RecurrentImpl::first_states(const std::vector<Tensor>& inputs,
                                                Kept* kept) const {
  const int64_t batch = inputs[0].size(0);
  if (inputs.size() > 1) {
    for (std::size_t i = 1; i < inputs.size(); ++i) {
      if (inputs[i].size(0) == batch) continue;
      throw InvalidArgument(cat(head(*this), "initial state ", i - 1, " of ", inputs[i].size(0),
                                " rows for ", batch, " sequences, expected as many"));
    }
    return {inputs.begin() + 1, inputs.end()};
  }
  if (kept == nullptr || kept->states.empty()) return cell_->initial_states(batch, inputs[0]);
  if (kept->states[0].size(0) != batch) {
    throw InvalidArgument(cat(head(*this), batch, " sequences for a state of ",
                              kept->states[0].size(0),
                              " of them, expected the same batch size each time; call reset_state "
                              "in between"));
  }
  return kept->states;
}

std::vector<Tensor> RecurrentImpl::call_all(const std::vector<Tensor>& inputs,
                                            const CallArguments& arguments) {
  std::vector<Shape> shapes;
  for (const Tensor& input : inputs) shapes.push_back(input.sizes().vec());
  compute_output_shapes(shapes);
  Kept* kept = kept_states();
  std::vector<Tensor> states = first_states(inputs, kept);
  Tensor steps = inputs[0].transpose(0, 1);
  Tensor mask = arguments.mask(0);
  if (mask.defined()) {
    if (mask.dim() != 2 || mask.size(0) != inputs[0].size(0) || mask.size(1) != inputs[0].size(1))
      throw InvalidArgument(cat(head(*this), "a mask of shape ", shape_text(mask.sizes()),
                                " for an input of shape ", shape_text(inputs[0].sizes()),
                                ", expected its batch and time"));
    mask = mask.to(at::kBool).transpose(0, 1).unsqueeze(-1);
  }
  if (options_.go_backwards) {
    steps = steps.flip(0);
    if (mask.defined()) mask = mask.flip(0);
  }
  const auto pass = cell_->begin(steps[0], arguments.training);
  Tensor output;
  if (!mask.defined()) output = pass->run(steps, states);
  if (output.defined()) {
    output = options_.return_sequences ? output.transpose(0, 1) : output[-1];
  } else {
    output = loop(*pass, steps, mask, states);
  }
  if (kept != nullptr) {
    kept->states.clear();
    for (const Tensor& state : states) kept->states.push_back(state.detach());
  }
  std::vector<Tensor> outputs{output};
  if (options_.return_state) outputs.insert(outputs.end(), states.begin(), states.end());
  return outputs;
}

Tensor RecurrentImpl::loop(RNNCellImpl::Pass& pass, const Tensor& steps, const Tensor& mask,
                           std::vector<Tensor>& states) const {
  const std::vector<Tensor> projected = pass.project(steps).unbind(0);
  const std::vector<Tensor> counts = mask.defined() ? mask.unbind(0) : std::vector<Tensor>();
  std::vector<Tensor> outputs;
  Tensor last;
  for (std::size_t t = 0; t < projected.size(); ++t) {
    std::vector<Tensor> stepped = pass.step(projected[t], states);
    if (mask.defined()) {
      const bool zero = options_.zero_output_for_mask || !last.defined();
      const Tensor instead = zero ? at::zeros_like(stepped[0]) : last;
      stepped[0] = at::where(counts[t], stepped[0], instead);
      for (std::size_t i = 0; i < states.size(); ++i)
        stepped[i + 1] = at::where(counts[t], stepped[i + 1], states[i]);
    }
    last = stepped[0];
    if (options_.return_sequences) outputs.push_back(last);
    states.assign(stepped.begin() + 1, stepped.end());
  }
  return options_.return_sequences ? at::stack(outputs, 1) : last;
}

// ---- handles

namespace {

template <class Options>
RNNOptions rnn_options(const Options& options) {
  RNNOptions flags;
  flags.return_sequences = options.return_sequences;
  flags.return_state = options.return_state;
  flags.go_backwards = options.go_backwards;
  flags.stateful = options.stateful;
  flags.name = options.name;
  flags.input_shape = options.input_shape;
  return flags;
}
template <class Options>
void read_flags(const Json& json, const LayerBase& base, Options& options) {
  options.return_sequences = member<bool>(json, "return_sequences", false);
  options.return_state = member<bool>(json, "return_state", false);
  options.go_backwards = member<bool>(json, "go_backwards", false);
  options.stateful = member<bool>(json, "stateful", false);
  options.name = base.name;
  options.input_shape = base.input_shape;
}
template <class Options, class Handle>
Layer recurrent_from(const Json& json, const LayerBase& base) {
  auto options = cell_options<Options>(json, base);
  read_flags(json, base, options);
  const Handle layer(member<int64_t>(json, "units", 0), options);
  static_cast<RecurrentImpl&>(*layer).zero_output_for_mask(
      member<bool>(json, "zero_output_for_mask", false));
  return layer;
}
Layer rnn_from(const Json& json, const LayerBase& base) {
  RNNOptions options;
  read_flags(json, base, options);
  options.zero_output_for_mask = member<bool>(json, "zero_output_for_mask", false);
  return RNN(cell_from(nested_layer(json, "cell")), options);
}

constexpr LayerEntry kRecurrentLayers[] = {
    {"RNN", rnn_from},
    {"SimpleRNN", recurrent_from<SimpleRNNOptions, SimpleRNN>},
    {"LSTM", recurrent_from<LSTMOptions, LSTM>},
    {"GRU", recurrent_from<GRUOptions, GRU>}};

}  // namespace

RNN::RNN(const RNNCell& cell, const RNNOptions& options)
    : Layer(std::make_shared<RecurrentImpl>("RNN", cell.cell(), /*own_cell=*/false, options)) {}
RNN::RNN(const Layer& layer) : Layer(layer) {
  if (dynamic_cast<RecurrentImpl*>(impl().get()) != nullptr) return;
  throw InvalidArgument(cat("RNN: ", impl() == nullptr ? "an empty handle" : impl()->class_name(),
                            ", expected RNN, SimpleRNN, LSTM or GRU"));
}
void RNN::reset_state() const { static_cast<RecurrentImpl&>(*impl()).reset_state(); }

namespace {

template <class Options>
Layer around(const char* class_name, std::shared_ptr<RNNCellImpl> cell, const Options& options) {
  return std::make_shared<RecurrentImpl>(class_name, std::move(cell), /*own_cell=*/true,
                                         rnn_options(options));
}

}  // namespace

SimpleRNN::SimpleRNN(int64_t units, const SimpleRNNOptions& options)
    : RNN(around("SimpleRNN",
                 make_simple_rnn_cell(cell_arguments(units, options), "simple_rnn_cell"),
                 options)) {}
LSTM::LSTM(int64_t units, const LSTMOptions& options)
    : RNN(around("LSTM", make_lstm_cell(cell_arguments(units, options), "lstm_cell"), options)) {}
GRU::GRU(int64_t units, const GRUOptions& options)
    : RNN(around("GRU", make_gru_cell(cell_arguments(units, options), "gru_cell"), options)) {}

LayerFamily recurrent_layers() { return kRecurrentLayers; }

}  // namespace tutti::keras::layers
