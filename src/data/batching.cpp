// Elements into batches and batches into elements.

#include <algorithm>
#include <cstring>

#include "data/iteration.h"
#include "data/iterator_state.h"
#include "tutti/data/dataset.h"

namespace tutti::data {
namespace {

/// The tensors stacked along a new first axis. Contiguous ones are copied one after the other,
/// without a view for each.
Tensor stack(const std::vector<Tensor>& items) {
  const Tensor& first = items[0];
  for (const Tensor& item : items) {
    if (item.sizes() != first.sizes() || item.scalar_type() != first.scalar_type()) {
      throw InvalidArgument(
          cat("batch: elements ", TensorSpec::of(first), " and ", TensorSpec::of(item),
              ", expected one shape and dtype; use padded_batch, or make them equal with map"));
    }
  }
  if (!std::all_of(items.begin(), items.end(), is_plain)) return at::stack(items);
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes.insert(sizes.begin(), static_cast<int64_t>(items.size()));
  Tensor batch = at::empty(sizes, first.options());
  const std::size_t bytes = first.nbytes();
  auto* target = static_cast<char*>(batch.data_ptr());
  for (const Tensor& item : items) {
    if (bytes > 0) std::memcpy(target, item.const_data_ptr(), bytes);
    target += bytes;
  }
  return batch;
}

StringTensor stack_strings(const std::vector<StringTensor>& items) {
  for (const StringTensor& item : items) {
    if (item.sizes() != items[0].sizes()) {
      throw InvalidArgument(
          cat("batch: elements ", TensorSpec::of(items[0]), " and ", TensorSpec::of(item),
              ", expected one shape and dtype; use padded_batch, or make them equal with map"));
    }
  }
  return StringTensor::stack(items);
}

class BatchPlan : public PassPlan {
 public:
  BatchPlan(PlanPtr input, int64_t size, const BatchOptions& options)
      : PassPlan(std::move(input)), size_(size), drop_remainder_(options.drop_remainder) {}
  std::string name() const override { return "batch"; }
  std::string arguments() const override { return cat(size_, drop_text(drop_remainder_)); }
  int64_t cardinality() const override {
    const int64_t elements = input().cardinality();
    if (elements < 0) return elements;
    return drop_remainder_ ? elements / size_ : (elements + size_ - 1) / size_;
  }
  std::optional<int64_t> batch_size() const override { return size_; }
  int64_t num_rows() const override {
    const int64_t elements = input().cardinality();
    return elements < 0 || !drop_remainder_ ? elements : elements - elements % size_;
  }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<BatchPlan>(std::move(inputs[0]), size_, BatchOptions{drop_remainder_});
  }
  Nest element_at(int64_t index) const override {
    const int64_t elements = input().cardinality();
    std::vector<Nest> rows;
    for (int64_t i = index * size_; rows.size() < static_cast<std::size_t>(size_); ++i) {
      if (elements >= 0 && i >= elements) break;
      rows.push_back(plans::element_at(input(), i));
    }
    return stacked(rows);
  }
  SpecNest element_spec() const override {
    return input().element_spec().map_leaves([this](TensorSpec leaf) {
      if (!leaf.unknown_rank) leaf.shape.insert(leaf.shape.begin(), drop_remainder_ ? size_ : -1);
      return leaf;
    });
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass), size_, drop_remainder_);
  }
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, int64_t size, bool drop)
        : input(std::move(input)), size(size), drop(drop) {}
    std::optional<Nest> next() override {
      return input->table() != nullptr ? next_of_rows() : next_of_elements();
    }

    std::optional<Nest> next_of_rows() {
      indices.clear();
      input->next_rows(size, indices);
      if (indices.empty() || (drop && static_cast<int64_t>(indices.size()) < size))
        return std::nullopt;
      return input->table()->rows(indices);
    }
    std::optional<Nest> next_of_elements() {
      const ElementColumns elements = take_columns("batch", *input, size);
      if (elements.count == 0 || (drop && elements.count < size)) return std::nullopt;
      return stacked(elements);
    }
    Nest save() const override { return input->save(); }
    void restore(const Nest& saved) override { input->restore(saved); }
    std::unique_ptr<Iterator> input;
    int64_t size;
    bool drop;
    std::vector<int64_t> indices;
  };
  int64_t size_;
  bool drop_remainder_;
};

