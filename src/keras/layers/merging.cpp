// Layers of several inputs that make one output.

#include "keras/layers/config.h"

namespace tutti::keras::layers {
namespace {

[[noreturn]] void wrong_shapes(const LayerImpl& layer, const std::vector<Shape>& inputs,
                               const std::string& expected) {
  std::vector<std::string> texts;
  for (const Shape& input : inputs) texts.push_back(shape_text(input));
  throw InvalidArgument(cat(layer.class_name(), " [", layer.name(), "]: inputs of shapes ",
                            join(texts, ", "), ", expected ", expected));
}

std::vector<Shape> shapes_of(const std::vector<Tensor>& inputs) {
  std::vector<Shape> shapes;
  for (const Tensor& input : inputs) shapes.push_back(input.sizes().vec());
  return shapes;
}

bool all_have_masks(std::size_t inputs, const CallArguments& context) {
  for (std::size_t i = 0; i < inputs; ++i) {
    if (!context.mask(i).defined()) return false;
  }
  return true;
}

// ---- element by element

enum class Merge { kAdd, kSubtract, kMultiply, kAverage, kMaximum, kMinimum };
constexpr const char* kMergeNames[] = {"Add",     "Subtract", "Multiply",
                                       "Average", "Maximum",  "Minimum"};

template <Merge kMerge>
class MergeImpl final : public ConfiguredLayer<NoArguments> {
  static constexpr bool kLooksAtMasks =
      kMerge == Merge::kMultiply || kMerge == Merge::kMaximum || kMerge == Merge::kMinimum;

 public:
  explicit MergeImpl(NoArguments arguments)
      : ConfiguredLayer(kMergeNames[static_cast<int>(kMerge)], arguments) {}
  bool supports_masking() const override { return true; }
  bool uses_masks() const override { return kLooksAtMasks; }
  Tensor compute_mask(const std::vector<Tensor>& inputs,
                      const CallArguments& context) const override {
    if (!all_have_masks(inputs.size(), context)) return {};
    Tensor mask = context.mask(0);
    for (std::size_t i = 1; i < inputs.size(); ++i) mask = mask.logical_or(context.mask(i));
    return mask;
  }
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override {
    if (inputs.size() < 2 || (kMerge == Merge::kSubtract && inputs.size() != 2))
      wrong_shapes(*this, inputs,
                   kMerge == Merge::kSubtract ? "exactly two inputs" : "at least two inputs");
    std::size_t rank = 0;
    for (const Shape& input : inputs) {
      if (input.empty()) wrong_shapes(*this, inputs, "batches, not scalars");
      rank = std::max(rank, input.size());
    }
    Shape output(rank, 1);
    output[0] = -1;
    for (const Shape& input : inputs) {
      if (input[0] >= 0 && output[0] >= 0 && input[0] != output[0])
        wrong_shapes(*this, inputs, "batches of one size");
      output[0] = std::max(output[0], input[0]);
      for (std::size_t i = 1; i < input.size(); ++i) {
        int64_t& size = output[i + rank - input.size()];
        const int64_t own = input[i];
        if (own < 0 || size < 0) {
          size = -1;
        } else if (size == 1) {
          size = own;
        } else if (own != 1 && own != size) {
          wrong_shapes(*this, inputs, "shapes that broadcast");
        }
      }
    }
    return {output};
  }

 protected:
  void build_all(const std::vector<Shape>& inputs) override {}
  std::vector<Tensor> call_all(const std::vector<Tensor>& given,
                               const CallArguments& context) override {
    compute_output_shapes(shapes_of(given));
    std::vector<Tensor> inputs = given;
    int64_t rank = 0;
    for (const Tensor& input : inputs) rank = std::max(rank, input.dim());
    for (Tensor& input : inputs) {
      while (input.dim() < rank) input = input.unsqueeze(1);
    }
    if constexpr (kLooksAtMasks) {
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (context.mask(i).defined()) return {masked(inputs, context, rank)};
      }
    }
    Tensor output = inputs[0];
    for (std::size_t i = 1; i < inputs.size(); ++i) output = merged(output, inputs[i]);
    if (kMerge == Merge::kAverage) output = output / static_cast<double>(inputs.size());
    return {output};
  }

 private:
  static Tensor merged(const Tensor& a, const Tensor& b) {
    switch (kMerge) {
      case Merge::kAdd:
      case Merge::kAverage:
        return a + b;
      case Merge::kSubtract:
        return a - b;
      case Merge::kMultiply:
        return a * b;
      case Merge::kMaximum:
        return at::maximum(a, b);
      default:
        return at::minimum(a, b);
    }
  }
  /// Keras' rules: of Multiply, what is left out is 1, and 0 in the output where all leave it out;
  /// of Maximum and Minimum, it gives way to the other inputs.
  static Tensor masked(const std::vector<Tensor>& inputs, const CallArguments& context,
                       int64_t rank) {
    Tensor output, counts;  // where `output` counts; undefined: everywhere
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensor x = inputs[i];
      const Tensor mask =
          context.mask(i).defined() ? mask_for(context.mask(i), rank) : context.mask(i);
      if (kMerge == Merge::kMultiply && mask.defined()) x = x.masked_fill(mask.logical_not(), 1);
      if (i == 0) {
        output = x;
        counts = mask;
        continue;
      }
      if (kMerge == Merge::kMultiply) {
        output = output * x;
      } else {
        const Tensor other = mask.defined() ? at::where(mask, x, output) : x;
        output = merged(counts.defined() ? at::where(counts, output, other) : output, other);
      }
      counts = counts.defined() && mask.defined() ? counts.logical_or(mask) : Tensor();
    }
    if (kMerge == Merge::kMultiply && counts.defined())
      output = output.masked_fill(counts.logical_not(), 0);
    return output;
  }
};

