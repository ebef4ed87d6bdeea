#include "keras/training/step_source.h"

#include <random>

#include "distribute/distributed_plans.h"
#include "distribute/worker_group.h"
#include "tutti/base/seed.h"

namespace tutti::keras {
namespace {

/// One tensor goes where a step of the user's own looks for it, anything else into the nest.
void put(Tensor& tensor, Nest& nest, Nest part) {
  if (part.is_leaf()) {
    tensor = std::move(part.leaf());
  } else if (part.kind() != NestKind::kNone) {
    nest = std::move(part);
  }
}

/// Rows in the order of a permutation that is drawn anew for each pass, a function of the seed and
/// the step at which the pass begins; each replica's part is cut in one read.
class ArraySource : public StepSource {
 public:
  ArraySource(ArrayData arrays, int64_t batch_size, Shuffle::Kind shuffle,
              const distribute::Strategy& strategy)
      : arrays_(std::move(arrays)),
        rows_(count_rows(arrays_.x)),
        batch_size_(batch_size),
        shuffle_(shuffle),
        replicas_(strategy.num_local_replicas()),
        strategy_(strategy),
        seed_(own_seed()) {
    distribute::WorkerGroup* workers = strategy.workers();
    if (workers != nullptr && shuffle_ != Shuffle::Kind::kNone)
      seed_ = static_cast<uint64_t>(workers->of_first(static_cast<int64_t>(seed_)));
  }

  void start(int64_t step) override {
    at_ = 0;
    if (shuffle_ == Shuffle::Kind::kNone) return;
    const bool whole_batches = shuffle_ == Shuffle::Kind::kBatches;
    order_ = at::arange(whole_batches ? rows_ / batch_size_ : rows_, at::kLong);
    auto* order = order_.data_ptr<int64_t>();
    RandomBits random(mix_seeds(seed_, static_cast<uint64_t>(step)));
    for (int64_t i = order_.numel() - 1; i > 0; --i)
      std::swap(order[i], order[random.below(static_cast<uint64_t>(i) + 1)]);
    if (!whole_batches) return;
    // The rows that make no whole batch stay at the end.
    order_ = (order_.unsqueeze(1) * batch_size_ + at::arange(batch_size_, at::kLong)).flatten();
    order_ = at::cat({order_, at::arange(order_.numel(), rows_, at::kLong)});
  }

  std::optional<Step> next() override {
    if (at_ >= rows_) return std::nullopt;
    const int64_t count = std::min(batch_size_, rows_ - at_);
    const int64_t all = strategy_.num_replicas_in_sync();
    const int64_t part = (count + all - 1) / all;
    Step step;
    step.rows = count;
    strategy_.on_replica_team([&] {
      for (int r = 0; r < replicas_; ++r) {
        const int64_t begin = std::min(count, part * (strategy_.first_replica_id() + r));
        const int64_t size = std::min(part, count - begin);
        const c10::Device device = strategy_.devices()[static_cast<std::size_t>(r)].torch_device();
        Batch& batch = step.batches.emplace_back();
        put(batch.x, batch.x_nest, rows(arrays_.x, begin, size, device));
        put(batch.y, batch.y_nest, rows(arrays_.y, begin, size, device));
        put(batch.sample_weight, batch.sample_weight_nest,
            rows(arrays_.sample_weight, begin, size, device));
      }
    });
    at_ += count;
    return step;
  }

  void skip(int64_t steps) override { at_ = std::min(rows_, at_ + steps * batch_size_); }
  uint64_t seed() const override { return seed_; }
  void set_seed(uint64_t seed) override { seed_ = seed; }

  int64_t steps() const override { return (rows_ + batch_size_ - 1) / batch_size_; }
  std::string steps_text() const override {
    return cat(distribute::steps_formula(rows_, "rows", batch_size_, steps()), "; ",
               distribute::batch_text(batch_size_, strategy_.num_replicas_in_sync()));
  }

 private:
  static uint64_t own_seed() {
    constexpr uint64_t kShuffle = 0x5f1e;
    const auto seed = global_seed();
    return seed ? mix_seeds(static_cast<uint64_t>(*seed), kShuffle) : std::random_device{}();
  }
  Nest rows(const Nest& arrays, int64_t begin, int64_t size, c10::Device device) const {
    if (arrays.is_leaf()) return rows(arrays.leaf(), begin, size, device);
    return map_parts(
        arrays, [&](const Tensor& array) { return rows(array, begin, size, device); },
        [&](const StringTensor& strings) {
          if (shuffle_ == Shuffle::Kind::kNone) return strings.narrow(at_ + begin, size);
          const int64_t* chosen = order_.data_ptr<int64_t>() + at_ + begin;
          return strings.index_select({chosen, chosen + size});
        });
  }
  Tensor rows(const Tensor& array, int64_t begin, int64_t size, c10::Device device) const {
    if (shuffle_ == Shuffle::Kind::kNone) return array.narrow(0, at_ + begin, size).to(device);
    const Tensor chosen = order_.narrow(0, at_ + begin, size).to(array.device());
    return array.index_select(0, chosen).to(device);
  }

