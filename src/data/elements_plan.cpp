#include "data/elements_plan.h"

#include "data/iterator_state.h"

namespace tutti::data {
namespace {

template <class Component>
const Component& at_path(const Component& whole, const std::vector<std::size_t>& path) {
  const Component* part = &whole;
  for (std::size_t index : path) part = &(*part)[index];
  return *part;
}

Nest windows(const Nest& part, const std::shared_ptr<const std::vector<Nest>>& elements,
             const PlanPtr& like, std::vector<std::size_t>& path) {
  const bool branch = part.kind() == NestKind::kTuple || part.kind() == NestKind::kList ||
                      part.kind() == NestKind::kMap;
  if (!branch) return Nest(NestObjectPtr(std::make_shared<ElementsPlan>(elements, like, path)));
  std::vector<Nest> items;
  for (std::size_t i = 0; i < part.size(); ++i) {
    path.push_back(i);
    items.push_back(windows(part.items()[i], elements, like, path));
    path.pop_back();
  }
  return Nest(part.kind(), part.keys(), std::move(items));
}

}  // namespace

struct ElementsPlan::Pass : Iterator {
  Pass(std::shared_ptr<const std::vector<Nest>> elements, const std::vector<std::size_t>& path)
      : elements(std::move(elements)), path(path) {}
  std::optional<Nest> next() override {
    if (at == elements->size()) return std::nullopt;
    return at_path((*elements)[at++], path);
  }
  Nest save() const override {
    return Nest::map({{"at", state::number(static_cast<int64_t>(at))}});
  }
  void restore(const Nest& saved) override {
    const auto most = static_cast<int64_t>(elements->size());
    at = static_cast<std::size_t>(state::number_in(saved, "at", 0, most));
  }
  std::shared_ptr<const std::vector<Nest>> elements;
  std::vector<std::size_t> path;
  std::size_t at = 0;
};

ElementsPlan::ElementsPlan(std::shared_ptr<const std::vector<Nest>> elements, PlanPtr like,
                           std::vector<std::size_t> path)
    : Plan({}), elements_(std::move(elements)), like_(std::move(like)), path_(std::move(path)) {}

SpecNest ElementsPlan::element_spec() const {
  return like_ ? at_path(like_->element_spec(), path_) : Plan::element_spec();
}

std::unique_ptr<Iterator> ElementsPlan::iterator() const {
  return std::make_unique<Pass>(elements_, path_);
}

Nest ElementsPlan::element_at(int64_t index) const {
  return at_path((*elements_)[static_cast<std::size_t>(index)], path_);
}

std::vector<Nest> ElementsPlan::elements() const {
  std::vector<Nest> all;
  for (const Nest& element : *elements_) all.push_back(at_path(element, path_));
  return all;
}

Nest window_of(const std::shared_ptr<const std::vector<Nest>>& elements, const PlanPtr& like) {
  std::vector<std::size_t> path;
  return windows(elements->front(), elements, like, path);
}

}  // namespace tutti::data
