// One pass over the weights. Words used below:
//
//   segment   one variable, or its part that falls into this replica's share of all elements
//   share     the elements [total * r / n, total * (r + 1) / n) that replica r updates for all
//   chunk     so many elements that a sum of gradients stays in the first-level cache
//
// Every replica hands in pointers to its gradients at the meeting. Then each walks its share: it
// adds the replicas' gradients chunk by chunk in replica order, scales them (clipping) and applies
// the rule to the one storage of the weights. Bytes moved are those of the gradients, the weights
// and the slots, once each. Replicas leave together: nobody reads weights that are being written,
// and no gradient buffer is freed while another replica reads it.
//
// Gradients of sparse layout are first joined, each variable's by one replica
// (fused_update_rows.h); the pass then takes the rows where it would take the sum.
//
// Variables without one float or double CPU storage (split, other dtypes, GPUs) are updated by
// replica 0 with tensor operations.

#include "tutti/distribute/fused_update.h"

#include <c10/util/SmallVector.h>

#include <cmath>
#include <map>

#include "collectives/local_reduce.h"
#include "collectives/rendezvous.h"
#include "distribute/context_stack.h"
#include "distribute/fused_update_rows.h"
#include "distribute/variable_state.h"
#include "tutti/base/log.h"
#include "tutti/tensor/flat_buffer.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {
namespace {

constexpr int64_t kChunk = 2048;
constexpr int64_t kLine =
    16;  // shares are cut on multiples of this: no cache line of floats is written by two replicas

/// What one replica brings to the meeting; owned by it and reused from step to step.
struct Contribution {
  std::vector<Tensor> gradients;  // in the variable's strides and dtype, or rows; undefined: none
  std::vector<const void*> data;  // memory of the dense ones, null for others
  std::vector<double> squares;    // of this replica's share, by variable
  std::vector<double> scales;  // of the aggregated gradients, by variable; the same on each replica
  bool sum_replicas = true;
  bool has_rows = false;
};

// Small and on the stack: a step takes no memory.
using Contributions = c10::SmallVector<const Contribution*, 16>;
template <class Scalar>
using Parts = c10::SmallVector<const Scalar*, 16>;  // the replicas' gradients of one variable

struct Item {
  tutti::internal::VariableState* state;
  int64_t numel;
  int64_t begin;  // among the elements of all fused items
  bool fused;     // float or double, on CPU, one storage
  bool decay;
};

bool same_strides(const Tensor& a, const Tensor& b) {
  return a.strides() == b.strides() || (a.is_contiguous() && b.is_contiguous());
}

/// The gradient as it lies in the variable's memory.
Tensor as_stored(const Tensor& gradient, const Tensor& component, const std::string& name) {
  if (!gradient.defined()) return gradient;
  if (gradient.sizes() != component.sizes()) {
    throw InvalidArgument(cat("apply_gradients [", name, "]: a gradient of shape ",
                              shape_text(gradient.sizes()), ", expected ",
                              shape_text(component.sizes()),
                              ", the variable's; keep gradients and variables in one order"));
  }
  if (gradient.is_sparse()) return rows_as_stored(gradient, component);
  if (gradient.scalar_type() == component.scalar_type() && same_strides(gradient, component) &&
      gradient.layout() == at::kStrided) {
    return gradient;
  }
  Tensor stored = at::empty_strided(component.sizes(), component.strides(), component.options());
  stored.copy_(gradient);
  return stored;
}

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
const Scalar* summed(const Parts<Scalar>& parts, int64_t begin, int64_t n, double scale,
                     const std::optional<double>& bound, Scalar* buffer) {
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

template <class Scalar>
double squares_of(const Scalar* values, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i)
    squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return squares;
}

}  // namespace

struct FusedUpdate::Impl {
  std::vector<Variable> variables;
  std::shared_ptr<UpdateRule> rule;
  GradientClipping clipping;
  std::vector<Item> items;
  int64_t total = 0;
  std::vector<std::string> slot_names;
  std::vector<std::vector<Variable>> slots;  // [name][variable]
  std::vector<Contribution> contributions;   // one a local replica
  std::vector<RowGradient> row_gradients;    // by variable, of the update under way
  std::vector<char> warned;                  // by variable: said that it has no gradient
  int64_t iterations = 0;

