// A dataset of one of several workers. All workers must take the same number of steps, for what
// they do in a step is collective.
//
// When the passes are made the workers have told each other how many steps each has. Where these
// are equal and known, or all without end, nobody asks again. Otherwise each step begins with a sum
// over the workers: how many have data, and how many rows. A worker that has none left goes on with
// zero rows while another has some; where elements have no batch axis, all end with the first.

#include <algorithm>

#include "data/iteration.h"
#include "data/iterator_state.h"
#include "distribute/distributed_plans.h"
#include "distribute/distributed_plans_steps.h"
#include "distribute/worker_group.h"
#include "tutti/base/log.h"

namespace tutti::distribute {
namespace {

/// What the workers know of each other's data.
struct Agreement {
  int64_t steps = data::kUnknown;  // of all workers together
  bool asks = true;                // at each step
  bool batched = true;
  /// Rows of a step over all workers, where every step is a batch of known size: the global batch
  /// and the rows of a pass (-1: without end). -1: not known.
  int64_t global_batch = -1;
  int64_t rows_of_pass = -1;

  int64_t rows_of_step(int64_t step) const {
    if (global_batch < 0 || rows_of_pass < 0) return global_batch;
    return std::min(global_batch, rows_of_pass - step * global_batch);
  }
};

bool is_batched(const SpecNest& spec) {
  bool batched = true;
  spec.for_each([&](const TensorSpec& leaf) {
    batched = batched && (leaf.unknown_rank || !leaf.shape.empty());
  });
  return batched;
}

/// True when every batch is of the size that batch_size() tells: it is cut from data without end,
/// or what is left is dropped.
bool all_full(const data::Plan& plan) {
  const SpecNest spec = plan.element_spec();
  bool fixed = plan.batch_size().has_value();
  spec.for_each([&](const TensorSpec& leaf) {
    fixed = fixed && !leaf.unknown_rank && !leaf.shape.empty() && leaf.shape[0] >= 0;
  });
  if (fixed) return true;
  const data::Plan* at = &plan;
  while (at->name() != "batch") {
    if (at->inputs().size() != 1) return false;
    at = at->inputs()[0].get();
  }
  return at->inputs().size() == 1 && at->inputs()[0]->cardinality() == data::kInfinite;
}

/// How many rows each step has, if that can be known.
void find_rows(const data::Plan& batches, const data::InputWorkers& place, Agreement& agreement) {
  const auto batch = batches.batch_size();
  if (batches.cardinality() == 0) return;  // it may have no spec
  if (!batch || !data::shares_out_pieces(batches, place)) return;
  const int64_t steps = batches.cardinality();
  const int64_t rows = batches.num_rows();
  if (all_full(batches)) {
    agreement.global_batch = *batch;
  } else if (rows >= 0 && steps >= 0 && (rows + *batch - 1) / *batch == steps) {
    agreement.global_batch = *batch;
    agreement.rows_of_pass = rows;
  }
}

int64_t count_rows(const std::vector<Nest>& step) {
  int64_t rows = 0;
  for (const Nest& piece : step) {
    int64_t here = -1;
    const auto look = [&](const auto& component) {
      if (here < 0) here = component.dim() > 0 ? component.size(0) : 1;
    };
    piece.for_each(look, look);
    rows += std::max<int64_t>(0, here);
  }
  return rows;
}

/// An element without rows, where nothing but the spec is known.
Nest empty_of(const SpecNest& spec) {
  if (!spec.is_leaf()) {
    std::vector<Nest> items;
    for (const SpecNest& item : spec.items()) items.push_back(empty_of(item));
    return Nest(spec.kind(), spec.keys(), std::move(items));
  }
  const TensorSpec& leaf = spec.leaf();
  std::vector<int64_t> sizes = leaf.shape;
  for (int64_t& size : sizes) size = std::max<int64_t>(0, size);
  if (sizes.empty()) sizes.push_back(0);
  sizes[0] = 0;
  if (leaf.dtype == kString) return Nest(StringTensor(std::vector<std::string>(), sizes));
  return Nest(at::empty(sizes, at::TensorOptions(leaf.dtype)));
}

class AgreeingIterator : public DistributedIterator {
 public:
  AgreeingIterator(std::shared_ptr<DistributedPlan> plan, const Agreement& agreement,
                   WorkerGroup& workers)
      : plan_(std::move(plan)),
        steps_(plan_->iterator()),
        agreement_(agreement),
        workers_(workers) {}

