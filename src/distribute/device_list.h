#pragma once
// The devices that a strategy's options name.

#include <map>
#include <string>
#include <vector>

#include "tutti/tensor/device.h"

namespace tutti::distribute {

/// Parses `names` (empty: all GPUs, else the logical CPU devices of config). Throws InvalidArgument
/// for unknown, repeated or mixed ones; `strategy` names who asks.
std::vector<DeviceName> parse_device_list(const char* strategy,
                                          const std::vector<std::string>& names);
/// The same of two names of one option: what is given, or InvalidArgument when both are and differ.
std::vector<DeviceName> parse_device_list(const char* strategy,
                                          const std::vector<std::string>& devices,
                                          const std::vector<std::string>& compute_devices);

/// Throws InvalidArgument unless `cluster` (job → addresses) is empty or one task on this machine.
void check_one_local_task(const char* operation,
                          const std::map<std::string, std::vector<std::string>>& cluster);

}  // namespace tutti::distribute
