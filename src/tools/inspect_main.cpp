// tutti-inspect FILE…: lists checkpoints, models, TFRecords, event files and CSV logs.
// tutti-inspect --plot curves.svg LOGS…: draws the curves of event files, folders of them, or CSV
// logs.

#include <CLI/CLI.hpp>
#include <iostream>

#include "tools/inspect.h"
#include "tutti/base/error.h"

int main(int argc, char** argv) {
  CLI::App app("Shows what is in checkpoints, models, TFRecords, event files and CSV logs.");
  std::vector<std::string> paths;
  std::string picture;
  app.add_option("file", paths, "files, or folders of event files")->required();
  app.add_option("--plot", picture, "draw the curves into this SVG file instead");
  CLI11_PARSE(app, argc, argv);
  try {
    std::vector<tutti::io::Curve> curves;
    for (const std::string& path : paths) {
      if (picture.empty()) {
        tutti::tools::describe(path, std::cout);
        continue;
      }
      for (auto& curve : tutti::tools::curves_of(path)) {
        if (paths.size() > 1) curve.name = path + "/" + curve.name;
        curves.push_back(std::move(curve));
      }
    }
    if (picture.empty()) return 0;
    const bool logs = tutti::tools::kind_of(paths[0]) == tutti::tools::FileKind::kCsv;
    tutti::io::write_svg(picture, tutti::io::charts_by_name(curves, logs ? "epoch" : "step"));
    std::cout << curves.size() << " curves in " << picture << "\n";
  } catch (const tutti::Error& error) {
    std::cerr << tutti::tools::printable(error.what()) << "\n";
    return 1;
  } catch (const std::exception& error) {  // of the system or of a library
    std::cerr << "inspect: " << tutti::tools::printable(error.what()) << "\n";
    return 1;
  }
}