  bool clips_by_norm() const {
    return clipping.clipnorm.has_value() || clipping.global_clipnorm.has_value();
  }

  void pack_weights();
  void make_slots();
  void classify();
  bool is_stale() const;
  void prepare(Contribution& mine, const std::vector<Tensor>& gradients, std::size_t replica);
  template <class Visitor>
  void for_share(int rank, int size, Visitor visit) const;
  template <class Scalar>
  Parts<Scalar> parts_of(const Contributions& all, std::size_t item) const;
  template <class Scalar>
  void add_squares(const Contributions& all, std::size_t item, int64_t begin, int64_t end,
                   double& sum) const;
  void forget_rows() {
    for (RowGradient& joined : row_gradients) {
      if (joined.is_rows() || joined.dense.defined()) joined = RowGradient();
    }
  }
  void join_rows(const Contributions& all, int rank, int size);
  const RowGradient* rows_of(std::size_t item) const {
    return row_gradients[item].is_rows() ? &row_gradients[item] : nullptr;
  }
  void measure(const Contributions& all, int rank, int size, Contribution& mine) const;
  void find_scales(const Contributions& all, std::vector<double>& factors) const;
  template <class Scalar>
  void update_segment(const Contributions& all, std::size_t item, int64_t begin, int64_t end,
                      double scale) const;
  template <class Scalar>
  void update_rows(const RowGradient& rows, std::size_t item, int64_t begin, int64_t end,
                   double scale) const;
  void update_share(const Contributions& all, int rank, int size,
                    const std::vector<double>& scales) const;
  void update_by_tensors(const Contributions& all, std::size_t item, double scale);
  void update_component(std::size_t item, std::size_t replica, const Tensor& gradient,
                        const RowGradient* only);
  bool has_gradient(const Contributions& all, std::size_t item) const;
  bool has_any_gradient(const Contributions& all) const;
  Tensor aggregated(const Contributions& all, std::size_t item) const;
  void finish(const Contributions& all);
};

FusedUpdate::FusedUpdate(std::vector<Variable> variables, std::shared_ptr<UpdateRule> rule,
                         GradientClipping clipping, std::vector<bool> decay)
    : impl_(std::make_unique<Impl>()) {
  impl_->variables = std::move(variables);
  impl_->rule = std::move(rule);
  impl_->clipping = clipping;
  impl_->slot_names = impl_->rule->slot_names();
  for (std::size_t i = 0; i < impl_->variables.size(); ++i) {
    tutti::internal::VariableState& state = impl_->variables[i].state();
    impl_->items.push_back(
        {&state, impl_->variables[i].numel(), 0, false, i < decay.size() ? decay[i] : true});
  }
  impl_->pack_weights();
  impl_->make_slots();
  impl_->classify();
  impl_->contributions.resize(
      impl_->variables.empty()
          ? 1
          : static_cast<std::size_t>(impl_->items[0].state->strategy->num_local_replicas()));
  impl_->row_gradients.resize(impl_->items.size());
  impl_->warned.assign(impl_->items.size(), 0);
}

FusedUpdate::~FusedUpdate() = default;

void FusedUpdate::Impl::pack_weights() {
  std::map<at::ScalarType, std::vector<Item*>> groups;
  for (Item& item : items) {
    const Tensor& component = item.state->components[0];
    const bool packable = item.state->shared.load() && component.is_cpu() &&
                          !item.state->in_arena && item.numel > 0 &&
                          component.is_non_overlapping_and_dense();
    if (packable) groups[component.scalar_type()].push_back(&item);
  }
  for (auto& [dtype, members] : groups) {
    std::vector<FlatViewSpec> specs;
    for (Item* item : members)
      specs.push_back(
          {item->state->components[0].sizes().vec(), item->state->components[0].strides().vec()});
    FlatBuffer arena(specs, dtype, c10::Device(c10::kCPU));
    at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < members.size(); ++i) {
      arena.views()[i].copy_(members[i]->state->components[0]);
      members[i]->state->move_to(arena.views()[i]);
      members[i]->state->in_arena = true;
    }
  }
}

