#include "distribute/fused_update_workers.h"

#include <algorithm>
#include <numeric>

#include "collectives/local_reduce.h"
#include "distribute/worker_group.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {
namespace {

constexpr int64_t kBytesPerBucket = 25 * 1024 * 1024;
/// Of calls that may be early: what they meet by mistake is of another shape.
constexpr int64_t kBucketAxes = 9;

}  // namespace

FusedUpdate::Impl::OverWorkers::OverWorkers(Impl& impl, WorkerGroup& workers)
    : impl_(impl),
      workers_(workers),
      number_(workers.next_number()),
      overlaps_(workers.overlaps() && impl.items[0].state->strategy->num_local_replicas() == 1) {
  std::string text;
  for (const Item& item : impl.items)
    text += cat(text.empty() ? "" : "; ", tutti::internal::described_to_workers(*item.state));
  workers.agree("an update of", text);
  const std::size_t count = impl.items.size();
  mine_.assign(count, kNone);
  agreed_.assign(count, kNone);
  sum_.gradients.resize(count);
  sum_.data.resize(count);
  sent_.assign(count, 0);
  lay_out();
}

char FusedUpdate::Impl::OverWorkers::kind_of(const Contributions& local, std::size_t item) const {
  char kind = impl_.items[item].fused ? kFused : kNone;
  for (const Contribution* contribution : local) {
    const Tensor& gradient = contribution->gradients[item];
    if (gradient.defined())
      kind = static_cast<char>(kind | (gradient.is_sparse() ? kRows : kDense));
  }
  return kind;
}

bool FusedUpdate::Impl::OverWorkers::has_changed(const Contributions& local) const {
  for (std::size_t i = 0; i < mine_.size(); ++i) {
    if (kind_of(local, i) != mine_[i]) return true;
  }
  return false;
}

/// Tells the others what this worker has, and the chief in what order. By the first replica.
void FusedUpdate::Impl::OverWorkers::agree(const Contributions& local) {
  const std::size_t count = mine_.size();
  for (std::size_t i = 0; i < count; ++i) mine_[i] = kind_of(local, i);
  std::vector<int64_t> numbers(mine_.begin(), mine_.end());
  numbers.push_back(overlaps_ && !void_ && !workers_.early().is_off() ? 1 : 0);
  numbers.push_back(ranks_.empty() ? 0 : 1);
  numbers.resize(2 * count + 2, 0);
  std::copy(ranks_.begin(), ranks_.end(), numbers.begin() + static_cast<std::ptrdiff_t>(count + 2));
  const std::vector<std::vector<int64_t>> all = workers_.exchange(numbers);
  overlaps_ = std::all_of(all.begin(), all.end(), [&](const auto& row) { return row[count] == 1; });
  reorders_ = false;
  ranks_.clear();
  if (all[0][count + 1] == 1)
    ranks_.assign(all[0].begin() + static_cast<std::ptrdiff_t>(count + 2), all[0].end());
  void_ = false;
  std::fill(agreed_.begin(), agreed_.end(), kNone);
  for (std::size_t w = 0; w < all.size(); ++w) {
    for (std::size_t i = 0; i < agreed_.size(); ++i) {
      agreed_[i] = static_cast<char>(agreed_[i] | all[w][i]);
      if ((all[w][i] & kFused) == (all[0][i] & kFused)) continue;
      const bool first = (all[0][i] & kFused) != 0;
      throw InvalidArgument(cat("apply_gradients [", impl_.items[i].state->name,
                                "]: the replicas' copies differ on worker ", first ? w : 0,
                                " and are one on worker ", first ? 0 : w,
                                ", expected the same on every worker; assign it in the same way on "
                                "all"));
    }
  }
  lay_out();
}

/// The items in the order of floats_: where they go early, that in which backward comes to them.
std::vector<std::size_t> FusedUpdate::Impl::OverWorkers::flat_order() const {
  std::vector<std::size_t> order(agreed_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!overlaps_) return order;
  std::reverse(order.begin(), order.end());
  if (!ranks_.empty()) {
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return ranks_[a] < ranks_[b]; });
  }
  return order;
}

void FusedUpdate::Impl::OverWorkers::lay_out() {
  std::vector<FlatViewSpec> floats, doubles;
  std::vector<std::size_t> order;
  place_.assign(agreed_.size(), -1);
  for (const std::size_t i : flat_order()) {
    if ((agreed_[i] & kFused) == 0 || (agreed_[i] & kDense) == 0) continue;
    const Tensor& component = impl_.items[i].state->components[0];
    const bool is_float = component.scalar_type() == at::kFloat;
    auto& specs = is_float ? floats : doubles;
    place_[i] = static_cast<int64_t>(specs.size());
    specs.push_back({component.sizes().vec(), component.strides().vec()});
    if (is_float) order.push_back(i);
  }
  floats.push_back({{1}, {}});
  floats_ = FlatBuffer(floats, at::kFloat, c10::Device(c10::kCPU));
  doubles_ =
      doubles.empty() ? FlatBuffer() : FlatBuffer(doubles, at::kDouble, c10::Device(c10::kCPU));
  for (std::size_t i = 0; i < agreed_.size(); ++i) {
    sum_.gradients[i] = Tensor();
    sum_.data[i] = nullptr;
    if (!is_flat(i)) continue;
    const bool is_float = impl_.items[i].state->components[0].scalar_type() == at::kFloat;
    sum_.gradients[i] =
        (is_float ? floats_ : doubles_).views()[static_cast<std::size_t>(place_[i])];
    sum_.data[i] = sum_.gradients[i].const_data_ptr();
  }
  cut_floats();
  watch_gradients(order);
}

