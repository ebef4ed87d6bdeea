// tutti-run: starts the tasks of a training job and looks after them. See docs/launcher.md.

#include <exception>
#include <iostream>
#include <string>

#include "launcher/run.h"

int main(int argc, char** argv) {
  try {
    const auto options = tutti::launcher::parse_options(argc, argv);
    if (!options) return 0;
    if (!options->dry_run) return tutti::launcher::run(*options);
    tutti::launcher::print_plan(*options, std::cout);
    return 0;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    std::cerr << (text.starts_with("tutti-run") ? "" : "tutti-run: ") << text << "\n";
    return tutti::launcher::exit_code_of_error(error);
  }
}
