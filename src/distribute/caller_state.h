#pragma once
// The modes of LibTorch that a thread is in, for replicas to run in those of the thread that calls
// run.

#include <c10/core/AutogradState.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>

namespace tutti::distribute {

/// Gradient mode, inference mode and autocast, without memory of its own.
class CallerState {
 public:
  /// This thread's.
  static CallerState capture();
  /// Makes them this thread's, for good.
  void apply() const;

 private:
  c10::AutogradState autograd_{true, false, true, true};
  c10::impl::LocalDispatchKeySet keys_{c10::impl::PODLocalDispatchKeySet{}};
  /// Autocast's dtypes, when it is on for that kind of device.
  std::optional<at::ScalarType> cpu_dtype_;
  std::optional<at::ScalarType> cuda_dtype_;
};

}  // namespace tutti::distribute