  std::optional<std::vector<Nest>> next() override {
    if (done_) return std::nullopt;
    std::optional<std::vector<Nest>> step;
    workers_.guarded([&] {
      if (!ended_) step = steps_->next();
      ended_ = !step;
      if (agreement_.asks) {
        ask(step);
      } else {
        check_end();
      }
    });
    if (done_) return std::nullopt;
    if (!step) step = empty_step();
    if (agreement_.asks && like_.empty()) keep_like(*step);
    ++num_steps_;
    return step;
  }
  int64_t step_rows() const override {
    return agreement_.asks ? rows_ : agreement_.rows_of_step(num_steps_ - 1);
  }

  Nest save() const override {
    return Nest::map({{"steps", steps_->save()},
                      {"taken", data::state::number(num_steps_)},
                      {"ended", data::state::number(ended_)},
                      {"done", data::state::number(done_)}});
  }
  void restore(const Nest& saved) override {
    if (const auto steps = steps_of_others(saved, /*alone=*/false, plan_->num_local_replicas()))
      return skip_steps(*this, *steps);
    steps_->restore(data::state::part(saved, "steps"));
    num_steps_ = data::state::number_in(saved, "taken", 0);
    ended_ = data::state::number_in(saved, "ended") != 0;
    done_ = data::state::number_in(saved, "done") != 0;
  }

 private:
  void ask(std::optional<std::vector<Nest>>& step) {
    std::vector<int64_t> numbers{step ? 1 : 0, step ? count_rows(*step) : 0};
    workers_.add_up(numbers);
    rows_ = numbers[1];
    const int64_t needed = agreement_.batched ? 1 : workers_.num_workers();
    done_ = numbers[0] < needed;
  }
  /// Nobody was asked, so nobody may end alone.
  void check_end() {
    const bool at_end = num_steps_ == agreement_.steps;
    if (ended_ != at_end) {
      throw DataLoss(cat("get_next [worker ", workers_.worker(), " of ", workers_.num_workers(),
                         "]: the data ", ended_ ? "ended" : "went on", " after ", num_steps_,
                         " steps, expected ",
                         agreement_.steps < 0 ? std::string("no end") : cat(agreement_.steps),
                         ", their cardinality; correct assert_cardinality"));
    }
    done_ = ended_;
  }
  void keep_like(const std::vector<Nest>& step) {
    if (!agreement_.batched) return;
    for (const Nest& piece : step) like_.push_back(data::slice_rows(piece, 0, 0));
  }
  std::vector<Nest> empty_step() const {
    if (!like_.empty()) return like_;
    return std::vector<Nest>(static_cast<std::size_t>(plan_->num_local_replicas()),
                             empty_of(plan_->replica_spec()));
  }

