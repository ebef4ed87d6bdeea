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

std::vector<DeviceName> parse_device_list(const char* strategy,
                                          const std::vector<std::string>& devices,
                                          const std::vector<std::string>& compute_devices) {
  if (compute_devices.empty()) return parse_device_list(strategy, devices);
  const std::vector<DeviceName> parsed = parse_device_list(strategy, compute_devices);
  if (!devices.empty() && parse_device_list(strategy, devices) != parsed) {
    throw InvalidArgument(cat(strategy, " [compute_devices]: ", join(compute_devices, ", "),
                              " beside devices ", join(devices, ", "),
                              ", expected the same or one of the two; they are two names of one "
                              "option"));
  }
  return parsed;
}

void check_one_local_task(const char* operation,
                          const std::map<std::string, std::vector<std::string>>& cluster) {
  if (cluster.empty()) return;
  std::size_t tasks = 0;
  std::string address;
  for (const auto& [job, addresses] : cluster) {
    tasks += addresses.size();
    if (!addresses.empty()) address = addresses[0];
  }
  if (tasks != 1 || cluster.size() != 1) {
    throw InvalidArgument(cat(operation, " [cluster_spec]: ", tasks, " tasks in ", cluster.size(),
                              " jobs, expected one local task; several processes need "
                              "MultiWorkerMirroredStrategy"));
  }
  const std::string host = !address.empty() && address.front() == '['
                               ? address.substr(1, address.find(']') - 1)
                           : address == "::1" ? address
                                              : address.substr(0, address.rfind(':'));
  if (host == "localhost" || host == "127.0.0.1" || host == "::1") return;
  throw InvalidArgument(cat(operation, " [cluster_spec]: the task \"", address,
                            "\" is on another machine, expected localhost, 127.0.0.1 or ::1; "
                            "several processes need MultiWorkerMirroredStrategy"));
}

}  // namespace tutti::distribute
