#include "tutti/keras/schedules.h"

#include <cmath>

#include "support/expect.h"

namespace tutti::keras::optimizers::schedules {
namespace {

struct Recorded {
  const char* class_name;
  const char* config;
  std::vector<std::pair<int64_t, double>> rates;
};
// What Keras prints.
const std::vector<Recorded> kRecorded = {
    {"ExponentialDecay",
     R"({"initial_learning_rate": 0.1, "decay_steps": 100, "decay_rate": 0.96})",
     {{50, .09797959}, {100, .096}, {250, .09029799}}},
    {"ExponentialDecay",
     R"({"initial_learning_rate": 0.1, "decay_steps": 100, "decay_rate": 0.96, "staircase": true})",
     {{99, .1}, {250, .09216}}},
    {"PiecewiseConstantDecay",
     R"({"boundaries": [10, 20], "values": [1, 0.5, 0.1]})",
     {{0, 1}, {10, 1}, {11, .5}, {20, .5}, {21, .1}}},
    {"PolynomialDecay",
     R"({"initial_learning_rate": 0.1, "decay_steps": 100})",
     {{50, .05005}, {100, .0001}, {150, .0001}}},
    {"PolynomialDecay",
     R"({"initial_learning_rate": 0.1, "decay_steps": 100, "end_learning_rate": 0.01, "power": 0.5,
         "cycle": true})",
     {{0, .1}, {50, .073639609}, {150, .055}, {250, .04674235}}},
    {"InverseTimeDecay",
     R"({"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5})",
     {{10, .06666667}, {25, .044444446}}},
    {"InverseTimeDecay",
     R"({"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5, "staircase": true})",
     {{9, .1}, {25, .05}}},
    {"CosineDecay",
     R"({"initial_learning_rate": 0.1, "decay_steps": 100})",
     {{50, .05}, {100, 0}, {150, 0}}},
    {"CosineDecay",
     R"({"initial_learning_rate": 0.1, "decay_steps": 100, "alpha": 0.1})",
     {{50, .055}, {100, .01}}},
    {"CosineDecay",
     R"({"initial_learning_rate": 0, "decay_steps": 100, "warmup_target": 0.1, "warmup_steps": 20})",
     {{10, .05}, {20, .1}, {70, .05}, {120, 0}}},
    {"CosineDecayRestarts",
     R"({"initial_learning_rate": 0.1, "first_decay_steps": 100})",
     {{99, 2.4673343e-05}, {100, .1}, {200, .05}, {299, 6.1690807e-06}, {300, .1}}},
    {"CosineDecayRestarts",
     R"({"initial_learning_rate": 0.1, "first_decay_steps": 100, "m_mul": 0.5})",
     {{100, .05}, {200, .025}, {300, .025}}},
};

TEST(Schedules, GiveKerasRates) {
  for (const Recorded& recorded : kRecorded) {
    SCOPED_TRACE(cat(recorded.class_name, " ", recorded.config));
    const auto schedule = from_config(recorded.class_name, recorded.config);
    for (const auto& [step, rate] : recorded.rates) EXPECT_NEAR((*schedule)(step), rate, 2e-8);
  }
}

TEST(Schedules, ConfigMakesTheSameAgain) {
  for (const Recorded& recorded : kRecorded) {
    const auto schedule = from_config(recorded.class_name, recorded.config);
    const auto again = from_config(schedule->class_name(), schedule->config());
    EXPECT_EQ(again->class_name(), recorded.class_name);
    EXPECT_EQ(again->config(), schedule->config());
  }
}

TEST(Schedules, ArgumentsAreChecked) {
  EXPECT_ERROR(PiecewiseConstantDecay({.boundaries = {3, 10}, .values = {1, 0.5}}), InvalidArgument,
               "boundaries of length 2 and values of length 2");
  EXPECT_ERROR(PiecewiseConstantDecay({.boundaries = {10, 3}, .values = {1, 0.5, 0.1}}),
               InvalidArgument, "do not ascend");
  EXPECT_ERROR(ExponentialDecay({.initial_learning_rate = 0.1, .decay_rate = 0.5}), InvalidArgument,
               "schedule [ExponentialDecay]: decay_steps 0, expected more than 0");
  EXPECT_ERROR(InverseTimeDecay({.decay_steps = -1}), InvalidArgument, "decay_steps -1");
  EXPECT_ERROR(PolynomialDecay({.decay_steps = 0}), InvalidArgument, "decay_steps 0");
  EXPECT_ERROR(CosineDecay({.decay_steps = 0}), InvalidArgument, "decay_steps 0");
  EXPECT_ERROR(CosineDecay({.decay_steps = 1, .warmup_steps = -1}), InvalidArgument,
               "warmup_steps -1");
  EXPECT_ERROR(CosineDecayRestarts({.first_decay_steps = 0}), InvalidArgument,
               "first_decay_steps 0");
  EXPECT_ERROR(from_config("CosineDelay", "{}"), InvalidArgument, "PolynomialDecay");
  EXPECT_ERROR(from_config("CosineDecay", R"({"decay_steps": "many"})"), DataLoss, "decay_steps");
}

TEST(LearningRates, AreNumbersOrSchedules) {
  const LearningRate number = 1;
  EXPECT_EQ(number.at(7), 1);
  EXPECT_EQ(number.schedule(), nullptr);
  const LearningRate schedule = PiecewiseConstantDecay({.boundaries = {2}, .values = {1, 0.5}});
  EXPECT_EQ(schedule.at(2), 1);
  EXPECT_EQ(schedule.at(3), 0.5);
}

}  // namespace
}  // namespace tutti::keras::optimizers::schedules