// ---- Concatenate

struct ConcatenateArguments {
  ConcatenateOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("axis", options.axis);
  }
};

class ConcatenateImpl final : public ConfiguredLayer<ConcatenateArguments> {
 public:
  explicit ConcatenateImpl(ConcatenateArguments arguments)
      : ConfiguredLayer("Concatenate", std::move(arguments)) {}
  bool supports_masking() const override { return true; }
  /// What has no mask counts everywhere; along the last axis any input's step makes it count.
  Tensor compute_mask(const std::vector<Tensor>& inputs,
                      const CallArguments& context) const override {
    bool any = false;
    std::vector<Tensor> masks;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor mask = context.mask(i);
      any = any || mask.defined();
      masks.push_back(
          mask.defined()
              ? mask_for(mask, inputs[i].dim()).expand(inputs[i].sizes())
              : at::ones({}, inputs[i].options().dtype(at::kBool)).expand(inputs[i].sizes()));
    }
    return any ? at::cat(masks, options().axis).any(-1) : Tensor();
  }
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override {
    if (inputs.empty() || inputs[0].empty()) wrong_shapes(*this, inputs, "at least one batch");
    const auto axis = static_cast<std::size_t>(axis_of(*this, options().axis, inputs[0]));
    Shape output = inputs[0];
    for (std::size_t k = 1; k < inputs.size(); ++k) {
      if (inputs[k].size() != output.size()) wrong_shapes(*this, inputs, "one rank");
      for (std::size_t i = 0; i < output.size(); ++i) {
        const int64_t own = inputs[k][i];
        if (i == axis) {
          output[i] = own < 0 || output[i] < 0 ? -1 : output[i] + own;
        } else if (own >= 0 && output[i] >= 0 && own != output[i]) {
          wrong_shapes(*this, inputs, cat("sizes that agree along all axes but ", axis));
        } else {
          output[i] = std::max(output[i], own);
        }
      }
    }
    return {output};
  }

 protected:
  void build_all(const std::vector<Shape>& inputs) override {}
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& context) override {
    compute_output_shapes(shapes_of(inputs));
    return {at::cat(inputs, options().axis)};
  }
};

// ---- Dot

struct DotArguments {
  AxisPair axes = -1;
  DotOptions options;
  template <class Io>
  void visit(Io&& io) {
    io("axes", axes);
    io("normalize", options.normalize);
  }
};

class DotImpl final : public ConfiguredLayer<DotArguments> {
 public:
  explicit DotImpl(DotArguments arguments) : ConfiguredLayer("Dot", std::move(arguments)) {}
  bool supports_masking() const override { return true; }
  Tensor compute_mask(const std::vector<Tensor>&, const CallArguments&) const override {
    return {};
  }
  std::vector<Shape> compute_output_shapes(const std::vector<Shape>& inputs) const override {
    if (inputs.size() != 2) wrong_shapes(*this, inputs, "exactly two inputs");
    const auto [first, second] = axes_of(inputs[0], inputs[1]);
    const int64_t a = inputs[0][first], b = inputs[1][second];
    if (a >= 0 && b >= 0 && a != b)
      wrong_shapes(*this, inputs,
                   cat("axis ", first, " of the first as long as axis ", second, " of the second"));
    Shape output{std::max(inputs[0][0], inputs[1][0])};
    for (std::size_t i = 1; i < inputs[0].size(); ++i) {
      if (i != first) output.push_back(inputs[0][i]);
    }
    for (std::size_t i = 1; i < inputs[1].size(); ++i) {
      if (i != second) output.push_back(inputs[1][i]);
    }
    if (output.size() == 1) output.push_back(1);
    return {output};
  }

