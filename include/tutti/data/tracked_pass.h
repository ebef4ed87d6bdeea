#pragma once
// Iterators of datasets as parts of checkpoints.

#include <functional>
#include <memory>

#include "tutti/tensor/trackable.h"

namespace tutti::data::internal {

/// What `save` gives is the state; what it saved elsewhere is restored when it is set.
std::shared_ptr<Trackable> tracked_pass(std::function<Nest()> save,
                                        std::function<void(const Nest&)> restore);

}  // namespace tutti::data::internal
