// The steps of an update: sums, norms, the pass over the weights, and the way by tensor operations.

#include <algorithm>
#include <cmath>

#include "collectives/local_reduce.h"
#include "distribute/fused_update_impl.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {
namespace {

template <class Scalar>
void add_into(Scalar* sum, const Scalar* a, const Scalar* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
}

template <class Scalar>
void scale_and_clip(Scalar* values, int64_t n, double scale, const std::optional<double>& bound) {
  if (scale != 1) {
    const auto factor = static_cast<Scalar>(scale);
    for (int64_t i = 0; i < n; ++i) values[i] *= factor;
  }
  if (bound) {
    const auto limit = static_cast<Scalar>(*bound);
    for (int64_t i = 0; i < n; ++i) values[i] = std::min(std::max(values[i], -limit), limit);
  }
}

/// Sum of the replicas' gradients of [begin, begin + n) times `scale`, clipped by value: in
/// `buffer`, or the only gradient itself.
template <class Scalar>
const Scalar* summed(const c10::SmallVectorImpl<const Scalar*>& parts, int64_t begin, int64_t n,
                     double scale, const std::optional<double>& bound, Scalar* buffer) {
  if (parts.size() == 1 && scale == 1 && !bound) return parts[0] + begin;
  if (parts.size() == 1) {
    std::copy_n(parts[0] + begin, n, buffer);
  } else {
    add_into(buffer, parts[0] + begin, parts[1] + begin, n);
    for (std::size_t r = 2; r < parts.size(); ++r) add_into(buffer, buffer, parts[r] + begin, n);
  }
  scale_and_clip(buffer, n, scale, bound);
  return buffer;
}

/// So many sums apart from each other are vector instructions; one sum is a chain.
constexpr int64_t kLanes = 8;

template <class Scalar>
double squares_of(const Scalar* values, int64_t n) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const auto value = static_cast<double>(values[i + j]);
      lanes[j] += value * value;
    }
  }
  double squares = 0;
  for (; i < n; ++i) squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  for (const double lane : lanes) squares += lane;
  return squares;
}

template <class Scalar>
bool finite_values(const Scalar* values, int64_t n) {
  Scalar lanes[kLanes] = {};  // 0 * x is 0, or no number
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += 0 * values[i + j];
  }
  for (; i < n; ++i) lanes[0] += 0 * values[i];
  bool finite = true;
  for (const Scalar lane : lanes) finite = finite && lane == 0;
  return finite;
}

/// Where each slot of one variable begins; null for those that it has not.
template <class Scalar>
c10::SmallVector<Scalar*, 4> slot_pointers(const std::vector<std::vector<Variable>>& slots,
                                           std::size_t item) {
  c10::SmallVector<Scalar*, 4> pointers;
  for (const auto& column : slots) {
    pointers.push_back(column[item].defined()
                           ? static_cast<Scalar*>(column[item].state().components[0].data_ptr())
                           : nullptr);
  }
  return pointers;
}

}  // namespace

template <class Visitor>
void FusedUpdate::Impl::for_share(int rank, int size, Visitor visit) const {
  const int64_t lines = total / kLine;
  const int64_t begin = lines * rank / size * kLine;
  const int64_t end = lines * (rank + 1) / size * kLine;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].fused || items[i].whole) continue;
    const int64_t from = std::max<int64_t>(begin - items[i].begin, 0);
    const int64_t to = std::min(end - items[i].begin, items[i].numel);
    if (from < to) visit(i, from, to);
  }
}

template <class Scalar>
auto FusedUpdate::Impl::parts_of(const Contributions& all, std::size_t item) const
    -> Parts<Scalar> {
  Parts<Scalar> parts;
  if (row_gradients[item].dense.defined()) {
    parts.push_back(row_gradients[item].dense.const_data_ptr<Scalar>());
    return parts;
  }
  for (const Contribution* contribution : all) {
    if (contribution->data[item] != nullptr)
      parts.push_back(static_cast<const Scalar*>(contribution->data[item]));
    if (!contribution->options.sum_replicas && !parts.empty()) break;
  }
  return parts;
}

