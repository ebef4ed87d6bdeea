#pragma once
// The devices that a strategy's options name.

#include <string>
#include <vector>

#include "tutti/tensor/device.h"

namespace tutti::distribute {

/// Parses `names` (empty: all GPUs, else the logical CPU devices of config). Throws InvalidArgument
/// for unknown, repeated or mixed ones; `strategy` names who asks.
std::vector<DeviceName> parse_device_list(const char* strategy,
                                          const std::vector<std::string>& names);

}  // namespace tutti::distribute
