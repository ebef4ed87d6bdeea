// One step of SimpleRNN, LSTM and GRU. The part that knows no state, x kernel + bias, is one matmul
// for all steps of a sequence; a step multiplies the state alone.

#include "keras/layers/random.h"
#include "keras/layers/recurrent_impl.h"

namespace tutti::keras::layers {
namespace {

/// Begins with ones where the forget gate's bias is.
class ForgetBias : public Initializer::Impl {
 public:
  explicit ForgetBias(Initializer others) : others_(std::move(others)) {}
  Tensor operator()(const std::vector<int64_t>& shape) const override {
    const int64_t units = shape[0] / 4;
    return at::cat({others_({units}), at::ones({units}, at::kFloat), others_({2 * units})});
  }
  std::string class_name() const override { return others_.class_name(); }
  std::string config() const override { return others_.config(); }

 private:
  Initializer others_;
};

class StandardCell : public RNNCellImpl {
 public:
  StandardCell(const char* class_name, int64_t gates, const CellArguments& arguments,
               const std::string& name)
      : RNNCellImpl(class_name, name, {}),
        class_name_(class_name),
        gates_(gates),
        arguments_(arguments),
        random_(arguments.seed) {
    check_count(*this, "units", arguments.units);
    check_rate(*this, "dropout", arguments.dropout);
    check_rate(*this, "recurrent_dropout", arguments.recurrent_dropout);
  }
  std::string class_name() const override { return class_name_; }
  std::string config() const override {
    Json json = base_config(*this);
    json.update({{"units", arguments_.units},
                 {"activation", arguments_.activation.name()},
                 {"use_bias", arguments_.use_bias},
                 {"kernel_initializer", to_json(arguments_.kernel_initializer)},
                 {"recurrent_initializer", to_json(arguments_.recurrent_initializer)},
                 {"bias_initializer", to_json(arguments_.bias_initializer)},
                 {"kernel_regularizer", to_json(arguments_.kernel_regularizer)},
                 {"recurrent_regularizer", to_json(arguments_.recurrent_regularizer)},
                 {"bias_regularizer", to_json(arguments_.bias_regularizer)},
                 {"kernel_constraint", to_json(arguments_.kernel_constraint)},
                 {"recurrent_constraint", to_json(arguments_.recurrent_constraint)},
                 {"bias_constraint", to_json(arguments_.bias_constraint)},
                 {"dropout", arguments_.dropout},
                 {"recurrent_dropout", arguments_.recurrent_dropout}});
    put(json, "seed", arguments_.seed);
    add_arguments(json);
    return json.dump();
  }
  std::vector<int64_t> state_size() const override { return {arguments_.units}; }

  /// What a pass works with: weights in the compute dtype, read once, and the dropout masks.
  struct Parts {
    const CellArguments* arguments;
    Tensor kernel;     ///< [in, gates units]
    Tensor recurrent;  ///< [units, gates units]
    Tensor bias;       ///< undefined: none
    /// One for all gates, or one for each; empty: none.
    std::vector<Tensor> input_masks;
    /// One for each gate (the simple cell has one); empty: none.
    std::vector<Tensor> recurrent_masks;
  };