template <class Scalar>
void FusedUpdate::Impl::add_squares(const Contributions& all, std::size_t item, int64_t begin,
                                    int64_t end, double& sum) const {
  if (const RowGradient* rows = rows_of(item)) {
    rows->for_touched<Scalar>(begin, end, kChunk, [&](int64_t, int64_t n, const Scalar* gradient) {
      sum += squares_of(gradient, n);
    });
    return;
  }
  const auto parts = parts_of<Scalar>(all, item);
  if (parts.empty()) return;
  alignas(64) Scalar buffer[kChunk];
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = std::min(kChunk, end - at);
    const Scalar* gradient = summed<Scalar>(parts, at, n, 1, std::nullopt, buffer);
    sum += squares_of(gradient, n);
  }
}

template <class Scalar>
void FusedUpdate::Impl::write_sum(const Contributions& all, std::size_t item, int64_t begin,
                                  int64_t end, Scalar* out) const {
  const auto parts = parts_of<Scalar>(all, item);
  if (parts.empty()) return std::fill(out + begin, out + end, Scalar{0});
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = std::min(kChunk, end - at);
    const Scalar* sum = summed<Scalar>(parts, at, n, 1, std::nullopt, out + at);
    if (sum != out + at) std::copy_n(sum, n, out + at);
  }
}

void FusedUpdate::Impl::write_sums(const Contributions& all, int rank, int size,
                                   FunctionRef<void*(std::size_t)> target) const {
  const auto write = [&](std::size_t i, int64_t from, int64_t to) {
    void* out = target(i);
    if (out == nullptr) return;
    if (items[i].state->components[0].scalar_type() == at::kFloat) {
      write_sum<float>(all, i, from, to, static_cast<float*>(out));
    } else {
      write_sum<double>(all, i, from, to, static_cast<double*>(out));
    }
  };
  for_share(rank, size, write);
  for_whole(rank, size, [&](std::size_t i) { write(i, 0, items[i].numel); });
}

/// Joins the gradients of each variable for which a replica brought rows. The variables are dealt
/// out: this replica does its own.
void FusedUpdate::Impl::join_rows(const Contributions& all, int rank, int size) {
  int turn = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    bool any_rows = false;
    for (const Contribution* contribution : all) {
      const Tensor& gradient = contribution->gradients[i];
      any_rows = any_rows || (gradient.defined() && gradient.is_sparse());
    }
    if (!any_rows || turn++ % size != rank) continue;
    std::vector<Tensor> parts;
    for (const Contribution* contribution : all) {
      if (contribution->gradients[i].defined()) parts.push_back(contribution->gradients[i]);
      if (!contribution->options.sum_replicas && !parts.empty()) break;
    }
    row_gradients[i] = add_up_rows(parts, items[i].state->components[0]);
  }
}

/// Squares of the aggregated gradients, by variable, over this replica's share; replica 0 adds
/// those that are not fused.
void FusedUpdate::Impl::measure(const Contributions& all, int rank, int size,
                                Contribution& mine) const {
  mine.squares.assign(items.size(), 0);
  const auto add = [&](std::size_t i, int64_t from, int64_t to) {
    if (items[i].state->components[0].scalar_type() == at::kFloat) {
      add_squares<float>(all, i, from, to, mine.squares[i]);
    } else {
      add_squares<double>(all, i, from, to, mine.squares[i]);
    }
  };
  for_share(rank, size, add);
  for_whole(rank, size, [&](std::size_t i) { add(i, 0, items[i].numel); });
  if (rank != 0) return;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].fused) continue;
    const Tensor gradient = aggregated(all, i);
    if (gradient.defined())
      mine.squares[i] = gradient.to(at::kDouble).square().sum().item<double>();
  }
}

