#include "tutti/io/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>

#include "io/file.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::io {
namespace {

// Okabe and Ito's colours, which people with any kind of colour blindness tell apart.
constexpr std::array<const char*, 7> kColours{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                              "#E69F00", "#56B4E9", "#000000"};
constexpr int kLeft = 64, kRight = 150, kTop = 34, kBottom = 40;  // margins around the axes
constexpr int kTicks = 5;
constexpr int kSmallest = 100;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  /// Never empty, never a point.
  Range widened() const {
    if (empty()) return {0, 1};
    if (high - low > 0 && std::isfinite(high - low)) return *this;
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    return {low - room, low + room};
  }
};

/// 1, 2 or 5 times a power of ten, so that about `count` steps of it fill the range.
double step_of(const Range& range, int count) {
  const double rough = (range.high - range.low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

std::string number(double value, const char* format = "%.6g") {
  char text[40];
  std::snprintf(text, sizeof(text), format, value == 0 ? 0.0 : value);
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += byte < 0x20 ? ' ' : c;  // XML has no control characters
    }
  }
  return out;
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text,
                    const std::string& style = "") {
  return cat("<text x=\"", number(x, "%.1f"), "\" y=\"", number(y, "%.1f"), "\" text-anchor=\"",
             anchor, "\"", style, ">", escaped(text), "</text>\n");
}

/// Points of one column of pixels are drawn as their lowest and highest: the picture is the same,
/// and a curve of a million points stays small.
struct Column {
  int pixel;
  double first, low, high, last;
};

class Panel {
 public:
  Panel(const Chart& chart, const PlotOptions& options, double left, double top)
      : chart_(chart),
        x0_(left + kLeft),
        x1_(left + options.width - kRight),
        y0_(top + options.height - kBottom),
        y1_(top + kTop) {
    for (const Curve& curve : chart.curves) {
      if (curve.x.size() != curve.y.size())
        throw InvalidArgument(cat("plot [", curve.name, "]: ", curve.x.size(), " x for ",
                                  curve.y.size(), " y, expected as many"));
      for (std::size_t i = 0; i < curve.x.size(); ++i) {
        if (!std::isfinite(curve.y[i])) continue;
        xs_.add(curve.x[i]);
        ys_.add(curve.y[i]);
      }
    }
    xs_ = xs_.widened();
    ys_ = ys_.widened();
    const double room = (ys_.high - ys_.low) * 0.05;
    ys_ = {ys_.low - room, ys_.high + room};
  }

  std::string svg() const {
    std::string out = text_at((x0_ + x1_) / 2, y1_ - 12, "middle", chart_.title,
                              " font-size=\"14\" font-weight=\"bold\"");
    out += axes();
    for (std::size_t i = 0; i < chart_.curves.size(); ++i)
      out += curve(chart_.curves[i], kColours[i % kColours.size()], i);
    return out;
  }

 private:
  double x_of(double x) const { return x0_ + (x - xs_.low) / (xs_.high - xs_.low) * (x1_ - x0_); }
  double y_of(double y) const { return y0_ - (y - ys_.low) / (ys_.high - ys_.low) * (y0_ - y1_); }

  std::string axes() const {
    std::string out;
    const double dx = step_of(xs_, kTicks);
    const double dy = step_of(ys_, kTicks);
    for (double i = std::ceil(ys_.low / dy); i * dy <= ys_.high; ++i) {
      out += line(x0_, y_of(i * dy), x1_, y_of(i * dy), "#e0e0e0");
      out += text_at(x0_ - 6, y_of(i * dy) + 4, "end", number(i * dy, "%.4g"));
    }
    for (double i = std::ceil(xs_.low / dx); i * dx <= xs_.high + dx * 1e-9; ++i) {
      out += line(x_of(i * dx), y0_, x_of(i * dx), y0_ + 4, "#404040");
      out += text_at(x_of(i * dx), y0_ + 17, "middle", number(i * dx));
    }
    out += line(x0_, y0_, x1_, y0_, "#404040") + line(x0_, y0_, x0_, y1_, "#404040");
    return out + text_at((x0_ + x1_) / 2, y0_ + 33, "middle", chart_.x_label);
  }

  static std::string line(double xa, double ya, double xb, double yb, const char* colour) {
    return cat("<line x1=\"", number(xa, "%.1f"), "\" y1=\"", number(ya, "%.1f"), "\" x2=\"",
               number(xb, "%.1f"), "\" y2=\"", number(yb, "%.1f"), "\" stroke=\"", colour,
               "\"/>\n");
  }

