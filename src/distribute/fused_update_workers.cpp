#include "distribute/fused_update_workers.h"

#include <algorithm>

#include "collectives/local_reduce.h"
#include "distribute/worker_group.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {

FusedUpdate::Impl::OverWorkers::OverWorkers(Impl& impl, WorkerGroup& workers)
    : impl_(impl), workers_(workers) {
  std::string text;
  for (const Item& item : impl.items)
    text += cat(text.empty() ? "" : "; ", tutti::internal::described_to_workers(*item.state));
  workers.agree("an update of", text);
  const std::size_t count = impl.items.size();
  mine_.assign(count, kNone);
  agreed_.assign(count, kNone);
  sum_.gradients.resize(count);
  sum_.data.resize(count);
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

/// Tells the others what this worker has. By the first replica.
void FusedUpdate::Impl::OverWorkers::agree(const Contributions& local) {
  for (std::size_t i = 0; i < mine_.size(); ++i) mine_[i] = kind_of(local, i);
  std::vector<int64_t> kinds(mine_.begin(), mine_.end());
  const std::vector<std::vector<int64_t>> all = workers_.exchange(kinds);
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

void FusedUpdate::Impl::OverWorkers::lay_out() {
  std::vector<FlatViewSpec> floats, doubles;
  place_.assign(agreed_.size(), -1);
  for (std::size_t i = 0; i < agreed_.size(); ++i) {
    if ((agreed_[i] & kFused) == 0 || (agreed_[i] & kDense) == 0) continue;
    const Tensor& component = impl_.items[i].state->components[0];
    auto& specs = component.scalar_type() == at::kFloat ? floats : doubles;
    place_[i] = static_cast<int64_t>(specs.size());
    specs.push_back({component.sizes().vec(), component.strides().vec()});
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
}

void FusedUpdate::Impl::OverWorkers::reduce(FlatBuffer& buffer) {
  const Tensor& flat = buffer.flat();
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
  reduce(floats_);
  if (*count > 0) return true;
  if (doubles_.flat().defined()) reduce(doubles_);
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
    // Where a local replica brought rows of a dense variable, the first one adds all up.
    impl_.write_sums(local, meeting.rank(), meeting.size(), [&](std::size_t i) -> void* {
      const bool skip = !is_flat(i) || (mine_[i] & kRows) != 0;
      return skip ? nullptr : const_cast<void*>(sum_.data[i]);
    });
    meeting.meet_again(operation, mine);
    if (first) {
      const bool changed = has_changed(local);
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
