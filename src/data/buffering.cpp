// Transformations that keep elements: shuffle, cache, prefetch.

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <exception>
#include <thread>

#include "base/mutex.h"
#include "data/iteration.h"
#include "data/pass_seeds.h"
#include "data/produced_ahead.h"
#include "data/worker_pool.h"
#include "tutti/base/log.h"
#include "tutti/base/seed.h"
#include "tutti/data/dataset.h"

namespace tutti::data::plans {
namespace {

/// A reservoir: `fetch(buffer, missing)` appends what is missing as far as there is more; then a
/// random slot is handed out. At the end it drains.
template <class Item, class Fetch>
std::optional<Item> draw(std::vector<Item>& buffer, std::size_t capacity, RandomBits& random,
                         Fetch fetch) {
  if (buffer.size() < capacity) fetch(capacity - buffer.size());
  if (buffer.empty()) return std::nullopt;
  Item& slot = buffer[random.below(buffer.size())];
  std::swap(slot, buffer.back());
  Item drawn = std::move(buffer.back());
  buffer.pop_back();
  return drawn;
}

class ShufflePlan : public UnaryPlan {
 public:
  ShufflePlan(PlanPtr input, int64_t buffer_size, const ShuffleOptions& options)
      : UnaryPlan(std::move(input)),
        capacity_(static_cast<std::size_t>(buffer_size)),
        options_(options),
        seeds_(std::make_shared<PassSeeds>(options)) {}
  ShufflePlan(PlanPtr input, const ShufflePlan& like)
      : UnaryPlan(std::move(input)),
        capacity_(like.capacity_),
        options_(like.options_),
        seeds_(like.seeds_) {}
  std::string name() const override { return "shuffle"; }
  std::string arguments() const override {
    return cat(capacity_, optional_text("seed", options_.seed),
               options_.reshuffle_each_iteration ? "" : ", reshuffle_each_iteration=false");
  }
  bool reshuffles() const override { return options_.reshuffle_each_iteration; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<ShufflePlan>(std::move(inputs[0]), *this);
  }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), capacity_, seeds_->next());
  }

 private:
  struct Pass : ForwardingIterator {
    Pass(std::unique_ptr<Iterator> input, std::size_t capacity, uint64_t seed)
        : ForwardingIterator(std::move(input)),
          capacity(capacity),
          random(seed),
          source(this->input().table()) {}
    // As it was at the start: the buffer holds elements or rows, not both.
    const RowTable* table() const override { return source; }
    std::optional<Nest> next() override {
      if (source != nullptr) {
        auto row = next_row();
        if (!row) return std::nullopt;
        return source->row(*row);
      }
      return draw(elements, capacity, random, [this](std::size_t missing) {
        for (; missing > 0; --missing) {
          auto element = input().next();
          if (!element) return;
          elements.push_back(std::move(*element));
        }
      });
    }
    void next_rows(int64_t count, std::vector<int64_t>& indices) override {
      for (; count > 0; --count) {
        auto row = next_row();
        if (!row) return;
        indices.push_back(*row);
      }
    }
    // Not more than needed: a row may be made when it is read, by a function of the user.
    std::optional<int64_t> next_row() {
      return draw(rows, capacity, random, [this](std::size_t missing) {
        input().next_rows(static_cast<int64_t>(missing), rows);
      });
    }
    std::size_t capacity;
    RandomBits random;
    const RowTable* source;
    std::vector<Nest> elements;
    std::vector<int64_t> rows;
  };
  std::size_t capacity_;
  ShuffleOptions options_;
  std::shared_ptr<PassSeeds> seeds_;
};

bool only_tensors(const Nest& element) {
  if (element.is_strings() || element.kind() == NestKind::kObject) return false;
  return std::all_of(element.items().begin(), element.items().end(), only_tensors);
}

/// What a pass over a cache's input leaves, and its table meanwhile. Elements go into columns that
/// are allocated for the expected number, so nothing is kept twice; of an unknown number, into
/// columns that double. From the first one on that has another shape, or has strings, they are kept
/// as they are.
class CacheTable : public RowTable {
 public:
  explicit CacheTable(int64_t expected)
      : RowTable({}, 0), capacity_(expected > 0 ? expected : kFirstRows) {}
  CacheTable(const CacheTable&) = delete;
  CacheTable& operator=(const CacheTable&) = delete;
  void add(const Nest& element) {
    if (others_.empty() && only_tensors(element) && fits(element)) {
      write(element);
    } else {
      others_.push_back(cloned(element));
    }
  }
  void finish() {
    complete_ = true;
    if (num_rows < capacity_)
      structure = structure.map_leaves(
          [this](const Tensor& column) { return column.narrow(0, 0, num_rows); });
    columns_.clear();
  }
  int64_t size() const { return num_rows + static_cast<int64_t>(others_.size()); }

