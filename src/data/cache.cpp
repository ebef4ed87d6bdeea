// cache in memory.

#include <unistd.h>

#include <cstring>

#include "base/mutex.h"
#include "data/iteration.h"
#include "data/iterator_state.h"
#include "data/pass_options.h"
#include "tutti/base/log.h"
#include "tutti/data/plans.h"

namespace tutti::data::plans {
namespace {

/// Dense ones, which stand in columns.
bool only_tensors(const Nest& element) {
  if (element.is_leaf()) return element.leaf().layout() == at::kStrided;
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
  Nest save() const {
    return Nest::map({{"rows", state::number(num_rows)},
                      {"columns", num_rows > 0 ? structure.map_leaves([this](const Tensor& column) {
                         return column.narrow(0, 0, num_rows);
                       })
                                               : Nest()},
                      {"others", state::elements(others_)}});
  }
  /// Of a new table, `complete` or not.
  void restore(const Nest& saved, bool complete) {
    const int64_t rows = state::number_in(saved, "rows", 0);
    const Nest columns = state::element_in(saved, "columns");
    others_ = state::elements_in(saved, "others");
    if (rows > 0 && rows_of("restore iterator", columns) != rows)
      throw DataLoss("restore iterator: another number of cached rows, expected an equal pipeline");
    if (complete) {
      structure = columns;
      num_rows = rows;
      capacity_ = rows;
      complete_ = true;
      return;
    }
    for (int64_t i = 0; i < rows; ++i) write_first(RowTable(columns, rows).row(i));
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
  void write_first(const Nest& element) {
    if (!fits(element)) throw DataLoss("restore iterator: cached rows of several shapes");
    write(element);
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
  Nest element_at(int64_t index) const override {
    const auto content = shared_->get();
    return content ? content->row(index) : plans::element_at(input(), index);
  }
  std::unique_ptr<Iterator> iterator() const override {
    if (input().cardinality() == kInfinite) return input().iterator();  // never completes a pass
    return std::make_unique<Pass>(shared_, inputs()[0]);
  }

 private:
  struct Shared {
    Mutex mutex;
    std::shared_ptr<const CacheTable> content TUTTI_GUARDED_BY(mutex);
    std::shared_ptr<const CacheTable> get() {
      MutexLock lock(mutex);
      return content;
    }
    /// The content, which is `full` unless there is one.
    std::shared_ptr<const CacheTable> set(std::shared_ptr<const CacheTable> full) {
      MutexLock lock(mutex);
      if (!content) content = std::move(full);
      return content;
    }
  };

  /// Fills a table, or reads one.
  struct Pass : Iterator {
    Pass(std::shared_ptr<Shared> given, PlanPtr input_plan)
        : shared(std::move(given)),
          plan(std::move(input_plan)),
          options(current_pass_options()),
          content(shared->get()) {
      if (!content) fill_with(std::make_shared<CacheTable>(plan->cardinality()));
    }
    void fill_with(std::shared_ptr<CacheTable> table) {
      const PassOptionsScope scope(options);
      if (!input) input = plan->iterator();
      filled = table;
      content = std::move(table);
    }
    ~Pass() override {
      if (filled && !done && started)
        log_once(LogLevel::kWarning, "data/cache/partial",
                 "cache: a pass ended early and its elements are dropped; the next complete pass "
                 "fills the cache. To keep the first n elements write take(n).cache(), not "
                 "cache().take(n)");
    }
    std::optional<Nest> next() override {
      if (filled) return fill();
      if (at == content->size()) return std::nullopt;
      return content->row(at++);
    }
    std::optional<Nest> fill() {
      if (done) return std::nullopt;
      started = true;
      auto element = input->next();
      if (element) {
        filled->add(*element);
      } else {
        done = true;
        filled->finish();
        shared->set(filled);
      }
      return element;
    }
    const RowTable* table() const override { return content.get(); }
    void next_rows(int64_t count, std::vector<int64_t>& indices) override {
      if (filled) {
        for (; count > 0 && fill(); --count) indices.push_back(content->size() - 1);
      } else {
        for (; count > 0 && at < content->size(); --count) indices.push_back(at++);
      }
    }
    // With what is cached, so that the passes to come have it too.
    Nest save() const override {
      const bool filling = filled && !done;
      return Nest::map({{"at", state::number(filled ? content->size() : at)},
                        {"input", filling ? input->save() : Nest()},
                        {"filling", state::number(filling)},
                        {"content", content->save()}});
    }
    void restore(const Nest& saved) override {
      at = state::number_in(saved, "at", 0);
      const bool filling = state::number_in(saved, "filling") != 0;
      const Nest& saved_content = state::part(saved, "content");
      if (filling) {
        auto table = std::make_shared<CacheTable>(plan->cardinality());
        table->restore(saved_content, false);
        fill_with(std::move(table));
        input->restore(state::part(saved, "input"));
        started = true;
        return;
      }
      std::shared_ptr<const CacheTable> full = shared->get();
      if (!full) {
        auto table = std::make_shared<CacheTable>(0);
        table->restore(saved_content, true);
        full = shared->set(std::move(table));
      }
      if (at > full->size())
        throw DataLoss(cat("restore iterator: place ", at, " in a cache of ", full->size(),
                           " elements, expected an equal pipeline"));
      filled.reset();
      content = std::move(full);
    }
    std::shared_ptr<Shared> shared;
    PlanPtr plan;
    PassOptions options;
    std::unique_ptr<Iterator> input;
    std::shared_ptr<CacheTable> filled;  // null: reads
    std::shared_ptr<const CacheTable> content;
    int64_t at = 0;
    bool started = false;
    bool done = false;
  };
  std::shared_ptr<Shared> shared_;
};

}  // namespace

PlanPtr cache(PlanPtr input) { return std::make_shared<CachePlan>(std::move(input)); }

}  // namespace tutti::data::plans