 protected:
  bool has_weights() const override { return true; }
  virtual void add_arguments(Json& json) const {}
  virtual Shape bias_shape() const { return {gates_ * arguments_.units}; }
  virtual Initializer bias_initializer() const { return arguments_.bias_initializer; }
  /// Kernels are stored transposed: so LibTorch's operations take them without a copy.
  void build(const Shape& input) override {
    if (input.back() < 1)
      throw InvalidArgument(cat(head(*this), "input of shape ", shape_text(input),
                                ", expected a known number of features"));
    kernel_ = add_weight({.name = "kernel",
                          .shape = {input.back(), gates_ * arguments_.units},
                          .initializer = arguments_.kernel_initializer,
                          .regularizer = arguments_.kernel_regularizer,
                          .constraint = arguments_.kernel_constraint.function(),
                          .storage_order = {1, 0}});
    recurrent_ = add_weight({.name = "recurrent_kernel",
                             .shape = {arguments_.units, gates_ * arguments_.units},
                             .initializer = arguments_.recurrent_initializer,
                             .regularizer = arguments_.recurrent_regularizer,
                             .constraint = arguments_.recurrent_constraint.function(),
                             .storage_order = {1, 0}});
    if (arguments_.use_bias) {
      bias_ = add_weight({.name = "bias",
                          .shape = bias_shape(),
                          .initializer = bias_initializer(),
                          .regularizer = arguments_.bias_regularizer,
                          .constraint = arguments_.bias_constraint.function()});
    }
    random_.build();
  }
  /// As Keras: with recurrent dropout every gate has masks of its own, without it they share one.
  Parts parts(const Tensor& input, bool training) {
    Parts parts{&arguments_,
                value_of(kernel_),
                value_of(recurrent_),
                arguments_.use_bias ? value_of(bias_) : Tensor(),
                {},
                {}};
    if (input.size(-1) != parts.kernel.size(0)) {
      throw InvalidArgument(cat(head(*this), "input of shape ", shape_text(input.sizes()),
                                ", expected ", parts.kernel.size(0),
                                " features, those it was built with"));
    }
    if (!training) return parts;
    const bool separate = arguments_.recurrent_dropout > 0;
    if (arguments_.dropout > 0) {
      for (int64_t i = 0; i < (separate ? gates_ : 1); ++i)
        parts.input_masks.push_back(
            random_.dropout_mask(*this, input.sizes(), arguments_.dropout, input));
    }
    for (int64_t i = 0; separate && i < gates_; ++i) {
      parts.recurrent_masks.push_back(random_.dropout_mask(*this, {input.size(0), arguments_.units},
                                                           arguments_.recurrent_dropout, input));
    }
    return parts;
  }

  const CellArguments& arguments() const { return arguments_; }

 private:
  std::string class_name_;
  int64_t gates_;
  CellArguments arguments_;
  LayerRandom random_;
  Variable kernel_, recurrent_, bias_;
};

class StandardPass : public RNNCellImpl::Pass {
 public:
  explicit StandardPass(StandardCell::Parts parts)
      : parts_(std::move(parts)), arguments_(*parts_.arguments), units_(arguments_.units) {}

  Tensor project(const Tensor& inputs) override {
    const Tensor product = parts_.input_masks.size() <= 1
                               ? at::matmul(masked(inputs), parts_.kernel)
                               : gate_by_gate(inputs);
    const Tensor bias = input_bias();
    return bias.defined() ? product + bias : product;
  }

 protected:
  virtual Tensor input_bias() const { return parts_.bias; }
  Tensor masked(const Tensor& inputs) const {
    return parts_.input_masks.empty() ? inputs : inputs * parts_.input_masks[0];
  }
  /// `h` as gate `gate` sees it.
  Tensor recurrent_input(const Tensor& h, std::size_t gate) const {
    return parts_.recurrent_masks.empty() ? h : h * parts_.recurrent_masks[gate];
  }
  /// h times the recurrent kernel's columns of gates [first, first + count), added to `to`.
  Tensor add_recurrent(const Tensor& to, const Tensor& h, int64_t first, int64_t count) const {
    const Tensor columns = parts_.recurrent.narrow(1, first * units_, count * units_);
    if (parts_.recurrent_masks.empty()) return at::addmm(to, h, columns);
    std::vector<Tensor> products;
    for (int64_t gate = 0; gate < count; ++gate) {
      products.push_back(at::mm(recurrent_input(h, static_cast<std::size_t>(first + gate)),
                                columns.narrow(1, gate * units_, units_)));
    }
    return to + at::cat(products, 1);
  }

  StandardCell::Parts parts_;
  const CellArguments& arguments_;
  int64_t units_;

