#pragma once
// Pictures of trainings.

#include <string>

#include "tutti/io/plot.h"
#include "tutti/keras/callbacks/callback.h"

namespace tutti::keras::utils {

/// The curves of a training over its epochs (from 1) as an SVG file: one chart for each name, with
/// its val_ curve. InvalidArgument when there are no epochs.
void plot_history(const History& history, const std::string& path,
                  const io::PlotOptions& options = {});

}  // namespace tutti::keras::utils
