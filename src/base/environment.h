#pragma once
// Environment variables, read with a type and a complaint.

#include <cstdint>
#include <optional>
#include <string>

namespace tutti {

/// The variable's text; nothing when it is unset or empty.
std::optional<std::string> environment(const std::string& name);

/// The variable as a whole number in [low, high], or `fallback` when unset. Throws InvalidArgument
/// for anything else.
int64_t environment_int(const std::string& name, int64_t fallback, int64_t low, int64_t high);

/// True for 1, true, yes, on (any case); false for 0, false, no, off and when unset. Throws
/// InvalidArgument for anything else.
bool environment_flag(const std::string& name);

}  // namespace tutti
