#pragma once
// The dynamic core of datasets: plans (values that describe a pipeline) and iterators (one pass
// over it).

#include <algorithm>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/data/pipeline_options.h"
#include "tutti/tensor/nest.h"
#include "tutti/tensor/tensor_spec.h"
#include "tutti/tensor/trackable.h"

namespace tutti::data {

inline constexpr int64_t kInfinite = -1;
inline constexpr int64_t kUnknown = -2;
/// As `num_parallel_calls` or a prefetch buffer: a number that the library chooses.
inline constexpr int64_t kAutotune = -1;
/// `shard(kShardHint, kShardHint)`: the place where AutoShardPolicy::kHint puts the worker's shard.
/// Until then a pass over it is FailedPrecondition.
inline constexpr int64_t kShardHint = -1;

/// Rows of tensors: column c of row i is `columns[c][i]`, and `structure` says how a row's columns
/// are nested. What is handed out is the caller's own: writing into it leaves the table alone.
struct RowTable {
  RowTable(Nest structure, int64_t num_rows, std::shared_ptr<const RowTable> behind = nullptr)
      : structure(std::move(structure)), num_rows(num_rows), behind(std::move(behind)) {}
  virtual ~RowTable() = default;
  RowTable(const RowTable&) = default;
  RowTable& operator=(const RowTable&) = default;

  Nest structure;  // leaves: the columns
  int64_t num_rows = 0;
  /// If not null, its rows stand behind these: row `num_rows` is its row 0.
  std::shared_ptr<const RowTable> behind;
  /// False: a cache that is being filled, or whose elements differ in shape. It has the rows that
  /// its pass has given, and its members say nothing.
  virtual bool has_columns() const { return true; }
  virtual Nest row(int64_t index) const;
  /// Rows `indices` as a batch: one copy of each column when they are consecutive, else one
  /// indexed read.
  virtual Nest rows(const std::vector<int64_t>& indices) const;
};

/// One pass. Used by one thread at a time. After the end it stays at the end; after an exception
/// the next call goes on behind it.
class Iterator {
 public:
  virtual ~Iterator() = default;
  virtual std::optional<Nest> next() = 0;

  /// Not null: the elements from here on are rows of this table (which lives as long as the
  /// iterator), and next_rows may be called instead of next. Batches are then cut in one read.
  /// Never changes from one table to another, or back to null, but by restore.
  virtual const RowTable* table() const { return nullptr; }
  /// Appends the indices of up to `count` next elements; fewer at the end. Those in front of one
  /// that throws have been appended then.
  virtual void next_rows(int64_t count, std::vector<int64_t>& indices) {}

  /// Where the pass stands, as a nest of tensors and strings (map keys name the parts): positions,
  /// the contents of buffers, the states of random numbers. FailedPrecondition where that cannot be
  /// had (a generator function of the user). Between two calls of next.
  virtual Nest save() const;
  /// On a new iterator of an equal pipeline, before its first next: goes on where save was called,
  /// with exactly the element that came next there. DataLoss or InvalidArgument when `state` is not
  /// that of such a pipeline; the iterator is of no use then.
  virtual void restore(const Nest& state);
};

/// The place of a pass as a part of a train::Checkpoint, which is restored into a new iterator of
/// an equal pipeline. The iterator must outlive it. Only the pipeline itself finds out that a state
/// is another one's: objects of earlier names have theirs then.
std::shared_ptr<Trackable> trackable(Iterator& iterator);

/// A description of a pipeline: immutable but for caches and reshuffling seeds, shared by all who
/// build on it. Thread-safe. As an object in a nest it is the element of a dataset of datasets.
class Plan : public NestObject {
 public:
  explicit Plan(std::vector<std::shared_ptr<const Plan>> inputs) : inputs_(std::move(inputs)) {}
  ~Plan() override = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// The operation's name: "shuffle".
  virtual std::string name() const = 0;
  /// Its arguments, in the order of the call, the optional ones by name when they are not the
  /// defaults: "1000, seed=3". A function of the user is `function`.
  virtual std::string arguments() const { return ""; }
  virtual std::unique_ptr<Iterator> iterator() const = 0;
  /// A pass that only shows what elements look like: without the buffers, threads and seeds of
  /// shuffle, cache and prefetch, so that a look changes no later pass.
  virtual std::unique_ptr<Iterator> preview() const { return iterator(); }
  /// Number of elements, kInfinite or kUnknown.
  virtual int64_t cardinality() const = 0;
  /// Of one element. Where only the elements tell (map, from_generator without a spec), the first
  /// one of a preview is made, once for each plan; FailedPrecondition when there is none.
  virtual SpecNest element_spec() const;
  /// Element `index`, from 0 to below cardinality(), without a pass; plans::element_at asks.
  /// Unimplemented where that cannot be.
  virtual Nest element_at(int64_t index) const;
  /// The size that the last batch of the pipeline asked for; nothing when that is not known.
  virtual std::optional<int64_t> batch_size() const {
    return inputs_.size() == 1 ? inputs_[0]->batch_size() : std::nullopt;
  }
  /// What with_options said anywhere in the pipeline; of several inputs the last one counts.
  virtual Options options() const;
  /// True: a pass over it runs functions of the user, which may take long. Not for what a prefetch
  /// makes on its own thread, nor for what a full cache keeps.
  virtual bool runs_functions() const {
    return std::any_of(inputs_.begin(), inputs_.end(),
                       [](const auto& input) { return input->runs_functions(); });
  }
  /// Rows of all batches together; kInfinite or kUnknown.
  virtual int64_t num_rows() const { return kUnknown; }
  /// The same operation on other inputs, as many as now; null: it cannot be built anew. A shuffle
  /// goes on with its seeds, a cache starts empty.
  virtual std::shared_ptr<const Plan> with_inputs(
      std::vector<std::shared_ptr<const Plan>> inputs) const {
    return nullptr;
  }
  /// True: each pass has another order, because this operation gives it one.
  virtual bool reshuffles() const { return false; }
  /// True: a function of the user reads files that the elements of the only input name (flat_map
  /// and interleave of a reader). FILE shares out those elements.
  virtual bool function_reads_files() const { return false; }
  /// Of a source that reads files: which, else null.
  virtual const std::vector<std::string>* files() const { return nullptr; }
  /// Of such a source: the same one on other files.
  virtual std::shared_ptr<const Plan> with_files(std::vector<std::string> files) const {
    return nullptr;
  }
  const std::vector<std::shared_ptr<const Plan>>& inputs() const { return inputs_; }
  /// Where the seeds of its passes stand, which a pass does not have: part of what begin_pass's
  /// iterators save. None without seeds.
  virtual Nest save_seeds() const { return {}; }
  virtual void restore_seeds(const Nest& state) const {}

