// Elements into batches, batches into elements, batches into other batches.

#include <algorithm>
#include <cstring>

#include "data/iteration.h"
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

class BatchPlan : public PassPlan {
 public:
  BatchPlan(PlanPtr input, int64_t size, const BatchOptions& options)
      : PassPlan(std::move(input)), size_(size), drop_remainder_(options.drop_remainder) {}
  std::string name() const override { return "batch"; }
  int64_t cardinality() const override {
    const int64_t elements = input().cardinality();
    if (elements < 0) return elements;
    return drop_remainder_ ? elements / size_ : (elements + size_ - 1) / size_;
  }
  std::optional<int64_t> batch_size() const override { return size_; }
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
      std::vector<Nest> elements;
      while (static_cast<int64_t>(elements.size()) < size) {
        auto element = input->next();
        if (!element) break;
        elements.push_back(std::move(*element));
      }
      if (elements.empty() || (drop && static_cast<int64_t>(elements.size()) < size))
        return std::nullopt;
      return stacked(elements);
    }
    std::unique_ptr<Iterator> input;
    int64_t size;
    bool drop;
    std::vector<int64_t> indices;
  };
  int64_t size_;
  bool drop_remainder_;
};

/// Number of rows of a batch. Throws when a component has no rows, or another number of them.
int64_t rows_of(const char* operation, const Nest& batch) {
  int64_t rows = -1;
  batch.for_each([&](const Tensor& leaf) {
    if (leaf.dim() == 0) {
      throw InvalidArgument(cat(operation,
                                ": an element with a scalar component, expected batches of rank 1 "
                                "or more; call batch() on the "
                                "dataset first"));
    }
    if (rows >= 0 && leaf.size(0) != rows) {
      throw InvalidArgument(cat(operation, ": components with ", rows, " and ", leaf.size(0),
                                " rows, expected one number"));
    }
    rows = leaf.size(0);
  });
  if (rows < 0)
    throw InvalidArgument(cat(operation, ": an element without tensors, expected at least one"));
  return rows;
}

Nest slice(const Nest& batch, int64_t begin, int64_t count) {
  return batch.map_leaves([&](const Tensor& leaf) { return leaf.narrow(0, begin, count); });
}

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
      return batch.map_leaves([index](const Tensor& leaf) { return leaf.select(0, index); });
    }
    std::unique_ptr<Iterator> input;
    Nest batch;
    int64_t row = 0;
    int64_t rows = 0;
  };
};

SpecNest with_unknown_rows(const SpecNest& spec, std::optional<int64_t> rows) {
  return spec.map_leaves([&](TensorSpec leaf) {
    if (!leaf.shape.empty()) leaf.shape[0] = rows.value_or(-1);
    return leaf;
  });
}

class LegacyRebatchPlan : public PassPlan {
 public:
  LegacyRebatchPlan(PlanPtr input, int num_pieces)
      : PassPlan(std::move(input)), num_pieces_(num_pieces) {}
  std::string name() const override { return "legacy_rebatch"; }
  int64_t cardinality() const override {
    const int64_t batches = input().cardinality();
    return batches < 0 ? batches : batches * num_pieces_;
  }
  SpecNest element_spec() const override {
    const SpecNest spec = input().element_spec();
    std::optional<int64_t> rows;
    spec.for_each([&](const TensorSpec& leaf) {
      if (!leaf.shape.empty() && leaf.shape[0] >= 0 && leaf.shape[0] % num_pieces_ == 0)
        rows = leaf.shape[0] / num_pieces_;
    });
    return with_unknown_rows(spec, rows);
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass), num_pieces_);
  }
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, int num_pieces)
        : input(std::move(input)), num_pieces(num_pieces), piece(num_pieces) {}
    std::optional<Nest> next() override {
      if (piece == num_pieces) {
        auto next_batch = input->next();
        if (!next_batch) return std::nullopt;
        rows = rows_of("distribute_dataset", *next_batch);
        batch = std::move(*next_batch);
        piece = 0;
      }
      const int64_t size = (rows + num_pieces - 1) / num_pieces;
      const int64_t begin = std::min(rows, size * piece++);
      return slice(batch, begin, std::min(size, rows - begin));
    }
    std::unique_ptr<Iterator> input;
    int num_pieces;
    int piece;
    Nest batch;
    int64_t rows = 0;
  };
  int num_pieces_;
};

