// Embedding: rows, masks, and updates that touch only the rows that were looked up.

#include "tutti/keras/layers/embedding.h"

#include "keras/line_model.h"
#include "keras/wave.h"
#include "tutti/distribute/gradient_tape.h"

namespace tutti::keras::layers {
namespace {

using testing::replicas;

Tensor ids(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }

TEST(Embedding, StartsUniformAndGivesRows) {
  const Embedding embedding(50, 4, {.name = "e"});
  const Tensor rows = embedding(ids({3, 49, 3}).view({1, 3}));
  EXPECT_EQ(rows.sizes().vec(), (Shape{1, 3, 4}));
  EXPECT_TENSOR_EQ(rows[0][0], rows[0][2]);
  const Variable table = embedding->weights()[0];
  EXPECT_EQ(table.name(), "e/embeddings");
  EXPECT_LE(table.value().abs().max().item<double>(), .05);
  EXPECT_GT(table.value().abs().max().item<double>(), .03);
  EXPECT_TENSOR_EQ(rows[0][1], table.value()[49]);
}

TEST(Embedding, TakesIndicesThatAreFloats) {
  const Embedding embedding(5, 2);
  EXPECT_TENSOR_EQ(embedding(at::tensor({1.f, 4.f})), embedding(ids({1, 4})));
}

TEST(Embedding, NamesIndicesOutOfRange) {
  const Embedding embedding(5, 2);
  EXPECT_ERROR(embedding(ids({1, 5})), InvalidArgument, "below 5");
  EXPECT_ERROR(embedding(ids({-1})), InvalidArgument, "from -1");
  EXPECT_ERROR(Embedding(0, 2), InvalidArgument, "input_dim 0");
  EXPECT_ERROR(Embedding(2, 0), InvalidArgument, "output_dim 0");
}

TEST(Embedding, MasksZerosWhenAsked) {
  const Tensor padded = ids({3, 0, 1, 0}).view({2, 2});
  const Embedding masking(5, 2, {.mask_zero = true});
  EXPECT_TRUE(masking->uses_masks());
  EXPECT_TENSOR_EQ(masking->compute_mask({padded}, {}),
                   at::tensor({1, 0, 1, 0}).view({2, 2}).to(at::kBool));
  EXPECT_FALSE(Embedding(5, 2)->compute_mask({padded}, {}).defined());
}

TEST(Embedding, CarriesItsConstraintAndPenalty) {
  const Embedding embedding(
      3, 2,
      {.embeddings_initializer = initializers::Constant(2),
       .embeddings_regularizer = regularizers::L2(.5),
       .embeddings_constraint = [](const Tensor& value) { return value.clamp(0, 1); }});
  embedding(ids({0}));
  EXPECT_NEAR(embedding->losses().at(0).item<double>(), 12, 1e-6);
  EXPECT_TENSOR_EQ(embedding->weights()[0].constraint()(at::full({1}, 3.f)), at::ones({1}));
}

TEST(Embedding, ComputesInThePolicysDtypeOnFloatWeights) {
  const Embedding embedding(3, 2);
  embedding->set_dtype_policy("mixed_bfloat16");
  EXPECT_EQ(embedding(ids({0})).scalar_type(), at::kBFloat16);
  EXPECT_EQ(embedding->weights()[0].dtype(), at::kFloat);
}

// ---- training

struct Trained {
  Tensor table;
  bool sparse;
};
/// Three steps of a custom loop; dense: the same table as the kernel behind one-hot rows.
Trained loop(const optimizers::Optimizer& optimizer, int count, bool lookup, bool penalty) {
  auto strategy = replicas(count);
  auto scope = strategy->scope();
  const Embedding embedding(
      8, 3, {.embeddings_regularizer = penalty ? regularizers::L2(.1) : Regularizer{}});
  embedding->build_for({-1, 1});
  Variable table = embedding->weights()[0];
  table.assign(wave({8, 3}));
  bool sparse = false;
  for (int step = 0; step < 3; ++step) {
    strategy->run([&] {
      const int replica = distribute::get_replica_context()->replica_id_in_sync_group();
      const Tensor all = ids({1, 6, 1, 3 + step});
      const int64_t each = 4 / count;
      const Tensor mine = all.narrow(0, replica * each, each);
      GradientTape tape;
      const Tensor rows =
          lookup ? embedding(mine) : at::matmul(at::one_hot(mine, 8).to(at::kFloat), table.value());
      Tensor loss = (rows.square() * (mine.unsqueeze(1) + 1)).sum();
      for (const Tensor& term : embedding->losses()) loss = loss + term / count;
      const Tensor gradient = tape.gradient(loss, table);
      if (replica == 0) sparse = gradient.is_sparse();
      optimizers::Optimizer(optimizer).apply_gradients({gradient}, {table});
    });
  }
  return {table.read_value(), sparse};
}

TEST(Embedding, TouchesOnlyTheRowsThatWereLookedUp) {
  const Trained trained = loop(optimizers::SGD({.learning_rate = .1}), 2, true, false);
  EXPECT_TRUE(trained.sparse);
  for (int64_t row : {0, 2, 7}) EXPECT_TENSOR_EQ(trained.table[row], wave({8, 3})[row]);
  for (int64_t row : {1, 3, 4, 5, 6}) EXPECT_FALSE(trained.table[row].equal(wave({8, 3})[row]));
}

TEST(Embedding, TrainsAsADenseTableDoes) {
  for (int count : {1, 2, 4}) {
    for (bool adam : {false, true}) {
      const auto make = [&] {
        return adam ? optimizers::Optimizer(optimizers::Adam({.learning_rate = .01}))
                    : optimizers::Optimizer(optimizers::SGD({.learning_rate = .1}));
      };
      EXPECT_TENSOR_NEAR(loop(make(), count, true, false).table,
                         loop(make(), 1, false, false).table, 1e-5);
    }
  }
}

TEST(Embedding, WithAPenaltyHasADenseGradient) {
  const Trained trained = loop(optimizers::SGD({.learning_rate = .1}), 1, true, true);
  EXPECT_FALSE(trained.sparse);
  EXPECT_TENSOR_NEAR(trained.table,
                     loop(optimizers::SGD({.learning_rate = .1}), 1, false, true).table, 1e-5);
}

std::vector<Tensor> fitted(int count) {
  auto strategy = replicas(count);
  auto scope = strategy->scope();
  Sequential model({Embedding(10, 3, {.input_shape = {4}}), Flatten(), Dense(1)});
  model.set_weights({wave({10, 3}), wave({12, 1}), wave({1})});
  model.compile({.optimizer = optimizers::SGD({.learning_rate = .1}), .loss = "mse"});
  FitOptions options;
  options.batch_size = 4;
  options.epochs = 2;
  options.shuffle = false;
  options.verbose = 0;
  const Tensor x = at::arange(32, at::kLong).remainder(7).view({8, 4});
  model.fit(x, wave({8, 1}), options);
  return model.get_weights();
}

TEST(Embedding, TrainsInFitWithAnyNumberOfReplicas) {
  const std::vector<Tensor> one = fitted(1), two = fitted(2);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TENSOR_NEAR(two[i], one[i], 1e-5);
  EXPECT_TENSOR_EQ(one[0][8], wave({10, 3})[8]);  // index 8 stands nowhere
  EXPECT_FALSE(one[0][3].equal(wave({10, 3})[3]));
}

TEST(Embedding, TakesAnEmptyBatch) {
  const Embedding embedding(5, 2);
  EXPECT_EQ(embedding(at::empty({0, 3}, at::kLong)).sizes().vec(), (Shape{0, 3, 2}));
}

// ---- Masking

TEST(Masking, ZeroesStepsWhoseFeaturesAllAreTheValue) {
  const Masking masking(2);
  const Tensor x = at::tensor({2.f, 2.f, 2.f, 1.f, 0.f, 0.f}).view({1, 3, 2});
  EXPECT_TENSOR_EQ(masking->compute_mask({x}, {}),
                   at::tensor({0, 1, 1}).view({1, 3}).to(at::kBool));
  EXPECT_TENSOR_EQ(masking(x), at::tensor({0.f, 0.f, 2.f, 1.f, 0.f, 0.f}).view({1, 3, 2}));
  EXPECT_ERROR(Masking()(at::ones({3})), InvalidArgument, "features");
}

}  // namespace
}  // namespace tutti::keras::layers