template <class Scalar>
bool FusedUpdate::Impl::is_finite(const Contributions& all, std::size_t item, int64_t begin,
                                  int64_t end) const {
  bool finite = true;
  if (const RowGradient* rows = rows_of(item)) {
    rows->for_touched<Scalar>(begin, end, kChunk, [&](int64_t, int64_t n, const Scalar* gradient) {
      finite = finite && finite_values(gradient, n);
    });
    return finite;
  }
  const auto parts = parts_of<Scalar>(all, item);
  if (parts.empty()) return true;
  alignas(64) Scalar buffer[kChunk];
  for (int64_t at = begin; at < end && finite; at += kChunk) {
    const int64_t n = std::min(kChunk, end - at);
    finite = finite_values(summed<Scalar>(parts, at, n, 1, std::nullopt, buffer), n);
  }
  return finite;
}

bool FusedUpdate::Impl::is_share_finite(const Contributions& all, int rank, int size) const {
  bool finite = true;
  const auto check = [&](std::size_t i, int64_t from, int64_t to) {
    finite = finite && (items[i].state->components[0].scalar_type() == at::kFloat
                            ? is_finite<float>(all, i, from, to)
                            : is_finite<double>(all, i, from, to));
  };
  for_share(rank, size, check);
  for_whole(rank, size, [&](std::size_t i) { check(i, 0, items[i].numel); });
  if (rank != 0) return finite;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].fused) continue;
    const Tensor gradient = aggregated(all, i);
    if (gradient.defined()) finite = finite && gradient.isfinite().all().item<bool>();
  }
  return finite;
}

/// The factor of each variable's gradient: `scale`, then Keras' g * bound / max(norm, bound).
void FusedUpdate::Impl::find_scales(const Contributions& all, double scale,
                                    std::vector<double>& factors) const {
  factors.assign(items.size(), scale);
  if (!clips_by_norm()) return;
  double global = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    double squares = 0;
    for (const Contribution* contribution : all) squares += contribution->squares[i];
    global += squares;
    if (clipping.clipnorm) {
      const double norm = std::sqrt(squares);
      if (norm * scale > *clipping.clipnorm) factors[i] = *clipping.clipnorm / norm;
    }
  }
  if (clipping.global_clipnorm) {
    const double norm = std::sqrt(global);
    if (norm * scale > *clipping.global_clipnorm)
      std::fill(factors.begin(), factors.end(), *clipping.global_clipnorm / norm);
  }
}

template <class Scalar>
void FusedUpdate::Impl::update_segment(const Contributions& all, std::size_t item, int64_t begin,
                                       int64_t end, double scale) const {
  if (const RowGradient* rows = rows_of(item))
    return update_rows<Scalar>(*rows, item, begin, end, scale);
  const auto parts = parts_of<Scalar>(all, item);
  if (parts.empty()) return;
  auto* weights = static_cast<Scalar*>(items[item].state->components[0].data_ptr());
  const auto slot_data = slot_pointers<Scalar>(slots, item);
  c10::SmallVector<Scalar*, 4> at_slots(slot_data.size());
  alignas(64) Scalar buffer[kChunk];
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = std::min(kChunk, end - at);
    const Scalar* gradient = summed<Scalar>(parts, at, n, scale, clipping.clipvalue, buffer);
    for (std::size_t s = 0; s < slot_data.size(); ++s)
      at_slots[s] = slot_data[s] != nullptr ? slot_data[s] + at : nullptr;
    rule->update(weights + at, gradient, at_slots.data(), n, items[item].decay);
  }
}

