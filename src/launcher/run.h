#pragma once
// tutti-run from its options on.

#include <iosfwd>

#include "launcher/options.h"

namespace tutti::launcher {

/// Starts the job and waits for its end. Returns the exit code. Throws tutti::Error when it could
/// not be started at all.
int run(const Options& options);

/// Prints what run would start: a line of comment and a line for a shell for each task.
void print_plan(const Options& options, std::ostream& out);

/// The launcher's exit code for an error of its own.
int exit_code_of_error(const std::exception& error);

}  // namespace tutti::launcher
