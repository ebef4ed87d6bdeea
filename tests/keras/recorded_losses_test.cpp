// Values and gradients of the losses as Keras 3.15 gives them for the same numbers.

#include "keras/json.h"
#include "support/expect.h"
#include "tutti/keras/losses.h"

namespace tutti::keras::losses {
namespace {

enum class Inputs {
  kNumbers,
  kPositive,
  kBits,
  kOneHot,
  kClassesFirst,
  kClasses,
  kImages,
  kEmbeddings,
  kSequences
};

Tensor ramp(int64_t count) { return at::arange(count, at::kFloat); }
Tensor probabilities(at::IntArrayRef shape) {
  const Tensor numbers = ramp(c10::multiply_integers(shape));
  return (numbers * 1.3).cos().mul(.4).add(.5).view(shape);
}
Tensor one_hot() { return at::eye(3).index_select(0, at::tensor({1, 2}, at::kLong)); }

std::pair<Tensor, Tensor> labels_and_predictions(Inputs inputs) {
  switch (inputs) {
    case Inputs::kNumbers:
      return {(ramp(6) * .9).sin().view({2, 3}), (ramp(6) * 1.3).cos().view({2, 3})};
    case Inputs::kPositive:
      return {(ramp(6) * .9).sin().abs().view({2, 3}),
              (ramp(6) * 1.3).cos().abs().add(.2).view({2, 3})};
    case Inputs::kBits:
      return {ramp(6).remainder(2).view({2, 3}), probabilities({2, 3})};
    case Inputs::kOneHot:
      return {one_hot(), probabilities({2, 3})};
    case Inputs::kClassesFirst:
      return {one_hot().t(), probabilities({3, 2})};
    case Inputs::kClasses:
      return {at::tensor({1, 2}, at::kLong), probabilities({2, 3})};
    case Inputs::kImages:
      return {ramp(8).remainder(3).gt(0).view({2, 2, 2, 1}), probabilities({2, 2, 2, 1})};
    case Inputs::kEmbeddings: {
      const Tensor angles = ramp(5) * .8;
      return {at::tensor({0, 0, 1, 1, 2}, at::kLong), at::stack({angles.cos(), angles.sin()}, 1)};
    }
    case Inputs::kSequences:
      return {at::tensor({1, 2, 2, 0}, at::kLong).view({2, 2}),
              (ramp(24) * 1.1).sin().view({2, 4, 3})};
  }
  return {};
}

struct Recorded {
  const char* class_name;
  const char* arguments;
  Inputs inputs;
  double value;  ///< reduced as by default
  std::vector<float> each;
  std::vector<float> gradient;  ///< of the value
};
const std::vector<Recorded> kRecorded = {
    {"MeanSquaredError",
     R"({})",
     Inputs::kNumbers,
     1.7660613,
     {1.5392247f, 1.992898f},
     {0.33333334f, -0.17194268f, -0.61024547f, -0.3844375f, 0.30367896f, 0.65137261f}},
    {"MeanAbsoluteError",
     R"({})",
     Inputs::kNumbers,
     1.2275052,
     {1.1155214f, 1.339489f},
     {0.16666667f, -0.16666667f, -0.16666667f, -0.16666667f, 0.16666667f, 0.16666667f}},
    {"MeanAbsolutePercentageError",
     R"({})",
     Inputs::kPositive,
     2.0000003e+08,
     {4e+08f, 62.695568f},
     {1.6666666e+08f, -21.276772f, 17.114244f, 38.997295f, 37.663052f, 17.049772f}},
    {"MeanSquaredLogarithmicError",
     R"({})",
     Inputs::kPositive,
     0.1302468,
     {0.22045247f, 0.04004113f},
     {0.11946323f, -0.044275135f, 0.0066783233f, 0.051848408f, 0.029076347f, 0.014688077f}},
    {"CosineSimilarity",
     R"({})",
     Inputs::kNumbers,
     0.67482454,
     {0.37210375f, 0.97754532f},
     {-0.10302938f, -0.26076573f, -0.20164102f, 0.066800773f, 0.012227178f, 0.043789446f}},
    {"CosineSimilarity",
     R"({"axis": 0})",
     Inputs::kNumbers,
     0.526968,
     {0.58746207f, -0.004555136f, 0.99799699f},
     {-0.12824069f, -0.53655165f, -0.012200385f, -0.17665651f, 0.3063435f, -0.010705039f}},
    {"Huber",
     R"({})",
     Inputs::kNumbers,
     0.74769998,
     {0.65459186f, 0.84080809f},
     {0.16666667f, -0.085971341f, -0.16666667f, -0.16666667f, 0.15183948f, 0.16666667f}},
    {"Huber",
     R"({"delta": 0.5})",
     Inputs::kNumbers,
     0.4887526,
     {0.43276072f, 0.54474449f},
     {0.083333336f, -0.083333336f, -0.083333336f, -0.083333336f, 0.083333336f, 0.083333336f}},
    {"LogCosh",
     R"({})",
     Inputs::kNumbers,
     0.65466487,
     {0.57475573f, 0.73457402f},
     {0.12693237f, -0.079078943f, -0.15831633f, -0.13647474f, 0.12027159f, 0.16010641f}},
    {"Poisson",
     R"({})",
     Inputs::kPositive,
     1.0148792,
     {1.0887047f, 0.94105369f},
     {0.16666667f, -0.11259486f, 0.013095215f, 0.089738809f, 0.056342721f, 0.02819702f}},
    {"Hinge",
     R"({})",
     Inputs::kNumbers,
     1.3495269,
     {1.2083133f, 1.4907403f},
     {-0.f, -0.13055448f, -0.16230795f, -0.071230009f, 0.073753394f, 0.1629217f}},
    {"Hinge",
     R"({})",
     Inputs::kBits,
     1.0062315,
     {1.1500816f, 0.86238146f},
     {0.16666667f, -0.16666667f, 0.16666667f, -0.16666667f, 0.16666667f, -0.16666667f}},
    {"SquaredHinge",
     R"({})",
     Inputs::kBits,
     1.4312758,
     {1.7012213f, 1.1613303f},
     {0.63333333f, -0.13100015f, 0.38574815f, -0.26345766f, 0.56246889f, -0.036454976f}},
    {"CategoricalHinge",
     R"({})",
     Inputs::kOneHot,
     1.044886,
     {1.2930005f, 0.79677153f},
     {0.5f, -0.5f, 0.f, 0.f, 0.5f, -0.5f}},
    {"KLDivergence",
     R"({})",
     Inputs::kPositive,
     -0.078349978,
     {0.37850755f, -0.53520751f},
     {0.f, -0.83778471f, 0.f, -0.23078361f, -0.3309719f, 0.f}},
    {"BinaryCrossentropy",
     R"({"axis": 0})",
     Inputs::kBits,
     0.96899801,
     {1.9325051f, 0.83103955f, 0.14344946f},
     {1.6666664f, -0.27457461f, 0.19776396f, -0.79506284f, 0.53317398f, -0.18713239f}},
    {"BinaryCrossentropy",
     R"({"from_logits": true, "label_smoothing": 0.2})",
     Inputs::kBits,
     0.74662673,
     {0.80199987f, 0.6912536f},
     {0.10182491f, -0.042123996f, 0.073205061f, -0.057964057f, 0.094231628f, -0.031829804f}},
    {"BinaryFocalCrossentropy",
     R"({})",
     Inputs::kBits,
     0.57888746,
     {0.64880961f, 0.50896531f},
     {2.0407751f, -0.1078067f, 0.013856925f, -0.90830028f, 0.51839024f, -0.006460466f}},
    {"BinaryFocalCrossentropy",
     R"({"apply_class_balancing": true, "alpha": 0.3, "gamma": 1.5})",
     Inputs::kBits,
     0.36918128,
     {0.47351754f, 0.26484498f},
     {1.3783914f, -0.043766484f, 0.02050386f, -0.27177691f, 0.38143086f, -0.0049030967f}},
    {"BinaryFocalCrossentropy",
     R"({"from_logits": true, "label_smoothing": 0.1})",
     Inputs::kBits,
     0.24335134,
     {0.28395793f, 0.20274477f},
     {0.10329616f, -0.018526508f, 0.053968921f, -0.033912543f, 0.089138359f, -0.01140407f}},
    {"CategoricalCrossentropy",
     R"({"axis": 0})",
     Inputs::kClassesFirst,
     1.5286095,
     {2.406508f, 0.65071118f},
     {0.28659028f, 0.29286665f, -2.8931711f, 0.29286665f, 0.28659028f, -0.26853049f}},
    {"CategoricalCrossentropy",
     R"({"from_logits": true, "label_smoothing": 0.1})",
     Inputs::kOneHot,
     0.98427123,
     {1.0965536f, 0.87198889f},
     {0.20837376f, -0.29878157f, 0.090407804f, 0.092304766f, 0.15904869f, -0.25135344f}},
    {"CategoricalFocalCrossentropy",
     R"({})",
     Inputs::kOneHot,
     0.072808787,
     {0.10175949f, 0.043858085f},
     {0.065416828f, -0.11394006f, 0.065416828f, 0.041964907f, 0.041964907f, -0.042266395f}},
    {"CategoricalFocalCrossentropy",
     R"({"from_logits": true, "alpha": 0.5, "gamma": 1.0, "label_smoothing": 0.1})",
     Inputs::kOneHot,
     0.31040457,
     {0.36578462f, 0.25502452f},
     {0.10825788f, -0.15407327f, 0.045815386f, 0.041989241f, 0.074210547f, -0.11619977f}},
    {"SparseCategoricalCrossentropy",
     R"({"ignore_class": 1})",
     Inputs::kClasses,
     0.69673288,
     {0.f, 0.69673288f},
     {0.f, 0.f, 0.f, 0.55938774f, 0.55938774f, -0.56340653f}},
    {"CategoricalGeneralizedCrossEntropy",
     R"({})",
     Inputs::kClasses,
     0.27716357,
     {0.44179642f, 0.11253071f},
     {-0.f, -0.6417647f, -0.f, -0.f, -0.f, -0.52980995f}},
    {"CategoricalGeneralizedCrossEntropy",
     R"({"q": 0.7})",
     Inputs::kClasses,
     0.26628962,
     {0.42132941f, 0.11124986f},
     {-0.f, -0.58078247f, -0.f, -0.f, -0.f, -0.51767844f}},
    {"Dice",
     R"({})",
     Inputs::kBits,
     0.47077346,
     {0.47077346f},
     {0.082026303f, -0.22795928f, 0.082026303f, -0.22795928f, 0.082026303f, -0.22795928f}},
    {"Dice",
     R"({"axis": [1, 2, 3]})",
     Inputs::kImages,
     0.47728163,
     {0.60543644f, 0.34912682f},
     {0.050926261f, -0.20721346f, -0.20721346f, 0.050926261f, -0.12921345f, -0.12921345f,
      0.062337782f, -0.12921345f}},
    {"Tversky",
     R"({})",
     Inputs::kBits,
     0.47077346,
     {0.47077346f},
     {0.082026303f, -0.22795928f, 0.082026303f, -0.22795928f, 0.082026303f, -0.22795928f}},
    {"Tversky",
     R"({"alpha": 0.3, "beta": 0.7, "axis": [1, 2, 3]})",
     Inputs::kImages,
     0.45400792,
     {0.6002301f, 0.30778575f},
     {0.073190741f, -0.18835522f, -0.18835522f, 0.073190741f, -0.10500639f, -0.10500639f,
      0.098711483f, -0.10500639f}},
    {"Circle",
     R"({})",
     Inputs::kEmbeddings,
     15.445383,
     {0.0086324578f, 20.590958f, 20.590961f, 20.590977f, 0.f},
     {-8.524909f, -8.7775755f, -13.863489f, 55.712765f, 56.723747f, 23.593864f, -27.112268f,
      -25.87991f, -20.549891f, 18.823988f}},
    {"Circle",
     R"({"gamma": 4.0, "margin": 0.2, "remove_diagonal": false})",
     Inputs::kEmbeddings,
     2.5202994,
     {1.9384414f, 2.8471184f, 2.8294461f, 2.8471189f, 2.1393723f},
     {-0.3587572f, -0.38678288f, -0.55566549f, 1.607357f, 1.5150746f, 0.7940017f, -1.4528232f,
      -0.63216037f, -1.0795497f, 0.98020351f}},
    {"CTC",
     R"({})",
     Inputs::kSequences,
     1.9976571,
     {1.642234f, 2.3530803f},
     {-0.0034667074f, -0.19402476f, 0.19749147f,   0.026627406f,  -0.065405779f, 0.038778372f,
      0.007031058f,   0.12743521f,  -0.13446626f,  0.021222489f,  0.11225688f,   -0.13347937f,
      -0.18761879f,   0.22949967f,  -0.041880872f, -0.054619979f, 0.11129132f,   -0.05667134f,
      -0.046707004f,  0.21391778f,  -0.16721077f,  -0.10487533f,  0.10990422f,   -0.0050288904f}},
};

class RecordedLoss : public ::testing::TestWithParam<std::size_t> {
 protected:
  const Recorded& recorded = kRecorded[GetParam()];
  Loss loss(const char* reduction) const {
    Json config = Json::parse(recorded.arguments);
    config["reduction"] = reduction;
    return Loss::from_config(recorded.class_name, config.dump());
  }
  std::pair<Tensor, Tensor> data = labels_and_predictions(recorded.inputs);
};

void expect_close(const Tensor& found, const std::vector<float>& expected) {
  EXPECT_TRUE(testing::tensors_near(found.reshape({-1}), at::tensor(expected), 1e-5, 2e-6));
}

TEST_P(RecordedLoss, HasKerasNumbers) {
  const auto& [y_true, y_pred] = data;
  expect_close(loss("none")(y_true, y_pred), recorded.each);
  expect_close(loss("sum_over_batch_size")(y_true, y_pred), {static_cast<float>(recorded.value)});
}

TEST_P(RecordedLoss, HasKerasGradient) {
  const Tensor watched = data.second.clone().requires_grad_();
  loss("sum_over_batch_size")(data.first, watched).backward();
  expect_close(watched.grad(), recorded.gradient);
}

TEST_P(RecordedLoss, ConfigMakesItAgain) {
  const Loss own = loss("sum");
  const Loss again = Loss::from_config(own.class_name(), own.config());
  EXPECT_EQ(again.config(), own.config());
  EXPECT_EQ(again.class_name(), recorded.class_name);
  EXPECT_EQ(again.name(), own.name());
  EXPECT_TENSOR_EQ(again(data.first, data.second), own(data.first, data.second));
}

TEST_P(RecordedLoss, HalfPredictionsAreComputedInFloat32) {
  const Tensor half = data.second.to(at::kHalf);
  const Tensor found = loss("none")(data.first, half);
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  EXPECT_TENSOR_EQ(found, loss("none")(data.first, half.to(at::kFloat)));
}

INSTANTIATE_TEST_SUITE_P(Losses, RecordedLoss, ::testing::Range<std::size_t>(0, kRecorded.size()));

TEST(RecordedLosses, ABatchWithoutRowsIsZeroWithZeroGradients) {
  for (const Recorded& recorded : kRecorded) {
    const Json arguments = Json::parse(recorded.arguments);
    const auto axis = arguments.find("axis");
    if (axis != arguments.end() && *axis == 0) continue;  // over the rows, of which there are none
    SCOPED_TRACE(cat(recorded.class_name, recorded.arguments));
    const auto [y_true, y_pred] = labels_and_predictions(recorded.inputs);
    const Tensor watched = y_pred.slice(0, 0, 0).clone().requires_grad_();
    const Tensor value =
        Loss::from_config(recorded.class_name, recorded.arguments)(y_true.slice(0, 0, 0), watched);
    EXPECT_EQ(value.item<float>(), 0);
    value.backward();
    EXPECT_TENSOR_EQ(watched.grad(), at::zeros_like(watched));
  }
}

}  // namespace
}  // namespace tutti::keras::losses