/// The same where the gradient is rows.
template <class Scalar>
void FusedUpdate::Impl::update_rows(const RowGradient& rows, std::size_t item, int64_t begin,
                                    int64_t end, double scale) const {
  auto* weights = static_cast<Scalar*>(items[item].state->components[0].data_ptr());
  const auto slot_data = slot_pointers<Scalar>(slots, item);
  c10::SmallVector<Scalar*, 4> at_slots(slot_data.size());
  auto update = [&](int64_t at, int64_t n, const Scalar* gradient) {
    for (std::size_t s = 0; s < slot_data.size(); ++s)
      at_slots[s] = slot_data[s] != nullptr ? slot_data[s] + at : nullptr;
    rule->update(weights + at, gradient, at_slots.data(), n, items[item].decay);
  };
  alignas(64) Scalar buffer[kChunk];
  if (rule->is_identity_at_zero(items[item].decay)) {
    rows.for_touched<Scalar>(begin, end, kChunk, [&](int64_t at, int64_t n, const Scalar* source) {
      if (scale == 1 && !clipping.clipvalue) return update(at, n, source);
      std::copy_n(source, n, buffer);
      scale_and_clip(buffer, n, scale, clipping.clipvalue);
      update(at, n, buffer);
    });
    return;
  }
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = std::min(kChunk, end - at);
    rows.fill(at, n, buffer);
    scale_and_clip(buffer, n, scale, clipping.clipvalue);
    update(at, n, buffer);
  }
}

void FusedUpdate::Impl::update_share(const Contributions& all, int rank, int size,
                                     const std::vector<double>& scales) const {
  for_share(rank, size, [&](std::size_t i, int64_t from, int64_t to) {
    if (items[i].state->components[0].scalar_type() == at::kFloat) {
      update_segment<float>(all, i, from, to, scales[i]);
    } else {
      update_segment<double>(all, i, from, to, scales[i]);
    }
  });
}

/// The gradient of a whole variable as it lies in memory: the only replica's own, or a sum that is
/// valid until the next update.
template <class Scalar>
Tensor FusedUpdate::Impl::whole_gradient(const Contributions& all, std::size_t item, double scale) {
  const RowGradient* rows = rows_of(item);
  const auto parts = rows != nullptr ? Parts<Scalar>() : parts_of<Scalar>(all, item);
  if (rows == nullptr && parts.empty()) return Tensor();
  if (parts.size() == 1 && scale == 1 && !clipping.clipvalue) {
    if (row_gradients[item].dense.defined()) return row_gradients[item].dense;
    for (const Contribution* contribution : all) {
      if (contribution->data[item] == parts[0]) return contribution->gradients[item];
    }
  }
  const Tensor& component = items[item].state->components[0];
  Tensor& sum = whole_gradients[item];
  if (!sum.defined())
    sum = at::empty_strided(component.sizes(), component.strides(), component.options());
  auto* out = sum.data_ptr<Scalar>();
  for (int64_t at = 0; at < items[item].numel; at += kChunk) {
    const int64_t n = std::min(kChunk, items[item].numel - at);
    if (rows == nullptr) {
      summed<Scalar>(parts, at, n, scale, clipping.clipvalue, out + at);
    } else {
      rows->fill(at, n, out + at);
      scale_and_clip(out + at, n, scale, clipping.clipvalue);
    }
  }
  return sum;
}

void FusedUpdate::Impl::update_whole_variables(const Contributions& all, int rank, int size,
                                               const std::vector<double>& scales) {
  for_whole(rank, size, [&](std::size_t i) {
    if (items[i].numel == 0) return;
    Tensor& weights = items[i].state->components[0];
    const Tensor gradient = weights.scalar_type() == at::kFloat
                                ? whole_gradient<float>(all, i, scales[i])
                                : whole_gradient<double>(all, i, scales[i]);
    if (!gradient.defined()) return;
    std::vector<Tensor>& own = whole_slots[i];
    own.clear();
    for (const auto& column : slots)
      own.push_back(column[i].defined() ? column[i].state().components[0] : Tensor());
    rule->update_whole(i, weights, gradient, own, items[i].decay);
  });
}

