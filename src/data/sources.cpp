// Where elements come from.

#include "data/iteration.h"
#include "tutti/data/dataset.h"

namespace tutti::data::plans {
namespace {

// Unsigned: the distance between two int64 may not fit into one.
int64_t range_size(int64_t start, int64_t stop, int64_t step) {
  if (step > 0 ? stop <= start : start <= stop) return 0;
  const auto low = static_cast<uint64_t>(step > 0 ? start : stop);
  const auto high = static_cast<uint64_t>(step > 0 ? stop : start);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  return static_cast<int64_t>((high - low - 1) / stride + 1);
}

class RangePlan : public Plan {
 public:
  RangePlan(int64_t start, int64_t stop, int64_t step)
      : Plan({}), start_(start), step_(step), size_(range_size(start, stop, step)) {}
  std::string name() const override { return "range"; }
  int64_t cardinality() const override { return size_; }
  SpecNest element_spec() const override { return TensorSpec{{}, at::kLong}; }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(start_, step_, size_);
  }

 private:
  struct Pass : Iterator {
    Pass(int64_t start, int64_t step, int64_t size) : value(start), step(step), left(size) {}
    std::optional<Nest> next() override {
      if (left == 0) return std::nullopt;
      Nest element(at::scalar_tensor(value, at::kLong));
      if (--left > 0) value += step;
      return element;
    }
    int64_t value, step, left;
  };
  int64_t start_, step_, size_;
};

class TensorsPlan : public Plan {
 public:
  explicit TensorsPlan(Nest element) : Plan({}), element_(std::move(element)) {}
  std::string name() const override { return "from_tensors"; }
  int64_t cardinality() const override { return 1; }
  SpecNest element_spec() const override { return spec_of(element_); }
  std::unique_ptr<Iterator> iterator() const override { return std::make_unique<Pass>(element_); }

 private:
  struct Pass : Iterator {
    explicit Pass(const Nest& element) : element(element) {}
    std::optional<Nest> next() override {
      if (done) return std::nullopt;
      done = true;
      return element;
    }
    Nest element;
    bool done = false;
  };
  Nest element_;
};

class SlicesPlan : public Plan {
 public:
  explicit SlicesPlan(RowTable table)
      : Plan({}), table_(std::make_shared<RowTable>(std::move(table))) {}
  std::string name() const override { return "from_tensor_slices"; }
  int64_t cardinality() const override { return table_->num_rows; }
  SpecNest element_spec() const override {
    return table_->structure.map_leaves([](const Tensor& column) {
      return TensorSpec{column.sizes().slice(1).vec(), column.scalar_type()};
    });
  }
  std::unique_ptr<Iterator> iterator() const override { return std::make_unique<Pass>(table_); }

 private:
  struct Pass : Iterator {
    explicit Pass(std::shared_ptr<const RowTable> rows) : rows(std::move(rows)) {}
    std::optional<Nest> next() override {
      if (at == rows->num_rows) return std::nullopt;
      return rows->row(at++);
    }
    const RowTable* table() const override { return rows.get(); }
    void next_rows(int64_t count, std::vector<int64_t>& indices) override {
      for (; count > 0 && at < rows->num_rows; --count) indices.push_back(at++);
    }
    std::shared_ptr<const RowTable> rows;
    int64_t at = 0;
  };
  std::shared_ptr<const RowTable> table_;
};

class GeneratorPlan : public Plan {
 public:
  GeneratorPlan(std::function<NestGenerator()> factory, std::optional<SpecNest> spec)
      : Plan({}), factory_(std::move(factory)), spec_(std::move(spec)) {}
  std::string name() const override { return "from_generator"; }
  bool runs_functions() const override { return true; }
  int64_t cardinality() const override { return kUnknown; }
  SpecNest element_spec() const override { return spec_ ? *spec_ : seen_.of(*this); }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(factory_(), spec_);
  }

 private:
  struct Pass : Iterator {
    Pass(NestGenerator generator, std::optional<SpecNest> spec)
        : generator(std::move(generator)), spec(std::move(spec)) {}
    std::optional<Nest> next() override {
      if (done) return std::nullopt;
      auto element = generator();
      done = !element;
      if (element && spec) check(*element);
      return element;
    }
    void check(const Nest& element) const {
      if (!same_structure(element, *spec)) {
        throw InvalidArgument(cat("from_generator: an element of the structure ",
                                  element.structure(), ", expected ", spec->structure()));
      }
      const auto found = flatten(element);
      const auto wanted = flatten(*spec);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const TensorSpec actual = TensorSpec::of(found[i]);
        if (!wanted[i].accepts(actual))
          throw InvalidArgument(
              cat("from_generator: an element ", actual, ", expected ", wanted[i]));
      }
    }
    NestGenerator generator;
    std::optional<SpecNest> spec;
    bool done = false;
  };
  std::function<NestGenerator()> factory_;
  std::optional<SpecNest> spec_;
  SeenSpec seen_;
};

}  // namespace

PlanPtr range(int64_t start, int64_t stop, int64_t step) {
  if (step == 0) throw InvalidArgument("range: step 0, expected another number");
  return std::make_shared<RangePlan>(start, stop, step);
}

PlanPtr from_tensors(Nest element) { return std::make_shared<TensorsPlan>(std::move(element)); }

PlanPtr from_tensor_slices(Nest columns) {
  const auto leaves = flatten(columns);
  if (leaves.empty())
    throw InvalidArgument("from_tensor_slices: no tensors, expected at least one");
  for (const Tensor& leaf : leaves) {
    if (!leaf.defined() || leaf.dim() == 0) {
      throw InvalidArgument(
          "from_tensor_slices: a scalar component, expected rank 1 or more to slice; use "
          "from_tensors for one element");
    }
    if (leaf.size(0) != leaves[0].size(0)) {
      throw InvalidArgument(cat("from_tensor_slices: components of shape ",
                                shape_text(leaves[0].sizes()), " and ", shape_text(leaf.sizes()),
                                ", expected one length along the first axis"));
    }
  }
  RowTable table{columns.map_leaves([](const Tensor& column) { return column.detach(); }),
                 leaves[0].size(0)};
  return std::make_shared<SlicesPlan>(std::move(table));
}

PlanPtr from_generator(std::function<NestGenerator()> factory, std::optional<SpecNest> spec) {
  return std::make_shared<GeneratorPlan>(std::move(factory), std::move(spec));
}

}  // namespace tutti::data::plans
