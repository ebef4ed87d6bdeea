#pragma once
// Line charts as SVG files: what training looked like, without another program.

#include <string>
#include <vector>

namespace tutti::io {

/// Points in order of x. A y that is NaN or infinite is a gap.
struct Curve {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;
};

/// Curves on common axes.
struct Chart {
  std::string title;
  std::string x_label = "";
  std::vector<Curve> curves = {};
};

struct PlotOptions {
  int width = 640;   ///< of a chart, in pixels
  int height = 280;  ///< of a chart
  int charts_in_a_row = 1;
};

/// The charts, one below the other, as the text of an SVG picture. InvalidArgument: a curve whose x
/// and y differ in length, or sizes below 100 pixels.
std::string svg_of(const std::vector<Chart>& charts, const PlotOptions& options = {});
/// The same into a file that is there as a whole or not at all.
void write_svg(const std::string& path, const std::vector<Chart>& charts,
               const PlotOptions& options = {});

/// Curves `loss` and `val_loss` belong on one chart, as do those of two folders `train` and
/// `validation`: one chart for each name without `val_` in front, in the order of the names.
std::vector<Chart> charts_by_name(const std::vector<Curve>& curves, const std::string& x_label);

}  // namespace tutti::io