void FusedUpdate::Impl::make_slots() {
  for (const std::string& name : slot_names) {
    std::vector<Variable> column;
    for (const Item& item : items) {
      VariableOptions options;
      options.trainable = false;
      options.name = cat(item.state->name, "/", name);
      const Tensor like = item.state->components[0];
      Tensor initial = zeros_like_dense(like);
      if (rule->slot_initial_value() != 0) initial.fill_(rule->slot_initial_value());
      column.emplace_back(
          tutti::internal::make_variable_state(initial, options, *item.state->strategy));
    }
    slots.push_back(std::move(column));
  }
}

/// Says which items the fused pass takes, and where each begins in it. Anew before each update: a
/// variable may have been split.
void FusedUpdate::Impl::classify() {
  total = 0;
  for (Item& item : items) {
    const Tensor& component = item.state->components[0];
    const bool floating =
        component.scalar_type() == at::kFloat || component.scalar_type() == at::kDouble;
    item.fused =
        floating && component.is_cpu() && item.state->shared.load(std::memory_order_acquire);
    item.begin = total;
    if (item.fused) total += (item.numel + kLine - 1) / kLine * kLine;
  }
}

bool FusedUpdate::Impl::is_stale() const {
  for (const Item& item : items) {
    if (item.fused && !item.state->shared.load(std::memory_order_acquire)) return true;
  }
  return false;
}

void FusedUpdate::Impl::prepare(Contribution& mine, const std::vector<Tensor>& gradients,
                                std::size_t replica) {
  if (gradients.size() != items.size()) {
    throw InvalidArgument(cat("apply_gradients: ", gradients.size(), " gradients for ",
                              items.size(), " variables, expected one each"));
  }
  mine.gradients.resize(items.size());
  mine.data.resize(items.size());
  mine.has_rows = false;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Tensor& component =
        items[i].state->components[std::min(replica, items[i].state->components.size() - 1)];
    mine.gradients[i] = as_stored(gradients[i], component, items[i].state->name);
    const bool rows = mine.gradients[i].defined() && mine.gradients[i].is_sparse();
    mine.has_rows = mine.has_rows || rows;
    mine.data[i] =
        mine.gradients[i].defined() && !rows ? mine.gradients[i].const_data_ptr() : nullptr;
  }
}

template <class Visitor>
void FusedUpdate::Impl::for_share(int rank, int size, Visitor visit) const {
  const int64_t lines = total / kLine;
  const int64_t begin = lines * rank / size * kLine;
  const int64_t end = lines * (rank + 1) / size * kLine;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (!items[i].fused) continue;
    const int64_t from = std::max<int64_t>(begin - items[i].begin, 0);
    const int64_t to = std::min(end - items[i].begin, items[i].numel);
    if (from < to) visit(i, from, to);
  }
}

template <class Scalar>
Parts<Scalar> FusedUpdate::Impl::parts_of(const Contributions& all, std::size_t item) const {
  Parts<Scalar> parts;
  if (row_gradients[item].dense.defined()) {
    parts.push_back(row_gradients[item].dense.const_data_ptr<Scalar>());
    return parts;
  }
  for (const Contribution* contribution : all) {
    if (contribution->data[item] != nullptr)
      parts.push_back(static_cast<const Scalar*>(contribution->data[item]));
    if (!contribution->sum_replicas && !parts.empty()) break;
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
      if (!contribution->sum_replicas && !parts.empty()) break;
    }
    row_gradients[i] = add_up_rows(parts, items[i].state->components[0]);
  }
}

/// Squares of the aggregated gradients, by variable, over this replica's share; replica 0 adds
/// those that are not fused.
void FusedUpdate::Impl::measure(const Contributions& all, int rank, int size,
                                Contribution& mine) const {
  mine.squares.assign(items.size(), 0);
  for_share(rank, size, [&](std::size_t i, int64_t from, int64_t to) {
    if (items[i].state->components[0].scalar_type() == at::kFloat) {
      add_squares<float>(all, i, from, to, mine.squares[i]);
    } else {
      add_squares<double>(all, i, from, to, mine.squares[i]);
    }
  });
  if (rank != 0) return;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].fused) continue;
    const Tensor gradient = aggregated(all, i);
    if (gradient.defined())
      mine.squares[i] = gradient.to(at::kDouble).square().sum().item<double>();
  }
}

