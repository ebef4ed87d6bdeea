#include "data/iterator_state.h"

#include <algorithm>
#include <array>

#include "data/elements_plan.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::data::state {
namespace {

// A dataset of elements at hand stands in a state as a map of this one key.
constexpr const char* kWindow = "\x01 dataset";

[[noreturn]] void fail(const std::string& what) {
  throw DataLoss(
      cat("restore iterator: ", what, ", expected the state of a pass over an equal pipeline"));
}

}  // namespace

Nest number(int64_t value) { return Nest(at::scalar_tensor(value, at::kLong)); }

Nest random_bits(const RandomBits& random) {
  std::array<int64_t, 4> words;
  std::transform(random.state().begin(), random.state().end(), words.begin(),
                 [](uint64_t word) { return static_cast<int64_t>(word); });
  return Nest(at::tensor(at::IntArrayRef(words.data(), words.size()), at::kLong));
}

Nest element(const Nest& element) {
  return element.map_parts<Nest>([](const Nest& part) {
    if (part.kind() != NestKind::kObject) return part;
    const auto* plan = dynamic_cast<const ElementsPlan*>(part.object().get());
    if (plan == nullptr) {
      throw FailedPrecondition(cat("save iterator: an element with ", part.structure(),
                                   " in it, expected tensors, strings or windows"));
    }
    return Nest::map({{kWindow, elements(plan->elements())}});
  });
}

Nest elements(const std::vector<Nest>& elements) {
  std::vector<Nest> items;
  items.reserve(elements.size());
  for (const Nest& one : elements) items.push_back(element(one));
  return Nest::list(std::move(items));
}

const Nest& part(const Nest& state, const std::string& key) {
  const auto& keys = state.keys();
  const auto found = std::find(keys.begin(), keys.end(), key);
  if (found == keys.end()) fail(cat("no \"", key, "\" in ", state.structure()));
  return state.items()[static_cast<std::size_t>(found - keys.begin())];
}

int64_t number_in(const Nest& state, const std::string& key, int64_t least, int64_t most) {
  const Nest& found = part(state, key);
  if (!found.is_leaf() || found.leaf().numel() != 1 || found.leaf().scalar_type() != at::kLong)
    fail(cat("\"", key, "\" is ", found.structure(), " and no number"));
  const int64_t value = found.leaf().item<int64_t>();
  if (value < least || value > most)
    fail(cat("\"", key, "\" is ", value, ", outside ", least, " to ", most));
  return value;
}

void set_random_bits(const Nest& state, const std::string& key, RandomBits& random) {
  const Nest& found = part(state, key);
  if (!found.is_leaf() || found.leaf().numel() != 4 || found.leaf().scalar_type() != at::kLong)
    fail(cat("\"", key, "\" is no state of random numbers"));
  std::array<uint64_t, 4> words;
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = static_cast<uint64_t>(found.leaf()[static_cast<int64_t>(i)].item<int64_t>());
  random.set_state(words);
}

namespace {

Nest revived(const Nest& saved) {
  if (saved.keys() == std::vector<std::string>{kWindow}) {
    return Nest(NestObjectPtr(std::make_shared<ElementsPlan>(
        std::make_shared<const std::vector<Nest>>(elements_in(saved, kWindow)))));
  }
  std::vector<Nest> items;
  for (const Nest& item : saved.items()) items.push_back(revived(item));
  return saved.items().empty() ? saved : Nest(saved.kind(), saved.keys(), std::move(items));
}

}  // namespace

std::vector<Nest> elements_in(const Nest& state, const std::string& key) {
  const Nest& found = part(state, key);
  if (found.kind() != NestKind::kList) fail(cat("\"", key, "\" is no list"));
  std::vector<Nest> elements;
  for (const Nest& item : found.items()) elements.push_back(revived(item));
  return elements;
}

Nest element_in(const Nest& state, const std::string& key) { return revived(part(state, key)); }

}  // namespace tutti::data::state