  bool has_columns() const override { return complete_ && others_.empty() && num_rows > 0; }
  Nest row(int64_t index) const override {
    return index < num_rows ? RowTable::row(index) : cloned(other(index));
  }
  Nest rows(const std::vector<int64_t>& indices) const override {
    if (others_.empty()) return RowTable::rows(indices);
    std::vector<Nest> elements;
    elements.reserve(indices.size());
    for (int64_t index : indices)
      elements.push_back(index < num_rows ? RowTable::row(index) : other(index));
    return stacked(elements);
  }

 private:
  static constexpr int64_t kFirstRows = 256;

  struct Column {
    Column(const Tensor& leaf, int64_t num_rows) : row_bytes(leaf.nbytes()) {
      std::vector<int64_t> sizes = leaf.sizes().vec();
      sizes.insert(sizes.begin(), num_rows);
      rows = at::empty(sizes, leaf.options());
    }
    bool fits(const Tensor& leaf) const {
      return leaf.sizes() == rows.sizes().slice(1) && leaf.scalar_type() == rows.scalar_type() &&
             leaf.device() == rows.device();
    }
    void write(int64_t index, const Tensor& leaf) const {
      if (!is_plain(leaf)) {
        rows.select(0, index).copy_(leaf);
      } else if (row_bytes > 0) {
        std::memcpy(
            static_cast<char*>(rows.data_ptr()) + static_cast<std::size_t>(index) * row_bytes,
            leaf.const_data_ptr(), row_bytes);
      }
    }
    Tensor rows;
    std::size_t row_bytes;
  };

  const Nest& other(int64_t index) const {
    return others_[static_cast<std::size_t>(index - num_rows)];
  }
  void start(const Nest& element) {
    double bytes = 0;
    element.for_each([&](const Tensor& leaf) { bytes += static_cast<double>(leaf.nbytes()); });
    const double memory =
        static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    // Not to be reserved; the pass may well end before.
    if (bytes * static_cast<double>(capacity_) > memory) capacity_ = kFirstRows;
    set_columns(element, capacity_);
  }
  void grow() {
    const Nest before = structure;
    set_columns(row(0), 2 * capacity_);
    auto column = columns_.begin();
    before.for_each(
        [&](const Tensor& rows) { (column++)->rows.narrow(0, 0, num_rows).copy_(rows); });
    capacity_ *= 2;
  }
  void set_columns(const Nest& element, int64_t num_rows) {
    std::vector<Column> columns;
    structure = element.map_leaves(
        [&](const Tensor& leaf) { return columns.emplace_back(leaf, num_rows).rows; });
    columns_ = std::move(columns);
  }
  bool fits(const Nest& element) {
    if (num_rows == 0) {
      start(element);
      return !columns_.empty();
    }
    if (!same_structure(element, structure)) return false;
    bool fits = true;
    auto column = columns_.begin();
    element.for_each([&](const Tensor& leaf) { fits = (column++)->fits(leaf) && fits; });
    if (fits && num_rows == capacity_) grow();
    return fits;
  }
  void write(const Nest& element) {
    auto column = columns_.begin();
    element.for_each([&](const Tensor& leaf) { (column++)->write(num_rows, leaf); });
    ++num_rows;
  }

  int64_t capacity_;
  bool complete_ = false;
  std::vector<Column> columns_;
  std::vector<Nest> others_;
};

