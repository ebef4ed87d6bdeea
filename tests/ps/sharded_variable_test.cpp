// One variable in several: the claims of TensorFlow's sharded_variable_test.
#include "tutti/ps/sharded_variable.h"

#include "support/expect.h"

namespace tutti::distribute {
namespace {

ShardedVariable of_rows(const std::vector<int64_t>& rows, int64_t width = 2) {
  std::vector<Variable> variables;
  int64_t next = 0;
  for (int64_t count : rows) {
    variables.emplace_back(
        at::arange(next, next + count * width, at::kFloat).reshape({count, width}),
        VariableOptions{.name = cat("s/part_", variables.size())});
    next += count * width;
  }
  return ShardedVariable(variables, "s");
}
Tensor all(int64_t rows, int64_t width = 2) {
  return at::arange(rows * width, at::kFloat).reshape({rows, width});
}
Tensor ids(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }

/// Counts what is asked of it.
class CountingShard final : public VariableShard {
 public:
  explicit CountingShard(Tensor value) : value_(std::move(value)) {}
  const std::string& name() const override { return name_; }
  std::vector<int64_t> sizes() const override { return value_.sizes().vec(); }
  at::ScalarType dtype() const override { return value_.scalar_type(); }
  Tensor read() override {
    ++reads;
    return value_.clone();
  }
  Tensor gather(const Tensor& rows) override {
    ++gathers;
    gathered += rows.numel();
    return value_.index_select(0, rows);
  }
  void write(Write, const Tensor&) override { ++writes; }
  void scatter(Write, const IndexedSlices&) override { ++writes; }
  int reads = 0, gathers = 0, writes = 0;
  int64_t gathered = 0;

