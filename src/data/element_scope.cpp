#include "data/element_scope.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "data/iterator_state.h"
#include "data/pass_seeds.h"
#include "tutti/base/error.h"
#include "tutti/base/seed.h"
#include "tutti/data/element_random.h"

namespace tutti::data {
namespace {

thread_local ElementScope* t_current = nullptr;
// A generator is 5 kB; those of ended calls are seeded anew.
thread_local std::vector<at::Generator> t_spare;

}  // namespace

ElementScope::ElementScope(const ElementCall& call) : call_(call), outer_(t_current) {
  t_current = this;
}

ElementScope::~ElementScope() {
  t_current = outer_;
  for (Stream& stream : streams_) t_spare.push_back(std::move(stream.generator));
}

ElementScope* ElementScope::current() { return t_current; }

at::Generator& ElementScope::generator(std::optional<int64_t> seed) {
  for (Stream& stream : streams_) {
    if (stream.seed == seed) return stream.generator;
  }
  at::Generator generator;
  if (t_spare.empty()) {
    generator = at::detail::createCPUGenerator();
  } else {
    generator = std::move(t_spare.back());
    t_spare.pop_back();
  }
  const uint64_t base = seed ? mix_seeds(call_.seed, static_cast<uint64_t>(*seed)) : call_.seed;
  generator.set_current_seed(stream_seed(base, 0, call_.index));
  streams_.push_back({seed, std::move(generator)});
  return streams_.back().generator;
}

uint64_t ElementScope::next_seed() {
  return mix_seeds(mix_seeds(call_.seed, static_cast<uint64_t>(call_.index)), ++made_);
}

CallSeeds::CallSeeds(PassSeeds& seeds) : seed_(seeds.next()) {}

Nest CallSeeds::save() const {
  return Nest::map(
      {{"seed", state::number(static_cast<int64_t>(seed_))}, {"index", state::number(index_)}});
}

void CallSeeds::restore(const Nest& state) {
  seed_ = static_cast<uint64_t>(state::number_in(state, "seed"));
  index_ = state::number_in(state, "index", 0);
}

at::Generator& element_random() {
  if (t_current == nullptr)
    throw FailedPrecondition(
        "element_random: outside of a dataset's functions, expected a call by map, filter, scan, "
        "flat_map or interleave; elsewhere make a generator");
  return t_current->generator();
}

}  // namespace tutti::data
