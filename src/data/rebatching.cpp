// Batches into the pieces that replicas take.

#include <algorithm>

#include "data/iteration.h"
#include "tutti/data/plan.h"

namespace tutti::data {
namespace {

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
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<LegacyRebatchPlan>(std::move(inputs[0]), num_pieces_);
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
      return slice_rows(batch, begin, std::min(size, rows - begin));
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
    if (input().cardinality() == kInfinite) return kInfinite;
    const int64_t rows = input().num_rows();
    if (rows < 0) return kUnknown;
    // A piece is made as long as rows are left where it begins, if only to say that it has none.
    int64_t cycle = 0;
    for (int64_t size : sizes_) cycle += size;
    int64_t pieces = rows / cycle * static_cast<int64_t>(sizes_.size());
    int64_t left = rows % cycle;
    if (left == 0) {
      for (std::size_t i = sizes_.size(); pieces > 0 && sizes_[i - 1] == 0; --i) --pieces;
    }
    for (std::size_t i = 0; left > 0; ++i, ++pieces) left -= sizes_[i];
    return pieces;
  }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<StaticRebatchPlan>(std::move(inputs[0]), sizes_);
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
        parts.push_back(slice_rows(batch, row, count));
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
