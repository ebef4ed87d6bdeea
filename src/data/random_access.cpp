// Elements by number, and filling up to a number of elements.

#include <ATen/ATen.h>

#include <algorithm>

#include "data/iteration.h"
#include "tutti/data/plans.h"

namespace tutti::data {
namespace {

Nest zeros(const TensorSpec& spec) {
  if (spec.unknown_rank || !spec.is_static()) {
    throw InvalidArgument(cat("pad_to_cardinality: a component ", spec,
                              ", expected a shape that is known; use padded_batch or map first"));
  }
  if (spec.dtype != kString) return at::zeros(spec.shape, spec.dtype);
  std::size_t count = 1;
  for (int64_t size : spec.shape) count *= static_cast<std::size_t>(size);
  return StringTensor(std::vector<std::string>(count), spec.shape);
}

Nest with_entry(const Nest& element, const std::string& key, const Nest& entry) {
  std::map<std::string, Nest> entries;
  for (std::size_t i = 0; i < element.size(); ++i)
    entries.emplace(element.keys()[i], element.items()[i]);
  entries.emplace(key, entry);
  return Nest::map(std::move(entries));
}

}  // namespace

Nest Plan::element_at(int64_t /*index*/) const {
  throw Unimplemented(cat("at [", name(),
                          "]: elements that only a pass can reach, expected a "
                          "source of numbered ones; use skip(index) and next()"));
}

Nest plans::element_at(const Plan& plan, int64_t index) {
  const int64_t size = plan.cardinality();
  if (index < 0 || (size >= 0 && index >= size)) {
    throw OutOfRange(cat("at [", plan.name(), "]: element ", index, ", expected 0 to below ",
                         size >= 0 ? cat(size) : "the end"));
  }
  at::NoGradGuard no_grad;
  return plan.element_at(index);
}

PlanPtr plans::pad_to_cardinality(PlanPtr input, int64_t cardinality, const std::string& mask_key) {
  const int64_t size = input->cardinality();
  if (size < 0 || size > cardinality) {
    throw InvalidArgument(
        cat("pad_to_cardinality: a dataset of ",
            size == kInfinite  ? "infinitely many"
            : size == kUnknown ? "an unknown number of"
                               : cat(size),
            " elements, expected a known number up to ", cardinality,
            size == kUnknown ? "; say it with assert_cardinality" : "; take as many first"));
  }
  const SpecNest spec = input->element_spec();
  const bool has_key =
      std::find(spec.keys().begin(), spec.keys().end(), mask_key) != spec.keys().end();
  if (spec.kind() != NestKind::kMap || has_key) {
    throw InvalidArgument(
        cat("pad_to_cardinality: elements ", spec, ", expected maps without \"", mask_key, "\""));
  }
  const Nest filler = spec.map_parts<Nest>([](const SpecNest& part) {
    if (!part.is_leaf())
      throw InvalidArgument(cat("pad_to_cardinality: elements with ", part.structure(),
                                " in them, expected tensors and strings"));
    return zeros(part.leaf());
  });
  const auto tell = [mask_key](const Nest& element) {
    return with_entry(element, mask_key, Nest(at::scalar_tensor(true, at::kBool)));
  };
  PlanPtr real = map(std::move(input), tell);
  if (size == cardinality) return real;
  PlanPtr padding =
      from_tensors(with_entry(filler, mask_key, Nest(at::scalar_tensor(false, at::kBool))));
  return concatenate(std::move(real), repeat(std::move(padding), cardinality - size));
}

}  // namespace tutti::data
