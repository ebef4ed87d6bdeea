#include "ps/placement.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::ps {

std::vector<int64_t> rows_of_shards(int64_t rows, int64_t shards) {
  std::vector<int64_t> all(static_cast<std::size_t>(shards), rows / shards);
  for (int64_t i = 0; i < rows % shards; ++i) ++all[static_cast<std::size_t>(i)];
  return all;
}

Placement::Placement(int64_t servers, distribute::partitioners::Partitioner partitioner)
    : servers_(servers), partitioner_(std::move(partitioner)) {
  if (servers < 1) {
    throw InvalidArgument(cat("ParameterServerStrategy: ", servers,
                              " parameter servers, expected at least 1; add a job \"ps\""));
  }
}

std::vector<ShardPlan> Placement::place(const std::string& name, const std::vector<int64_t>& shape,
                                        at::ScalarType dtype) {
  int64_t shards = 1;
  if (partitioner_.defined() && !shape.empty()) {
    const std::vector<int64_t> parts = partitioner_(shape, dtype, 0);
    const bool fits = parts.size() == shape.size() && parts[0] >= 1 &&
                      std::all_of(parts.begin() + 1, parts.end(), [](int64_t n) { return n == 1; });
    if (!fits) {
      throw InvalidArgument(cat("variable_partitioner [", name, "]: the parts ", shape_text(parts),
                                " of the shape ", shape_text(shape),
                                ", expected at least 1 for the first axis and 1 for each other"));
    }
    shards = std::max<int64_t>(1, std::min(parts[0], shape[0]));
  }
  if (shards == 1) return {{name, next_++ % servers_, 0, shape}};
  std::vector<ShardPlan> plans;
  int64_t first_row = 0;
  for (int64_t rows : rows_of_shards(shape[0], shards)) {
    ShardPlan plan{cat(name, "/part_", plans.size()), next_++ % servers_, first_row, shape};
    plan.shape[0] = rows;
    first_row += rows;
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace tutti::ps
