// Where elements come from.

#include <glob.h>

#include "data/iteration.h"
#include "data/iterator_state.h"
#include "data/pass_seeds.h"
#include "tutti/data/dataset.h"

namespace tutti::data::plans {
namespace {

std::string output_type_text(at::ScalarType dtype) {
  return dtype == at::kLong ? "" : cat(", output_type=", dtype_name(dtype));
}

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
  RangePlan(int64_t start, int64_t stop, int64_t step, const RangeOptions& options)
      : Plan({}),
        start_(start),
        stop_(stop),
        step_(step),
        size_(range_size(start, stop, step)),
        dtype_(options.output_type) {}
  std::string name() const override { return "range"; }
  std::string arguments() const override {
    return cat(start_, ", ", stop_, step_ == 1 ? "" : cat(", ", step_), output_type_text(dtype_));
  }
  int64_t cardinality() const override { return size_; }
  SpecNest element_spec() const override { return TensorSpec{{}, dtype_}; }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(start_, step_, size_, dtype_);
  }
  Nest element_at(int64_t index) const override {
    return Nest(at::scalar_tensor(start_ + index * step_, dtype_));
  }

 private:
  struct Pass : Iterator {
    Pass(int64_t start, int64_t step, int64_t size, at::ScalarType dtype)
        : value(start), step(step), left(size), dtype(dtype) {}
    std::optional<Nest> next() override {
      if (left == 0) return std::nullopt;
      Nest element(at::scalar_tensor(value, dtype));
      if (--left > 0) value += step;
      return element;
    }
    Nest save() const override {
      return Nest::map({{"value", state::number(value)}, {"left", state::number(left)}});
    }
    void restore(const Nest& saved) override {
      value = state::number_in(saved, "value");
      left = state::number_in(saved, "left");
    }
    int64_t value, step, left;
    at::ScalarType dtype;
  };
  int64_t start_, stop_, step_, size_;
  at::ScalarType dtype_;
};

class CounterPlan : public Plan {
 public:
  explicit CounterPlan(const CounterOptions& options) : Plan({}), options_(options) {}
  std::string name() const override { return "counter"; }
  std::string arguments() const override {
    return cat(options_.start, options_.step == 1 ? "" : cat(", ", options_.step),
               output_type_text(options_.output_type));
  }
  int64_t cardinality() const override { return kInfinite; }
  SpecNest element_spec() const override { return TensorSpec{{}, options_.output_type}; }
  std::unique_ptr<Iterator> iterator() const override { return std::make_unique<Pass>(options_); }
  Nest element_at(int64_t index) const override {  // unsigned: it may wrap round
    const uint64_t value = static_cast<uint64_t>(options_.start) +
                           static_cast<uint64_t>(index) * static_cast<uint64_t>(options_.step);
    return Nest(at::scalar_tensor(static_cast<int64_t>(value), options_.output_type));
  }

 private:
  struct Pass : Iterator {
    explicit Pass(const CounterOptions& options)
        : options(options), value(static_cast<uint64_t>(options.start)) {}
    std::optional<Nest> next() override {
      Nest element(at::scalar_tensor(static_cast<int64_t>(value), options.output_type));
      value += static_cast<uint64_t>(options.step);  // unsigned: it may wrap round
      return element;
    }
    Nest save() const override {
      return Nest::map({{"value", state::number(static_cast<int64_t>(value))}});
    }
    void restore(const Nest& saved) override {
      value = static_cast<uint64_t>(state::number_in(saved, "value"));
    }
    CounterOptions options;
    uint64_t value;
  };
  CounterOptions options_;
};

