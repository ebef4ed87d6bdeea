#include "distribute/early_gradients.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "distribute/worker_group.h"
#include "tutti/distribute/replica_context.h"

namespace tutti::distribute {
namespace {

constexpr std::size_t kLanes = 8;
constexpr std::size_t kBlock = kLanes * sizeof(uint64_t);
constexpr std::size_t kChunk = 16 * 1024;  // stays in the first-level cache

/// A hash of bytes. Each step is a bijection of its lane, so that one changed word always shows.
class Hash {
 public:
  void add(const std::byte* bytes, std::size_t size) {
    for (; size >= kBlock; size -= kBlock, bytes += kBlock) add_block(bytes);
    if (size == 0) return;
    std::byte rest[kBlock] = {};
    std::memcpy(rest, bytes, size);
    add_block(rest);
  }
  uint64_t value() const {
    uint64_t all = 0;
    for (const uint64_t lane : lanes_) all = std::rotl(all ^ lane, 29) * kFactor;
    return all;
  }

 private:
  static constexpr uint64_t kFactor = 0x9e3779b97f4a7c15ULL;
  void add_block(const std::byte* bytes) {
    uint64_t words[kLanes];
    std::memcpy(words, bytes, kBlock);
    for (std::size_t j = 0; j < kLanes; ++j)
      lanes_[j] = std::rotl(lanes_[j] ^ words[j], 29) * kFactor;
  }
  uint64_t lanes_[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8};
};

/// The hash of `size` bytes, which go to `to` on the way; null: nowhere.
uint64_t copied_hash(const void* from, void* to, std::size_t size) {
  Hash hash;
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  for (std::size_t at = 0; at < size; at += kChunk) {
    const std::size_t n = std::min(kChunk, size - at);
    hash.add(source + at, n);
    if (target != nullptr) std::memcpy(target + at, source + at, n);
  }
  return hash.value();
}

bool fits(const at::Tensor& gradient, const at::Tensor& view) {
  return gradient.defined() && gradient.layout() == at::kStrided && gradient.is_cpu() &&
         gradient.scalar_type() == view.scalar_type() && gradient.sizes() == view.sizes() &&
         (gradient.strides() == view.strides() ||
          (gradient.is_contiguous() && view.is_contiguous()));
}

}  // namespace

/// Outlives what it tells.
class EarlyGradients::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(std::weak_ptr<EarlyGradients> target, std::size_t place)
      : target_(std::move(target)), place_(place) {}
  void operator()(const torch::autograd::Variable& leaf) override {
    if (const std::shared_ptr<EarlyGradients> target = target_.lock())
      target->arrived(place_, leaf.grad());
  }

 private:
  std::weak_ptr<EarlyGradients> target_;
  std::size_t place_;
};

EarlyGradients::EarlyGradients(WorkerGroup& workers, Strategy& strategy, std::vector<Place> places,
                               std::shared_ptr<EarlyBuckets> buckets, std::vector<int64_t> ends)
    : workers_(workers),
      strategy_(strategy),
      places_(std::move(places)),
      buckets_(std::move(buckets)),
      ends_(std::move(ends)),
      here_(places_.size(), 0),
      hashes_(places_.size(), 0) {
  arrivals_.reserve(places_.size());
}

void EarlyGradients::watch(std::size_t place, const at::Tensor& leaf) {
  if (!leaf.requires_grad() || !leaf.is_leaf()) return;
  const auto& present = torch::autograd::impl::post_acc_grad_hooks(leaf);
  if (present != nullptr && dynamic_cast<Hook*>(present.get()) == nullptr) return;
  torch::autograd::impl::set_post_acc_grad_hooks(leaf,
                                                 std::make_unique<Hook>(weak_from_this(), place));
}

bool EarlyGradients::under_way(std::size_t place) const {
  return places_[place].begin < end_of(ready_);
}

void EarlyGradients::arrived(std::size_t place, const at::Tensor& gradient) {
  if (workers_.early().is_off() || under_way(place)) return;
  const ReplicaContext* context = get_replica_context();
  const bool inside = context != nullptr && &context->strategy() == &strategy_;
  if (!inside || !fits(gradient, places_[place].view)) return;
  hashes_[place] = copied_hash(gradient.const_data_ptr(), places_[place].view.mutable_data_ptr(),
                               gradient.nbytes());
  if (here_[place] == 0) arrivals_.push_back(place);
  here_[place] = 1;
  while (first_missing_ < places_.size() && here_[first_missing_] != 0) ++first_missing_;
  const int64_t covered =
      first_missing_ < places_.size() ? places_[first_missing_].begin : end_of(ends_.size());
  const std::size_t before = ready_;
  while (ready_ + 1 < ends_.size() && ends_[ready_] <= covered) ++ready_;
  if (ready_ > before) workers_.early().request(buckets_, ready_);
}

void EarlyGradients::close() { closed_ = workers_.early().requested(*buckets_); }

EarlyGradients::Written EarlyGradients::written(std::size_t place, const void* gradient) const {
  const std::size_t bytes = places_[place].view.nbytes();
  if (here_[place] != 0 && gradient != nullptr &&
      copied_hash(gradient, nullptr, bytes) == hashes_[place])
    return Written::kThis;
  return places_[place].begin < end_of(closed_) ? Written::kOther : Written::kNo;
}

void EarlyGradients::begin_round() {
  std::fill(here_.begin(), here_.end(), 0);
  arrivals_.clear();
  first_missing_ = 0;
  ready_ = 0;
  closed_ = 0;
}

}  // namespace tutti::distribute
