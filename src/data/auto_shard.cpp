// Which part of a dataset a worker gets.

#include <algorithm>
#include <map>

#include "data/iteration.h"
#include "tutti/base/log.h"
#include "tutti/data/dataset.h"

namespace tutti::data {
namespace {

class ShardHintPlan : public UnaryPlan {
 public:
  explicit ShardHintPlan(PlanPtr input) : UnaryPlan(std::move(input)) {}
  std::string name() const override { return "shard_hint"; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<ShardHintPlan>(std::move(inputs[0]));
  }
  int64_t cardinality() const override {
    const int64_t size = input().cardinality();
    return size > 0 ? kUnknown : size;
  }
  std::unique_ptr<Iterator> iterator() const override {
    throw FailedPrecondition(
        "shard: a pass over shard(kShardHint, kShardHint), expected numbers; distribute the "
        "dataset with AutoShardPolicy::kHint, or call shard(num_shards, index)");
  }
};

/// A pipeline with some of its plans replaced. A plan that stands in two places stays one.
class Rebuilding {
 public:
  explicit Rebuilding(int num_workers, int index) : num_workers_(num_workers), index_(index) {}
  virtual ~Rebuilding() = default;
  PlanPtr of(const PlanPtr& plan) {
    PlanPtr& rebuilt = rebuilt_[plan.get()];
    if (!rebuilt) rebuilt = replaced(plan);
    return rebuilt;
  }

 protected:
  PlanPtr on_rebuilt_inputs(const PlanPtr& plan) {
    std::vector<PlanPtr> inputs;
    for (const PlanPtr& input : plan->inputs()) inputs.push_back(of(input));
    if (inputs == plan->inputs()) return plan;
    PlanPtr rebuilt = plan->with_inputs(std::move(inputs));
    if (!rebuilt) {
      throw Unimplemented(cat("auto_shard [worker ", index_, " of ", num_workers_,
                              "]: ", plan->name(),
                              " cannot be put on other inputs, expected AutoShardPolicy kData or "
                              "kOff"));
    }
    return rebuilt;
  }
  int num_workers_;
  int index_;

 private:
  virtual PlanPtr replaced(const PlanPtr& plan) = 0;
  std::map<const Plan*, PlanPtr> rebuilt_;
};

class OnOwnFiles : public Rebuilding {
 public:
  using Rebuilding::Rebuilding;

 private:
  PlanPtr replaced(const PlanPtr& plan) override {
    const std::vector<std::string>* files = plan->files();
    if (files == nullptr && plan->function_reads_files())
      return plan->with_inputs({plans::shard(plan->inputs()[0], num_workers_, index_)});
    if (files == nullptr) return on_rebuilt_inputs(plan);
    std::vector<std::string> own;
    for (std::size_t i = static_cast<std::size_t>(index_); i < files->size();
         i += static_cast<std::size_t>(num_workers_))
      own.push_back((*files)[i]);
    return plan->with_files(std::move(own));
  }
};

class WithHintsResolved : public Rebuilding {
 public:
  using Rebuilding::Rebuilding;

