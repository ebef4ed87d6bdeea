#include "keras/layers/activity.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/distribute/strategy.h"

namespace tutti::keras::layers {

void ActivityPenalty::prepare() {
  if (!regularizer_.defined()) return;
  slots_.resize(static_cast<std::size_t>(distribute::get_strategy().num_local_replicas()));
}

std::size_t ActivityPenalty::slot() const {
  const distribute::ReplicaContext* replica = distribute::get_replica_context();
  const int local = replica != nullptr ? replica->local_replica_id() : 0;
  if (static_cast<std::size_t>(local) >= slots_.size()) {
    throw FailedPrecondition(cat("activity regularizer: replica ", local,
                                 " of a layer that was built for ", slots_.size(),
                                 " of them, expected the strategy under which it was built"));
  }
  return static_cast<std::size_t>(local);
}

void ActivityPenalty::keep(const Tensor& output) {
  Slot& own = slots_[slot()];
  own.penalty = Tensor();
  const int64_t rows = output.dim() > 0 ? output.size(0) : 1;
  if (rows > 0) own.penalty = regularizer_(output) / rows;
}

void ActivityPenalty::add_to(std::vector<Tensor>& losses) const {
  if (!regularizer_.defined() || slots_.empty()) return;
  const Slot& own = slots_[slot()];
  if (own.penalty.defined()) losses.push_back(own.penalty);
}

}  // namespace tutti::keras::layers
