// Lookups, their sparse gradients, and updates that never make them dense.

#include <gtest/gtest.h>

#include "support/expect.h"
#include "support/sparse_rules.h"
#include "tutti/distribute/fused_update.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/nn.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using Tensors = std::vector<Tensor>;

std::unique_ptr<MirroredStrategy> mirrored(int count) {
  MirroredStrategyOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back(cat("cpu:", i));
  return std::make_unique<MirroredStrategy>(options);
}
int replica_id() { return get_replica_context()->replica_id_in_sync_group(); }
Tensor indices(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }
Tensor table(int64_t rows = 6, int64_t width = 3) {
  return at::arange(rows * width, at::kFloat).view({rows, width}) / 10;
}

// ---- lookups

TEST(EmbeddingLookup, GivesTheRowsInTheShapeOfTheIds) {
  const Variable params(table());
  const Tensor found =
      nn::embedding_lookup(params, at::tensor({5, 0, 5, 2}, at::kInt).view({2, 2}));
  EXPECT_TENSOR_EQ(found, table().index_select(0, indices({5, 0, 5, 2})).view({2, 2, 3}));
  EXPECT_EQ(nn::embedding_lookup(params, indices({}).view({2, 0})).sizes(),
            at::IntArrayRef({2, 0, 3}));
  EXPECT_TENSOR_EQ(nn::embedding_lookup(params, at::scalar_tensor(1, at::kLong)), table()[1]);
  const Variable scalars(at::arange(4, at::kDouble));
  EXPECT_TENSOR_EQ(nn::embedding_lookup(scalars, indices({3, 3})), at::tensor({3.0, 3.0}));
}

TEST(EmbeddingLookup, RefusesOtherDtypesScalarsAndIdsOutOfRange) {
  const Variable params(table(), {.name = "words"});
  EXPECT_ERROR(nn::embedding_lookup(params, at::ones({2})), InvalidArgument,
               "embedding_lookup [words]: ids float32, expected int32 or int64");
  EXPECT_ERROR(nn::embedding_lookup(params, Tensor()), InvalidArgument, "undefined");
  EXPECT_ERROR(nn::embedding_lookup(params, indices({0, 6})), InvalidArgument,
               "ids from 0 to 6, expected 0 or more and below 6");
  EXPECT_ERROR(nn::embedding_lookup(params, indices({-1})), InvalidArgument, "ids from -1");
  EXPECT_ERROR(nn::embedding_lookup(Variable(at::ones({})), indices({0})), InvalidArgument,
               "scalar");
}

TEST(EmbeddingLookup, ItsGradientIsTheRowsThatWereLookedUp) {
  const Variable params(table());
  GradientTape tape;
  const Tensor found = nn::embedding_lookup(params, indices({4, 1, 4}));
  const Tensor weight = at::arange(9, at::kFloat).view({3, 3});
  const Tensor gradient = tape.gradient(found * weight, params);
  EXPECT_EQ(gradient.layout(), at::kSparse);
  const IndexedSlices slices = IndexedSlices::from_sparse(gradient);
  EXPECT_TENSOR_EQ(slices.indices, indices({4, 1, 4}));
  EXPECT_TENSOR_EQ(slices.values, weight);
  EXPECT_TENSOR_EQ(slices.to_dense(), at::zeros({6, 3}).index_add_(0, indices({4, 1, 4}), weight));
}

TEST(EmbeddingLookup, TheTapeGivesSlicesForEveryKindOfUse) {
  const Variable params(table()), other(at::ones({2, 2}));
  GradientTape tape({.persistent = true});
  const Tensor found = nn::embedding_lookup(params, indices({4, 1}));
  const Tensor again = nn::embedding_lookup(params, indices({1}));
  const IndexedSlices one = tape.gradient_slices(found, params);
  EXPECT_TENSOR_EQ(one.indices, indices({4, 1}));
  EXPECT_EQ(one.dense_shape, (std::vector<int64_t>{6, 3}));
  const IndexedSlices both = tape.gradient_slices(found.sum() + again.sum() * 2, params);
  EXPECT_EQ(both.indices.numel(), 3);
  EXPECT_TENSOR_EQ(both.to_dense().select(1, 0), at::tensor({0.f, 3.f, 0.f, 0.f, 1.f, 0.f}));
  const IndexedSlices none = tape.gradient_slices(found, other);
  EXPECT_EQ(none.values.sizes(), at::IntArrayRef({0, 2}));
  none.check();
  const IndexedSlices all = tape.gradient_slices(found.sum() + params.value().sum(), params);
  EXPECT_TENSOR_EQ(all.indices, at::arange(6));
  EXPECT_TENSOR_EQ(all.values.select(1, 0), at::tensor({1.f, 2.f, 1.f, 1.f, 2.f, 1.f}));
  EXPECT_ERROR(tape.gradient_slices(found, Variable(at::ones({}))), InvalidArgument, "scalar");
}