void FusedUpdate::Impl::OverWorkers::cut_floats() {
  const Tensor& flat = floats_.flat();
  int64_t bytes = workers_.options().bytes_per_pack;
  if (bytes == 0 && overlaps_) bytes = kBytesPerBucket;
  const int64_t pack = bytes > 0 ? std::max<int64_t>(1, bytes / flat.element_size())
                                 : std::max<int64_t>(1, flat.numel());
  buckets_ = std::make_shared<EarlyBuckets>();
  for (int64_t at = 0; at < flat.numel(); at += pack) {
    Tensor part = flat.narrow(0, at, std::min(pack, flat.numel() - at));
    if (overlaps_ && at + pack < flat.numel()) {
      std::vector<int64_t> sizes(static_cast<std::size_t>(kBucketAxes), 1);
      sizes[static_cast<std::size_t>(kBucketAxes - 1 - number_ % kBucketAxes)] = part.numel();
      part = part.view(sizes);
    }
    buckets_->tensors.push_back(part);
  }
}

/// `order`: the items of floats_.
void FusedUpdate::Impl::OverWorkers::watch_gradients(const std::vector<std::size_t>& order) {
  early_.reset();
  std::fill(sent_.begin(), sent_.end(), 0);
  if (!overlaps_ || buckets_->tensors.size() < 2) return;
  std::vector<EarlyGradients::Place> places;
  std::vector<int64_t> ends;
  for (std::size_t p = 0; p < order.size(); ++p)
    places.push_back({order[p], floats_.views()[p], floats_.offset(p)});
  for (const Tensor& bucket : buckets_->tensors)
    ends.push_back((ends.empty() ? 0 : ends.back()) + bucket.numel());
  early_ = std::make_shared<EarlyGradients>(workers_, *impl_.items[0].state->strategy,
                                            std::move(places), buckets_, std::move(ends));
  for (std::size_t p = 0; p < order.size(); ++p)
    early_->watch(p, impl_.items[order[p]].state->leaves[0]);
}

/// Once: the chief has seen in what order backward comes to the gradients, and it is another one.
void FusedUpdate::Impl::OverWorkers::learn_order() {
  if (ordered_ || early_ == nullptr || !workers_.is_chief()) return;
  const auto& arrivals = early_->arrivals();
  if (arrivals.size() < early_->places().size()) return;
  ordered_ = true;
  if (std::is_sorted(arrivals.begin(), arrivals.end())) return;
  ranks_.assign(agreed_.size(), static_cast<int64_t>(agreed_.size()));
  for (std::size_t a = 0; a < arrivals.size(); ++a)
    ranks_[early_->places()[arrivals[a]].item] = static_cast<int64_t>(a);
  reorders_ = true;
}

/// Which gradients are in their places since backward. By the first replica.
void FusedUpdate::Impl::OverWorkers::find_written(const Contributions& local) {
  if (early_ == nullptr) return;  // several replicas read sent_
  std::fill(sent_.begin(), sent_.end(), 0);
  early_->close();
  for (std::size_t p = 0; p < early_->places().size(); ++p) {
    const std::size_t item = early_->places()[p].item;
    const auto written = early_->written(p, local[0]->data[item]);
    sent_[item] = written == EarlyGradients::Written::kNo ? 0 : 1;
    void_ = void_ || written == EarlyGradients::Written::kOther;
  }
  learn_order();
}

/// The packs that have not gone early. Those that have gone before a failure are not sent again:
/// every worker knows of as many.
void FusedUpdate::Impl::OverWorkers::reduce_floats() {
  const bool was_void = void_;
  if (early_ != nullptr) {
    early_->stop_taking();
    void_ = true;  // unless it ends well, nobody knows what is in the arena
  }
  workers_.finish_early();
  std::size_t& done = buckets_->done;
  if (early_ == nullptr) done = 0;
  while (done < buckets_->tensors.size()) {
    workers_.all_reduce(buckets_->tensors[done], ReduceOp::kSum, workers_.options());
    ++done;
  }
  done = 0;
  buckets_->requested = 0;
  void_ = was_void;
  if (early_ != nullptr) early_->begin_round();
}