/// The factor of each variable's gradient. Keras: g * bound / max(norm, bound).
void FusedUpdate::Impl::find_scales(const Contributions& all, std::vector<double>& factors) const {
  factors.assign(items.size(), 1);
  if (!clips_by_norm()) return;
  double global = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    double squares = 0;
    for (const Contribution* contribution : all) squares += contribution->squares[i];
    global += squares;
    if (clipping.clipnorm) {
      const double norm = std::sqrt(squares);
      factors[i] = norm > *clipping.clipnorm ? *clipping.clipnorm / norm : 1;
    }
  }
  if (clipping.global_clipnorm) {
    const double norm = std::sqrt(global);
    if (norm > *clipping.global_clipnorm)
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
  c10::SmallVector<Scalar*, 4> slot_data;
  for (const auto& column : slots)
    slot_data.push_back(static_cast<Scalar*>(column[item].state().components[0].data_ptr()));
  c10::SmallVector<Scalar*, 4> at_slots(slot_data.size());
  alignas(64) Scalar buffer[kChunk];
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = std::min(kChunk, end - at);
    const Scalar* gradient = summed<Scalar>(parts, at, n, scale, clipping.clipvalue, buffer);
    for (std::size_t s = 0; s < slot_data.size(); ++s) at_slots[s] = slot_data[s] + at;
    rule->update(weights + at, gradient, at_slots.data(), n, items[item].decay);
  }
}

/// The same where the gradient is rows.
template <class Scalar>
void FusedUpdate::Impl::update_rows(const RowGradient& rows, std::size_t item, int64_t begin,
                                    int64_t end, double scale) const {
  auto* weights = static_cast<Scalar*>(items[item].state->components[0].data_ptr());
  c10::SmallVector<Scalar*, 4> slot_data;
  for (const auto& column : slots)
    slot_data.push_back(static_cast<Scalar*>(column[item].state().components[0].data_ptr()));
  c10::SmallVector<Scalar*, 4> at_slots(slot_data.size());
  auto update = [&](int64_t at, int64_t n, const Scalar* gradient) {
    for (std::size_t s = 0; s < slot_data.size(); ++s) at_slots[s] = slot_data[s] + at;
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

Tensor FusedUpdate::Impl::aggregated(const Contributions& all, std::size_t item) const {
  const RowGradient& joined = row_gradients[item];
  if (joined.is_rows() || joined.dense.defined()) return joined.to_dense();
  std::vector<Tensor> parts;
  for (const Contribution* contribution : all) {
    if (contribution->gradients[item].defined()) parts.push_back(contribution->gradients[item]);
    if (!contribution->sum_replicas && !parts.empty()) break;
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
    for (auto& column : slots) column[item].state().split_all();
  }
  const std::size_t count = shared ? 1 : state.components.size();
  for (std::size_t r = 0; r < count; ++r) update_component(item, r, gradient, only);
}

/// `only`: the rows that `gradient` belongs to; null: all.
void FusedUpdate::Impl::update_component(std::size_t item, std::size_t replica,
                                         const Tensor& gradient, const RowGradient* only) {
  std::vector<Tensor> whole{items[item].state->components[replica]};
  for (auto& column : slots) whole.push_back(column[item].state().components[replica]);
  const c10::Device device = whole[0].device();
  std::vector<Tensor> parts;
  Tensor rows = only == nullptr ? Tensor() : only->rows.indices.to(device);
  for (const Tensor& tensor : whole)
    parts.push_back(only == nullptr ? tensor : tensor.index_select(0, rows));
  std::vector<Tensor> own_slots(parts.begin() + 1, parts.end());
  rule->update_tensors(parts[0], gradient.to(device), own_slots, items[item].decay);
  if (only == nullptr) return;
  whole[0].index_copy_(0, rows, parts[0]);
  for (std::size_t s = 0; s < own_slots.size(); ++s)
    whole[s + 1].index_copy_(0, rows, own_slots[s]);
}

bool FusedUpdate::Impl::has_gradient(const Contributions& all, std::size_t item) const {
  for (const Contribution* contribution : all) {
    if (contribution->gradients[item].defined()) return true;
  }
  return false;
}

bool FusedUpdate::Impl::has_any_gradient(const Contributions& all) const {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (has_gradient(all, i)) return true;
  }
  return false;
}

/// By one thread, while the others wait: what the pass did not do, and the bookkeeping.
void FusedUpdate::Impl::finish(const Contributions& all) {
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < items.size(); ++i) {
    tutti::internal::VariableState& state = *items[i].state;
    if (!has_gradient(all, i)) {
      if (warned[i] == 0) missing.push_back(state.name);
      warned[i] = 1;
      continue;
    }
    if (items[i].fused)
      state.components[0].unsafeGetTensorImpl()->bump_version();  // written behind autograd's back
    state.note_update();
  }
  if (!missing.empty()) {
    log_warning("apply_gradients: no gradient for ", join(missing, ", "),
                "; what has none is not updated");
  }
  ++iterations;
}