class UnbatchPlan : public PassPlan {
 public:
  explicit UnbatchPlan(PlanPtr input) : PassPlan(std::move(input)) {}
  std::string name() const override { return "unbatch"; }
  int64_t cardinality() const override {
    const int64_t batches = input().cardinality();
    if (batches <= 0) return batches;
    const SpecNest spec = input().element_spec();
    int64_t rows = -1;
    spec.for_each([&](const TensorSpec& leaf) {
      if (!leaf.shape.empty()) rows = leaf.shape[0];
    });
    return rows < 0 ? kUnknown : batches * rows;
  }
  std::optional<int64_t> batch_size() const override { return std::nullopt; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<UnbatchPlan>(std::move(inputs[0]));
  }
  SpecNest element_spec() const override {
    return input().element_spec().map_leaves([](TensorSpec leaf) {
      if (!leaf.shape.empty()) leaf.shape.erase(leaf.shape.begin());
      return leaf;
    });
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass));
  }
  struct Pass : Iterator {
    explicit Pass(std::unique_ptr<Iterator> input) : input(std::move(input)) {}
    std::optional<Nest> next() override {
      while (row == rows) {
        auto next_batch = input->next();
        if (!next_batch) return std::nullopt;
        rows = rows_of("unbatch", *next_batch);
        batch = std::move(*next_batch);
        row = 0;
      }
      const int64_t index = row++;
      return batch.map_components([index](const Tensor& leaf) { return leaf.select(0, index); },
                                  [index](const StringTensor& strings) { return strings[index]; });
    }
    Nest save() const override {
      return Nest::map({{"input", input->save()}, {"batch", saved_rows(batch, row, rows)}});
    }
    void restore(const Nest& saved) override {
      input->restore(state::part(saved, "input"));
      row = 0;
      rows = restored_rows("unbatch", saved, batch);
    }
    std::unique_ptr<Iterator> input;
    Nest batch;
    int64_t row = 0;
    int64_t rows = 0;
  };
};

}  // namespace

int64_t rows_of(const char* operation, const Nest& batch) {
  int64_t rows = -1;
  const auto look = [&](const auto& component) {
    if (component.dim() == 0) {
      throw InvalidArgument(cat(operation,
                                ": an element with a scalar component, expected batches of rank 1 "
                                "or more; call batch() on the "
                                "dataset first"));
    }
    if (rows >= 0 && component.size(0) != rows) {
      throw InvalidArgument(cat(operation, ": components with ", rows, " and ", component.size(0),
                                " rows, expected one number"));
    }
    rows = component.size(0);
  };
  batch.for_each(look, look);
  if (rows < 0)
    throw InvalidArgument(cat(operation, ": an element without tensors, expected at least one"));
  return rows;
}

Nest saved_rows(const Nest& batch, int64_t row, int64_t rows) {
  return row < rows ? state::element(slice_rows(batch, row, rows - row)) : Nest();
}

int64_t restored_rows(const char* operation, const Nest& saved, Nest& batch) {
  batch = state::element_in(saved, "batch");
  return batch.kind() == NestKind::kNone ? 0 : rows_of(operation, batch);
}

Nest slice_rows(const Nest& batch, int64_t begin, int64_t count) {
  return batch.map_components(
      [&](const Tensor& leaf) {
        return leaf.is_sparse() ? leaf.narrow_copy(0, begin, count) : leaf.narrow(0, begin, count);
      },
      [&](const StringTensor& strings) { return strings.narrow(begin, count); });
}

void ElementColumns::add(const char* operation, const Nest& element) {
  if (count == 0) {
    structure = element.map_parts<Nest>([operation](const Nest& part) {
      if (part.kind() == NestKind::kObject) {
        throw InvalidArgument(cat(operation, ": elements with ", part.structure(),
                                  " in them, expected tensors; make batches of each dataset with "
                                  "flat_map"));
      }
      return part;
    });
  } else if (!same_structure(structure, element)) {
    throw InvalidArgument(cat(operation, ": elements of the structures ", structure.structure(),
                              " and ", element.structure(), ", expected one"));
  }
  const auto append = [](auto& all, std::size_t column, const auto& item) {
    if (all.size() == column) all.emplace_back();
    all[column].push_back(item);
  };
  std::size_t column = 0, text = 0;
  element.for_each([&](const Tensor& leaf) { append(columns, column++, leaf); },
                   [&](const StringTensor& item) { append(strings, text++, item); });
  ++count;
}

ElementColumns take_columns(const char* operation, Iterator& input, int64_t size) {
  ElementColumns taken;
  while (taken.count < size) {
    auto element = input.next();
    if (!element) break;
    taken.add(operation, *element);
  }
  return taken;
}

Nest stacked(const ElementColumns& elements) { return elements.joined(stack, stack_strings); }

Nest stacked(const std::vector<Nest>& elements) {
  ElementColumns columns;
  for (const Nest& element : elements) columns.add("batch", element);
  return stacked(columns);
}

PlanPtr plans::batch(PlanPtr input, int64_t size, const BatchOptions& options) {
  if (size < 1) throw InvalidArgument(cat("batch: ", size, " elements, expected at least 1"));
  return std::make_shared<BatchPlan>(std::move(input), size, options);
}

PlanPtr plans::unbatch(PlanPtr input) { return std::make_shared<UnbatchPlan>(std::move(input)); }

}  // namespace tutti::data