class StaticRebatchPlan : public PassPlan {
 public:
  StaticRebatchPlan(PlanPtr input, std::vector<int64_t> sizes)
      : PassPlan(std::move(input)), sizes_(std::move(sizes)) {}
  std::string name() const override { return "static_rebatch"; }
  int64_t cardinality() const override {
    return input().cardinality() == kInfinite ? kInfinite : kUnknown;
  }
  SpecNest element_spec() const override {
    std::optional<int64_t> rows = sizes_[0];
    for (int64_t size : sizes_) {
      if (size != sizes_[0]) rows = std::nullopt;
    }
    const SpecNest spec = input().element_spec();
    spec.for_each([&](const TensorSpec& leaf) {
      if (leaf.shape.empty() || leaf.shape[0] < 0) rows = std::nullopt;
    });
    return with_unknown_rows(spec, rows);
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<Pass>(std::move(pass), sizes_);
  }
  struct Pass : Iterator {
    Pass(std::unique_ptr<Iterator> input, std::vector<int64_t> sizes)
        : input(std::move(input)), sizes(std::move(sizes)) {}
    std::optional<Nest> next() override {
      const int64_t wanted = sizes[turn];
      std::vector<Nest> parts;
      int64_t have = 0;
      while (have < wanted || (wanted == 0 && parts.empty())) {
        if (row == rows && !fetch()) break;
        const int64_t count = std::min(wanted - have, rows - row);
        parts.push_back(slice(batch, row, count));
        row += count;
        have += count;
      }
      if (parts.empty()) return std::nullopt;
      turn = (turn + 1) % sizes.size();
      return joined(parts);
    }
    bool fetch() {
      do {
        auto next_batch = input->next();
        if (!next_batch) return false;
        rows = rows_of("distribute_dataset", *next_batch);
        batch = std::move(*next_batch);
        row = 0;
      } while (rows == 0);
      return true;
    }
    static Nest joined(const std::vector<Nest>& parts) {
      if (parts.size() == 1) return parts[0];
      std::vector<std::vector<Tensor>> leaves;
      for (const Nest& part : parts) leaves.push_back(flatten(part));
      std::size_t column = 0;
      return parts[0].map_leaves([&](const Tensor&) {
        std::vector<Tensor> pieces;
        for (const auto& part : leaves) pieces.push_back(part[column]);
        ++column;
        return at::cat(pieces);
      });
    }
    std::unique_ptr<Iterator> input;
    std::vector<int64_t> sizes;
    std::size_t turn = 0;
    Nest batch;
    int64_t row = 0;
    int64_t rows = 0;
  };
  std::vector<int64_t> sizes_;
};

}  // namespace

Nest stacked(const std::vector<Nest>& elements) {
  std::vector<std::vector<Tensor>> columns;
  for (const Nest& element : elements) {
    if (!same_structure(elements[0], element)) {
      throw InvalidArgument(cat("batch: elements of the structures ", elements[0].structure(),
                                " and ", element.structure(), ", expected one"));
    }
    std::size_t column = 0;
    element.for_each([&](const Tensor& leaf) {
      if (columns.size() == column) columns.emplace_back().reserve(elements.size());
      columns[column++].push_back(leaf);
    });
  }
  std::size_t column = 0;
  return elements[0].map_leaves([&](const Tensor&) { return stack(columns[column++]); });
}

PlanPtr plans::batch(PlanPtr input, int64_t size, const BatchOptions& options) {
  if (size < 1) throw InvalidArgument(cat("batch: ", size, " elements, expected at least 1"));
  return std::make_shared<BatchPlan>(std::move(input), size, options);
}

PlanPtr plans::unbatch(PlanPtr input) { return std::make_shared<UnbatchPlan>(std::move(input)); }

PlanPtr legacy_rebatch(PlanPtr input, int num_pieces) {
  return std::make_shared<LegacyRebatchPlan>(std::move(input), num_pieces);
}

PlanPtr static_rebatch(PlanPtr input, std::vector<int64_t> sizes) {
  int64_t total = 0;
  for (int64_t size : sizes) {
    if (size < 0) throw InvalidArgument(cat("rebatch: size ", size, ", expected none below 0"));
    total += size;
  }
  if (total < 1)
    throw InvalidArgument("rebatch: sizes that add up to 0, expected at least one row");
  return std::make_shared<StaticRebatchPlan>(std::move(input), std::move(sizes));
}

std::vector<int64_t> batch_sizes_for_worker(int64_t global_batch, int num_workers,
                                            int replicas_per_worker, int worker) {
  const int replicas = num_workers * replicas_per_worker;
  if (global_batch < 1 || num_workers < 1 || replicas_per_worker < 1 || worker < 0 ||
      worker >= num_workers) {
    throw InvalidArgument(
        cat("batch sizes: global batch ", global_batch, ", worker ", worker, " of ", num_workers,
            " with ", replicas_per_worker,
            " replicas, expected positive numbers and a worker below their number"));
  }
  std::vector<int64_t> sizes;
  for (int i = 0; i < replicas; ++i) {
    const int from = (i + worker * replicas_per_worker) % replicas;
    sizes.push_back(global_batch / replicas + (from < global_batch % replicas ? 1 : 0));
  }
  return sizes;
}

}  // namespace tutti::data
