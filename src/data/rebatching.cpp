// Batches into the pieces that replicas take.

#include <algorithm>

#include "data/iteration.h"
#include "data/iterator_state.h"
#include "tutti/data/dataset.h"

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
  std::string arguments() const override { return cat("num_pieces=", num_pieces_); }
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
    Nest save() const override {
      const bool whole = piece == num_pieces;
      return Nest::map({{"input", input->save()},
                        {"batch", whole ? Nest() : state::element(batch)},
                        {"piece", state::number(piece)}});
    }
    void restore(const Nest& saved) override {
      input->restore(state::part(saved, "input"));
      piece = static_cast<int>(state::number_in(saved, "piece", 0, num_pieces));
      rows = restored_rows("distribute_dataset", saved, batch);
    }
    std::unique_ptr<Iterator> input;
    int num_pieces;
    int piece;
    Nest batch;
    int64_t rows = 0;
  };
  int num_pieces_;
};

/// The stream of rows cut anew.
struct RebatchPass : Iterator {
  RebatchPass(const char* operation, std::unique_ptr<Iterator> input, std::vector<int64_t> sizes,
              bool drop_remainder)
      : operation(operation),
        input(std::move(input)),
        sizes(std::move(sizes)),
        drop(drop_remainder) {}
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
    if (parts.empty() || (drop && have < wanted)) return std::nullopt;
    turn = (turn + 1) % sizes.size();
    return joined(parts);
  }
  bool fetch() {
    do {
      auto next_batch = input->next();
      if (!next_batch) return false;
      rows = rows_of(operation, *next_batch);
      batch = std::move(*next_batch);
      row = 0;
    } while (rows == 0);
    return true;
  }
  Nest joined(const std::vector<Nest>& parts) const {
    if (parts.size() == 1) return parts[0];
    ElementColumns columns;
    for (const Nest& part : parts) columns.add(operation, part);
    return columns.joined([](const auto& pieces) { return at::cat(pieces); },
                          [](const auto& pieces) { return StringTensor::cat(pieces); });
  }
  Nest save() const override {
    return Nest::map({{"input", input->save()},
                      {"batch", saved_rows(batch, row, rows)},
                      {"turn", state::number(static_cast<int64_t>(turn))}});
  }
  void restore(const Nest& saved) override {
    input->restore(state::part(saved, "input"));
    row = 0;
    rows = restored_rows(operation, saved, batch);
    const auto last = static_cast<int64_t>(sizes.size()) - 1;
    turn = static_cast<std::size_t>(state::number_in(saved, "turn", 0, last));
  }
  const char* operation;
  std::unique_ptr<Iterator> input;
  std::vector<int64_t> sizes;
  bool drop;
  std::size_t turn = 0;
  Nest batch;
  int64_t row = 0;
  int64_t rows = 0;
};

class StaticRebatchPlan : public PassPlan {
 public:
  StaticRebatchPlan(PlanPtr input, std::vector<int64_t> sizes)
      : PassPlan(std::move(input)), sizes_(std::move(sizes)) {}
  std::string name() const override { return "static_rebatch"; }
  std::string arguments() const override { return cat("[", join(sizes_, ", "), "]"); }
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
    return std::make_unique<RebatchPass>("distribute_dataset", std::move(pass), sizes_, false);
  }
  std::vector<int64_t> sizes_;
};

/// What a user asks for; the rows of its input need not be known.
class RebatchPlan : public PassPlan {
 public:
  RebatchPlan(PlanPtr input, std::vector<int64_t> sizes, const BatchOptions& options)
      : PassPlan(std::move(input)),
        sizes_(std::move(sizes)),
        drop_remainder_(options.drop_remainder) {}
  std::string name() const override { return "rebatch"; }
  std::string arguments() const override {
    const std::string sizes = join(sizes_, ", ");
    return cat(sizes_.size() == 1 ? sizes : cat("[", sizes, "]"), drop_text(drop_remainder_));
  }
  int64_t cardinality() const override {
    return input().cardinality() == kInfinite ? kInfinite : kUnknown;
  }
  std::optional<int64_t> batch_size() const override {
    return sizes_.size() == 1 ? std::optional(sizes_[0]) : std::nullopt;
  }
  int64_t num_rows() const override { return drop_remainder_ ? kUnknown : input().num_rows(); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<RebatchPlan>(std::move(inputs[0]), sizes_,
                                         BatchOptions{drop_remainder_});
  }
  SpecNest element_spec() const override {
    const bool one_size = std::equal(sizes_.begin() + 1, sizes_.end(), sizes_.begin());
    return with_unknown_rows(input().element_spec(),
                             drop_remainder_ && one_size ? std::optional(sizes_[0]) : std::nullopt);
  }

 private:
  std::unique_ptr<Iterator> over(std::unique_ptr<Iterator> pass) const override {
    return std::make_unique<RebatchPass>("rebatch", std::move(pass), sizes_, drop_remainder_);
  }
  std::vector<int64_t> sizes_;
  bool drop_remainder_;
};

}  // namespace

PlanPtr legacy_rebatch(PlanPtr input, int num_pieces) {
  return std::make_shared<LegacyRebatchPlan>(std::move(input), num_pieces);
}

namespace {

void check_sizes(const std::vector<int64_t>& sizes) {
  int64_t total = 0;
  for (int64_t size : sizes) {
    if (size < 0) throw InvalidArgument(cat("rebatch: size ", size, ", expected none below 0"));
    total += size;
  }
  if (total < 1)
    throw InvalidArgument("rebatch: sizes that add up to 0, expected at least one row");
}

}  // namespace

PlanPtr static_rebatch(PlanPtr input, std::vector<int64_t> sizes) {
  check_sizes(sizes);
  return std::make_shared<StaticRebatchPlan>(std::move(input), std::move(sizes));
}

PlanPtr plans::rebatch(PlanPtr input, std::vector<int64_t> sizes, const BatchOptions& options) {
  check_sizes(sizes);
  return std::make_shared<RebatchPlan>(std::move(input), std::move(sizes), options);
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