TEST(EmbeddingLookup, ReplicasHaveTheirOwnRows) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  const Variable params(table());
  const auto rows = strategy->run([&] {
    GradientTape tape;
    const Tensor ids = replica_id() == 0 ? indices({1, 1, 2}) : indices({5});
    return tape.gradient_slices(nn::embedding_lookup(params, ids), params).indices;
  });
  EXPECT_TENSOR_EQ(rows[0], indices({1, 1, 2}));
  EXPECT_TENSOR_EQ(rows[1], indices({5}));
}

// ---- updates

/// What each replica brings for the variables: table of 40 rows, a vector, a rank-3 table.
struct Step {
  std::vector<std::vector<int64_t>> ids;  // by replica; an empty list: no rows
  bool undefined_on_one = false;          // replica 1 has no gradient for the tables at all
};

const std::vector<Step>& steps() {
  static const std::vector<Step> kAll = {
      {{{3, 7, 3, 39}, {7, 0}, {12}, {3}}},
      {{{1}, {}, {1, 1, 1}, {20, 2}}},
      {{{}, {}, {}, {}}},  // rows of nobody, which is a gradient of zero
      {{{30, 31, 32}, {5}, {6}, {7}}, true},
  };
  return kAll;
}

Tensors initial_weights() {
  return {table(40, 5), at::arange(7, at::kFloat),
          at::arange(40 * 4, at::kDouble).view({40, 2, 2})};
}

/// Sparse or dense gradients of a replica in a step.
Tensors gradients_of(int replica, std::size_t step, bool sparse) {
  const Step& data = steps()[step];
  const auto& ids = data.ids[static_cast<std::size_t>(replica)];
  const auto n = static_cast<int64_t>(ids.size());
  const auto rows_of = [&](std::vector<int64_t> shape, at::ScalarType dtype) {
    std::vector<int64_t> sizes = shape;
    sizes[0] = n;
    const Tensor values = ((at::arange(c10::multiply_integers(sizes)) % 7 - 3) * (replica + 1) *
                           static_cast<int64_t>(step + 1))
                              .to(dtype)
                              .view(sizes) /
                          8;
    const IndexedSlices slices{values, indices(ids), shape};
    return sparse ? slices.to_sparse() : slices.to_dense();
  };
  Tensors gradients{rows_of({40, 5}, at::kFloat), at::full({7}, 0.25 * (replica + 1)),
                    rows_of({40, 2, 2}, at::kDouble)};
  if (data.undefined_on_one && replica == 1) gradients[0] = gradients[2] = Tensor();
  return gradients;
}

struct UpdateCase {
  std::string name;
  std::shared_ptr<UpdateRule> (*rule)();
  int replicas = 2;
  GradientClipping clipping = {};
  bool split = false;
};
void PrintTo(const UpdateCase& test, std::ostream* out) { *out << test.name; }

/// The variables, then their slots, after all steps.
Tensors trained(const UpdateCase& test, bool sparse) {
  auto strategy = mirrored(test.replicas);
  auto scope = strategy->scope();
  std::vector<Variable> variables;
  for (const Tensor& initial : initial_weights())
    variables.emplace_back(initial, VariableOptions{.name = cat("v", variables.size())});
  if (test.split) {
    strategy->run([&] {
      for (Variable& variable : variables) variable.assign_add(at::zeros_like(variable.value()));
    });
    EXPECT_EQ(variables[0].is_shared(), test.replicas == 1);
  }
  FusedUpdate update(variables, test.rule(), test.clipping, {});
  for (std::size_t step = 0; step < steps().size(); ++step)
    strategy->run([&] { update.apply(gradients_of(replica_id(), step, sparse)); });
  Tensors results;
  for (const Variable& variable : variables) results.push_back(variable.read_value());
  for (const Variable& variable : variables) results.push_back(variable.components().back());
  for (const std::string& slot : test.rule()->slot_names()) {
    for (const Variable& variable : update.slots(slot)) results.push_back(variable.read_value());
  }
  return results;
}

