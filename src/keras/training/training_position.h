#pragma once
// Where a fit stands: what the loop tells callbacks that save it, and what they tell the loop to go
// on from.

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/io/tensor_file.h"

namespace tutti::keras {

/// Between two steps. The loop keeps it up to date; it costs a step nothing but counting.
struct TrainingPosition {
  /// The epoch under way, and the steps of it that have been made; after an epoch, before its
  /// on_epoch_end hooks, the next epoch and 0.
  int64_t epoch = 0;
  int64_t step = 0;
  /// The pass over the data: whether one is under way, how many have been begun, the number that
  /// start() was given, and the steps taken from it.
  bool in_pass = false;
  int64_t passes = 0;
  int64_t pass_begin = 0;
  int64_t pass_steps = 0;
  /// What decides the order of shuffled rows besides pass_begin.
  uint64_t seed = 0;

  /// Set in on_train_begin: fit goes on as this backup says, before its first epoch. `path` is for
  /// messages.
  std::optional<io::TensorFile> resume_from = std::nullopt;
  std::string path = "";
};

}  // namespace tutti::keras
