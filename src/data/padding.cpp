// Batches of elements whose shapes differ.

#include <algorithm>
#include <span>

#include "data/iteration.h"
#include "tutti/data/dataset.h"
#include "tutti/tensor/printing.h"

namespace tutti::data {
namespace {

std::string shapes_text(const ShapeNest& shapes) {
  return layout_nest_text(
      shapes.map_leaves([](const std::vector<int64_t>& shape) { return shape_text(shape); }));
}

at::ScalarType dtype_of(const Tensor& item) { return item.scalar_type(); }
at::ScalarType dtype_of(const StringTensor&) { return kString; }

/// Shape of one element of the batch; `wanted`: -1 is the longest of the batch.
template <class Item>
std::vector<int64_t> padded_shape(const std::vector<Item>& items,
                                  const std::vector<int64_t>* wanted) {
  const Item& first = items[0];
  if (wanted != nullptr && static_cast<int64_t>(wanted->size()) != first.dim()) {
    throw InvalidArgument(cat("padded_batch: an element ", TensorSpec::of(first),
                              " for the padded shape ", shape_text(*wanted),
                              ", expected one number of dimensions"));
  }
  std::vector<int64_t> shape(static_cast<std::size_t>(first.dim()), 0);
  for (const Item& item : items) {
    if (item.dim() != first.dim() || dtype_of(item) != dtype_of(first)) {
      throw InvalidArgument(cat("padded_batch: elements ", TensorSpec::of(first), " and ",
                                TensorSpec::of(item), ", expected one rank and dtype"));
    }
    for (std::size_t d = 0; d < shape.size(); ++d)
      shape[d] = std::max(shape[d], item.size(static_cast<int64_t>(d)));
  }
  if (wanted == nullptr) return shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const int64_t size = (*wanted)[d];
    if (size >= 0 && size < shape[d]) {
      throw InvalidArgument(cat("padded_batch: an element with ", shape[d], " entries along axis ",
                                d, " for the padded shape ", shape_text(*wanted),
                                ", expected at most ", size));
    }
    if (size >= 0) shape[d] = size;
  }
  return shape;
}

Tensor padded(const std::vector<Tensor>& items, const std::vector<int64_t>* wanted,
              const Tensor& value) {
  std::vector<int64_t> sizes = padded_shape(items, wanted);
  sizes.insert(sizes.begin(), static_cast<int64_t>(items.size()));
  Tensor batch = at::zeros(sizes, items[0].options());
  if (value.defined()) {
    if (!at::can_cast(value.scalar_type(), batch.scalar_type())) {
      throw InvalidArgument(cat("padded_batch: a padding value of ",
                                dtype_name(value.scalar_type()), " for elements ",
                                TensorSpec::of(items[0]), ", expected their dtype"));
    }
    batch.copy_(value.reshape({}));
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    Tensor place = batch.select(0, static_cast<int64_t>(i));
    for (int64_t d = 0; d < items[i].dim(); ++d) place = place.narrow(d, 0, items[i].size(d));
    place.copy_(items[i]);
  }
  return batch;
}

/// Copies the rows of `item`, of sizes `from`, to their places in an array of sizes `to`.
void place_strings(std::span<const std::string> item, const std::vector<int64_t>& from,
                   std::size_t dim, const std::vector<int64_t>& to, std::string* place) {
  if (dim == from.size()) {
    *place = item[0];
    return;
  }
  std::size_t source = 1, target = 1;
  for (std::size_t d = dim + 1; d < from.size(); ++d) {
    source *= static_cast<std::size_t>(from[d]);
    target *= static_cast<std::size_t>(to[d]);
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(from[dim]); ++i)
    place_strings(item.subspan(i * source), from, dim + 1, to, place + i * target);
}

StringTensor padded(const std::vector<StringTensor>& items, const std::vector<int64_t>* wanted,
                    const std::string& value) {
  std::vector<int64_t> sizes = padded_shape(items, wanted);
  int64_t entries = 1;
  for (int64_t size : sizes) entries *= size;
  std::vector<std::string> batch(items.size() * static_cast<std::size_t>(entries), value);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].numel() > 0)
      place_strings(items[i].values(), items[i].sizes(), 0, sizes,
                    batch.data() + i * static_cast<std::size_t>(entries));
  }
  sizes.insert(sizes.begin(), static_cast<int64_t>(items.size()));
  return StringTensor(std::move(batch), std::move(sizes));
}