  std::string curve(const Curve& curve, const char* colour, std::size_t index) const {
    std::string out, path;
    std::size_t drawn = 0;
    double last = std::numeric_limits<double>::quiet_NaN();
    double last_x = 0;
    std::vector<Column> columns;
    const auto end_run = [&] {
      path += run(columns);
      columns.clear();
    };
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      const double y = curve.y[i];
      if (!std::isfinite(y) || !std::isfinite(curve.x[i])) {
        end_run();
        continue;
      }
      ++drawn;
      last = y;
      last_x = curve.x[i];
      const auto pixel = static_cast<int>(std::lround(x_of(curve.x[i]) * 2));
      if (!columns.empty() && columns.back().pixel == pixel) {
        Column& column = columns.back();
        column.low = std::min(column.low, y);
        column.high = std::max(column.high, y);
        column.last = y;
      } else {
        columns.push_back({pixel, y, y, y, y});
      }
    }
    end_run();
    if (!path.empty())
      out += cat("<path d=\"", path, "\" fill=\"none\" stroke=\"", colour,
                 "\" stroke-width=\"1.8\" stroke-linejoin=\"round\"/>\n");
    if (drawn > 0 && drawn <= 40) out += dots(curve, colour);
    const double y = y1_ + 12 + 34.0 * static_cast<double>(index);
    out += cat("<line x1=\"", number(x1_ + 12, "%.1f"), "\" y1=\"", number(y, "%.1f"), "\" x2=\"",
               number(x1_ + 32, "%.1f"), "\" y2=\"", number(y, "%.1f"), "\" stroke=\"", colour,
               "\" stroke-width=\"3\"/>\n");
    out += text_at(x1_ + 38, y + 4, "start", curve.name);
    if (drawn > 0)
      out += text_at(x1_ + 38, y + 18, "start", cat(number(last, "%.5g"), " at ", number(last_x)),
                     " fill=\"#606060\"");
    return out;
  }

  std::string run(const std::vector<Column>& columns) const {
    std::string path;
    const auto go = [&](int pixel, double y) {
      path +=
          cat(path.empty() ? "M" : "L", number(pixel / 2.0, "%.1f"), " ", number(y_of(y), "%.1f"));
    };
    for (const Column& column : columns) {
      go(column.pixel, column.first);
      if (column.low < std::min(column.first, column.last)) go(column.pixel, column.low);
      if (column.high > std::max(column.first, column.last)) go(column.pixel, column.high);
      if (column.last != column.first) go(column.pixel, column.last);
    }
    return path;
  }

  std::string dots(const Curve& curve, const char* colour) const {
    std::string out;
    for (std::size_t i = 0; i < curve.x.size(); ++i) {
      if (std::isfinite(curve.y[i]) && std::isfinite(curve.x[i]))
        out += cat("<circle cx=\"", number(x_of(curve.x[i]), "%.1f"), "\" cy=\"",
                   number(y_of(curve.y[i]), "%.1f"), "\" r=\"2.6\" fill=\"", colour, "\"/>\n");
    }
    return out;
  }

  const Chart& chart_;
  double x0_, x1_, y0_, y1_;  // of the axes, in pixels; y0_ is the lower one
  Range xs_, ys_;
};

}  // namespace

std::string svg_of(const std::vector<Chart>& charts, const PlotOptions& options) {
  if (options.width < kSmallest + kLeft + kRight || options.height < kSmallest ||
      options.charts_in_a_row < 1)
    throw InvalidArgument(cat("plot: charts of ", options.width, " x ", options.height, ", ",
                              options.charts_in_a_row, " in a row, expected at least ",
                              kSmallest + kLeft + kRight, " x ", kSmallest));
  const int count = std::max<int>(1, static_cast<int>(charts.size()));
  const int across = std::min(options.charts_in_a_row, count);
  const int rows = (count + across - 1) / across;
  std::string out = cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"",
                        across * options.width, "\" height=\"", rows * options.height,
                        "\" font-family=\"sans-serif\" font-size=\"11\">\n",
                        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  for (std::size_t i = 0; i < charts.size(); ++i) {
    const int column = static_cast<int>(i) % across;
    const int row = static_cast<int>(i) / across;
    out += Panel(charts[i], options, column * options.width, row * options.height).svg();
  }
  return out + "</svg>\n";
}

void write_svg(const std::string& path, const std::vector<Chart>& charts,
               const PlotOptions& options) {
  const std::string text = svg_of(charts, options);
  write_file_atomically(path, {{text.data(), text.size()}});
}

std::vector<Chart> charts_by_name(const std::vector<Curve>& curves, const std::string& x_label) {
  constexpr char kValidation[] = "val_";
  std::map<std::string, Chart> charts;
  for (const bool validation : {false, true}) {
    for (const Curve& curve : curves) {
      const std::size_t slash = curve.name.rfind('/');
      const std::string own =
          slash == std::string::npos ? curve.name : curve.name.substr(slash + 1);
      const bool is_validation = own.rfind(kValidation, 0) == 0;
      if (is_validation != validation) continue;
      const std::string name = is_validation ? own.substr(sizeof(kValidation) - 1) : own;
      Chart& chart = charts[name];
      chart.title = name;
      chart.x_label = x_label;
      chart.curves.push_back(curve);
    }
  }
  std::vector<Chart> list;
  for (auto& [name, chart] : charts) list.push_back(std::move(chart));
  return list;
}

}  // namespace tutti::io