 protected:
  void build_all(const std::vector<Shape>& inputs) override {}
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& context) override {
    const std::vector<Shape> shapes = shapes_of(inputs);
    const Shape output = compute_output_shapes(shapes)[0];
    const auto [first, second] = axes_of(shapes[0], shapes[1]);
    const int64_t rows = shapes[0][0], summed = shapes[0][first];
    if (rows != shapes[1][0]) wrong_shapes(*this, shapes, "batches of one size");
    Tensor a = inputs[0].movedim(static_cast<int64_t>(first), -1);
    Tensor b = inputs[1].movedim(static_cast<int64_t>(second), 1);
    if (options().normalize) {
      a = unit(a, -1);
      b = unit(b, 1);
    }
    int64_t left = 1, right = 1;
    for (int64_t i = 1; i + 1 < a.dim(); ++i) left *= a.size(i);
    for (int64_t i = 2; i < b.dim(); ++i) right *= b.size(i);
    return {
        at::bmm(a.reshape({rows, left, summed}), b.reshape({rows, summed, right})).reshape(output)};
  }

 private:
  std::pair<std::size_t, std::size_t> axes_of(const Shape& a, const Shape& b) const {
    const int64_t first = axis_of(*this, arguments().axes.first, a);
    const int64_t second = axis_of(*this, arguments().axes.second, b);
    if (first == 0 || second == 0)
      throw InvalidArgument(cat("Dot [", name(), "]: axes ", first, " and ", second,
                                ", expected other axes than the batch's"));
    return {static_cast<std::size_t>(first), static_cast<std::size_t>(second)};
  }
  static Tensor unit(const Tensor& x, int64_t axis) {
    return x * x.square().sum(axis, true).clamp_min(1e-24).rsqrt();
  }
};

template <Merge kMerge>
std::shared_ptr<LayerImpl> merge(const LayerOptions& options) {
  return std::make_shared<MergeImpl<kMerge>>(NoArguments{options});
}

}  // namespace

Add::Add(const LayerOptions& options) : Layer(merge<Merge::kAdd>(options)) {}
Subtract::Subtract(const LayerOptions& options) : Layer(merge<Merge::kSubtract>(options)) {}
Multiply::Multiply(const LayerOptions& options) : Layer(merge<Merge::kMultiply>(options)) {}
Average::Average(const LayerOptions& options) : Layer(merge<Merge::kAverage>(options)) {}
Maximum::Maximum(const LayerOptions& options) : Layer(merge<Merge::kMaximum>(options)) {}
Minimum::Minimum(const LayerOptions& options) : Layer(merge<Merge::kMinimum>(options)) {}
Concatenate::Concatenate(const ConcatenateOptions& options)
    : Layer(std::make_shared<ConcatenateImpl>(ConcatenateArguments{options})) {}
Dot::Dot(AxisPair axes, const DotOptions& options)
    : Layer(std::make_shared<DotImpl>(DotArguments{axes, options})) {}

KerasTensor add(const std::vector<KerasTensor>& inputs, const LayerOptions& options) {
  return Add(options)(inputs);
}
Tensor add(const std::vector<Tensor>& inputs, const LayerOptions& options) {
  return Add(options)(inputs);
}
KerasTensor subtract(const std::vector<KerasTensor>& inputs, const LayerOptions& options) {
  return Subtract(options)(inputs);
}
Tensor subtract(const std::vector<Tensor>& inputs, const LayerOptions& options) {
  return Subtract(options)(inputs);
}
KerasTensor multiply(const std::vector<KerasTensor>& inputs, const LayerOptions& options) {
  return Multiply(options)(inputs);
}
Tensor multiply(const std::vector<Tensor>& inputs, const LayerOptions& options) {
  return Multiply(options)(inputs);
}
KerasTensor average(const std::vector<KerasTensor>& inputs, const LayerOptions& options) {
  return Average(options)(inputs);
}
Tensor average(const std::vector<Tensor>& inputs, const LayerOptions& options) {
  return Average(options)(inputs);
}
KerasTensor maximum(const std::vector<KerasTensor>& inputs, const LayerOptions& options) {
  return Maximum(options)(inputs);
}
Tensor maximum(const std::vector<Tensor>& inputs, const LayerOptions& options) {
  return Maximum(options)(inputs);
}
KerasTensor minimum(const std::vector<KerasTensor>& inputs, const LayerOptions& options) {
  return Minimum(options)(inputs);
}
Tensor minimum(const std::vector<Tensor>& inputs, const LayerOptions& options) {
  return Minimum(options)(inputs);
}
KerasTensor concatenate(const std::vector<KerasTensor>& inputs, const ConcatenateOptions& options) {
  return Concatenate(options)(inputs);
}
Tensor concatenate(const std::vector<Tensor>& inputs, const ConcatenateOptions& options) {
  return Concatenate(options)(inputs);
}
KerasTensor dot(const std::vector<KerasTensor>& inputs, AxisPair axes, const DotOptions& options) {
  return Dot(axes, options)(inputs);
}
Tensor dot(const std::vector<Tensor>& inputs, AxisPair axes, const DotOptions& options) {
  return Dot(axes, options)(inputs);
}

namespace {

constexpr LayerEntry kMerging[] = {
    {"Add", make_configured<MergeImpl<Merge::kAdd>>},
    {"Subtract", make_configured<MergeImpl<Merge::kSubtract>>},
    {"Multiply", make_configured<MergeImpl<Merge::kMultiply>>},
    {"Average", make_configured<MergeImpl<Merge::kAverage>>},
    {"Maximum", make_configured<MergeImpl<Merge::kMaximum>>},
    {"Minimum", make_configured<MergeImpl<Merge::kMinimum>>},
    {"Concatenate", make_configured<ConcatenateImpl>},
    {"Dot", make_configured<DotImpl>},
};

}  // namespace

LayerFamily merging_layers() { return kMerging; }

}  // namespace tutti::keras::layers
