#include "distribute/caller_state.h"

#include <ATen/autocast_mode.h>

namespace tutti::distribute {
namespace {

std::optional<at::ScalarType> autocast_dtype(at::DeviceType device) {
  if (!at::autocast::is_autocast_enabled(device)) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

}  // namespace

CallerState CallerState::capture() {
  CallerState state;
  state.autograd_ = c10::AutogradState::get_tls_state();
  state.keys_ = c10::impl::tls_local_dispatch_key_set();
  state.cpu_dtype_ = autocast_dtype(at::kCPU);
  state.cuda_dtype_ = autocast_dtype(at::kCUDA);
  return state;
}

void CallerState::apply() const {
  c10::AutogradState::set_tls_state(autograd_);
  c10::impl::_force_tls_local_dispatch_key_set(keys_);
  if (cpu_dtype_) at::autocast::set_autocast_dtype(at::kCPU, *cpu_dtype_);
  if (cuda_dtype_) at::autocast::set_autocast_dtype(at::kCUDA, *cuda_dtype_);
}

}  // namespace tutti::distribute