class PaddedBatchPlan : public PassPlan {
 public:
  PaddedBatchPlan(PlanPtr input, int64_t size, const PaddedBatchOptions& options)
      : PassPlan(std::move(input)), size_(size), options_(options) {}
  std::string name() const override { return "padded_batch"; }
  std::string arguments() const override {
    return cat(
        size_,
        options_.padded_shapes ? cat(", padded_shapes=", shapes_text(*options_.padded_shapes)) : "",
        options_.padding_values ? cat(", padding_values=", *options_.padding_values) : "",
        drop_text(options_.drop_remainder));
  }
  int64_t cardinality() const override {
    const int64_t elements = input().cardinality();
    if (elements < 0) return elements;
    return options_.drop_remainder ? elements / size_ : (elements + size_ - 1) / size_;
  }
  std::optional<int64_t> batch_size() const override { return size_; }
  int64_t num_rows() const override {
    const int64_t elements = input().cardinality();
    return elements < 0 || !options_.drop_remainder ? elements : elements - elements % size_;
  }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<PaddedBatchPlan>(std::move(inputs[0]), size_, options_);
  }
  // The spec of an input may be that of its first element only, so a size is known only where
  // padded_shapes says it.
  SpecNest element_spec() const override {
    const SpecNest elements = input().element_spec();
    check_structure(elements);
    const auto shapes = wanted_shapes();
    std::size_t column = 0;
    return elements.map_leaves([&](TensorSpec leaf) {
      std::fill(leaf.shape.begin(), leaf.shape.end(), -1);
      if (!shapes.empty()) {
        leaf.shape = shapes[column++];
        leaf.unknown_rank = false;
      }
      if (!leaf.unknown_rank)
        leaf.shape.insert(leaf.shape.begin(), options_.drop_remainder ? size_ : -1);
      return leaf;
    });
  }

 private:
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, std::shared_ptr<const PaddedBatchPlan> plan)
        : input(std::move(input)), plan(std::move(plan)) {}
    std::optional<Nest> next() override {
      const ElementColumns elements = take_columns("padded_batch", *input, plan->size_);
      if (elements.count == 0 || (plan->options_.drop_remainder && elements.count < plan->size_))
        return std::nullopt;
      return plan->stacked(elements);
    }
    Nest save() const override { return input->save(); }
    void restore(const Nest& saved) override { input->restore(saved); }
    std::unique_ptr<Iterator> input;
    std::shared_ptr<const PaddedBatchPlan> plan;
  };
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass),
                                  std::make_shared<PaddedBatchPlan>(inputs()[0], size_, options_));
  }

  Nest stacked(const ElementColumns& elements) const {
    check_structure(spec_of(elements.structure));
    // Of tensors and strings together, in order; empty: not given.
    const auto shapes = wanted_shapes();
    std::vector<Nest> values;
    if (options_.padding_values) {
      const auto add = [&](const auto& value) { values.emplace_back(value); };
      options_.padding_values->for_each(add, add);
    }
    std::size_t component = 0, column = 0, text = 0;
    const auto value = [&](std::size_t c) {
      return values.empty() ? Nest() : values.size() == 1 ? values[0] : values[c];
    };
    const auto shape = [&](std::size_t c) { return shapes.empty() ? nullptr : &shapes[c]; };
    return elements.structure.map_components(
        [&](const Tensor&) {
          const std::size_t c = component++;
          const Nest with = value(c);
          check_kind(with, NestKind::kLeaf);
          return padded(elements.columns[column++], shape(c),
                        with.is_leaf() ? with.leaf() : Tensor());
        },
        [&](const StringTensor&) {
          const std::size_t c = component++;
          const Nest with = value(c);
          check_kind(with, NestKind::kStrings);
          return padded(elements.strings[text++], shape(c),
                        with.is_strings() ? with.strings().item() : std::string());
        });
  }
  static void check_kind(const Nest& value, NestKind kind) {
    if (value.kind() == kind || value.kind() == NestKind::kNone) return;
    throw InvalidArgument(cat("padded_batch: a padding value of ",
                              value.is_strings() ? "string for numbers" : "numbers for strings",
                              ", expected their dtype; give one for each component"));
  }
  std::vector<std::vector<int64_t>> wanted_shapes() const {
    return options_.padded_shapes ? flatten(*options_.padded_shapes)
                                  : std::vector<std::vector<int64_t>>();
  }
  void check_structure(const SpecNest& elements) const {
    if (options_.padded_shapes && !same_structure(elements, *options_.padded_shapes)) {
      throw InvalidArgument(cat(
          "padded_batch: padded_shapes ", shapes_text(*options_.padded_shapes),
          " for elements of the structure ", elements.structure(), ", expected that structure"));
    }
    if (!options_.padding_values) return;
    const SpecNest values = spec_of(*options_.padding_values);
    if (!values.is_leaf() && !same_structure(elements, values)) {
      throw InvalidArgument(cat("padded_batch: padding_values of the structure ",
                                values.structure(), " for elements of ", elements.structure(),
                                ", expected that structure or one value"));
    }
  }

  int64_t size_;
  PaddedBatchOptions options_;
};

}  // namespace

PlanPtr plans::padded_batch(PlanPtr input, int64_t size, const PaddedBatchOptions& options) {
  if (size < 1)
    throw InvalidArgument(cat("padded_batch: ", size, " elements, expected at least 1"));
  if (options.padded_shapes) {
    options.padded_shapes->for_each([](const std::vector<int64_t>& shape) {
      for (int64_t dim : shape) {
        if (dim < -1)
          throw InvalidArgument(cat("padded_batch: the padded shape ", shape_text(shape),
                                    ", expected sizes of -1 (the longest of the batch) or more"));
      }
    });
  }
  if (options.padding_values) {
    const auto check = [](bool one) {
      if (!one)
        throw InvalidArgument(
            "padded_batch: a padding value that is no single number, expected one "
            "for each component, or one for all");
    };
    options.padding_values->for_each(
        [&](const Tensor& value) { check(value.defined() && value.numel() == 1); },
        [&](const StringTensor& value) { check(value.numel() == 1); });
  }
  return std::make_shared<PaddedBatchPlan>(std::move(input), size, options);
}

}  // namespace tutti::data