 private:
  PlanPtr replaced(const PlanPtr& plan) override {
    if (dynamic_cast<const ShardHintPlan*>(plan.get()) == nullptr) return on_rebuilt_inputs(plan);
    return plans::shard(of(plan->inputs()[0]), num_workers_, index_);
  }
};

/// What FILE looks at: the sources of a pipeline.
struct Sources {
  explicit Sources(const Plan& plan) { visit(plan); }
  void visit(const Plan& plan) {
    if (plan.files() != nullptr)
      return add(plan.files()->size(), plan.files()->empty() ? "" : plan.files()->front());
    if (plan.function_reads_files()) {
      const int64_t names = plan.inputs()[0]->cardinality();
      return add(names < 0 ? SIZE_MAX : static_cast<std::size_t>(names), "");
    }
    if (plan.inputs().empty()) {
      if (unshardable.empty()) unshardable = plan.name();
    }
    for (const PlanPtr& input : plan.inputs()) visit(*input);
  }
  void add(std::size_t files, const std::string& first) {
    if (!any_reader || files < fewest_files) {
      fewest_files = files;
      first_file = first;
    }
    any_reader = true;
  }
  bool all_files() const { return any_reader && unshardable.empty(); }
  std::string unshardable;  // a source that reads no files
  bool any_reader = false;
  std::size_t fewest_files = 0;
  std::string first_file;  // of the reader with the fewest
};

struct Place {
  int num_workers;
  int index;
  const char* operation = "auto_shard";
  std::string text() const {
    return cat(operation, " [worker ", index, " of ", num_workers, "]: ");
  }
  bool enough(const Sources& sources) const {
    return sources.fewest_files >= static_cast<std::size_t>(num_workers);
  }
};

void check(AutoShardPolicy policy, const Place& place) {
  if (place.num_workers < 1 || place.index < 0 || place.index >= place.num_workers) {
    throw InvalidArgument(cat("auto_shard: worker ", place.index, " of ", place.num_workers,
                              ", expected at least one worker and an index below their number"));
  }
  if (policy < AutoShardPolicy::kOff || policy > AutoShardPolicy::kHint) {
    throw InvalidArgument(
        cat("auto_shard: policy ", static_cast<int>(policy), ", expected one of AutoShardPolicy"));
  }
}

/// kAuto decided; the others as they are.
AutoShardPolicy decided(const Plan& plan, AutoShardPolicy policy, const Place& place) {
  if (policy != AutoShardPolicy::kAuto) return policy;
  const Sources sources(plan);
  if (place.num_workers == 1)
    return sources.all_files() ? AutoShardPolicy::kFile : AutoShardPolicy::kData;
  if (!sources.all_files()) {
    log_once(
        LogLevel::kInfo, cat("data/auto_shard/", place.index),
        cat(place.text(), "AUTO found a source that reads no files (", sources.unshardable,
            "), so this worker takes one of ", place.num_workers, " pieces of the batches (DATA)"));
    return AutoShardPolicy::kData;
  }
  if (!place.enough(sources)) {
    const std::string text =
        cat(place.text(), "AUTO found a reader of ", sources.fewest_files, " files for ",
            place.num_workers,
            " workers, so every worker reads all of them and takes its part of the batches (DATA); "
            "give it more files to read less");
    log_once(LogLevel::kWarning, cat("data/auto_shard/", sources.first_file, text), text);
    return AutoShardPolicy::kData;
  }
  return AutoShardPolicy::kFile;
}

void check_files(const Plan& plan, const Place& place) {
  const Sources sources(plan);
  if (!sources.all_files()) {
    throw NotFound(cat(place.text(), "FILE, but the source ", sources.unshardable,
                       " reads no files, expected readers of files only; use AutoShardPolicy kData "
                       "or kOff"));
  }
  if (!place.enough(sources)) {
    throw InvalidArgument(cat(place.text(), "FILE with ", sources.fewest_files, " files for ",
                              place.num_workers,
                              " workers, expected at least one file a worker; give it more files, "
                              "or use AutoShardPolicy kData or kOff"));
  }
}

/// An empty shard is no error: its worker takes part without rows. But nobody wants one.
void warn_of_empty_shards(const Plan& whole, const Plan& shard, AutoShardPolicy policy,
                          const Place& place) {
  const int64_t elements = whole.cardinality();
  if (elements == 0) {
    log_warning(place.text(),
                "the dataset has no elements, so every pass ends at once; look at filter, take, "
                "skip and, where a batch is larger than the data, drop_remainder");
  } else if (policy == AutoShardPolicy::kData && elements > 0 && elements < place.num_workers) {
    log_warning(place.text(), elements, " elements for ", place.num_workers,
                " workers (DATA), so the shards of workers ", elements, " to ",
                place.num_workers - 1,
                " have none; give it more elements, or use AutoShardPolicy kOff");
  } else if (shard.cardinality() == 0) {
    log_warning(place.text(), "the shard of this worker has no elements, of ",
                elements > 0 ? cat(elements) : "an unknown number of",
                " elements; give it more, or use another AutoShardPolicy");
  }
}

/// Replicas for which a full batch has no rows, whatever the data.
void warn_of_idle_replicas(int64_t batch, bool of_pieces, const InputWorkers& workers) {
  const int replicas = workers.num_workers * workers.replicas_per_worker;
  const int64_t piece = (batch + replicas - 1) / replicas;
  const int64_t busy = of_pieces ? (batch + piece - 1) / piece : std::min<int64_t>(batch, replicas);
  if (busy >= replicas) return;
  std::string text =
      cat("distribute_dataset [worker ", workers.worker, " of ", workers.num_workers,
          "]: a global batch of ", batch, " gives rows to ", busy, " of ", replicas, " replicas");
  if (of_pieces) text += cat(", in pieces of ", piece);
  // Pieces go to the workers in turn.
  if (of_pieces && workers.num_workers > 1 && workers.worker >= busy)
    text += ", and to this worker none";
  text += cat("; the others idle. Take a multiple of ", replicas);
  log_once(LogLevel::kWarning, text, text);
}

PlanPtr shard_as_decided(PlanPtr plan, AutoShardPolicy policy, const Place& place) {
  switch (policy) {
    case AutoShardPolicy::kData:
      if (place.num_workers == 1) return plan;
      return plans::shard(std::move(plan), place.num_workers, place.index);
    case AutoShardPolicy::kFile:
      if (place.num_workers == 1) return plan;
      check_files(*plan, place);
      return OnOwnFiles(place.num_workers, place.index).of(plan);
    case AutoShardPolicy::kHint:
      return WithHintsResolved(place.num_workers, place.index).of(plan);
    default:
      return plan;
  }
}

/// Where no batch() stands at the end of the pipeline, one may be missing.
void check_batched(const Plan& plan, int replicas) {
  SpecNest spec;
  try {
    spec = plan.element_spec();
  } catch (const FailedPrecondition&) {
    return;  // empty: nothing to cut
  }
  spec.for_each([&](const TensorSpec& leaf) {
    if (!leaf.shape.empty() || leaf.unknown_rank) return;
    throw InvalidArgument(cat("distribute_dataset [", replicas, " replicas]: elements ", spec,
                              " with a scalar component, expected batches of rank 1 or more; call "
                              "batch() on the dataset first"));
  });
}

}  // namespace

PlanPtr shard_hint(PlanPtr input) { return std::make_shared<ShardHintPlan>(std::move(input)); }

PlanPtr auto_shard(PlanPtr plan, AutoShardPolicy policy, int num_workers, int index) {
  const Place place{num_workers, index};
  check(policy, place);
  policy = decided(*plan, policy, place);
  const PlanPtr shard = shard_as_decided(plan, policy, place);
  warn_of_empty_shards(*plan, *shard, policy, place);
  return shard;
}

bool shares_out_pieces(const Plan& plan, const InputWorkers& workers) {
  const Place place{workers.num_workers, workers.worker};
  return decided(plan, plan.options().experimental_distribute.auto_shard_policy, place) ==
         AutoShardPolicy::kData;
}

PlanPtr worker_pieces(PlanPtr plan, const InputWorkers& workers) {
  const Place place{workers.num_workers, workers.worker};
  check(plan->options().experimental_distribute.auto_shard_policy, place);
  if (workers.replicas_per_worker < 1) {
    throw InvalidArgument(cat("distribute_dataset: ", workers.replicas_per_worker,
                              " replicas a worker, expected at least 1"));
  }
  const int replicas = workers.num_workers * workers.replicas_per_worker;
  const AutoShardPolicy policy =
      decided(*plan, plan->options().experimental_distribute.auto_shard_policy, place);
  const std::optional<int64_t> batch = plan->batch_size();
  if (replicas > 1 && !batch) check_batched(*plan, replicas);
  const PlanPtr whole = plan;
  // kData shares out pieces, the others what pieces are made of.
  const bool of_pieces = policy == AutoShardPolicy::kData;
  if (!of_pieces) plan = shard_as_decided(std::move(plan), policy, place);
  if (replicas > 1) {
    plan = of_pieces || !batch
               ? legacy_rebatch(std::move(plan), replicas)
               : static_rebatch(std::move(plan), batch_sizes_for_worker(*batch, workers.num_workers,
                                                                        workers.replicas_per_worker,
                                                                        workers.worker));
  }
  if (of_pieces) plan = shard_as_decided(std::move(plan), policy, place);
  // Every batch has a piece for each worker: elements are not what kData may be short of.
  warn_of_empty_shards(*whole, *plan, of_pieces ? AutoShardPolicy::kAuto : policy,
                       {place.num_workers, place.index, "distribute_dataset"});
  if (replicas > 1 && batch) warn_of_idle_replicas(*batch, of_pieces, workers);
  return plan;
}

}  // namespace tutti::data
