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
// A rule that needs norms, means or products of a whole variable gets it whole: these variables are
// dealt out to the replicas by size, each is updated by one.
//
// Gradients of sparse layout are first joined, each variable's by one replica
// (fused_update_rows.h); the pass then takes the rows where it would take the sum.
//
// With several workers the local replicas first write the sums of their shares into one buffer,
// which is added up over the workers (fused_update_workers.h); what comes of it is then the only
// gradient.
//
// Variables without one float or double CPU storage (split, other dtypes, GPUs) are updated by
// replica 0 with tensor operations.

#include "tutti/distribute/fused_update.h"

#include <algorithm>
#include <map>

#include "distribute/context_stack.h"
#include "distribute/fused_update_impl.h"
#include "distribute/fused_update_workers.h"
#include "tutti/base/log.h"
#include "tutti/tensor/flat_buffer.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {
namespace {

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

constexpr const char* kOperation = "apply_gradients";

}  // namespace

Tensor UpdateRule::initial_slot(std::size_t /*slot*/, std::size_t /*variable*/,
                                const Tensor& weights) const {
  Tensor initial = zeros_like_dense(weights);
  if (slot_initial_value() != 0) initial.fill_(slot_initial_value());
  return initial;
}

Meeting::Meeting(Strategy& strategy) {
  ReplicaContext* context = get_replica_context();
  inside_ = context != nullptr && &context->strategy() == &strategy;
  if (!inside_ || context->rendezvous().size() == 1) return;
  rendezvous_ = &context->rendezvous();
  rank_ = context->local_replica_id();
  size_ = rendezvous_->size();
}
void Meeting::meet(const char* operation, const void* payload) const {
  if (rendezvous_ != nullptr)
    rendezvous_->meet(rank_, {operation, payload}, collectives::kDefaultTimeout);
}
void Meeting::leave() const {
  if (rendezvous_ != nullptr) rendezvous_->leave(rank_, collectives::kDefaultTimeout);
}

FusedUpdate::Impl::Impl() = default;
FusedUpdate::Impl::~Impl() = default;

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
    impl_->constrained = impl_->constrained || state.constraint != nullptr;
  }
  if (!impl_->items.empty()) {
    if (WorkerGroup* workers = impl_->items[0].state->strategy->workers())
      impl_->over_workers = std::make_unique<Impl::OverWorkers>(*impl_, *workers);
  }
  impl_->rule->bind(impl_->variables);
  impl_->pack_weights();
  impl_->make_slots();
  impl_->classify();
  impl_->contributions.resize(
      impl_->variables.empty()
          ? 1
          : static_cast<std::size_t>(impl_->items[0].state->strategy->num_local_replicas()));
  impl_->row_gradients.resize(impl_->items.size());
  impl_->warned.assign(impl_->items.size(), 0);
  impl_->deal_whole_variables();
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
    const std::size_t slot = slots.size();
    for (const Item& item : items) {
      VariableOptions options;
      options.trainable = false;
      options.name = cat(item.state->name, "/", name);
      at::NoGradGuard no_grad;
      const Tensor initial = rule->initial_slot(slot, column.size(), item.state->components[0]);
      if (!initial.defined()) {
        column.emplace_back();
        continue;
      }
      Strategy& strategy = *item.state->strategy;
      column.push_back(Variable(tutti::internal::make_variable_state(
          tutti::internal::agreed_initial_value(initial, options, strategy), options, strategy)));
    }
    slots.push_back(std::move(column));
  }
}