 private:
  Tensor gate_by_gate(const Tensor& inputs) const {
    std::vector<Tensor> products;
    for (std::size_t gate = 0; gate < parts_.input_masks.size(); ++gate) {
      products.push_back(
          at::matmul(inputs * parts_.input_masks[gate],
                     parts_.kernel.narrow(1, static_cast<int64_t>(gate) * units_, units_)));
    }
    return at::cat(products, -1);
  }
};

// ---- SimpleRNN

class SimpleRNNPass : public StandardPass {
 public:
  using StandardPass::StandardPass;
  std::vector<Tensor> step(const Tensor& projected, const std::vector<Tensor>& states) override {
    const Tensor output = arguments_.activation(add_recurrent(projected, states[0], 0, 1));
    return {output, output};
  }
};

class SimpleRNNCellImpl : public StandardCell {
 public:
  SimpleRNNCellImpl(const CellArguments& arguments, const std::string& name)
      : StandardCell("SimpleRNNCell", 1, arguments, name) {}
  std::unique_ptr<Pass> begin(const Tensor& input, bool training) override {
    return std::make_unique<SimpleRNNPass>(parts(input, training));
  }
};

// ---- LSTM

class LSTMPass : public StandardPass {
 public:
  using StandardPass::StandardPass;
  std::vector<Tensor> step(const Tensor& projected, const std::vector<Tensor>& states) override {
    const std::vector<Tensor> gates = add_recurrent(projected, states[0], 0, 4).chunk(4, 1);
    const Tensor i = arguments_.recurrent_activation(gates[0]);
    const Tensor f = arguments_.recurrent_activation(gates[1]);
    const Tensor c = f * states[1] + i * arguments_.activation(gates[2]);
    const Tensor h = arguments_.recurrent_activation(gates[3]) * arguments_.activation(c);
    return {h, h, c};
  }
  /// LibTorch's gates are in the same order, and it adds a second bias, which is 0 here.
  Tensor run(const Tensor& inputs, std::vector<Tensor>& states) override {
    const bool known = arguments_.activation.name() == "tanh" &&
                       arguments_.recurrent_activation.name() == "sigmoid";
    if (!known || !parts_.recurrent_masks.empty() || !inputs.is_cpu() || inputs.dim() != 3 ||
        inputs.scalar_type() != at::kFloat || inputs.numel() == 0) {
      return {};
    }
    std::vector<Tensor> weights{parts_.kernel.t(), parts_.recurrent.t()};
    if (parts_.bias.defined()) {
      weights.push_back(parts_.bias);
      weights.push_back(at::zeros_like(parts_.bias));
    }
    const bool train =
        at::GradMode::is_enabled() && (inputs.requires_grad() || parts_.kernel.requires_grad() ||
                                       parts_.recurrent.requires_grad() ||
                                       states[0].requires_grad() || states[1].requires_grad());
    auto [outputs, h, c] =
        at::lstm(masked(inputs), {states[0].unsqueeze(0), states[1].unsqueeze(0)}, weights,
                 parts_.bias.defined(), /*num_layers=*/1, /*dropout=*/0, train,
                 /*bidirectional=*/false, /*batch_first=*/false);
    states = {h.squeeze(0), c.squeeze(0)};
    return outputs;
  }
};

class LSTMCellImpl : public StandardCell {
 public:
  LSTMCellImpl(const CellArguments& arguments, const std::string& name)
      : StandardCell("LSTMCell", 4, arguments, name) {}
  std::vector<int64_t> state_size() const override {
    return {arguments().units, arguments().units};
  }
  std::unique_ptr<Pass> begin(const Tensor& input, bool training) override {
    return std::make_unique<LSTMPass>(parts(input, training));
  }

 protected:
  void add_arguments(Json& json) const override {
    json["recurrent_activation"] = arguments().recurrent_activation.name();
    json["unit_forget_bias"] = arguments().unit_forget_bias;
  }
  Initializer bias_initializer() const override {
    if (!arguments().unit_forget_bias) return arguments().bias_initializer;
    return Initializer(std::make_shared<ForgetBias>(arguments().bias_initializer));
  }
};

// ---- GRU

class GRUPass : public StandardPass {
 public:
  using StandardPass::StandardPass;
  std::vector<Tensor> step(const Tensor& projected, const std::vector<Tensor>& states) override {
    const Tensor& h = states[0];
    const Tensor candidate =
        arguments_.reset_after ? reset_after(projected, h) : reset_before(projected, h);
    const Tensor output = at::lerp(candidate, h, z_);
    return {output, output};
  }

