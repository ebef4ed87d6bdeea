#pragma once
// Process-wide settings that must be made before strategies.

#include <string>

namespace tutti {

/// Seeds everything: ATen's default generator, dataset shuffles, initialisers, and the replicas'
/// generators of all strategies.
void set_seed(int64_t seed);

namespace config {

/// How many logical devices of kind "cpu" a MirroredStrategy without a device list takes (1 … 64;
/// default 1). Throws InvalidArgument for another kind or number.
void set_logical_device_configuration(const std::string& kind, int count);
int logical_device_count(const std::string& kind);

}  // namespace config
}  // namespace tutti
