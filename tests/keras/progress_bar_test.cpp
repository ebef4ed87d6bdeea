#include "keras/training/progress_bar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "tutti/base/text.h"

namespace tutti::keras {
namespace {

std::string cells(int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += "━";
  return all;
}

/// `1/3 ━━━ 2s 1s/step…` as Keras writes it: the count and the time bold, the bar green and white.
std::string drawing(const std::string& count, int filled, const std::string& time,
                    const std::string& rest) {
  const std::string green = filled > 0 ? cat("\x1b[32m", cells(filled), "\x1b[0m") : "";
  return cat("\x1b[1m", count, "\x1b[0m ", green, "\x1b[37m", cells(20 - filled), "\x1b[0m \x1b[1m",
             time, "\x1b[0m ", rest);
}

std::string back(int count) { return std::string(static_cast<std::size_t>(count), '\b') + "\r"; }

/// A bar on a clock that the test moves.
struct Bar {
  explicit Bar(int64_t target, int verbose = 1, bool dynamic = true,
               BarLayout layout = BarLayout::kKeras3) {
    ProgressBarOptions options;
    options.layout = layout;
    options.verbose = verbose;
    options.dynamic = dynamic;
    options.clock = [this] { return now; };
    options.out = &out;
    bar = std::make_unique<ProgressBar>(target, options);
  }
  /// Moves the clock and gives what update wrote.
  std::string after(double seconds, int64_t step, const ProgressBar::Values& values = {},
                    std::optional<bool> finalize = std::nullopt) {
    now += seconds;
    out.str("");
    bar->update(step, values, finalize);
    return out.str();
  }
  std::ostringstream out;
  double now = 100;
  std::unique_ptr<ProgressBar> bar;
};

ProgressBar::Values numbers(double loss, double accuracy) {
  return {{"loss", loss}, {"accuracy", accuracy}};
}

TEST(ProgressBar, ThreeStepsOfASecondAreKerasText) {
  Bar bar(3);
  EXPECT_EQ(bar.after(1, 1, numbers(.5, .25)),
            "\r" + drawing("1/3", 6, "2s", "1s/step - loss: 0.5000 - accuracy: 0.2500"));
  EXPECT_EQ(bar.after(1, 2, numbers(.4, .5)),
            back(69) + drawing("2/3", 13, "1s", "1s/step - loss: 0.4000 - accuracy: 0.5000"));
  EXPECT_EQ(
      bar.after(1, 3, numbers(.3, .75)),
      back(69) + drawing("3/3", 20, "3s", "1s/step - loss: 0.3000 - accuracy: 0.7500") + "\n");
}

TEST(ProgressBar, TheCurrentStepIsRightAligned) {
  Bar bar(10);
  EXPECT_EQ(bar.after(.1, 1), "\r" + drawing(" 1/10", 2, "0s", "100ms/step"));
}

TEST(ProgressBar, WithoutAFilledCellThereIsNoGreen) {
  Bar bar(100);
  EXPECT_EQ(bar.after(100, 1), "\r" + drawing("  1/100", 0, "2:45:00", "100s/step"));
}

TEST(ProgressBar, MinutesThatAreLeftHaveAColon) {
  Bar bar(100);
  EXPECT_EQ(bar.after(1, 1), "\r" + drawing("  1/100", 0, "1:39", "1s/step"));
}

TEST(ProgressBar, ShortStepsAreInMilliAndMicroseconds) {
  EXPECT_EQ(Bar(2).after(.00123, 1), "\r" + drawing("1/2", 10, "0s", "1ms/step"));
  EXPECT_EQ(Bar(2).after(.000123, 1), "\r" + drawing("1/2", 10, "0s", "123us/step"));
}

TEST(ProgressBar, AnUnknownTargetShowsWhatHasPassed) {
  Bar bar(-1);
  EXPECT_EQ(bar.after(1, 1, {{"loss", .5}}),
            "\r      1/Unknown \x1b[1m1s\x1b[0m 1s/step - loss: 0.5000");
  bar.bar->set_target(4);
  EXPECT_EQ(bar.after(3, 4, {{"loss", .5}}, true),
            back(41) + drawing("4/4", 20, "4s", "1s/step - loss: 0.5000") + "\n");
}

TEST(ProgressBar, NumbersUpToAThousandthHaveAnExponent) {
  const auto text = [](double value) {
    const std::string line = Bar(2).after(1, 1, {{"v", value}});
    return line.substr(line.find("v: ") + 3);
  };
  EXPECT_EQ(text(4e-4), "4.0000e-04");
  EXPECT_EQ(text(1e-3), "1.0000e-03");
  EXPECT_EQ(text(0), "0.0000e+00");
  EXPECT_EQ(text(1234.5), "1234.5000");
  EXPECT_EQ(text(-.5), "-0.5000");
  EXPECT_EQ(text(std::nan("")), "nan");
  EXPECT_EQ(text(-std::nan("")), "nan");
  EXPECT_EQ(text(std::numeric_limits<double>::infinity()), "inf");
}

TEST(ProgressBar, TheFirstStepDoesNotCountInTheTimeOfAStep) {
  Bar bar(4);
  bar.after(10, 1);
  EXPECT_EQ(bar.after(1, 2), back(37) + drawing("2/4", 10, "2s", "1s/step") + "  ");
  EXPECT_EQ(bar.after(2, 4), back(35) + drawing("4/4", 20, "13s", "1s/step") + "\n");
}

TEST(ProgressBar, TheFirstExecutionDoesNotCountInTheTimeOfAStep) {
  Bar bar(12);
  bar.after(10, 4);
  EXPECT_EQ(bar.after(4, 8), back(38) + drawing(" 8/12", 13, "4s", "1s/step") + " ");
}

TEST(ProgressBar, IsDrawnAtMostTwentyTimesASecond) {
  Bar bar(100);
  int drawings = 0;
  for (int step = 1; step <= 99; ++step) {
    const bool due = (bar.now += .01, bar.bar->due(step));
    const std::string text = bar.after(0, step);
    EXPECT_EQ(due, !text.empty()) << step;
    drawings += !text.empty();
  }
  EXPECT_LE(drawings, 20);
  EXPECT_GE(drawings, 15);
  EXPECT_NE(bar.after(0, 100), "") << "the last step is always drawn";
}

TEST(ProgressBar, AShorterLineCoversTheLongerOne) {
  Bar bar(3);
  bar.after(1, 1, {{"loss", 12345.5}});
  const std::string text = bar.after(1, 2, {{"loss", 1.5}});
  EXPECT_EQ(text, back(54) + drawing("2/3", 13, "1s", "1s/step - loss: 1.5000") + "    ");
}

TEST(ProgressBar, AtTheTargetTheLineStaysOpenForWhatComesAfterIt) {
  Bar bar(2);
  bar.after(1, 1);
  EXPECT_EQ(bar.after(1, 2, {}, false), back(35) + drawing("2/2", 20, "0s", "1s/step"));
  EXPECT_EQ(bar.after(1, 2, {{"val_loss", .5}}, true),
            back(35) + drawing("2/2", 20, "3s", "2s/step - val_loss: 0.5000") + "\n");
}

TEST(ProgressBar, WithoutATerminalEachDrawingHasALineOfItsOwn) {
  Bar bar(2, 1, /*dynamic=*/false);
  EXPECT_EQ(bar.after(1, 1), drawing("1/2", 10, "1s", "1s/step"));
  EXPECT_EQ(bar.after(1, 2), "\n" + drawing("2/2", 20, "2s", "1s/step") + "\n");
}

TEST(ProgressBar, Verbose2IsOneLineInWhichAllStepsCount) {
  Bar bar(3, 2);
  EXPECT_EQ(bar.after(.25, 1), "");
  EXPECT_EQ(bar.after(.25, 2), "");
  EXPECT_FALSE(bar.bar->due(2));
  EXPECT_EQ(bar.after(.75, 3, numbers(.7, -.3), true),
            "3/3 - 1s - 417ms/step - loss: 0.7000 - accuracy: -0.3000\n");
}

TEST(ProgressBar, AnOpenLineIsEndedWhenTheBarDies) {
  Bar bar(3);
  bar.after(1, 1);
  bar.out.str("");
  bar.bar.reset();
  EXPECT_EQ(bar.out.str(), "\n");
}

TEST(ProgressBar, AFinishedLineIsLeftAlone) {
  Bar bar(1);
  bar.after(1, 1);
  bar.out.str("");
  bar.bar.reset();
  EXPECT_EQ(bar.out.str(), "");
}

// ---- the layout of tf.keras

Bar classic(int64_t target, int verbose = 1) {
  return Bar(target, verbose, /*dynamic=*/true, BarLayout::kClassic);
}
std::string row(int done, const char* head, int left) {
  return cat("[", std::string(static_cast<std::size_t>(done), '='), head,
             std::string(static_cast<std::size_t>(left), '.'), "]");
}

TEST(ClassicBar, HasAHeadAndTheTimeThatIsLeft) {
  Bar bar = classic(938);
  EXPECT_EQ(bar.after(2.915, 1, {{"loss", 2.3124}, {"accuracy", .0781}}),
            cat("\r  1/938 ", row(0, "", 30), " - ETA: 45:31 - loss: 2.3124 - accuracy: 0.0781"));
  const std::string text = bar.after(1.196, 300, {{"loss", .3112}, {"accuracy", .912}});
  EXPECT_EQ(text.substr(text.find('\r')),
            cat("\r300/938 ", row(8, ">", 21), " - ETA: 2s - loss: 0.3112 - accuracy: 0.9120   "));
}

TEST(ClassicBar, EndsWithTheTimeThatHasPassed) {
  Bar bar = classic(3);
  bar.after(1, 1);
  const std::string text = bar.after(4, 3, {{"loss", .5}}, true);
  EXPECT_EQ(text.substr(text.find('\r')),
            cat("\r3/3 ", row(30, "", 0), " - 5s 2s/step - loss: 0.5000\n"));
}

TEST(ClassicBar, AnUnknownTargetShowsWhatHasPassed) {
  Bar bar = classic(-1);
  bar.after(.1, 1);
  const std::string text = bar.after(3.887, 300, {{"loss", .5}});
  EXPECT_EQ(text.substr(text.find('\r')), "\r    300/Unknown - 4s 13ms/step - loss: 0.5000");
}

TEST(ClassicBar, Verbose2HasTheTimeOfTheStepsAtItsEnd) {
  Bar bar = classic(4, 2);
  bar.now += 2;
  bar.bar->due(4);  // the steps are made, and a validation follows
  EXPECT_EQ(bar.after(3, 4, {{"loss", .5}}, true),
            "4/4 - 5s - loss: 0.5000 - 2s/epoch - 500ms/step\n");
}

// The bar that real Keras drew (golden formats.json, progbar_200_steps_2ms): of 200 steps of 2 ms
// these, on a clock whose sums are rounded so that 25 steps are a little less than 50 ms.
TEST(ProgressBar, DrawsTheStepsThatKerasDraws) {
  Bar bar(200);
  bar.now = 1000;
  std::vector<int> drawn;
  for (int step = 1; step <= 199; ++step) {
    if (!bar.after(.002, step).empty()) drawn.push_back(step);
  }
  EXPECT_EQ(drawn, (std::vector<int>{1, 27, 53, 79, 105, 131, 157, 183}));
}

}  // namespace
}  // namespace tutti::keras
