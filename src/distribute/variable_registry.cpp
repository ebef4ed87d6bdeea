#include "distribute/variable_registry.h"

#include <algorithm>

#include "distribute/variable_state.h"

namespace tutti {
namespace internal {

void VariableRegistry::add(const std::shared_ptr<VariableState>& state) {
  MutexLock lock(mutex_);
  if (states_.size() >= prune_at_) {
    std::erase_if(states_, [](const auto& weak) { return weak.expired(); });
    prune_at_ = std::max<std::size_t>(64, 2 * states_.size());
  }
  states_.push_back(state);
}

std::shared_ptr<VariableState> VariableRegistry::find(const Tensor& tensor) {
  MutexLock lock(mutex_);
  for (const auto& weak : states_) {
    std::shared_ptr<VariableState> state = weak.lock();
    if (state == nullptr) continue;
    const int replica = state->replica();
    const std::size_t begin = replica < 0 ? 0 : static_cast<std::size_t>(replica);
    const std::size_t end = replica < 0 ? state->components.size() : begin + 1;
    for (std::size_t i = begin; i < end; ++i) {
      if (tensor.is_same(state->components[i]) || tensor.is_same(state->leaves[i])) return state;
    }
  }
  return nullptr;
}

}  // namespace internal

namespace distribute {

std::variant<Tensor, Variable> Strategy::value_container(const Tensor& component) const {
  if (auto state = component.defined() ? variables_->find(component) : nullptr)
    return Variable(std::move(state));
  return component;
}

}  // namespace distribute
}  // namespace tutti