 protected:
  Tensor input_bias() const override {
    return parts_.bias.defined() && arguments_.reset_after ? parts_.bias[0] : parts_.bias;
  }

 private:
  Tensor reset_after(const Tensor& projected, const Tensor& h) {
    const Tensor none = parts_.bias.defined() ? parts_.bias[1] : projected.new_zeros({1});
    const std::vector<Tensor> inner = add_recurrent(none, h, 0, 3).chunk(3, 1);
    const std::vector<Tensor> outer = projected.chunk(3, 1);
    z_ = arguments_.recurrent_activation(outer[0] + inner[0]);
    const Tensor r = arguments_.recurrent_activation(outer[1] + inner[1]);
    return arguments_.activation(outer[2] + r * inner[2]);
  }
  Tensor reset_before(const Tensor& projected, const Tensor& h) {
    const std::vector<Tensor> gates =
        add_recurrent(projected.narrow(1, 0, 2 * units_), h, 0, 2).chunk(2, 1);
    z_ = arguments_.recurrent_activation(gates[0]);
    const Tensor r = arguments_.recurrent_activation(gates[1]);
    return arguments_.activation(at::addmm(projected.narrow(1, 2 * units_, units_),
                                           r * recurrent_input(h, 2),
                                           parts_.recurrent.narrow(1, 2 * units_, units_)));
  }

  Tensor z_;
};

class GRUCellImpl : public StandardCell {
 public:
  GRUCellImpl(const CellArguments& arguments, const std::string& name)
      : StandardCell("GRUCell", 3, arguments, name) {}
  std::unique_ptr<Pass> begin(const Tensor& input, bool training) override {
    return std::make_unique<GRUPass>(parts(input, training));
  }

 protected:
  void add_arguments(Json& json) const override {
    json["recurrent_activation"] = arguments().recurrent_activation.name();
    json["reset_after"] = arguments().reset_after;
  }
  Shape bias_shape() const override {
    const int64_t width = 3 * arguments().units;
    return arguments().reset_after ? Shape{2, width} : Shape{width};
  }
};

template <class Options, class Cell>
Layer standard_cell_from(const Json& json, const LayerBase& base) {
  return Cell(member<int64_t>(json, "units", 0), cell_options<Options>(json, base));
}

constexpr LayerEntry kCells[] = {
    {"SimpleRNNCell", standard_cell_from<SimpleRNNCellOptions, SimpleRNNCell>},
    {"LSTMCell", standard_cell_from<LSTMCellOptions, LSTMCell>},
    {"GRUCell", standard_cell_from<GRUCellOptions, GRUCell>}};

}  // namespace

std::shared_ptr<RNNCellImpl> make_simple_rnn_cell(const CellArguments& arguments,
                                                  const std::string& name) {
  return std::make_shared<SimpleRNNCellImpl>(arguments, name);
}
std::shared_ptr<RNNCellImpl> make_lstm_cell(const CellArguments& arguments,
                                            const std::string& name) {
  return std::make_shared<LSTMCellImpl>(arguments, name);
}
std::shared_ptr<RNNCellImpl> make_gru_cell(const CellArguments& arguments,
                                           const std::string& name) {
  return std::make_shared<GRUCellImpl>(arguments, name);
}

SimpleRNNCell::SimpleRNNCell(int64_t units, const SimpleRNNCellOptions& options)
    : RNNCell(make_simple_rnn_cell(cell_arguments(units, options), options.name)) {}
LSTMCell::LSTMCell(int64_t units, const LSTMCellOptions& options)
    : RNNCell(make_lstm_cell(cell_arguments(units, options), options.name)) {}
GRUCell::GRUCell(int64_t units, const GRUCellOptions& options)
    : RNNCell(make_gru_cell(cell_arguments(units, options), options.name)) {}

LayerFamily standard_cells() { return kCells; }

}  // namespace tutti::keras::layers
