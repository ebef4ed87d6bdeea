#include "golden/golden_file.h"
#include "tutti/tutti.h"

namespace tutti::golden {

void run_distribute_core_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const std::string name = entry.at("name").get<std::string>();
  if (name.find("/variable/") != std::string::npos ||
      name.find("/variable_ops/") != std::string::npos)
    return run_variable_case(file, entry, verdict);
  throw Unknown{name};
}

}  // namespace tutti::golden