  std::string nest_text() const override;
  std::shared_ptr<const NestObject> nest_spec() const override;

 private:
  std::vector<std::shared_ptr<const Plan>> inputs_;
};

using PlanPtr = std::shared_ptr<const Plan>;

/// A pass over a whole pipeline, as its options say: what Dataset::iterator gives. Its state has
/// the seeds of all the plans in it, so that the passes to come have the orders that they would
/// have had where it was saved.
std::unique_ptr<Iterator> begin_pass(const PlanPtr& plan);

/// The pipeline as a tree, one line an operation with its arguments, the last one first and what it
/// reads below it, two columns further in:
///
///     batch(32, drop_remainder=true)
///       shuffle(1000, seed=1)
///         map(function)
///           range(0, 5000)
///
/// In code, name(), arguments() and inputs() say the same.
std::string to_string(const Plan& plan);
std::ostream& operator<<(std::ostream& out, const Plan& plan);

/// The part of a dataset that is worker `index`'s by `policy`; kData: elements index,
/// index + num_workers, …. InvalidArgument: another policy, an index that is no worker's, or kFile
/// with fewer files than workers (on every worker alike; kAuto then takes kData, with a warning).
/// NotFound: kFile on a source that reads no files. A shard that is known to be empty is a warning.
PlanPtr auto_shard(PlanPtr plan, AutoShardPolicy policy, int num_workers, int index);

/// A process's place among those that share a dataset.
struct InputWorkers {
  int num_workers = 1;
  int replicas_per_worker = 1;
  int worker = 0;
};
/// The pieces that the replicas of a worker draw in turn from `plan`, whose batches are of the
/// global size: sharded by its options' policy and cut for all replicas. By kData, by kAuto where
/// that means kData, or when the batch size is not known, each batch is cut by itself
/// (legacy_rebatch); else the stream of rows is (static_rebatch). Cutting is the last stage: the
/// functions of `plan` see the batches that the user asked for. InvalidArgument when there are
/// several replicas and elements have no batch axis. A warning tells of datasets that are known to
/// be empty, and of batches that have no rows for some of the replicas.
PlanPtr worker_pieces(PlanPtr plan, const InputWorkers& workers);
/// Whether worker_pieces shares out the pieces of each batch: step number s of all workers together
/// is then batch number s.
bool shares_out_pieces(const Plan& plan, const InputWorkers& workers);

/// Each batch of n rows becomes `num_pieces` pieces of ceil(n / num_pieces) rows, the last ones
/// shorter or empty (views).
PlanPtr legacy_rebatch(PlanPtr input, int num_pieces);
/// The stream of rows cut anew into batches of these sizes, round and round; the last may be
/// shorter.
PlanPtr static_rebatch(PlanPtr input, std::vector<int64_t> sizes);
/// The sizes that worker `worker` of `num_workers` with `replicas_per_worker` replicas cycles
/// through for the global batch.
std::vector<int64_t> batch_sizes_for_worker(int64_t global_batch, int num_workers,
                                            int replicas_per_worker, int worker);

}  // namespace tutti::data