class RandomPlan : public Plan {
 public:
  explicit RandomPlan(const RandomOptions& options)
      : Plan({}),
        options_(options),
        seeds_({.seed = options.seed,
                .reshuffle_each_iteration = options.rerandomize_each_iteration}) {}
  std::string name() const override { return "random"; }
  std::string arguments() const override {
    std::vector<std::string> all;
    if (options_.seed) all.push_back(cat("seed=", *options_.seed));
    if (options_.rerandomize_each_iteration) all.push_back("rerandomize_each_iteration=true");
    return join(all, ", ");
  }
  int64_t cardinality() const override { return kInfinite; }
  SpecNest element_spec() const override { return TensorSpec{{}, at::kLong}; }
  Nest save_seeds() const override { return seeds_.save(); }
  void restore_seeds(const Nest& state) const override { seeds_.restore(state); }
  std::unique_ptr<Iterator> iterator() const override {
    return std::make_unique<Pass>(seeds_.next());
  }
  std::unique_ptr<Iterator> preview() const override { return std::make_unique<Pass>(0); }

 private:
  struct Pass : Iterator {
    explicit Pass(uint64_t seed) : random(seed) {}
    std::optional<Nest> next() override {
      return Nest(at::scalar_tensor(static_cast<int64_t>(random.next() >> 32), at::kLong));
    }
    Nest save() const override { return Nest::map({{"random", state::random_bits(random)}}); }
    void restore(const Nest& saved) override { state::set_random_bits(saved, "random", random); }
    RandomBits random;
  };
  RandomOptions options_;
  mutable PassSeeds seeds_;
};

class TensorsPlan : public Plan {
 public:
  explicit TensorsPlan(Nest element) : Plan({}), element_(std::move(element)) {}
  std::string name() const override { return "from_tensors"; }
  std::string arguments() const override { return cat(spec_of(element_)); }
  int64_t cardinality() const override { return 1; }
  SpecNest element_spec() const override { return spec_of(element_); }
  std::unique_ptr<Iterator> iterator() const override { return std::make_unique<Pass>(element_); }
  Nest element_at(int64_t /*index*/) const override { return element_; }

 private:
  struct Pass : Iterator {
    explicit Pass(const Nest& element) : element(element) {}
    std::optional<Nest> next() override {
      if (done) return std::nullopt;
      done = true;
      return element;
    }
    Nest save() const override { return Nest::map({{"done", state::number(done)}}); }
    void restore(const Nest& saved) override { done = state::number_in(saved, "done") != 0; }
    Nest element;
    bool done = false;
  };
  Nest element_;
};

class SlicesPlan : public Plan {
 public:
  SlicesPlan(RowTable table, std::string name, std::string arguments)
      : Plan({}),
        table_(std::make_shared<RowTable>(std::move(table))),
        name_(std::move(name)),
        arguments_(std::move(arguments)) {}
  std::string name() const override { return name_; }
  std::string arguments() const override { return arguments_; }
  int64_t cardinality() const override { return table_->num_rows; }
  SpecNest element_spec() const override {
    return spec_of(table_->structure).map_leaves([](TensorSpec column) {
      column.shape.erase(column.shape.begin());
      return column;
    });
  }
  std::unique_ptr<Iterator> iterator() const override { return std::make_unique<Pass>(table_); }
  Nest element_at(int64_t index) const override { return table_->row(index); }

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
    Nest save() const override { return Nest::map({{"row", state::number(at)}}); }
    void restore(const Nest& saved) override {
      at = state::number_in(saved, "row", 0, rows->num_rows);
    }
    std::shared_ptr<const RowTable> rows;
    int64_t at = 0;
  };
  std::shared_ptr<const RowTable> table_;
  std::string name_;
  std::string arguments_;
};

