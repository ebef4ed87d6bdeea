#include "tutti/distribute/config.h"

#include <ATen/Context.h>

#include <atomic>

#include "tutti/base/error.h"
#include "tutti/base/seed.h"
#include "tutti/base/text.h"
#include "tutti/tensor/device.h"

namespace tutti {

void set_seed(int64_t seed) {
  internal::set_global_seed(seed);
  at::manual_seed(static_cast<uint64_t>(seed));
}

}  // namespace tutti

namespace tutti::config {
namespace {

std::atomic<int> g_logical_cpus{1};

void check_kind(const char* operation, const std::string& kind) {
  if (to_lower(kind) != "cpu") {
    throw InvalidArgument(cat(operation, ": \"", kind,
                              "\", expected \"cpu\"; GPUs are real and need no configuration"));
  }
}

}  // namespace

void set_logical_device_configuration(const std::string& kind, int count) {
  check_kind("set_logical_device_configuration", kind);
  if (count < 1 || count > kMaxLogicalCpus) {
    throw InvalidArgument(cat("set_logical_device_configuration: ", count,
                              " devices, expected 1 to ", kMaxLogicalCpus));
  }
  g_logical_cpus.store(count);
}

int logical_device_count(const std::string& kind) {
  check_kind("logical_device_count", kind);
  return g_logical_cpus.load();
}

}  // namespace tutti::config