class SparseUpdate : public ::testing::TestWithParam<UpdateCase> {};

TEST_P(SparseUpdate, GivesTheNumbersOfTheDenseGradients) {
  const Tensors dense = trained(GetParam(), false);
  const Tensors sparse = trained(GetParam(), true);
  ASSERT_EQ(dense.size(), sparse.size());
  for (std::size_t i = 0; i < dense.size(); ++i) {
    EXPECT_TENSOR_NEAR(sparse[i], dense[i], 1e-6) << i;
    EXPECT_FALSE(sparse[i].equal(initial_weights()[i % 3])) << i;
  }
}

std::shared_ptr<UpdateRule> momentum() { return std::make_shared<testing::MomentumRule>(); }
std::shared_ptr<UpdateRule> plain() { return std::make_shared<testing::PlainRule>(); }
std::shared_ptr<UpdateRule> adagrad() { return std::make_shared<testing::AdagradRule>(); }

INSTANTIATE_TEST_SUITE_P(
    Rules, SparseUpdate,
    ::testing::Values(UpdateCase{"PlainOne", plain, 1}, UpdateCase{"PlainTwo", plain, 2},
                      UpdateCase{"PlainFour", plain, 4}, UpdateCase{"MomentumOne", momentum, 1},
                      UpdateCase{"MomentumTwo", momentum, 2}, UpdateCase{"AdagradTwo", adagrad, 2},
                      UpdateCase{"AdagradThree", adagrad, 3},
                      UpdateCase{"Clipnorm", plain, 2, {.clipnorm = 0.7}},
                      UpdateCase{"ClipnormMomentum", momentum, 2, {.clipnorm = 0.7}},
                      UpdateCase{"Clipvalue", momentum, 2, {.clipvalue = 0.4}},
                      UpdateCase{"ClipvaluePlain", plain, 2, {.clipvalue = 0.4}},
                      UpdateCase{"GlobalClipnorm", adagrad, 2, {.global_clipnorm = 1.1}},
                      UpdateCase{"SplitPlain", plain, 2, {}, true},
                      UpdateCase{"SplitMomentum", momentum, 2, {.clipnorm = 0.7}, true}),
    [](const auto& info) { return info.param.name; });

/// Counts the weights that it is given.
struct CountingRule : testing::PlainRule {
  mutable std::atomic<int64_t> touched{0};
  bool identity = true;
  bool is_identity_at_zero(bool) const override { return identity; }
  void update(float* w, const float* g, float* const* s, int64_t n, bool d) const override {
    touched += n;
    PlainRule::update(w, g, s, n, d);
  }
};

TEST(SparseUpdates, ARuleThatIsTheIdentityAtZeroTouchesTheRowsAlone) {
  for (const bool identity : {true, false}) {
    auto strategy = mirrored(2);
    auto scope = strategy->scope();
    Variable params(at::zeros({1000, 4}));
    auto rule = std::make_shared<CountingRule>();
    rule->identity = identity;
    FusedUpdate update({params}, rule, {}, {});
    strategy->run([&] {
      const IndexedSlices mine{at::ones({3, 4}), indices({5, 900 + replica_id(), 5}), {1000, 4}};
      update.apply({mine.to_sparse()});
    });
    EXPECT_EQ(rule->touched, identity ? 3 * 4 : 4000);  // rows 5, 900 and 901
    EXPECT_TENSOR_NEAR(params.value()[5], at::full({4}, -0.4), 1e-6);
    EXPECT_TENSOR_NEAR(params.value()[901], at::full({4}, -0.1), 1e-6);
    EXPECT_TENSOR_EQ(params.value()[6], at::zeros({4}));
  }
}

