#include "data/iterator_state.h"

#include <algorithm>
#include <array>

#include "data/elements_plan.h"
#include "tensor/worker_peers.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/tracked_pass.h"

namespace tutti::data::state {
namespace {

// A dataset of elements at hand stands in a state as a map of this one key.
constexpr const char* kWindow = "\x01 dataset";
constexpr const char* kElement = "element";
constexpr const char* kCode = "error";
constexpr const char* kText = "text";

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

Nest item(const std::optional<Nest>& item, const std::exception_ptr& error) {
  if (item) return Nest::map({{kElement, element(*item)}});
  if (!error) return {};
  int64_t code = 0;
  std::string text;
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    code = static_cast<int64_t>(known.code());
    text = known.what();
  } catch (const std::exception& other) {
    text = other.what();
  } catch (...) {
    text = "an exception of an unknown type";
  }
  return Nest::map({{kCode, number(code)}, {kText, Nest(StringTensor(text))}});
}

Nest numbers(const std::vector<int64_t>& values) {
  return Nest(at::tensor(at::IntArrayRef(values), at::kLong));
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
  const bool fits = found.is_leaf() && found.leaf().dim() == 1 && found.leaf().numel() == 4 &&
                    found.leaf().scalar_type() == at::kLong;
  // A generator of zeros gives nothing but zeros.
  if (!fits || !found.leaf().any().item<bool>())
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
  // The state stays as it is, whatever is written into the elements.
  if (saved.is_leaf() && saved.leaf().defined()) return Nest(saved.leaf().clone());
  return saved.items().empty() ? saved : Nest(saved.kind(), saved.keys(), std::move(items));
}

}  // namespace

const std::vector<Nest>& list_in(const Nest& state, const std::string& key) {
  const Nest& found = part(state, key);
  if (found.kind() != NestKind::kList) fail(cat("\"", key, "\" is no list"));
  return found.items();
}

std::vector<int64_t> numbers_in(const Nest& state, const std::string& key) {
  const Nest& found = part(state, key);
  if (!found.is_leaf() || found.leaf().dim() != 1 || found.leaf().scalar_type() != at::kLong)
    fail(cat("\"", key, "\" is ", found.structure(), " and no numbers"));
  const Tensor values = found.leaf().cpu().contiguous();
  const auto* data = values.const_data_ptr<int64_t>();
  return {data, data + values.numel()};
}

void item_in(const Nest& state, std::optional<Nest>& item, std::exception_ptr& error) {
  item.reset();
  error = nullptr;
  if (state.kind() == NestKind::kNone) return;
  if (state.keys() == std::vector<std::string>{kElement}) {
    item = element_in(state, kElement);
    return;
  }
  const Nest& text = part(state, kText);
  if (!text.is_strings()) fail("an error without a text");
  constexpr auto kLast = static_cast<int64_t>(ErrorCode::kUnauthenticated);
  const int64_t code = number_in(state, kCode, 0, kLast);
  try {
    if (code == 0) throw std::runtime_error(text.strings().item());
    throw_error(static_cast<ErrorCode>(code), text.strings().item());
  } catch (...) {
    error = std::current_exception();
  }
}

std::vector<Nest> elements_in(const Nest& state, const std::string& key) {
  std::vector<Nest> elements;
  for (const Nest& item : list_in(state, key)) elements.push_back(revived(item));
  return elements;
}

Nest element_in(const Nest& state, const std::string& key) { return revived(part(state, key)); }

}  // namespace tutti::data::state

namespace tutti::data {
namespace {

class TrackedPass : public SharedTrackable {
 public:
  TrackedPass(std::function<Nest()> save, std::function<void(const Nest&)> restore)
      : save_(std::move(save)), restore_(std::move(restore)) {}
  Nest state() const override { return cloned(save_()); }
  void check_state(const Nest& state) const override {
    if (state.kind() != NestKind::kMap)
      throw InvalidArgument(
          cat("restore iterator: ", state.structure(), ", expected the state of an iterator"));
  }
  void set_state(const Nest& state) override { restore_(state); }
  bool differs_between_workers() const override { return true; }

 private:
  std::function<Nest()> save_;
  std::function<void(const Nest&)> restore_;
};

}  // namespace

std::shared_ptr<Trackable> internal::tracked_pass(std::function<Nest()> save,
                                                  std::function<void(const Nest&)> restore) {
  return std::make_shared<TrackedPass>(std::move(save), std::move(restore));
}

}  // namespace tutti::data