/// Large ones first, each to the replica that has least.
void FusedUpdate::Impl::deal_whole_variables() {
  whole_gradients.resize(items.size());
  whole_slots.resize(items.size());
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < items.size(); ++i) {
    items[i].whole = rule->needs_whole(i);
    if (items[i].whole) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return items[a].numel > items[b].numel; });
  std::vector<int64_t> load(contributions.size(), 0);
  for (const std::size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    items[i].owner = static_cast<int>(least - load.begin());
    *least += items[i].numel;
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
    if (item.fused && !item.whole) total += (item.numel + kLine - 1) / kLine * kLine;
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

/// Meets with this replica's gradients in hand: what all have brought. Everybody knows then which
/// variables the pass takes.
FusedUpdate::Impl::Contributions FusedUpdate::Impl::gather(const Meeting& meeting,
                                                           const char* operation,
                                                           const std::vector<Tensor>& gradients,
                                                           const UpdateOptions& options) {
  Contribution& mine = contributions[static_cast<std::size_t>(meeting.rank())];
  prepare(mine, gradients, static_cast<std::size_t>(meeting.rank()));
  mine.options = options;
  if (meeting.rank() == 0) {
    forget_rows();  // of an update that failed
    classify();
  }
  meeting.meet(operation, &mine);
  if (is_stale()) {  // a variable was split on the way here: every replica sees it, one says what
                     // follows
    meeting.leave();
    if (meeting.rank() == 0) classify();
    meeting.meet(operation, &mine);
  }
  Contributions all;
  for (int r = 0; r < meeting.size(); ++r)
    all.push_back(&contributions[static_cast<std::size_t>(r)]);
  return all;
}

bool FusedUpdate::Impl::join_rows_together(const Meeting& meeting, const char* operation,
                                           const Contributions& all) {
  bool any_rows = false;
  for (const Contribution* contribution : all) any_rows = any_rows || contribution->has_rows;
  if (!any_rows) return false;
  join_rows(all, meeting.rank(), meeting.size());
  meeting.meet_again(operation, all[static_cast<std::size_t>(meeting.rank())]);
  return true;
}

/// After the meeting.
void FusedUpdate::Impl::forget(const Meeting& meeting, bool any_rows) {
  for (Tensor& gradient : contributions[static_cast<std::size_t>(meeting.rank())].gradients)
    gradient.reset();
  if (any_rows && meeting.rank() == 0) forget_rows();
}

bool FusedUpdate::apply(const std::vector<Tensor>& gradients, const UpdateOptions& options) {
  Impl& impl = *impl_;
  if (impl.items.empty()) {
    ++impl.iterations;
    return true;
  }
  at::NoGradGuard no_grad;
  const Meeting meeting(*impl.items[0].state->strategy);
  const int rank = meeting.rank();
  const int size = meeting.size();
  if (rank == 0) impl.rule->begin_step(impl.iterations);
  const Impl::Contributions local = impl.gather(meeting, kOperation, gradients, options);
  const bool over_workers = impl.over_workers && meeting.inside() && options.sum_replicas;
  const Impl::Contributions all =
      over_workers ? impl.over_workers->sum(meeting, kOperation, local) : local;
  Impl::Contribution& mine = impl.contributions[static_cast<std::size_t>(rank)];
  if (!impl.has_any_gradient(all)) {
    if (options.may_be_empty && rank == 0) ++impl.iterations;
    meeting.leave();
    if (options.may_be_empty) return false;
    throw InvalidArgument(cat("apply_gradients: no gradient for any of the ", impl.items.size(),
                              " variables, expected at least one; does the loss depend on them?"));
  }
  const bool any_rows = over_workers ? impl.over_workers->any_rows()
                                     : impl.join_rows_together(meeting, kOperation, all);
  if (impl.clips_by_norm()) {
    impl.measure(all, rank, size, mine);
    meeting.meet_again(kOperation, &mine);
  }
  impl.find_scales(local, options.scale, mine.scales);
  impl.update_share(all, rank, size, mine.scales);
  impl.update_whole_variables(all, rank, size, mine.scales);
  if (rank == 0) {
    for (std::size_t i = 0; i < impl.items.size(); ++i) {
      if (!impl.items[i].fused) impl.update_by_tensors(all, i, mine.scales[i]);
    }
  }
  if (impl.constrained) {
    meeting.meet_again(kOperation, &mine);
    impl.constrain(all, rank, size);
  }
  if (rank == 0) impl.finish(all);
  meeting.leave();
  impl.forget(meeting, any_rows);
  return true;
}

bool FusedUpdate::all_finite(const std::vector<Tensor>& gradients, bool sum_replicas) {
  Impl& impl = *impl_;
  if (impl.items.empty()) return true;
  at::NoGradGuard no_grad;
  constexpr const char* kCheck = "apply_gradients (finite test)";
  const Meeting meeting(*impl.items[0].state->strategy);
  const Impl::Contributions local =
      impl.gather(meeting, kCheck, gradients, {.sum_replicas = sum_replicas});
  const bool over_workers = impl.over_workers && meeting.inside() && sum_replicas;
  const Impl::Contributions all =
      over_workers ? impl.over_workers->sum(meeting, kCheck, local) : local;
  const bool any_rows =
      over_workers ? impl.over_workers->any_rows() : impl.join_rows_together(meeting, kCheck, all);
  Impl::Contribution& mine = impl.contributions[static_cast<std::size_t>(meeting.rank())];
  mine.finite = impl.is_share_finite(all, meeting.rank(), meeting.size());
  meeting.meet_again(kCheck, &mine);
  bool finite = true;
  for (const Impl::Contribution* contribution : local) finite = finite && contribution->finite;
  meeting.leave();
  impl.forget(meeting, any_rows);
  return finite;
}

int64_t FusedUpdate::iterations() const { return impl_->iterations; }
void FusedUpdate::set_iterations(int64_t iterations) { impl_->iterations = iterations; }
const std::vector<Variable>& FusedUpdate::variables() const { return impl_->variables; }

std::vector<Variable> FusedUpdate::slots(const std::string& name) const {
  for (std::size_t i = 0; i < impl_->slot_names.size(); ++i) {
    if (impl_->slot_names[i] != name) continue;
    std::vector<Variable> column;
    for (const Variable& slot : impl_->slots[i]) {
      if (slot.defined()) column.push_back(slot);
    }
    return column;
  }
  throw NotFound(
      cat("optimizer slots: \"", name, "\", expected one of ", join(impl_->slot_names, ", ")));
}

}  // namespace tutti::distribute
