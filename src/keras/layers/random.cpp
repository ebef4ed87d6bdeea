#include "keras/layers/random.h"

#include "data/element_scope.h"
#include "tutti/base/error.h"
#include "tutti/base/seed.h"
#include "tutti/base/text.h"
#include "tutti/distribute/strategy.h"

namespace tutti::keras::layers {

void RandomStreams::prepare() {
  const int replicas = distribute::get_strategy().num_local_replicas();
  for (int i = 0; seed_ && i < replicas; ++i) own_.push_back(std::make_unique<Stream>());
}

at::Generator& RandomStreams::generator(const std::string& layer) {
  if (data::ElementScope* call = data::ElementScope::current()) return call->generator(seed_);
  const distribute::ReplicaContext* replica = distribute::get_replica_context();
  const int local = replica != nullptr ? replica->local_replica_id() : 0;
  return seed_ ? own(local, layer) : distribute::get_strategy().generator(local);
}

at::Generator& RandomStreams::own(int local, const std::string& layer) {
  if (static_cast<std::size_t>(local) >= own_.size()) {
    throw FailedPrecondition(cat("noise [", layer, "]: replica ", local,
                                 " of a layer that was built for ", own_.size(),
                                 " of them, expected the strategy under which it was built"));
  }
  distribute::Strategy& strategy = distribute::get_strategy();
  Stream& stream = *own_[static_cast<std::size_t>(local)];
  const int64_t step = strategy.random_step();
  const uint64_t generation = seed_generation();
  if (stream.step == step && stream.seed_generation == generation) return stream.generator;
  if (!stream.generator.defined()) {
    // The strategy's is of the kind that the device needs.
    stream.generator = strategy.generator(local).clone();
  }
  stream.generator.set_current_seed(
      stream_seed(static_cast<uint64_t>(*seed_), step, strategy.first_replica_id() + local));
  stream.step = step;
  stream.seed_generation = generation;
  return stream.generator;
}

}  // namespace tutti::keras::layers
