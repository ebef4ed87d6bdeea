#pragma once
// Device names: cpu:i (logical, any i below 64) and cuda:i (real).

#include <c10/core/Device.h>

#include <iosfwd>
#include <string>

namespace tutti {

inline constexpr int kMaxLogicalCpus = 64;

/// Where a replica computes. `cpu:i` are logical devices: they all share the machine's cores.
struct DeviceName {
  enum class Kind { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  int index = 0;

  /// Takes `cpu:0`, `CPU`, `/cpu:0`, `GPU:1`, `cuda:1`, `/device:CPU:0`,
  /// `/job:localhost/replica:0/task:0/device:CPU:0`. Throws InvalidArgument that shows the text and
  /// the accepted spellings.
  static DeviceName parse(const std::string& text);
  /// `cpu:0` or `cuda:1`.
  std::string to_string() const;
  /// The LibTorch device that holds tensors of this one: logical CPU devices all give `cpu`.
  c10::Device torch_device() const;
  bool operator==(const DeviceName&) const = default;
};
std::ostream& operator<<(std::ostream& out, const DeviceName& device);

}  // namespace tutti
