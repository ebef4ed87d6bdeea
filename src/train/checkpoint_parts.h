#pragma once
// What Checkpoint and CheckpointManager have in common.

#include <string>

#include "train/state_file.h"

namespace tutti::train {

/// A checkpoint's file that can be given to objects. NotFound, DataLoss or InvalidArgument.
StateFile checked_file(const std::string& path);

}  // namespace tutti::train