  std::shared_ptr<DistributedPlan> plan_;
  std::unique_ptr<DistributedIterator> steps_;
  Agreement agreement_;
  WorkerGroup& workers_;
  std::vector<Nest> like_;  // the first step without its rows
  int64_t num_steps_ = 0;
  int64_t rows_ = -1;
  bool ended_ = false;  // this worker's data
  bool done_ = false;   // everybody's
};

class AgreeingPlan : public DistributedPlan {
 public:
  AgreeingPlan(std::shared_ptr<DistributedPlan> mine, Agreement rows, bool in_turn,
               std::shared_ptr<WorkerGroup> workers)
      : mine_(std::move(mine)), agreement_(rows), in_turn_(in_turn), workers_(std::move(workers)) {
    agree();
  }
  std::unique_ptr<DistributedIterator> iterator() override {
    return std::make_unique<AgreeingIterator>(mine_, agreement_, *workers_);
  }
  int64_t cardinality() const override { return agreement_.steps; }
  std::string steps_text() const override {
    if (agreement_.steps == mine_->cardinality()) return mine_->steps_text();
    return cat(agreement_.steps >= 0 ? cat(agreement_.steps) : std::string("as many"),
               ", as the worker with the most data has; here ", mine_->steps_text());
  }
  /// Zero rows may come at any time, unless there is no end.
  SpecNest replica_spec() const override {
    const SpecNest spec = mine_->replica_spec();
    if (agreement_.steps == data::kInfinite) return spec;
    return spec.map_leaves([](TensorSpec leaf) {
      if (!leaf.unknown_rank && !leaf.shape.empty()) leaf.shape[0] = -1;
      return leaf;
    });
  }
  int num_local_replicas() const override { return mine_->num_local_replicas(); }
  bool deals_in_turn() const override { return in_turn_; }
  bool is_alone() const override { return false; }

 private:
  void agree() {
    bool batched = true;
    try {
      batched = is_batched(mine_->replica_spec());
    } catch (const FailedPrecondition&) {
      // Without elements: as the others say.
    }
    const int64_t mine = mine_->cardinality();
    const auto all =
        workers_->exchange({mine, batched, agreement_.global_batch, agreement_.rows_of_pass});
    int64_t most = mine, least = mine;
    bool unknown = false, infinite = false, rows_agree = true;
    agreement_.batched = true;
    for (const std::vector<int64_t>& other : all) {
      agreement_.batched = agreement_.batched && other[1] != 0;
      unknown = unknown || other[0] == data::kUnknown;
      infinite = infinite || other[0] == data::kInfinite;
      most = std::max(most, other[0]);
      least = std::min(least, other[0]);
      rows_agree = rows_agree && other[2] == all[0][2] && other[3] == all[0][3];
    }
    if (!rows_agree) agreement_.global_batch = agreement_.rows_of_pass = -1;
    agreement_.asks = unknown || most != least;
    if (unknown) {
      agreement_.steps = data::kUnknown;
    } else if (infinite && (agreement_.batched || most < 0)) {
      agreement_.steps = data::kInfinite;
    } else if (agreement_.batched || !agreement_.asks) {
      agreement_.steps = most;
    } else {  // the first that ends, ends all
      agreement_.steps = most;
      for (const std::vector<int64_t>& other : all) {
        if (other[0] >= 0) agreement_.steps = std::min(agreement_.steps, other[0]);
      }
    }
  }

  std::shared_ptr<DistributedPlan> mine_;
  Agreement agreement_;
  bool in_turn_;
  std::shared_ptr<WorkerGroup> workers_;
};

}  // namespace

std::shared_ptr<DistributedPlan> rebatched_over_workers(data::PlanPtr plan,
                                                        const data::InputWorkers& place,
                                                        std::vector<DeviceName> devices,
                                                        const data::InputOptions& options,
                                                        std::shared_ptr<WorkerGroup> workers) {
  Agreement rows;
  auto mine = make_rebatched_plan(plan, place, std::move(devices), options);
  find_rows(*plan, place, rows);
  return std::make_shared<AgreeingPlan>(std::move(mine), rows,
                                        data::shares_out_pieces(*plan, place), std::move(workers));
}

std::shared_ptr<DistributedPlan> from_function_over_workers(
    FunctionRef<data::PlanPtr(const data::InputContext&)> dataset_fn,
    const data::InputContext& context, std::vector<DeviceName> devices,
    const data::InputOptions& options, std::shared_ptr<WorkerGroup> workers) {
  auto mine = make_plans_from_function(dataset_fn, context, std::move(devices), options);
  return std::make_shared<AgreeingPlan>(std::move(mine), Agreement(), false, std::move(workers));
}

}  // namespace tutti::distribute
