// Layers around layers, and EinsumDense; their numbers beside Keras' stand in keras_layers.json.

#include "keras/line_model.h"
#include "keras/wave.h"
#include "support/expect.h"
#include "support/temporary_folder.h"
#include "tutti/distribute/gradient_tape.h"

namespace tutti::keras::layers {
namespace {

using keras::testing::replicas;

// ---- Wrapper

/// The layer's output and its input, added.
class Residual : public WrapperImpl {
 public:
  explicit Residual(const Layer& layer) : WrapperImpl("Residual", layer) {}
  std::string class_name() const override { return "Residual"; }

 protected:
  std::vector<Tensor> call_all(const std::vector<Tensor>& inputs,
                               const CallArguments& arguments) override {
    return {inputs.at(0) + WrapperImpl::call_all(inputs, arguments).at(0)};
  }
};
Layer residual(const Layer& layer) { return std::make_shared<Residual>(layer); }

class WrapperFiles : public tutti::testing::TemporaryFolder {};

TEST_F(WrapperFiles, OfTheUsersOwnHasTheLayersWeightsAndComesBackFromAFile) {
  const std::string file = path("model");
  Sequential model({residual(Dense(3, {.kernel_regularizer = "l2", .name = "inner"})), Dense(1)});
  const Tensor x = wave({4, 3});
  const Tensor y = model(x);
  const Layer first = model.layers()[0];
  EXPECT_EQ(first->weights()[0].name(), cat(first->name(), "/inner/kernel"));
  EXPECT_EQ(first->losses().size(), 1u);
  model.save(file);
  const auto loaded =
      load_model(file, {.custom_objects = {{"Residual", [](const std::string& config) {
                                              return residual(WrapperImpl::wrapped_layer(config));
                                            }}}});
  EXPECT_TENSOR_EQ((*loaded)(x), y);
  EXPECT_ERROR(residual(Layer()), InvalidArgument, "an empty handle");
}

// ---- SpectralNormalization

Layer spectral_dense(int64_t units = 2) {
  return SpectralNormalization(Dense(units, {.use_bias = false, .name = "inner"}),
                               {.power_iterations = 30});
}
/// By name, as the layer's other weights stand beside it.
Variable weight_of(const Layer& layer, const std::string& end) {
  for (const Variable& weight : layer->weights()) {
    if (weight.name().size() >= end.size() &&
        weight.name().compare(weight.name().size() - end.size(), end.size(), end) == 0)
      return weight;
  }
  throw NotFound(end);
}
double largest_singular_value(const Tensor& matrix) {
  return at::linalg_svdvals(matrix).max().item<double>();
}

TEST(SpectralNormalization, MakesTheLargestSingularValueOneInTrainingOnly) {
  const Layer layer = spectral_dense(4);
  layer->build_for({-1, 6});
  Variable kernel = weight_of(layer, "inner/kernel");
  kernel.assign(wave({6, 4}) * 3);
  layer(wave({2, 6}));
  EXPECT_GT(largest_singular_value(kernel.read_value()), 2);
  layer(wave({2, 6}), /*training=*/true);
  EXPECT_NEAR(largest_singular_value(kernel.read_value()), 1, 1e-4);
  EXPECT_EQ(layer->trainable_weights().size(), 1u) << "vector_u is not trained";
}

TEST(SpectralNormalization, LeavesAKernelOfZeros) {
  const Layer layer = SpectralNormalization(Dense(2, {.kernel_initializer = "zeros"}));
  EXPECT_TENSOR_EQ(layer(wave({2, 3}), true), at::zeros({2, 2}));
}

TEST(SpectralNormalization, IsTheSameOnEveryReplica) {
  std::vector<Tensor> kernels;
  for (int count : {1, 2}) {
    auto strategy = replicas(count);
    auto scope = strategy->scope();
    auto model = Sequential({spectral_dense(), Dense(1, {.kernel_initializer = "ones"})});
    model.build({-1, 3});
    weight_of(model.layers()[0], "vector_u").assign(wave({1, 2}, 1));
    weight_of(model.layers()[0], "inner/kernel").assign(wave({3, 2}));
    model.compile({.optimizer = optimizers::SGD({.learning_rate = .1}), .loss = "mse"});
    model.fit(wave({8, 3}), wave({8, 1}, 2),
              {.batch_size = 4, .epochs = 2, .verbose = 0, .shuffle = false});
    const Variable kernel = weight_of(model.layers()[0], "inner/kernel");
    for (const Tensor& component : kernel.components())
      EXPECT_TENSOR_EQ(component, kernel.components()[0]);
    kernels.push_back(kernel.read_value());
  }
  EXPECT_TENSOR_NEAR(kernels[1], kernels[0], 1e-5);
}

TEST(SpectralNormalization, CalledTwiceInAStepHasTheGradientOfBothCalls) {
  const Layer layer = SpectralNormalization(Dense(2, {.use_bias = false, .name = "inner"}));
  layer->build_for({-1, 3});
  Variable kernel = weight_of(layer, "inner/kernel");
  kernel.assign(wave({3, 2}) * 2);
  GradientTape tape;
  Tensor a = wave({2, 3}), b = wave({2, 3}, 1);
  tape.watch(a);
  tape.watch(b);
  const Tensor first = layer(a, true);
  const Tensor at_first = kernel.read_value().clone();
  const Tensor second = layer(b, true);
  const Tensor at_second = kernel.read_value().clone();
  EXPECT_FALSE(at::equal(at_first, at_second));
  const auto gradients = tape.gradient((first + second).sum(), {a, b});
  EXPECT_TENSOR_NEAR(gradients[0], at::matmul(at::ones({2, 2}), at_first.t()), 1e-5);
  EXPECT_TENSOR_NEAR(gradients[1], at::matmul(at::ones({2, 2}), at_second.t()), 1e-5);
}

TEST(SpectralNormalization, TakesEmbeddingsAndConvolutionsAndRefusesOthers) {
  const Layer rows = SpectralNormalization(Embedding(4, 3));
  EXPECT_EQ(rows(at::tensor({1, 2}, at::kLong), true).sizes().vec(), (Shape{2, 3}));
  const Layer convolution = SpectralNormalization(Conv2D(3, 2));
  EXPECT_EQ(convolution(wave({1, 4, 4, 2}), true).sizes().vec(), (Shape{1, 3, 3, 3}));
  const Layer none = SpectralNormalization(Flatten());
  EXPECT_ERROR(none(wave({2, 3})), InvalidArgument, "a layer Flatten, expected one with a weight");
  EXPECT_ERROR(SpectralNormalization(Dense(1), {.power_iterations = 0}), InvalidArgument,
               "power_iterations 0, expected at least 1");
}

// ---- EinsumDense

TEST(EinsumDense, KnowsItsOutputShapeBeforeTheBatch) {
  EXPECT_EQ(EinsumDense("abc,cd->abd", {-1, 64})->compute_output_shape({-1, 32, 128}),
            (Shape{-1, 32, 64}));
  EXPECT_EQ(EinsumDense("...x,xy->...y", 64)->compute_output_shape({-1, 3, 4, 5, 128}),
            (Shape{-1, 3, 4, 5, 64}));
  EXPECT_EQ(EinsumDense("ab...,bc->ac...", 6)->compute_output_shape({-1, 3, -1}),
            (Shape{-1, 6, -1}));
}

TEST(EinsumDense, InitializersScaleByTheAxesOfTheEquation) {
  const EinsumDense layer("abcd,cde->abe", {-1, 50});
  layer->build_for({-1, 2, 8, 25});
  const Tensor kernel = layer->weights()[0].read_value();
  EXPECT_EQ(kernel.sizes().vec(), (Shape{8, 25, 50}));
  // 200 numbers in, 50 out.
  const double bound = std::sqrt(6. / 250);
  EXPECT_LE(kernel.abs().max().item<double>(), bound);
  EXPECT_GT(kernel.abs().max().item<double>(), .99 * bound);
}

TEST(EinsumDense, SaysWhatIsWrong) {
  EXPECT_ERROR(EinsumDense("ab,bc", 3), InvalidArgument, "expected the form X,Y->Z");
  EXPECT_ERROR(EinsumDense("...ab,bc->ac", 3), InvalidArgument, "expected the form");
  EXPECT_ERROR(EinsumDense("ab,bc->ad", 3), InvalidArgument, "'d' of the output");
  EXPECT_ERROR(EinsumDense("ab,bcz->ac", 3), InvalidArgument, "'z' of the kernel");
  EXPECT_ERROR(EinsumDense("ab,bc->ac", 3, {.bias_axes = "b"}), InvalidArgument, "bias axis 'b'");
  EXPECT_ERROR(EinsumDense("ab,bc->ac", 0), InvalidArgument, "at least 1");
  const EinsumDense layer("ab,bc->ac", 3);
  EXPECT_ERROR(layer(wave({2, 3, 4})), InvalidArgument, "expected 2 axes");
  EXPECT_ERROR(layer->build_for({-1, -1}), InvalidArgument, "a known size of 'b'");
  EXPECT_ERROR(EinsumDense("abc,cd->abd", {5, 3})(wave({2, 4, 3})), InvalidArgument,
               "expected 5 along 'b'");
  EXPECT_ERROR(EinsumDense("abc,cd->abd", 3)(wave({2, 4, 3})), InvalidArgument,
               "expected 3 axes of the output");
}

// ---- adaptive pooling

TEST(AdaptivePooling, GivesMoreEntriesThanThereAreAndOne) {
  const Tensor x = at::tensor({1.f, 2.f, 4.f}).view({1, 3, 1});
  EXPECT_TENSOR_EQ(AdaptiveAveragePooling1D(4)(x).flatten(), at::tensor({1.f, 1.5f, 3.f, 4.f}));
  EXPECT_TENSOR_EQ(AdaptiveMaxPooling1D(4)(x).flatten(), at::tensor({1.f, 2.f, 4.f, 4.f}));
  EXPECT_TENSOR_EQ(AdaptiveMaxPooling1D(1)(x).flatten(), at::tensor({4.f}));
  EXPECT_ERROR(AdaptiveMaxPooling2D({2, 0}), InvalidArgument, "output_size 0");
}

// ---- HashedCrossing

TEST(HashedCrossing, GivesKerasBinsOfStringsAndNumbers) {
  const HashedCrossing layer(5);
  const Nest features = Nest::tuple(
      {StringTensor({"A", "B", "A", "B", "A"}), at::tensor({101, 101, 101, 102, 102}, at::kLong)});
  EXPECT_TENSOR_EQ(layer(features), at::tensor({1, 4, 1, 1, 3}, at::kLong));
}

TEST(HashedCrossing, CrossesIntegersInsideAModel) {
  const Input a({1}, InputOptions{.dtype = at::kLong}), b({1}, InputOptions{.dtype = at::kLong});
  const HashedCrossing crossing(101, {.output_mode = "one_hot"});
  Functional model(SymbolicNest{a, b}, crossing(std::vector<KerasTensor>{a, b}));
  const Tensor x = at::tensor({3, 4}, at::kLong).unsqueeze(1);
  const Tensor y = model(Nest::list({x, x + 1})).leaf();
  EXPECT_EQ(y.sizes().vec(), (Shape{2, 101}));
  EXPECT_TENSOR_EQ(y, crossing(Nest::tuple({x, x + 1})));
}

TEST(HashedCrossing, SaysWhichFeaturesItCannotTake) {
  const HashedCrossing layer(5);
  const Tensor one = at::tensor({1, 2}, at::kLong);
  EXPECT_ERROR(layer(Nest::tuple({one})), InvalidArgument, "1 features, expected at least two");
  EXPECT_ERROR(layer(Nest::tuple({one, one.unsqueeze(1)})), InvalidArgument, "of one shape");
  EXPECT_ERROR(layer(Nest::tuple({one, one.to(at::kFloat)})), InvalidArgument, "dtype Float");
  EXPECT_ERROR(layer(Nest::tuple({one, Nest()})), InvalidArgument, "expected strings or integers");
  EXPECT_ERROR(HashedCrossing(5, {.output_mode = "count"}), InvalidArgument, "output_mode");
}

}  // namespace
}  // namespace tutti::keras::layers
