#pragma once
// Where variables go: which shards, on which parameter servers. Pure functions of the order of
// their making, so that every process of a job finds the same.

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/ps/partitioners.h"

namespace tutti::ps {

/// One variable of a server.
struct ShardPlan {
  std::string name;
  int64_t server = 0;
  int64_t first_row = 0;       // of the whole variable
  std::vector<int64_t> shape;  // of the shard
};

/// Rows of each of `shards` shards: the first rows % shards get one more ("div"). `shards` in
/// [1, max(1, rows)].
std::vector<int64_t> rows_of_shards(int64_t rows, int64_t shards);

/// Deals variables and shards to the servers in turn.
class Placement {
 public:
  /// InvalidArgument without a server.
  Placement(int64_t servers, distribute::partitioners::Partitioner partitioner);

  /// Of the next variable. One plan of its own name when it is not cut: no partitioner, no
  /// dimension, or one part; else `name/part_i`. InvalidArgument unless the partitioner gives at
  /// least 1 for the first axis and 1 for each other.
  std::vector<ShardPlan> place(const std::string& name, const std::vector<int64_t>& shape,
                               at::ScalarType dtype);

 private:
  const int64_t servers_;
  const distribute::partitioners::Partitioner partitioner_;
  int64_t next_ = 0;
};

}  // namespace tutti::ps