void FusedUpdate::Impl::OverWorkers::reduce_doubles() {
  const Tensor& flat = doubles_.flat();
  const int64_t bytes = workers_.options().bytes_per_pack;
  const int64_t pack = bytes > 0 ? std::max<int64_t>(1, bytes / flat.element_size())
                                 : std::max<int64_t>(1, flat.numel());
  for (int64_t at = 0; at < flat.numel(); at += pack) {
    Tensor part = flat.narrow(0, at, std::min(pack, flat.numel() - at));
    workers_.all_reduce(part, ReduceOp::kSum, workers_.options());
  }
}

/// True when a worker has changed.
bool FusedUpdate::Impl::OverWorkers::reduce_all(bool changed) {
  auto* count = floats_.views().back().data_ptr<float>();
  *count = changed ? 1 : 0;
  reduce_floats();
  if (*count > 0) return true;
  if (doubles_.flat().defined()) reduce_doubles();
  return false;
}

/// Variables of which one local replica has rows and some replica, here or elsewhere, all of it.
void FusedUpdate::Impl::OverWorkers::add_mixed(const Contributions& local) {
  for (std::size_t i = 0; i < place_.size(); ++i) {
    if (!is_flat(i) || (mine_[i] & kRows) == 0) continue;
    std::vector<Tensor> parts;
    for (const Contribution* contribution : local) {
      if (contribution->gradients[i].defined()) parts.push_back(contribution->gradients[i]);
    }
    Tensor target = sum_.gradients[i];
    if (parts.empty()) {
      target.zero_();
    } else {
      target.copy_(add_up_rows(parts, impl_.items[i].state->components[0]).to_dense());
    }
  }
}

void FusedUpdate::Impl::OverWorkers::join_rows_of(const Contributions& local, std::size_t item) {
  const Tensor& component = impl_.items[item].state->components[0];
  std::vector<Tensor> parts;
  for (const Contribution* contribution : local) {
    if (contribution->gradients[item].defined()) parts.push_back(contribution->gradients[item]);
  }
  RowGradient& joined = impl_.row_gradients[item];
  if (parts.empty()) {
    std::vector<int64_t> sizes = component.sizes().vec();
    joined.width = sizes[0] == 0 ? 0 : component.numel() / sizes[0];
    sizes[0] = 0;
    joined.rows = {at::empty(sizes, component.options()),
                   at::empty({0}, component.options().dtype(at::kLong)), component.sizes().vec()};
  } else {
    joined = add_up_rows(parts, component);
  }
  const CommunicationOptions& options = workers_.options();
  joined.rows =
      IndexedSlices{workers_.all_gather(joined.rows.values, options),
                    workers_.all_gather(joined.rows.indices, options), component.sizes().vec()}
          .deduplicated();
  sum_.gradients[item] = joined.rows.values;
  any_rows_ = true;
}

/// What is not in the buffers: rows, and variables that tensor operations update.
void FusedUpdate::Impl::OverWorkers::add_rest(const Contributions& local) {
  any_rows_ = false;
  for (std::size_t i = 0; i < agreed_.size(); ++i) {
    if (is_flat(i)) continue;
    const bool any = (agreed_[i] & (kDense | kRows)) != 0;
    if (!any) continue;
    if (rows_only(i)) {
      join_rows_of(local, i);
      continue;
    }
    std::vector<Tensor> parts;
    for (const Contribution* contribution : local) {
      if (contribution->gradients[i].defined()) parts.push_back(contribution->gradients[i]);
    }
    const Tensor& component = impl_.items[i].state->components[0];
    Tensor total = parts.empty() ? at::zeros_like(component)
                                 : add_up_rows(parts, component).to_dense().clone();
    workers_.all_reduce(total, ReduceOp::kSum, workers_.options());
    sum_.gradients[i] = total;
  }
}

FusedUpdate::Impl::Contributions FusedUpdate::Impl::OverWorkers::sum(const Meeting& meeting,
                                                                     const char* operation,
                                                                     const Contributions& local) {
  const bool first = meeting.rank() == 0;
  const Contribution* mine = local[static_cast<std::size_t>(meeting.rank())];
  bool again = true;
  while (again) {
    if (first) find_written(local);
    // Where a local replica brought rows of a dense variable, the first one adds all up.
    impl_.write_sums(local, meeting.rank(), meeting.size(), [&](std::size_t i) -> void* {
      const bool skip = !is_flat(i) || (mine_[i] & kRows) != 0 || sent_[i] != 0;
      return skip ? nullptr : const_cast<void*>(sum_.data[i]);
    });
    meeting.meet_again(operation, mine);
    if (first) {
      const bool changed = has_changed(local) || void_ || reorders_;
      if (!changed) add_mixed(local);
      again_ = reduce_all(changed);
      if (again_) {
        agree(local);
      } else {
        add_rest(local);
      }
    }
    meeting.meet_again(operation, mine);
    again = again_;
  }
  Contributions all;
  all.push_back(&sum_);
  return all;
}

}  // namespace tutti::distribute
