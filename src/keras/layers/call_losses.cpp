#include "keras/layers/call_losses.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/distribute/strategy.h"

namespace tutti::keras::layers {

CallLosses::CallLosses()
    : slots_(static_cast<std::size_t>(distribute::get_strategy().num_local_replicas())) {}

std::size_t CallLosses::here() {
  const distribute::ReplicaContext* replica = distribute::get_replica_context();
  return replica != nullptr ? static_cast<std::size_t>(replica->local_replica_id()) : 0;
}

void CallLosses::add(const Tensor& loss, const std::string& owner) {
  if (!loss.defined())
    throw InvalidArgument(cat("add_loss [", owner, "]: an undefined tensor, expected a scalar"));
  const std::size_t replica = here();
  if (replica >= slots_.size()) {
    throw FailedPrecondition(cat("add_loss [", owner, "]: replica ", replica,
                                 " of what was first called with ", slots_.size(),
                                 " of them, expected the strategy under which it was"));
  }
  slots_[replica].losses.push_back(loss.dim() == 0 ? loss : loss.sum());
}

void CallLosses::clear() {
  const std::size_t replica = here();
  if (replica < slots_.size()) slots_[replica].losses.clear();
}

void CallLosses::append_to(std::vector<Tensor>& losses) const {
  const std::size_t replica = here();
  if (replica >= slots_.size()) return;
  const std::vector<Tensor>& own = slots_[replica].losses;
  losses.insert(losses.end(), own.begin(), own.end());
}

}  // namespace tutti::keras::layers