TEST(SparseUpdates, AReplicaMayBringADenseGradientForTheSameVariable) {
  for (const bool identity : {true, false}) {
    auto strategy = mirrored(3);
    auto scope = strategy->scope();
    Variable params(at::zeros({6, 2})), other(at::zeros({3}));
    auto rule = std::make_shared<CountingRule>();
    rule->identity = identity;
    FusedUpdate update({params, other}, rule, {}, {});
    for (int step = 0; step < 2; ++step) {
      strategy->run([&] {
        const IndexedSlices rows{at::ones({2, 2}), indices({4, 4}), {6, 2}};
        update.apply({replica_id() == 1 ? at::ones({6, 2}) : rows.to_sparse(), at::ones({3})});
      });
    }
    EXPECT_TENSOR_NEAR(params.value()[4], at::full({2}, -1.0), 1e-6);
    EXPECT_TENSOR_NEAR(params.value()[0], at::full({2}, -0.2), 1e-6);
    EXPECT_TENSOR_NEAR(other.value(), at::full({3}, -0.6), 1e-6);
  }
}

TEST(SparseUpdates, WithoutAggregationTheRowsCountOnce) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable params(at::zeros({4, 1}));
  FusedUpdate update({params}, plain(), {}, {});
  strategy->run([&] {
    GradientTape tape;
    const Tensor ids = indices({replica_id(), 3});
    IndexedSlices mine = tape.gradient_slices(nn::embedding_lookup(params, ids), params);
    mine = get_replica_context()->all_reduce("SUM", mine);
    update.apply({mine.to_sparse()}, /*sum_replicas=*/false);
  });
  EXPECT_TENSOR_NEAR(params.value().flatten(), at::tensor({-0.1f, -0.1f, 0.f, -0.2f}), 1e-6);
}

TEST(SparseUpdates, AVariableStoredInAnotherOrderTakesThemToo) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable params(at::zeros({3, 5}).t());
  ASSERT_FALSE(params.components()[0].is_contiguous());
  FusedUpdate update({params}, plain(), {}, {});
  strategy->run([&] {
    update.apply({IndexedSlices{at::ones({2, 3}), indices({1, 1}), {5, 3}}.to_sparse()});
  });
  EXPECT_TENSOR_NEAR(params.value()[1], at::full({3}, -0.4), 1e-6);
  EXPECT_TENSOR_EQ(params.value()[2], at::zeros({3}));
}

TEST(SparseUpdates, OtherDtypesAreUpdatedByTensorOperations) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  for (const auto& rule : {plain(), momentum()}) {
    Variable params(at::zeros({4, 2}, at::kBFloat16));
    FusedUpdate update({params}, rule, {}, {});
    strategy->run([&] {
      update.apply({IndexedSlices{
          at::ones({2, 2}, at::kBFloat16),
          indices({1, replica_id()}),
          {4, 2}}.to_sparse()});
    });
    EXPECT_TENSOR_NEAR(params.value().select(1, 0), at::tensor({-0.1f, -0.3f, 0.f, 0.f}), 1e-2);
  }
}

TEST(SparseUpdates, ARowOutOfRangeIsAnErrorThatLeavesTheVariableUsable) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable params(at::zeros({4, 2}), {.name = "words"});
  FusedUpdate update({params}, plain(), {}, {});
  const Tensor bad = at::_sparse_coo_tensor_unsafe(indices({9}).unsqueeze(0), at::ones({1, 2}),
                                                   {4, 2}, at::TensorOptions().layout(at::kSparse));
  EXPECT_THROW(strategy->run([&] { update.apply({bad}); }), InvalidArgument);
  EXPECT_THROW(strategy->run([&] {
    update.apply({IndexedSlices{at::ones({1, 3}), indices({0}), {4, 3}}.to_sparse()});
  }),
               InvalidArgument);
  strategy->run([&] { update.apply({at::ones({4, 2})}); });
  EXPECT_TENSOR_NEAR(params.value(), at::full({4, 2}, -0.2), 1e-6);
}

TEST(SparseUpdates, OutsideReplicasTheSlicesAreTheAggregatedOnes) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable params(at::zeros({4, 2}));
  FusedUpdate update({params}, plain(), {}, {});
  update.apply({IndexedSlices{at::ones({2, 2}), indices({3, 3}), {4, 2}}.to_sparse()});
  EXPECT_TENSOR_NEAR(params.value()[3], at::full({2}, -0.2), 1e-6);
  EXPECT_TRUE(params.is_shared());
}

}  // namespace
}  // namespace tutti::distribute