 private:
  std::string name_ = "counting";
  Tensor value_;
};

TEST(ShardedVariable, IsTheRowsOfItsShards) {
  const ShardedVariable variable = of_rows({2, 2, 1});
  EXPECT_EQ(variable.sizes(), (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(variable.offsets(), (std::vector<int64_t>{0, 2, 4}));
  EXPECT_TENSOR_EQ(variable, all(5));
  std::vector<std::string> names;
  for (const auto& shard : variable) names.push_back(shard->name());
  EXPECT_EQ(names, (std::vector<std::string>{"s/part_0", "s/part_1", "s/part_2"}));
}

TEST(ShardedVariable, IsAssignedByPiecesAndGivesItselfBack) {
  ShardedVariable variable = of_rows({2, 2, 1});
  ShardedVariable& same =
      variable.assign(at::ones({5, 2})).assign_add(all(5)).assign_sub(at::full({5, 2}, 2.0));
  EXPECT_EQ(&same, &variable);
  EXPECT_TENSOR_EQ(variable, all(5) - 1);
  EXPECT_ERROR(variable.assign(at::ones({4, 2})), InvalidArgument,
               "assign [s]: found TensorSpec(shape=(4, 2)");
  EXPECT_ERROR(variable.assign_add(at::ones({5, 2}, at::kInt)), InvalidArgument, "expected");
  EXPECT_TENSOR_EQ(variable, all(5) - 1);
}

TEST(ShardedVariable, ChangesRowsByTheirIndexInTheWhole) {
  ShardedVariable variable = of_rows({2, 2, 1});
  variable.scatter_add({at::ones({3, 2}), ids({4, 1, 4}), {}});
  Tensor expected = all(5);
  expected[4] += 2;
  expected[1] += 1;
  EXPECT_TENSOR_EQ(variable, expected);
  variable.scatter_update({at::zeros({2, 2}), ids({2, 0}), {5, 2}});
  variable.scatter_sub({at::ones({1, 2}), ids({3}), {}});
  expected[0] = 0;
  expected[2] = 0;
  expected[3] -= 1;
  EXPECT_TENSOR_EQ(variable, expected);
  EXPECT_ERROR(variable.scatter_add({at::ones({1, 2}), ids({5}), {}}), InvalidArgument, "5");
  EXPECT_ERROR(variable.scatter_add({at::ones({1, 2}), ids({0}), {6, 2}}), InvalidArgument,
               "rows of the shape (6, 2)");
}

TEST(ShardedVariable, IsSlicedAsPythonSlicesRows) {
  const ShardedVariable variable = of_rows({2, 2, 1});
  const Tensor whole = all(5);
  // Start, stop and step from -7 to 7, each also not given; the oracle counts by itself.
  for (int64_t start = -8; start <= 7; ++start) {
    for (int64_t stop = -8; stop <= 7; ++stop) {
      for (int64_t step : {-3, -1, 1, 2, 7}) {
        Slice slice{.step = step};
        if (start > -8) slice.start = start;
        if (stop > -8) slice.stop = stop;
        std::vector<int64_t> rows;
        const auto from_front = [](int64_t at) { return at < 0 ? at + 5 : at; };
        for (int64_t k = 0; k < 5; ++k) {
          const int64_t row = step > 0 ? k : 4 - k;
          const bool after =
              !slice.start || (step > 0 ? row >= from_front(start) : row <= from_front(start));
          const bool before =
              !slice.stop || (step > 0 ? row < from_front(stop) : row > from_front(stop));
          if (after && before) rows.push_back(row);
        }
        std::vector<int64_t> taken;
        for (std::size_t i = 0; i < rows.size(); i += static_cast<std::size_t>(std::abs(step)))
          taken.push_back(rows[i]);
        EXPECT_TENSOR_EQ(variable.slice(slice), whole.index_select(0, ids(taken)))
            << start << ":" << stop << ":" << step;
      }
    }
  }
  EXPECT_EQ(variable.slice({.start = 3, .stop = 3}).sizes(), at::IntArrayRef({0, 2}));
  EXPECT_ERROR(variable.slice({.step = 0}), InvalidArgument, "step 0");
  // However far the step goes.
  for (int64_t step : {INT64_MAX, INT64_MAX - 1, INT64_MIN, INT64_MIN + 1, INT64_C(5), INT64_C(-5)})
    EXPECT_TENSOR_EQ(variable.slice({.start = 2, .step = step}), whole.narrow(0, 2, 1)) << step;
  EXPECT_EQ(of_rows({0}).slice({.step = INT64_MAX}).sizes(), at::IntArrayRef({0, 2}));
}

TEST(ShardedVariable, GivesOneRowAndRefusesThoseOutOfRange) {
  const ShardedVariable variable = of_rows({2, 2, 1});
  for (int64_t row = 0; row < 5; ++row) {
    EXPECT_TENSOR_EQ(variable[row], all(5)[row]);
    EXPECT_TENSOR_EQ(variable[row - 5], all(5)[row]);
  }
  EXPECT_ERROR(variable[5], OutOfRange, "row 5, expected one in [-5, 5)");
  EXPECT_ERROR(variable[-6], OutOfRange, "row -6");
}

TEST(ShardedVariable, GivesTheRowsOfAMask) {
  const ShardedVariable variable = of_rows({2, 2, 1});
  const Tensor mask = at::tensor({1, 0, 0, 1, 1}).to(at::kBool);
  EXPECT_TENSOR_EQ(variable.masked(mask), all(5).index_select(0, ids({0, 3, 4})));
  EXPECT_ERROR(variable.masked(at::ones({4}, at::kBool)), InvalidArgument, "expected");
  EXPECT_ERROR(variable.masked(at::ones({5}, at::kLong)), InvalidArgument, "expected");
}

TEST(ShardedVariable, LooksRowsUpWithOneQuestionAShardAndWithoutTheTable) {
  std::vector<std::shared_ptr<VariableShard>> shards;
  std::vector<CountingShard*> counters;
  for (int64_t i = 0; i < 3; ++i) {
    auto shard = std::make_shared<CountingShard>(all(6).narrow(0, 2 * i, 2));
    counters.push_back(shard.get());
    shards.push_back(std::move(shard));
  }
  const ShardedVariable variable(shards, "table");
  const Tensor wanted = at::tensor({0, 3, 3, 0}, at::kInt).reshape({2, 2});
  EXPECT_TENSOR_EQ(variable.embedding_lookup(wanted),
                   all(6).index_select(0, ids({0, 3, 3, 0})).reshape({2, 2, 2}));
  EXPECT_EQ(counters[0]->gathers, 1);
  EXPECT_EQ(counters[0]->gathered, 1);  // each row once
  EXPECT_EQ(counters[1]->gathers, 1);
  EXPECT_EQ(counters[2]->gathers, 0);
  EXPECT_EQ(counters[0]->reads + counters[1]->reads + counters[2]->reads, 0);
  EXPECT_EQ(variable.embedding_lookup(at::empty({0, 3}, at::kLong)).sizes(),
            at::IntArrayRef({0, 3, 2}));
  EXPECT_ERROR(variable.embedding_lookup(ids({6})), OutOfRange, "the id 6, expected one in [0, 6)");
  EXPECT_ERROR(variable.embedding_lookup(ids({-1, 2})), OutOfRange, "the id -1");
  EXPECT_ERROR(variable.embedding_lookup(at::ones({1})), InvalidArgument, "int32 or int64");
}

TEST(ShardedVariable, LooksUpSparseIdsWithAMeanAndPrunesOnDemand) {
  const ShardedVariable variable([] {
    std::vector<Variable> parts;
    parts.emplace_back(at::tensor({1., 2., 3., 4.}, at::kFloat).reshape({2, 2}));
    parts.emplace_back(at::tensor({5., 6., 7., 8.}, at::kFloat).reshape({2, 2}));
    parts.emplace_back(at::tensor({9., 10.}, at::kFloat).reshape({1, 2}));
    return parts;
  }());
  // [[0, 3], [4], [1]] and weights of one: the values that TensorFlow's own test gives.
  EXPECT_TENSOR_EQ(embedding_lookup_sparse(variable, {ids({0, 0, 1, 2}), ids({0, 3, 4, 1}), {}, 3}),
                   at::tensor({4., 5., 9., 10., 3., 4.}, at::kFloat).reshape({3, 2}));
  const SparseIds unsafe{ids({0, 0, 1, 2, 2}), ids({0, -1, 2, 1, 4}),
                         at::tensor({1., 1., 0., 1., -1.}, at::kFloat), 3};
  EXPECT_TENSOR_EQ(safe_embedding_lookup_sparse(variable, unsafe),
                   at::tensor({1., 2., 0., 0., 3., 4.}, at::kFloat).reshape({3, 2}));
  EXPECT_ERROR(embedding_lookup_sparse(variable, unsafe), OutOfRange, "the id -1");
  const SparseIds weighted{ids({0, 0}), ids({0, 1}), at::tensor({3., 4.}, at::kFloat), 1};
  EXPECT_TENSOR_EQ(embedding_lookup_sparse(variable, weighted, Combiner::kSum),
                   at::tensor({15., 22.}, at::kFloat).reshape({1, 2}));
  EXPECT_TENSOR_NEAR(embedding_lookup_sparse(variable, weighted, Combiner::kSqrtn),
                     at::tensor({3., 4.4}, at::kFloat).reshape({1, 2}), 1e-6);
}

TEST(ShardedVariable, IsOneTensorInACheckpointThatAnyShardingTakes) {
  const ShardedVariable four = of_rows({2, 2, 2, 1});
  const Nest state = trackable(four)->state();
  EXPECT_TENSOR_EQ(state.leaf(), all(7));
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{7}, {4, 3}, {1, 1, 5}}) {
    ShardedVariable other = of_rows(rows);
    other.assign(at::zeros({7, 2}));
    const auto into = trackable(other);
    into->check_state(state);
    into->set_state(state);
    EXPECT_TENSOR_EQ(other, all(7));
  }
  EXPECT_ERROR(trackable(of_rows({2}))->check_state(state), InvalidArgument, "restore [s]");
}

TEST(ShardedVariable, OfShardsThatDoNotFitIsRefused) {
  EXPECT_ERROR(ShardedVariable(std::vector<Variable>{}), InvalidArgument, "no shards");
  EXPECT_ERROR(ShardedVariable({Variable(at::ones({1})), Variable(at::ones({1}, at::kInt))}),
               InvalidArgument, "the dtypes float32, int32, expected the same dtype");
  EXPECT_ERROR(ShardedVariable({Variable(at::ones({1, 1})), Variable(at::ones({1, 2}))}),
               InvalidArgument, "the shapes (1, 1), (1, 2)");
  EXPECT_ERROR(ShardedVariable({Variable(at::ones({}))}), InvalidArgument, "the shapes ()");
}

}  // namespace
}  // namespace tutti::distribute
