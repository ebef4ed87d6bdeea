#include "tutti/tensor/device.h"

#include <algorithm>
#include <ostream>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

/// What may stand in front of the device in TensorFlow's full form, between slashes.
bool is_place(const std::string& part) {
  return part.empty() || part.rfind("job:", 0) == 0 || part.rfind("replica:", 0) == 0 ||
         part.rfind("task:", 0) == 0;
}

}  // namespace

DeviceName DeviceName::parse(const std::string& text) {
  std::vector<std::string> parts = split(to_lower(text), '/');
  std::string name = parts.back();
  parts.pop_back();
  const bool placed = std::all_of(parts.begin(), parts.end(), is_place);
  if (name.rfind("device:", 0) == 0) name = name.substr(7);
  const auto colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  const std::string digits = colon == std::string::npos ? "0" : name.substr(colon + 1);
  const bool number = !digits.empty() && digits.size() <= 4 &&
                      digits.find_first_not_of("0123456789") == std::string::npos;
  DeviceName device;
  if (placed && number && (kind == "cpu" || kind == "gpu" || kind == "cuda")) {
    device.kind = kind == "cpu" ? Kind::kCpu : Kind::kCuda;
    device.index = std::stoi(digits);
    if (device.index < kMaxLogicalCpus) return device;
  }
  throw InvalidArgument(cat("device: \"", text, "\", expected cpu:i or cuda:i with i from 0 to ",
                            kMaxLogicalCpus - 1,
                            " (also /cpu:0, GPU:1, /job:localhost/replica:0/task:0/device:CPU:0)"));
}

std::string DeviceName::to_string() const {
  return cat(kind == Kind::kCpu ? "cpu:" : "cuda:", index);
}

c10::Device DeviceName::torch_device() const {
  if (kind == Kind::kCpu) return c10::Device(c10::kCPU);
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

std::ostream& operator<<(std::ostream& out, const DeviceName& device) {
  return out << device.to_string();
}

}  // namespace tutti