class GeneratorPlan : public Plan {
 public:
  GeneratorPlan(std::function<NestGenerator()> factory, std::optional<SpecNest> spec)
      : Plan({}), factory_(std::move(factory)), spec_(std::move(spec)) {}
  std::string name() const override { return "from_generator"; }
  std::string arguments() const override { return spec_ ? cat("function, ", *spec_) : "function"; }
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
      const SpecNest actual = spec_of(element);
      if (!same_structure(actual, *spec)) {
        throw InvalidArgument(cat("from_generator: an element of the structure ",
                                  element.structure(), ", expected ", spec->structure()));
      }
      const auto found = flatten(actual);
      const auto wanted = flatten(*spec);
      for (std::size_t i = 0; i < found.size(); ++i) {
        if (!wanted[i].accepts(found[i]))
          throw InvalidArgument(
              cat("from_generator: an element ", found[i], ", expected ", wanted[i]));
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

void check_number_dtype(const char* operation, at::ScalarType dtype) {
  if (!at::isIntegralType(dtype, /*includeBool=*/false) && !at::isFloatingType(dtype))
    throw InvalidArgument(cat(operation, ": output_type ", dtype_name(dtype),
                              ", expected a dtype of integers or floats"));
}

std::vector<int64_t> shape_of(const Tensor& column) {
  return column.defined() ? column.sizes().vec() : std::vector<int64_t>();
}
std::vector<int64_t> shape_of(const StringTensor& column) { return column.sizes(); }

/// Sorted; none is no error.
std::vector<std::string> matching_files(const std::string& pattern) {
  glob_t found{};
  const int code = glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (code == GLOB_NOSPACE) throw ResourceExhausted("list_files: no memory for the names");
  return files;
}

}  // namespace

PlanPtr range(int64_t start, int64_t stop, int64_t step, const RangeOptions& options) {
  if (step == 0) throw InvalidArgument("range: step 0, expected another number");
  check_number_dtype("range", options.output_type);
  return std::make_shared<RangePlan>(start, stop, step, options);
}

PlanPtr counter(const CounterOptions& options) {
  check_number_dtype("counter", options.output_type);
  return std::make_shared<CounterPlan>(options);
}

PlanPtr random(const RandomOptions& options) { return std::make_shared<RandomPlan>(options); }

PlanPtr list_files(const std::vector<std::string>& patterns, const ListFilesOptions& options) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    const auto found = matching_files(pattern);
    files.insert(files.end(), found.begin(), found.end());
  }
  const std::string asked = join(patterns, ", ");
  if (files.empty())
    throw InvalidArgument(cat("list_files: no file matches ", asked,
                              ", expected at least one; check the folder and the pattern"));
  const auto count = static_cast<int64_t>(files.size());
  auto plan = std::make_shared<SlicesPlan>(RowTable(Nest(StringTensor(std::move(files))), count),
                                           "list_files", asked);
  if (!options.shuffle) return plan;
  return shuffle(std::move(plan), count, {.seed = options.seed});
}

PlanPtr from_tensors(Nest element) { return std::make_shared<TensorsPlan>(std::move(element)); }

PlanPtr from_tensor_slices(Nest columns) {
  std::vector<std::vector<int64_t>> shapes;
  const auto look = [&](const auto& column) { shapes.push_back(shape_of(column)); };
  columns.for_each(look, look);
  if (shapes.empty())
    throw InvalidArgument("from_tensor_slices: no tensors, expected at least one");
  for (const auto& shape : shapes) {
    if (shape.empty()) {
      throw InvalidArgument(
          "from_tensor_slices: a scalar component, expected rank 1 or more to slice; use "
          "from_tensors for one element");
    }
    if (shape[0] != shapes[0][0]) {
      throw InvalidArgument(cat("from_tensor_slices: components of shape ", shape_text(shapes[0]),
                                " and ", shape_text(shape),
                                ", expected one length along the first axis"));
    }
  }
  const std::string arguments = cat(spec_of(columns));
  RowTable table{columns.map_leaves([](const Tensor& column) { return column.detach(); }),
                 shapes[0][0]};
  return std::make_shared<SlicesPlan>(std::move(table), "from_tensor_slices", arguments);
}

PlanPtr from_generator(std::function<NestGenerator()> factory, std::optional<SpecNest> spec) {
  return std::make_shared<GeneratorPlan>(std::move(factory), std::move(spec));
}

}  // namespace tutti::data::plans
