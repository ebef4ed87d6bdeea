#include "keras/layers/random.h"

#include "data/element_scope.h"
#include "keras/layers/nested.h"
#include "tutti/base/seed.h"
#include "tutti/distribute/strategy.h"

namespace tutti::keras::layers {

void LayerRandom::build() {
  const int replicas = distribute::get_strategy().num_local_replicas();
  for (int i = 0; seed_ && i < replicas; ++i) own_.push_back(std::make_unique<Stream>());
}

at::Generator& LayerRandom::generator(const LayerImpl& layer) {
  if (data::ElementScope* call = data::ElementScope::current()) return call->generator(seed_);
  distribute::ReplicaContext* replica = distribute::get_replica_context();
  const int local = replica != nullptr ? replica->local_replica_id() : 0;
  distribute::Strategy& strategy = distribute::get_strategy();
  if (!seed_) return strategy.generator(local);
  if (static_cast<std::size_t>(local) >= own_.size()) {
    throw FailedPrecondition(cat(head(layer), "replica ", local, " of a layer that was built for ",
                                 own_.size(),
                                 " of them, expected the strategy under which it was built"));
  }
  Stream& stream = *own_[static_cast<std::size_t>(local)];
  MutexLock lock(stream.mutex);
  const int64_t step = strategy.random_step();
  const uint64_t generation = seed_generation();
  if (stream.step != step || stream.seed_generation != generation) {
    // The strategy's is of the kind that the device needs.
    if (!stream.generator.defined()) stream.generator = strategy.generator(local).clone();
    stream.generator.set_current_seed(
        stream_seed(static_cast<uint64_t>(*seed_), step, strategy.first_replica_id() + local));
    stream.step = step;
    stream.seed_generation = generation;
  }
  return stream.generator;
}

Tensor LayerRandom::dropout_mask(const LayerImpl& layer, at::IntArrayRef sizes, double rate,
                                 const Tensor& like) {
  return at::empty(sizes, like.options()).bernoulli_(1 - rate, generator(layer)).div_(1 - rate);
}

}  // namespace tutti::keras::layers
