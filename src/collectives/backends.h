#pragma once
// Which backends there are, by name: a plain table.

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/collectives/communicator.h"

namespace tutti::collectives {

struct Backend {
  std::string_view name;
  /// A group of `size` ranks in this process, one communicator each; null when the backend is not
  /// in this build.
  std::vector<std::unique_ptr<Communicator>> (*make_local_group)(int size);
  /// Why it is not in this build, and what brings it; empty when it is.
  std::string_view missing;
};

/// All backends that Tutti knows, those that are not in this build among them.
std::span<const Backend> backends();

/// The backend called `name`. Throws InvalidArgument for a name nobody knows, Unimplemented for a
/// backend that is not in this build.
const Backend& find_backend(std::string_view name);

}  // namespace tutti::collectives