/// After all updates. The variables are dealt out.
void FusedUpdate::Impl::constrain(const Contributions& all, int rank, int size) {
  int turn = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    tutti::internal::VariableState& state = *items[i].state;
    if (!state.constraint || !has_gradient(all, i) || turn++ % size != rank) continue;
    const std::size_t count = state.shared.load() ? 1 : state.components.size();
    for (std::size_t r = 0; r < count; ++r) {
      Tensor& component = state.components[r];
      const Tensor allowed = state.constraint(component);
      if (!allowed.defined() || allowed.sizes() != component.sizes() ||
          allowed.scalar_type() != component.scalar_type()) {
        throw InvalidArgument(cat("apply_gradients [", state.name, "]: its constraint gives ",
                                  allowed.defined() ? cat(at::toString(allowed.scalar_type()),
                                                          " of shape ", shape_text(allowed.sizes()))
                                                    : std::string("nothing"),
                                  ", expected ", at::toString(component.scalar_type()),
                                  " of shape ", shape_text(component.sizes()),
                                  ", as the variable's"));
      }
      component.copy_(allowed);
    }
  }
}

Tensor FusedUpdate::Impl::aggregated(const Contributions& all, std::size_t item) const {
  const RowGradient& joined = row_gradients[item];
  if (joined.is_rows() || joined.dense.defined()) return joined.to_dense();
  std::vector<Tensor> parts;
  for (const Contribution* contribution : all) {
    if (contribution->gradients[item].defined()) parts.push_back(contribution->gradients[item]);
    if (!contribution->options.sum_replicas && !parts.empty()) break;
  }
  if (parts.empty()) return Tensor();
  for (Tensor& part : parts) part = part.to(parts[0].device());
  return parts.size() == 1 ? parts[0] : collectives::local_reduce(ReduceOp::kSum, parts);
}

/// Every component by tensor operations, each with its own slots once the variable has been split.
void FusedUpdate::Impl::update_by_tensors(const Contributions& all, std::size_t item,
                                          double scale) {
  const RowGradient* only = rule->is_identity_at_zero(items[item].decay) ? rows_of(item) : nullptr;
  Tensor gradient = only != nullptr ? only->rows.values : aggregated(all, item);
  if (!gradient.defined()) return;
  if (scale != 1) gradient = gradient * scale;
  if (clipping.clipvalue) gradient = gradient.clamp(-*clipping.clipvalue, *clipping.clipvalue);
  tutti::internal::VariableState& state = *items[item].state;
  const bool shared = state.shared.load();
  if (!shared) {
    state.split_all();
    for (auto& column : slots) {
      if (column[item].defined()) column[item].state().split_all();
    }
  }
  const std::size_t count = shared ? 1 : state.components.size();
  for (std::size_t r = 0; r < count; ++r) update_component(item, r, gradient, only);
}

/// `only`: the rows that `gradient` belongs to; null: all.
void FusedUpdate::Impl::update_component(std::size_t item, std::size_t replica,
                                         const Tensor& gradient, const RowGradient* only) {
  std::vector<Tensor> whole{items[item].state->components[replica]};
  for (auto& column : slots)
    whole.push_back(column[item].defined() ? column[item].state().components[replica] : Tensor());
  const c10::Device device = whole[0].device();
  std::vector<Tensor> parts;
  Tensor rows = only == nullptr ? Tensor() : only->rows.indices.to(device);
  for (const Tensor& tensor : whole)
    parts.push_back(only == nullptr || !tensor.defined() ? tensor : tensor.index_select(0, rows));
  std::vector<Tensor> own_slots(parts.begin() + 1, parts.end());
  rule->update_tensors(parts[0], gradient.to(device), own_slots, items[item].decay);
  if (only == nullptr) return;
  whole[0].index_copy_(0, rows, parts[0]);
  for (std::size_t s = 0; s < own_slots.size(); ++s) {
    if (own_slots[s].defined()) whole[s + 1].index_copy_(0, rows, own_slots[s]);
  }
}

}  // namespace tutti::distribute