  ArrayData arrays_;
  int64_t rows_;
  int64_t batch_size_;
  Shuffle::Kind shuffle_;
  int replicas_;
  const distribute::Strategy& strategy_;
  uint64_t seed_;
  Tensor order_;
  int64_t at_ = 0;
};

class DatasetSource : public StepSource {
 public:
  DatasetSource(const char* operation, std::shared_ptr<distribute::DistributedPlan> plan,
                std::map<int64_t, double> class_weight, distribute::WorkerGroup* workers)
      : operation_(operation),
        plan_(std::move(plan)),
        class_weight_(std::move(class_weight)),
        workers_(workers) {}
  void start(int64_t) override { pass_ = plan_->iterator(); }
  void count_passes(int64_t passes) override {
    for (int64_t i = 0; i < passes; ++i) plan_->iterator();
  }
  std::optional<Step> next() override {
    auto parts = pass_->next();
    if (!parts) return std::nullopt;
    Step step;
    for (Nest& part : *parts) {
      step.batches.push_back(batch_of(part));
      step.rows += step.batches.back().rows();
    }
    if (workers_ != nullptr) step.rows = rows_over_workers(step.rows);
    return step;
  }
  int64_t steps() const override { return std::max<int64_t>(-1, plan_->cardinality()); }
  std::string steps_text() const override { return plan_->steps_text(); }
  bool deals_in_turn() const override { return plan_->deals_in_turn(); }

