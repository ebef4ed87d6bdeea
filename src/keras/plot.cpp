#include "tutti/keras/plot.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::keras::utils {

void plot_history(const History& history, const std::string& path, const io::PlotOptions& options) {
  std::vector<io::Curve> curves;
  for (const auto& [name, values] : history.history) {
    io::Curve curve{name, {}, values};
    const auto own =
        history.epochs_of.find(name);  // not in a history that was put together by hand
    const std::vector<int64_t>& epochs =
        own == history.epochs_of.end() ? history.epoch : own->second;
    for (std::size_t i = 0; i < values.size(); ++i)
      curve.x.push_back(
          1 + (i < epochs.size() ? static_cast<double>(epochs[i]) : static_cast<double>(i)));
    curves.push_back(std::move(curve));
  }
  if (curves.empty())
    throw InvalidArgument(
        cat("plot_history [", path, "]: a history without epochs, expected at least one"));
  io::write_svg(path, io::charts_by_name(curves, "epoch"), options);
}

}  // namespace tutti::keras::utils
