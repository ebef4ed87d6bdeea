#include "distribute/device_list.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/distribute/config.h"

namespace tutti::distribute {
namespace {

std::vector<DeviceName> default_devices() {
  std::vector<DeviceName> devices;
  const int gpus = at::globalContext().hasCUDA()
                       ? static_cast<int>(at::detail::getCUDAHooks().deviceCount())
                       : 0;
  for (int i = 0; i < gpus; ++i) devices.push_back({DeviceName::Kind::kCuda, i});
  if (!devices.empty()) return devices;
  for (int i = 0; i < config::logical_device_count("cpu"); ++i)
    devices.push_back({DeviceName::Kind::kCpu, i});
  return devices;
}

}  // namespace

std::vector<DeviceName> parse_device_list(const char* strategy,
                                          const std::vector<std::string>& names) {
  if (names.empty()) return default_devices();
  std::vector<DeviceName> devices;
  for (const std::string& name : names) {
    const DeviceName device = DeviceName::parse(name);
    for (const DeviceName& earlier : devices) {
      if (earlier == device) {
        throw InvalidArgument(cat(strategy, " [devices]: \"", name,
                                  "\" is named twice, expected one replica a device; use other "
                                  "indices (cpu:0, cpu:1, … are logical)"));
      }
      if (earlier.kind != device.kind) {
        throw InvalidArgument(cat(strategy, " [devices]: ", earlier, " and ", device,
                                  ", expected devices of one kind"));
      }
    }
    devices.push_back(device);
  }
  return devices;
}

}  // namespace tutti::distribute
