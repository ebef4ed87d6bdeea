#pragma once
// Where a task tells the launcher of its first error.

#include <string_view>

namespace tutti {

/// Writes `message` with the time into the file that TUTTI_ERROR_FILE names, unless an earlier
/// error is there already. tutti-run reads it to tell the root cause from what came of it: the task
/// that fails first is not always the one that ends first. Nothing without the variable; never
/// throws. Any thread may call it.
void record_error(std::string_view message) noexcept;

}  // namespace tutti
