#include "tutti/io/plot.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/expect.h"

namespace tutti::io {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST(Plots, ACurveIsAPathWithItsNameAndLastValue) {
  const std::string svg = svg_of({{"loss", "epoch", {{"loss", {0, 1, 2}, {3, 2, 0.25}}}}});
  EXPECT_EQ(svg.rfind("<svg xmlns=", 0), 0u);
  EXPECT_EQ(count(svg, "<path "), 1u);
  EXPECT_EQ(count(svg, "<circle "), 3u);
  EXPECT_NE(svg.find(">0.25 at 2</text>"), std::string::npos);
  EXPECT_NE(svg.find(">epoch</text>"), std::string::npos);
  EXPECT_EQ(count(svg, "M"), 1u);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

TEST(Plots, WhatIsNotFiniteIsAGap) {
  const double nan = std::nan("");
  const std::string svg =
      svg_of({{"loss", "", {{"loss", {0, 1, 2, 3, 4}, {1, 2, nan, 2, INFINITY}}}}});
  EXPECT_EQ(count(svg, "<circle "), 3u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_EQ(count(svg, "M"), 2u);
}

TEST(Plots, EmptyConstantAndSingleCurvesHaveAxesToo) {
  for (const Curve& curve :
       {Curve{"none", {}, {}}, Curve{"one", {3}, {7}}, Curve{"same", {0, 1}, {0, 0}},
        Curve{"huge", {0, 1}, {-1e308, 1e308}}}) {
    const std::string svg = svg_of({{curve.name, "", {curve}}});
    EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
    EXPECT_GE(count(svg, "<line "), 4u) << curve.name;
  }
}

TEST(Plots, AMillionPointsStaySmallAndKeepTheirPeaks) {
  Curve curve{"loss", {}, {}};
  for (int i = 0; i < 1000000; ++i) {
    curve.x.push_back(i);
    curve.y.push_back(i == 500000 ? 100 : 0);
  }
  const std::string peak = svg_of({{"loss", "", {curve}}});
  EXPECT_LT(peak.size(), 60000u);
  curve.y[500000] = 0;
  EXPECT_NE(svg_of({{"loss", "", {curve}}}), peak);
}

TEST(Plots, NamesAreEscaped) {
  const std::string svg = svg_of({{"a<b & \"c\"\n", "", {}}});
  EXPECT_NE(svg.find(">a&lt;b &amp; &quot;c&quot; </text>"), std::string::npos);
}

TEST(Plots, TrainingAndValidationShareAChart) {
  const auto charts = charts_by_name({{"val_loss", {0}, {1}},
                                      {"accuracy", {0}, {1}},
                                      {"loss", {0}, {1}},
                                      {"validation/loss", {0}, {2}}},
                                     "epoch");
  ASSERT_EQ(charts.size(), 2u);
  EXPECT_EQ(charts[0].title, "accuracy");
  EXPECT_EQ(charts[1].title, "loss");
  ASSERT_EQ(charts[1].curves.size(), 3u);
  EXPECT_EQ(charts[1].curves[0].name, "loss");
  EXPECT_EQ(charts[1].curves[2].name, "val_loss");
}

TEST(Plots, BadInputIsRefusedAndWritesNothing) {
  EXPECT_ERROR(svg_of({{"x", "", {{"x", {1, 2}, {1}}}}}), InvalidArgument, "2 x for 1 y");
  EXPECT_ERROR(svg_of({}, {.width = 10}), InvalidArgument, "expected at least");
  EXPECT_ERROR(write_svg("/no/such/folder/x.svg", {}), NotFound, "No such file");
}

TEST(Plots, AreWrittenAsAWhole) {
  const auto path = std::filesystem::temp_directory_path() / cat("tutti_plot_", getpid(), ".svg");
  write_svg(path.string(), {{"loss", "epoch", {{"loss", {0, 1}, {2, 1}}}}});
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(text, svg_of({{"loss", "epoch", {{"loss", {0, 1}, {2, 1}}}}}));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tutti::io