class CachePlan : public UnaryPlan {
 public:
  explicit CachePlan(PlanPtr input)
      : UnaryPlan(std::move(input)), shared_(std::make_shared<Shared>()) {}
  std::string name() const override { return "cache"; }
  bool runs_functions() const override { return !shared_->get() && Plan::runs_functions(); }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<CachePlan>(std::move(inputs[0]));
  }
  int64_t num_rows() const override { return input().num_rows(); }
  SpecNest element_spec() const override {
    const auto content = shared_->get();
    if (content && content->has_columns()) return spec_of(content->row(0));
    return input().element_spec();
  }
  std::unique_ptr<Iterator> iterator() const override {
    if (auto content = shared_->get()) return std::make_unique<ReadPass>(std::move(content));
    if (input().cardinality() == kInfinite) return input().iterator();  // never completes a pass
    return std::make_unique<FillPass>(input().iterator(), shared_, input().cardinality());
  }

 private:
  struct Shared {
    Mutex mutex;
    std::shared_ptr<const CacheTable> content TUTTI_GUARDED_BY(mutex);
    std::shared_ptr<const CacheTable> get() {
      MutexLock lock(mutex);
      return content;
    }
    void set(std::shared_ptr<const CacheTable> full) {
      MutexLock lock(mutex);
      if (!content) content = std::move(full);
    }
  };
  struct FillPass : Iterator {
    FillPass(std::unique_ptr<Iterator> input, std::shared_ptr<Shared> shared, int64_t expected)
        : input(std::move(input)),
          shared(std::move(shared)),
          rows(std::make_shared<CacheTable>(expected)) {}
    ~FillPass() override {
      if (!done && started)
        log_once(LogLevel::kWarning, "data/cache/partial",
                 "cache: a pass ended early and its elements are dropped; the next complete pass "
                 "fills the cache. To keep the first n elements write take(n).cache(), not "
                 "cache().take(n)");
    }
    std::optional<Nest> next() override {
      if (done) return std::nullopt;
      started = true;
      auto element = input->next();
      if (element) {
        rows->add(*element);
      } else {
        done = true;
        rows->finish();
        shared->set(rows);
      }
      return element;
    }
    const RowTable* table() const override { return rows.get(); }
    void next_rows(int64_t count, std::vector<int64_t>& indices) override {
      for (; count > 0 && next(); --count) indices.push_back(rows->size() - 1);
    }
    std::unique_ptr<Iterator> input;
    std::shared_ptr<Shared> shared;
    std::shared_ptr<CacheTable> rows;
    bool started = false;
    bool done = false;
  };
  struct ReadPass : Iterator {
    explicit ReadPass(std::shared_ptr<const CacheTable> content) : content(std::move(content)) {}
    std::optional<Nest> next() override {
      if (at == content->size()) return std::nullopt;
      return content->row(at++);
    }
    const RowTable* table() const override { return content.get(); }
    void next_rows(int64_t count, std::vector<int64_t>& indices) override {
      for (; count > 0 && at < content->size(); --count) indices.push_back(at++);
    }
    std::shared_ptr<const CacheTable> content;
    int64_t at = 0;
  };
  std::shared_ptr<Shared> shared_;
};

class PrefetchPlan : public UnaryPlan {
 public:
  PrefetchPlan(PlanPtr input, std::size_t capacity)
      : UnaryPlan(std::move(input)), capacity_(capacity) {}
  std::string name() const override { return "prefetch"; }
  std::string arguments() const override { return cat(capacity_); }
  bool runs_functions() const override { return false; }
  PlanPtr with_inputs(std::vector<PlanPtr> inputs) const override {
    return std::make_shared<PrefetchPlan>(std::move(inputs[0]), capacity_);
  }
  int64_t num_rows() const override { return input().num_rows(); }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(input().iterator(), capacity_);
  }

 private:
  class Pass : public Iterator {
   public:
    Pass(std::unique_ptr<Iterator> input, std::size_t capacity)
        : input_(std::move(input)),
          elements_(capacity, on_one_core, [this] { return input_->next(); }) {}
    std::optional<Nest> next() override { return elements_.next(); }

   private:
    std::unique_ptr<Iterator> input_;
    ProducedAhead<Nest> elements_;
  };
  std::size_t capacity_;
};

}  // namespace

PlanPtr shuffle(PlanPtr input, int64_t buffer_size, const ShuffleOptions& options) {
  if (buffer_size < 1)
    throw InvalidArgument(
        cat("shuffle: a buffer of ", buffer_size, " elements, expected at least 1"));
  return std::make_shared<ShufflePlan>(std::move(input), buffer_size, options);
}

PlanPtr cache(PlanPtr input) { return std::make_shared<CachePlan>(std::move(input)); }

PlanPtr prefetch(PlanPtr input, int64_t buffer_size) {
  if (buffer_size < -1)
    throw InvalidArgument(
        cat("prefetch: a buffer of ", buffer_size, ", expected -1 (automatic), 0 (none) or more"));
  if (buffer_size == 0) return input;
  return std::make_shared<PrefetchPlan>(
      std::move(input), buffer_size < 0 ? 2 : static_cast<std::size_t>(buffer_size));
}

}  // namespace tutti::data::plans
