#pragma once
// The output of a small command.

#include <string>
#include <vector>

namespace tutti::launcher {

/// What `command` prints to standard output. Throws FailedPrecondition when it cannot be started,
/// fails or prints over 1 MiB, DeadlineExceeded after `seconds`, when it is killed.
std::string capture(const std::vector<std::string>& command, double seconds);

}  // namespace tutti::launcher