void FusedUpdate::apply(const std::vector<Tensor>& gradients, bool sum_replicas) {
  Impl& impl = *impl_;
  if (impl.items.empty()) {
    ++impl.iterations;
    return;
  }
  at::NoGradGuard no_grad;
  ReplicaContext* context = get_replica_context();
  Strategy& strategy = *impl.items[0].state->strategy;
  const bool collective =
      context != nullptr && &context->strategy() == &strategy && context->rendezvous().size() > 1;
  const int rank = collective ? context->local_replica_id() : 0;
  const int size = collective ? context->rendezvous().size() : 1;
  const auto timeout = collectives::kDefaultTimeout;
  auto meet = [&](const char* operation, const void* payload) {
    if (collective) context->rendezvous().meet(rank, {operation, payload}, timeout);
  };
  auto leave = [&] {
    if (collective) context->rendezvous().leave(rank, timeout);
  };

  Contribution& mine = impl.contributions[static_cast<std::size_t>(rank)];
  impl.prepare(mine, gradients, static_cast<std::size_t>(rank));
  mine.sum_replicas = sum_replicas;
  if (rank == 0) {
    impl.forget_rows();  // of an update that failed
    impl.classify();
    impl.rule->begin_step(impl.iterations);
  }
  meet("apply_gradients", &mine);
  Contributions all;
  for (int r = 0; r < size; ++r) all.push_back(&impl.contributions[static_cast<std::size_t>(r)]);

  if (impl.is_stale()) {  // a variable was split on the way here: every replica sees it, one says
                          // what follows
    leave();
    if (rank == 0) impl.classify();
    meet("apply_gradients", &mine);
  }
  if (!impl.has_any_gradient(all)) {
    leave();
    throw InvalidArgument(cat("apply_gradients: no gradient for any of the ", impl.items.size(),
                              " variables, expected at least one; does the loss depend on them?"));
  }
  bool any_rows = false;
  for (const Contribution* contribution : all) any_rows = any_rows || contribution->has_rows;
  if (any_rows) {
    impl.join_rows(all, rank, size);
    leave();
    meet("apply_gradients", &mine);
  }
  if (impl.clips_by_norm()) {
    impl.measure(all, rank, size, mine);
    leave();
    meet("apply_gradients", &mine);
  }
  impl.find_scales(all, mine.scales);
  impl.update_share(all, rank, size, mine.scales);
  if (rank == 0) {
    for (std::size_t i = 0; i < impl.items.size(); ++i) {
      if (!impl.items[i].fused) impl.update_by_tensors(all, i, mine.scales[i]);
    }
  }
  if (rank == 0) impl.finish(all);
  leave();
  for (Tensor& gradient : mine.gradients) gradient.reset();
  if (any_rows && rank == 0) impl.forget_rows();
}

int64_t FusedUpdate::iterations() const { return impl_->iterations; }
void FusedUpdate::set_iterations(int64_t iterations) { impl_->iterations = iterations; }
const std::vector<Variable>& FusedUpdate::variables() const { return impl_->variables; }

const std::vector<Variable>& FusedUpdate::slots(const std::string& name) const {
  for (std::size_t i = 0; i < impl_->slot_names.size(); ++i) {
    if (impl_->slot_names[i] == name) return impl_->slots[i];
  }
  throw NotFound(
      cat("optimizer slots: \"", name, "\", expected one of ", join(impl_->slot_names, ", ")));
}

}  // namespace tutti::distribute
