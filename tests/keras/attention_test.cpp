// Attention layers: what Keras' numbers (keras_layers_test.cpp) do not say.

#include "tutti/keras/layers/attention.h"

#include "keras/line_model.h"
#include "keras/wave.h"
#include "tutti/distribute/gradient_tape.h"

namespace tutti::keras::layers {
namespace {

using testing::replicas;

void set_all(const Layer& layer) {
  std::vector<Variable> weights = layer->weights();
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i].assign(wave(weights[i].sizes().vec(), .3 + static_cast<double>(i)) * .5);
}
Tensor query() { return wave({2, 3, 4}); }
Tensor value() { return wave({2, 5, 4}, 1.1); }
Tensor hides(std::vector<int64_t> numbers, const Shape& shape) {
  return at::tensor(numbers, at::kLong).view(shape).to(at::kBool);
}

TEST(MultiHeadAttention, WeightsHaveKerasNamesShapesAndOrder) {
  const MultiHeadAttention layer(2, 3, {.value_dim = 5, .name = "m"});
  layer(query(), value());
  std::vector<std::string> found;
  for (const Variable& weight : layer->weights())
    found.push_back(cat(weight.name(), " ", shape_text(weight.sizes())));
  EXPECT_EQ(found, (std::vector<std::string>{
                       "m/query/kernel (4, 2, 3)", "m/query/bias (2, 3)", "m/key/kernel (4, 2, 3)",
                       "m/key/bias (2, 3)", "m/value/kernel (4, 2, 5)", "m/value/bias (2, 5)",
                       "m/attention_output/kernel (2, 5, 4)", "m/attention_output/bias (4,)"}));
}

struct Pass {
  Tensor output;
  std::vector<Tensor> gradients;
};
Pass run(const MultiHeadAttention& layer, const AttentionCall& call, bool scores) {
  GradientTape tape({.persistent = true});
  const Tensor output =
      scores ? layer.with_scores(query(), value(), call).first : layer(query(), value(), call);
  const Tensor target = (output * wave(output.sizes().vec(), 1.7)).sum();
  return {output, tape.gradient(target, layer->trainable_weights())};
}

/// Scores are wanted: they are worked out one operation after another.
TEST(MultiHeadAttention, AsOneOperationEqualsStepByStep) {
  const MultiHeadAttention layer(2, 3);
  layer->build_for({Shape{-1, 3, 4}, Shape{-1, 5, 4}});
  set_all(layer);
  std::vector<AttentionCall> calls(4);
  calls[1].use_causal_mask = true;
  calls[2].value_mask = hides({1, 1, 0, 0, 1, 0, 1, 1, 1, 1}, {2, 5});
  calls[2].query_mask = hides({1, 0, 1, 1, 1, 1}, {2, 3});
  calls[3] = calls[2];
  calls[3].use_causal_mask = true;
  for (const AttentionCall& call : calls) {
    const Pass fast = run(layer, call, false), slow = run(layer, call, true);
    EXPECT_TENSOR_NEAR(fast.output, slow.output, 1e-5);
    for (std::size_t i = 0; i < fast.gradients.size(); ++i)
      EXPECT_TENSOR_NEAR(fast.gradients[i], slow.gradients[i], 1e-5);
  }
}

TEST(Attention, ARowThatSeesNothingIsZero) {
  AttentionCall call;
  call.value_mask = hides({0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, {2, 5});
  EXPECT_TENSOR_EQ(Attention()(query(), value(), call)[0], at::zeros({3, 4}));
  EXPECT_TENSOR_EQ(AdditiveAttention()(query(), value(), call)[0], at::zeros({3, 4}));
  const MultiHeadAttention heads(2, 3, {.use_bias = false});
  EXPECT_TENSOR_EQ(heads(query(), value(), call)[0], at::zeros({3, 4}));
  EXPECT_TENSOR_EQ(heads.with_scores(query(), value(), call).first[0], at::zeros({3, 4}));
  EXPECT_FALSE(heads(query(), value(), call)[1].equal(at::zeros({3, 4})));
}

TEST(Attention, DirectCallsEqualCallsOnLists) {
  const MultiHeadAttention layer(2, 3);
  const Tensor key = wave({2, 5, 4}, 2);
  AttentionCall call;
  call.key = key;
  call.query_mask = hides({1, 0, 1, 1, 1, 1}, {2, 3});
  CallArguments arguments;
  arguments.masks = {call.query_mask};
  EXPECT_TENSOR_EQ(layer(query(), value(), call),
                   (*layer)(std::vector<Tensor>{query(), value(), key}, arguments)[0]);
  EXPECT_TENSOR_EQ(layer->compute_mask({query(), value()}, arguments), call.query_mask);
}

TEST(Attention, DropoutIsDrawnInTrainingOnly) {
  const MultiHeadAttention heads(2, 3, {.dropout = .5});
  const Attention plain({.dropout = .5});
  AttentionCall training;
  training.training = true;
  EXPECT_TENSOR_EQ(heads(query(), value()), heads(query(), value()));
  EXPECT_FALSE(at::equal(heads(query(), value(), training), heads(query(), value(), training)));
  EXPECT_TENSOR_EQ(plain(query(), value()), plain(query(), value()));
  EXPECT_FALSE(at::equal(plain(query(), value(), training), plain(query(), value(), training)));
}

TEST(Attention, SaysWhatItCannotTake) {
  EXPECT_ERROR(MultiHeadAttention(0, 3), InvalidArgument, "num_heads 0");
  EXPECT_ERROR(MultiHeadAttention(1, 0), InvalidArgument, "key_dim 0");
  EXPECT_ERROR(GroupQueryAttention(2, 3, 2), InvalidArgument, "divide");
  EXPECT_ERROR(Attention({.score_mode = "cosine"}), InvalidArgument, "score_mode");
  const MultiHeadAttention layer(2, 3, {.name = "m"});
  EXPECT_ERROR(layer(query()), InvalidArgument, "expected query");
  EXPECT_ERROR(layer(at::ones({2, 4}), value()), InvalidArgument, "expected query (batch, T");
  layer(query(), value());
  EXPECT_ERROR(layer(at::ones({2, 3, 5}), value()), InvalidArgument, "expected 4 features");
  AttentionCall call;
  call.key = at::ones({2, 4, 4});
  EXPECT_ERROR(layer(query(), value(), call), InvalidArgument, "as many keys as values");
  EXPECT_ERROR(MultiHeadAttention(2, 3, {.attention_axes = {3}})(query(), value()), InvalidArgument,
               "attention axis 3");
}

TEST(MultiHeadAttention, ComputesInThePolicysDtype) {
  const MultiHeadAttention half(2, 3), full(2, 3);
  half->set_dtype_policy("mixed_bfloat16");
  for (const MultiHeadAttention& layer : {half, full}) {
    layer->build_for({Shape{-1, 3, 4}, Shape{-1, 5, 4}});
    set_all(layer);
  }
  EXPECT_EQ(half(query(), value()).scalar_type(), at::kBFloat16);
  EXPECT_EQ(half->weights()[0].dtype(), at::kFloat);
  EXPECT_TENSOR_NEAR(half(query(), value()), full(query(), value()), 2e-2);
}

/// Three steps of a loop of one's own, the batch shared out.
std::vector<Tensor> trained(int count) {
  auto strategy = replicas(count);
  auto scope = strategy->scope();
  const MultiHeadAttention layer(2, 3);
  layer->build_for({Shape{-1, 3, 4}, Shape{-1, 3, 4}});
  set_all(layer);
  const std::vector<Variable> weights = layer->trainable_weights();
  optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = .1});
  const Tensor x = wave({4, 3, 4});
  for (int step = 0; step < 3; ++step) {
    strategy->run([&] {
      const int replica = distribute::get_replica_context()->replica_id_in_sync_group();
      const Tensor mine = x.narrow(0, replica * 4 / count, 4 / count);
      GradientTape tape;
      const Tensor loss = (layer(mine, mine) * mine).sum();
      optimizer.apply_gradients(tape.gradient(loss, weights), weights);
    });
  }
  std::vector<Tensor> values;
  for (const Variable& weight : weights) values.push_back(weight.read_value());
  return values;
}

TEST(MultiHeadAttention, TrainsTheSameWithAnyNumberOfReplicas) {
  const std::vector<Tensor> one = trained(1), four = trained(4);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TENSOR_NEAR(four[i], one[i], 1e-5);
}

}  // namespace
}  // namespace tutti::keras::layers