 private:
  int64_t rows_over_workers(int64_t here) const {
    const int64_t known = pass_->step_rows();
    if (known >= 0) return known;
    std::vector<int64_t> rows{here};
    workers_->add_up(rows);
    return rows[0];
  }
  Batch batch_of(Nest& part) const {
    Batch batch;
    const bool tuple = part.kind() == NestKind::kTuple || part.kind() == NestKind::kList;
    if (!tuple) {
      if (part.kind() == NestKind::kNone) refuse(part);
      put(batch.x, batch.x_nest, std::move(part));
    } else {
      if (part.size() < 1 || part.size() > 3) refuse(part);
      put(batch.x, batch.x_nest, unwrapped(part.items()[0]));
      if (part.size() > 1) put(batch.y, batch.y_nest, unwrapped(part.items()[1]));
      if (part.size() > 2)
        put(batch.sample_weight, batch.sample_weight_nest, unwrapped(part.items()[2]));
    }
    for (const Tensor* leaf : {&batch.x, &batch.y, &batch.sample_weight}) check_rows(*leaf);
    for (const Nest* nest : {&batch.x_nest, &batch.y_nest, &batch.sample_weight_nest})
      nest->for_each([&](const Tensor& leaf) { check_rows(leaf); });
    if (!class_weight_.empty()) {
      if (batch.sample_weight.defined() || batch.sample_weight_nest.kind() != NestKind::kNone)
        throw InvalidArgument(
            cat(operation_,
                ": class_weight with elements that have sample weights, expected one of them"));
      const Nest labels = batch.targets();
      if (labels.kind() != NestKind::kNone)
        batch.sample_weight = weights_of_classes(operation_, labels, class_weight_);
    }
    return batch;
  }
  [[noreturn]] void refuse(const Nest& part) const {
    throw InvalidArgument(cat(operation_, ": elements of the structure ", part.structure(),
                              ", expected x, (x, y) or (x, y, sample_weight)"));
  }
  void check_rows(const Tensor& leaf) const {
    if (!leaf.defined() || leaf.dim() > 0) return;
    throw InvalidArgument(cat(operation_,
                              ": elements with a part that is a scalar, expected batches; call "
                              "batch() on the dataset first"));
  }
  const char* operation_;
  std::shared_ptr<distribute::DistributedPlan> plan_;
  std::map<int64_t, double> class_weight_;
  distribute::WorkerGroup* workers_;
  std::unique_ptr<distribute::DistributedIterator> pass_;
};

/// Calls `visit(shape)` for each part.
void for_each_shape(const Nest& nest, FunctionRef<void(at::IntArrayRef)> visit) {
  if (nest.is_leaf()) return visit(nest.leaf().sizes());
  if (nest.is_strings()) return visit(nest.strings().sizes());
  for (const Nest& item : nest.items()) for_each_shape(item, visit);
}

}  // namespace

Nest map_parts(const Nest& nest, FunctionRef<Tensor(const Tensor&)> function,
               FunctionRef<StringTensor(const StringTensor&)> strings) {
  if (nest.is_leaf()) return function(nest.leaf());
  if (nest.is_strings()) return strings(nest.strings());
  if (nest.kind() == NestKind::kNone) return {};
  std::vector<Nest> items;
  items.reserve(nest.size());
  for (const Nest& item : nest.items()) items.push_back(map_parts(item, function, strings));
  return Nest(nest.kind(), nest.keys(), std::move(items));
}

Nest rows_of(const Nest& nest, int64_t begin, int64_t end) {
  return map_parts(
      nest, [&](const Tensor& array) { return array.narrow(0, begin, end - begin); },
      [&](const StringTensor& strings) { return strings.narrow(begin, end - begin); });
}

int64_t count_rows(const Nest& nest) {
  int64_t rows = -1;
  for_each_shape(nest, [&](at::IntArrayRef shape) {
    if (rows < 0) rows = shape.empty() ? 0 : shape[0];
  });
  return std::max<int64_t>(0, rows);
}

Nest unwrapped(Nest nest) {
  const bool list = nest.kind() == NestKind::kTuple || nest.kind() == NestKind::kList;
  if (!list || nest.size() != 1 || !nest.items()[0].is_leaf()) return nest;
  Nest only = std::move(nest.items()[0]);
  return only;
}

std::unique_ptr<StepSource> array_source(const char* operation, ArrayData arrays,
                                         int64_t batch_size, Shuffle::Kind shuffle,
                                         const distribute::Strategy& strategy) {
  arrays = {unwrapped(std::move(arrays.x)), unwrapped(std::move(arrays.y)),
            unwrapped(std::move(arrays.sample_weight))};
  const int64_t rows = count_rows(arrays.x);
  if (rows == 0) {
    std::vector<std::string> shapes;
    for_each_shape(arrays.x, [&](at::IntArrayRef shape) { shapes.push_back(shape_text(shape)); });
    throw InvalidArgument(cat(operation, ": x ", shapes.empty() ? "undefined" : join(shapes, ", "),
                              ", expected at least one row along the first axis"));
  }
  if (batch_size < 1)
    throw InvalidArgument(cat(operation, ": batch_size ", batch_size, ", expected at least 1"));
  std::string first;
  for_each_shape(arrays.x, [&](at::IntArrayRef shape) {
    if (first.empty()) first = shape_text(shape);
  });
  const std::pair<const char*, const Nest*> parts[] = {
      {"x", &arrays.x}, {"y", &arrays.y}, {"sample_weight", &arrays.sample_weight}};
  for (const auto& [name, nest] : parts) {
    for_each_shape(*nest, [&, name = name](at::IntArrayRef shape) {
      if (!shape.empty() && shape[0] == rows) return;
      throw InvalidArgument(cat(operation, ": x of shape ", first, " with ", name, " of shape ",
                                shape_text(shape), ", expected one length along the first axis"));
    });
  }
  return std::make_unique<ArraySource>(std::move(arrays), batch_size, shuffle, strategy);
}

std::unique_ptr<StepSource> dataset_source(const char* operation,
                                           std::shared_ptr<distribute::DistributedPlan> plan,
                                           const distribute::Strategy& strategy,
                                           std::map<int64_t, double> class_weight) {
  if (plan->num_local_replicas() != strategy.num_local_replicas()) {
    throw InvalidArgument(cat(operation, ": a dataset that was distributed to ",
                              plan->num_local_replicas(), " replicas, expected ",
                              strategy.num_local_replicas(),
                              "; distribute it with the strategy under which the model was made"));
  }
  return std::make_unique<DatasetSource>(operation, std::move(plan), std::move(class_weight),
                                         strategy.workers());
}

Tensor weights_of_classes(const char* operation, const Nest& labels,
                          const std::map<int64_t, double>& class_weight) {
  if (!labels.is_leaf())
    throw InvalidArgument(cat(operation, ": class_weight with labels of the structure ",
                              labels.structure(),
                              ", expected one output; weigh several by sample_weight"));
  Tensor classes = labels.leaf();
  if (classes.dim() > 1) classes = classes.size(-1) == 1 ? classes.squeeze(-1) : classes.argmax(-1);
  classes = classes.to(at::kLong);
  Tensor weights = at::ones(classes.sizes(), classes.options().dtype(at::kFloat));
  for (const auto& [label, weight] : class_weight) weights.masked_fill_(classes == label, weight);
  return weights;
}

}  // namespace tutti::keras
