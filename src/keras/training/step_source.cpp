#include "keras/training/step_source.h"

#include <random>

#include "distribute/distributed_plans.h"
#include "tutti/base/seed.h"

namespace tutti::keras {
namespace {

/// Rows in the order of a permutation that is drawn anew for each pass, a function of the seed and
/// the step at which the pass begins; each replica's part is cut in one read.
class ArraySource : public StepSource {
 public:
  ArraySource(ArrayData arrays, int64_t batch_size, bool shuffle,
              const distribute::Strategy& strategy)
      : arrays_(std::move(arrays)),
        rows_(arrays_.x.size(0)),
        batch_size_(batch_size),
        shuffle_(shuffle),
        replicas_(strategy.num_local_replicas()),
        strategy_(strategy),
        seed_(own_seed()) {}

  void start(int64_t step) override {
    at_ = 0;
    if (!shuffle_) return;
    order_ = at::arange(rows_, at::kLong);
    auto* order = order_.data_ptr<int64_t>();
    RandomBits random(mix_seeds(seed_, static_cast<uint64_t>(step)));
    for (int64_t i = rows_ - 1; i > 0; --i)
      std::swap(order[i], order[random.below(static_cast<uint64_t>(i) + 1)]);
  }

  std::optional<Step> next() override {
    if (at_ >= rows_) return std::nullopt;
    const int64_t count = std::min(batch_size_, rows_ - at_);
    const int64_t part = (count + replicas_ - 1) / replicas_;
    Step step;
    step.rows = count;
    strategy_.on_replica_team([&] {
      for (int r = 0; r < replicas_; ++r) {
        const int64_t begin = std::min(count, part * r);
        const int64_t size = std::min(part, count - begin);
        const c10::Device device = strategy_.devices()[static_cast<std::size_t>(r)].torch_device();
        step.batches.push_back({rows(arrays_.x, begin, size, device),
                                rows(arrays_.y, begin, size, device),
                                rows(arrays_.sample_weight, begin, size, device)});
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
  Tensor rows(const Tensor& array, int64_t begin, int64_t size, c10::Device device) const {
    if (!array.defined()) return array;
    if (!shuffle_) return array.narrow(0, at_ + begin, size).to(device);
    const Tensor chosen = order_.narrow(0, at_ + begin, size).to(array.device());
    return array.index_select(0, chosen).to(device);
  }

  ArrayData arrays_;
  int64_t rows_;
  int64_t batch_size_;
  bool shuffle_;
  int replicas_;
  const distribute::Strategy& strategy_;
  uint64_t seed_;
  Tensor order_;
  int64_t at_ = 0;
};

class DatasetSource : public StepSource {
 public:
  DatasetSource(const char* operation, std::shared_ptr<distribute::DistributedPlan> plan,
                std::map<int64_t, double> class_weight)
      : operation_(operation), plan_(std::move(plan)), class_weight_(std::move(class_weight)) {}
  void start(int64_t) override { pass_ = plan_->iterator(); }
  void count_passes(int64_t passes) override {
    for (int64_t i = 0; i < passes; ++i) plan_->iterator();
  }
  std::optional<Step> next() override {
    auto parts = pass_->next();
    if (!parts) return std::nullopt;
    Step step;
    for (const Nest& part : *parts) {
      step.batches.push_back(batch_of(part));
      step.rows += step.batches.back().x.size(0);
    }
    return step;
  }
  int64_t steps() const override { return std::max<int64_t>(-1, plan_->cardinality()); }
  std::string steps_text() const override { return plan_->steps_text(); }

 private:
  Batch batch_of(const Nest& part) const {
    Batch batch;
    if (part.is_leaf()) {
      batch.x = part.leaf();
    } else if (part.kind() == NestKind::kTuple && part.size() >= 1 && part.size() <= 3) {
      batch.x = part[0].leaf();
      if (part.size() > 1) batch.y = part[1].leaf();
      if (part.size() > 2) batch.sample_weight = part[2].leaf();
    } else {
      throw InvalidArgument(cat(operation_, ": elements of the structure ", part.structure(),
                                ", expected x, (x, y) or (x, y, sample_weight)"));
    }
    for (const Tensor* leaf : {&batch.x, &batch.y, &batch.sample_weight}) {
      if (!leaf->defined() || leaf->dim() > 0) continue;
      throw InvalidArgument(cat(operation_,
                                ": elements with a part that is a scalar, expected batches; call "
                                "batch() on the dataset first"));
    }
    if (!class_weight_.empty()) {
      if (batch.sample_weight.defined())
        throw InvalidArgument(
            cat(operation_,
                ": class_weight with elements that have sample weights, expected one of them"));
      if (batch.y.defined()) batch.sample_weight = weights_of_classes(batch.y, class_weight_);
    }
    return batch;
  }
  const char* operation_;
  std::shared_ptr<distribute::DistributedPlan> plan_;
  std::map<int64_t, double> class_weight_;
  std::unique_ptr<distribute::DistributedIterator> pass_;
};

}  // namespace

std::unique_ptr<StepSource> array_source(const char* operation, ArrayData arrays,
                                         int64_t batch_size, bool shuffle,
                                         const distribute::Strategy& strategy) {
  if (!arrays.x.defined() || arrays.x.dim() == 0 || arrays.x.size(0) == 0) {
    throw InvalidArgument(cat(operation, ": x ",
                              arrays.x.defined() ? shape_text(arrays.x.sizes()) : "undefined",
                              ", expected at least one row along the first axis"));
  }
  if (batch_size < 1)
    throw InvalidArgument(cat(operation, ": batch_size ", batch_size, ", expected at least 1"));
  for (const Tensor* other : {&arrays.y, &arrays.sample_weight}) {
    if (other->defined() && (other->dim() == 0 || other->size(0) != arrays.x.size(0))) {
      throw InvalidArgument(cat(operation, ": x of shape ", shape_text(arrays.x.sizes()), " with ",
                                other == &arrays.y ? "y" : "sample_weight", " of shape ",
                                shape_text(other->sizes()),
                                ", expected one length along the first axis"));
    }
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
  return std::make_unique<DatasetSource>(operation, std::move(plan), std::move(class_weight));
}

Tensor weights_of_classes(const Tensor& labels, const std::map<int64_t, double>& class_weight) {
  Tensor classes = labels;
  if (classes.dim() > 1) classes = classes.size(-1) == 1 ? classes.squeeze(-1) : classes.argmax(-1);
  classes = classes.to(at::kLong);
  Tensor weights = at::ones(classes.sizes(), classes.options().dtype(at::kFloat));
  for (const auto& [label, weight] : class_weight) weights.masked_fill_(classes == label, weight);
  return weights;
}

}  // namespace tutti::keras
