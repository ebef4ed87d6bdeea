// Layers that change images at random: in training only, each image for itself, a function of seed,
// step and replica. What a given factor does is in keras_layers_test.cpp.

#include "tutti/keras/layers/augmentation.h"

#include <set>

#include "keras/line_model.h"
#include "keras/wave.h"
#include "tutti/distribute/config.h"

namespace tutti::keras::layers {
namespace {

using testing::replicas;

Tensor images(int64_t count = 8) { return wave({count, 4, 6, 2}).abs() * 200; }

struct Case {
  const char* name;
  const char* config;
};
void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }
const Case kCases[] = {
    {"RandomFlip", R"({"mode": "horizontal")"},
    {"RandomRotation", R"({"factor": 0.2)"},
    {"RandomZoom", R"({"height_factor": 0.4, "width_factor": [-0.5, 0.1])"},
    {"RandomTranslation", R"({"height_factor": 0.3, "width_factor": 0.3)"},
    {"RandomContrast", R"({"factor": 0.5)"},
    {"RandomBrightness", R"({"factor": 0.5)"},
    {"RandomCrop", R"({"height": 2, "width": 3)"},
};

class Augmentation : public ::testing::TestWithParam<Case> {
 protected:
  static Layer make(const std::string& more = "") {
    return layer_from_config(GetParam().name, cat(GetParam().config, more, "}"));
  }
  static bool crops() { return std::string(GetParam().name) == "RandomCrop"; }
};
INSTANTIATE_TEST_SUITE_P(All, Augmentation, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST_P(Augmentation, HappensInTrainingOnly) {
  const Layer layer = make();
  const Tensor x = images();
  EXPECT_TENSOR_EQ(layer(x), layer(x));
  if (!crops()) {
    EXPECT_TENSOR_EQ(layer(x), x);
  }
  bool differs = false;
  for (int i = 0; i < 8; ++i) differs = differs || !at::equal(layer(x, true), layer(x, true));
  EXPECT_TRUE(differs);
}

TEST_P(Augmentation, DrawsForEachImage) {
  if (crops()) return;  // one place for the batch
  const Layer layer = make();
  const Tensor same = images(1).expand({16, 4, 6, 2});
  const Tensor changed = layer(same, true);
  bool differs = false;
  for (int64_t i = 1; i < 16; ++i) differs = differs || !at::equal(changed[i], changed[0]);
  EXPECT_TRUE(differs);
}

TEST_P(Augmentation, IsAFunctionOfSeedStepAndReplica) {
  for (const char* more : {"", R"(, "seed": 5)"}) {
    std::vector<std::vector<Tensor>> runs;
    for (int run = 0; run < 2; ++run) {
      set_seed(9);
      auto strategy = replicas(2);
      auto scope = strategy->scope();
      const Layer layer = make(more);
      std::vector<Tensor> drawn;
      for (int step = 0; step < 2; ++step) {
        const auto results = strategy->run([&] { return layer(images(16), true); });
        drawn.push_back(results[0]);
        drawn.push_back(results[1]);
      }
      runs.push_back(drawn);
    }
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TENSOR_EQ(runs[0][i], runs[1][i]);
    if (!crops()) {
      EXPECT_FALSE(at::equal(runs[0][0], runs[0][1]));
      EXPECT_FALSE(at::equal(runs[0][0], runs[0][2]));
    }
  }
}

TEST_P(Augmentation, TakesOneImageIntegersAndNone) {
  const Layer layer = make();
  const Tensor one = layer(images(1)[0], true);
  EXPECT_EQ(one.sizes().vec(), crops() ? (Shape{2, 3, 2}) : (Shape{4, 6, 2}));
  EXPECT_EQ(layer(images().to(at::kByte), true).scalar_type(), at::kFloat);
  EXPECT_EQ(layer(images(0), true).size(0), 0);
  EXPECT_ERROR(layer(at::ones({2, 2}), true), InvalidArgument, "or one image");
}

// ---- each one's own

/// The share of the flipped pictures that look like `wanted`.
double share(const Tensor& flipped, const Tensor& wanted) {
  return flipped.eq(wanted).flatten(1).all(1).to(at::kFloat).mean().item<double>();
}

TEST(RandomFlip, FlipsEachDirectionHalfOfTheTime) {
  const Tensor picture = at::arange(4, at::kFloat).view({1, 2, 2, 1});
  const Tensor many = picture.expand({400, 2, 2, 1});
  const Tensor across = picture.flip(2), down = picture.flip(1), both = across.flip(1);
  const Tensor horizontal = RandomFlip("horizontal")(many, true);
  EXPECT_NEAR(share(horizontal, across), .5, .1);
  EXPECT_NEAR(share(horizontal, across) + share(horizontal, picture), 1, 1e-6);
  EXPECT_NEAR(share(RandomFlip("vertical")(many, true), down), .5, .1);
  const Tensor flipped = RandomFlip()(many, true);
  for (const Tensor& wanted : {picture, across, down, both})
    EXPECT_NEAR(share(flipped, wanted), .25, .1);
  EXPECT_ERROR(RandomFlip("sideways"), InvalidArgument, "mode");
}

TEST(RandomCrop, CutsAnywhereInTrainingAndTheMiddleOtherwise) {
  const Tensor x = images(2);
  const RandomCrop layer(2, 3);
  std::set<std::string> seen;
  for (int i = 0; i < 60; ++i) {
    const Tensor cut = layer(x, true);
    bool found = false;
    for (int64_t row = 0; row <= 2; ++row) {
      for (int64_t column = 0; column <= 3; ++column) {
        if (!at::equal(cut, x.narrow(1, row, 2).narrow(2, column, 3))) continue;
        found = true;
        seen.insert(cat(row, " ", column));
      }
    }
    EXPECT_TRUE(found);
  }
  EXPECT_GT(seen.size(), 6);
  EXPECT_EQ(layer(x).sizes().vec(), (Shape{2, 2, 3, 2}));
  const RandomCrop larger(8, 6);
  EXPECT_EQ(larger(x, true).sizes().vec(), (Shape{2, 8, 6, 2}));
}

TEST(RandomContrast, GoesBothWaysAndStaysInTheRange) {
  const Tensor x = images(64);
  const auto spread = [](const Tensor& batch) { return batch.std({1, 2}).mean(-1); };
  const Tensor share =
      spread(RandomContrast(.5, {.value_range = {-1e6, 1e6}})(x, true)) / spread(x);
  EXPECT_LT(share.min().item<double>(), .8);
  EXPECT_GT(share.max().item<double>(), 1.2);
  EXPECT_GE(share.min().item<double>(), .499);
  EXPECT_LE(share.max().item<double>(), 1.501);
  const Tensor cut = RandomContrast(1)(x, true);
  EXPECT_GE(cut.min().item<double>(), 0);
  EXPECT_LE(cut.max().item<double>(), 255);
  EXPECT_ERROR(RandomContrast(1.5), InvalidArgument, "from 0 to 1");
}

TEST(RandomTransforms, RefuseFactorsOutOfRange) {
  EXPECT_ERROR(RandomRotation(2), InvalidArgument, "factor");
  EXPECT_ERROR(RandomZoom({.5, .1}), InvalidArgument, "height_factor");
  EXPECT_ERROR(RandomTranslation(.1, 1.5), InvalidArgument, "width_factor");
  EXPECT_ERROR(RandomRotation(.1, {.fill_mode = "mirror"}), InvalidArgument, "fill_mode");
  EXPECT_ERROR(RandomRotation(.1, {.interpolation = "cubic"}), InvalidArgument, "interpolation");
  EXPECT_ERROR(RandomBrightness(-1.2), InvalidArgument, "factor");
}

}  // namespace
}  // namespace tutti::keras::layers
