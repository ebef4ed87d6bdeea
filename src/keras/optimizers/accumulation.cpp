#include "keras/optimizers/accumulation.h"

#include <cmath>

#include "collectives/rendezvous.h"
#include "tutti/base/text.h"
#include "tutti/distribute/strategy.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::keras::optimizers {

Accumulation::Accumulation(std::string optimizer, int64_t steps, std::vector<Variable> variables)
    : optimizer_(std::move(optimizer)), steps_(steps), variables_(std::move(variables)) {
  const std::size_t replicas =
      variables_.empty() ? 1
                         : static_cast<std::size_t>(variables_[0].strategy().num_local_replicas());
  replicas_.resize(replicas);
  for (Replica& replica : replicas_) {
    replica.sums.resize(variables_.size());
    replica.has.assign(variables_.size(), 0);
    replica.means.resize(variables_.size());
  }
}

void Accumulation::check(const std::vector<Tensor>& gradients, const Replica& mine,
                         Kind kind) const {
  if (mine.kind != Kind::kNone && mine.kind != kind) {
    throw InvalidArgument(cat("apply_gradients [", optimizer_, "]: call ", mine.calls + 1, " of ",
                              steps_,
                              " of one update is made in another way than those before it, "
                              "expected all inside replicas or all outside, and one value of "
                              "skip_aggregation"));
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined() || gradients[i].sizes() == variables_[i].sizes()) continue;
    throw InvalidArgument(cat("apply_gradients [", variables_[i].name(), "]: a gradient of shape ",
                              shape_text(gradients[i].sizes()), ", expected ",
                              shape_text(variables_[i].sizes()),
                              ", the variable's; keep gradients and variables in one order"));
  }
}

void Accumulation::check_denominator(const Replica& mine, bool has_denominator) const {
  if (mine.calls == 0 || mine.denominator.has_value() == has_denominator) return;
  throw InvalidArgument(cat(has_denominator ? "apply_gradient_sums [" : "apply_gradients [",
                            optimizer_, "]: call ", mine.calls + 1, " of ", steps_,
                            " of one update, after calls ",
                            has_denominator ? "without a denominator" : "with a denominator",
                            ", expected all with one or all without"));
}

void Accumulation::add(Replica& mine, std::size_t index, const std::vector<Tensor>& gradients,
                       double scale) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    Tensor& sum = mine.sums[i];
    if (!sum.defined()) {
      const Tensor like = variables_[i].components()[0];  // its strides, so that the update copies
                                                          // nothing
      const auto& devices = variables_[i].strategy().devices();
      sum = at::empty_strided(like.sizes(), like.strides(),
                              like.options().device(devices[index].torch_device()));
    }
    if (mine.has[i] == 0 && gradients[i].is_sparse()) sum.zero_();
    if (mine.has[i] != 0 || gradients[i].is_sparse()) {
      sum.add_(gradients[i], scale);
    } else {
      sum.copy_(gradients[i]);
      if (scale != 1) sum.mul_(scale);
    }
    mine.has[i] = 1;
  }
  ++mine.calls;
}

/// After it the replica stands at the beginning, whatever becomes of the update.
void Accumulation::take_means(Replica& mine, double divisor) {
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    mine.means[i] = mine.has[i] != 0 ? mine.sums[i].div_(divisor) : Tensor();
    mine.has[i] = 0;
  }
  mine.calls = 0;
  mine.kind = Kind::kNone;
  mine.denominator.reset();
}

bool Accumulation::apply(const std::vector<Tensor>& gradients, const ApplyOptions& options,
                         distribute::FusedUpdate& update) {
  if (variables_.empty())
    return update.apply(gradients, {options.sum_replicas, options.scale, options.may_be_empty});
  const bool aggregate = options.sum_replicas;
  at::NoGradGuard no_grad;
  distribute::ReplicaContext* context = distribute::get_replica_context();
  const bool inside = context != nullptr && &context->strategy() == &variables_[0].strategy();
  const auto index = static_cast<std::size_t>(inside ? context->local_replica_id() : 0);
  Replica& mine = replicas_[index];
  const Kind kind = !inside ? Kind::kOutside : aggregate ? Kind::kReplicas : Kind::kEqualReplicas;
  check(gradients, mine, kind);
  check_denominator(mine, options.denominator.has_value());
  if (inside && context->rendezvous().size() > 1) {
    // No data meet here. A replica that has failed on the way makes the others fail too, so that
    // they never count apart.
    const auto timeout = collectives::kDefaultTimeout;
    context->rendezvous().meet(static_cast<int>(index), {"apply_gradients (accumulated)"}, timeout);
    context->rendezvous().leave(static_cast<int>(index), timeout);
  }
  add(mine, index, gradients, options.scale);
  mine.kind = kind;
  if (options.denominator) mine.denominator = mine.denominator.value_or(0) + *options.denominator;
  if (!inside) {
    for (Replica& other : replicas_) {
      other.calls = mine.calls;
      other.kind = kind;
    }
  }
  if (mine.calls < steps_) return true;
  take_means(mine, mine.denominator ? divisor_over_replicas(*mine.denominator, inside)
                                    : static_cast<double>(steps_));
  if (!inside) {
    for (Replica& other : replicas_) {
      other.calls = 0;
      other.kind = Kind::kNone;
    }
  }
  return update.apply(mine.means,
                      {.sum_replicas = aggregate, .may_be_empty = options.may_be_empty});
}

std::vector<Tensor> Accumulation::sums() const {
  at::NoGradGuard no_grad;
  std::vector<Tensor> all(variables_.size());
  const bool equal = replicas_[0].kind == Kind::kEqualReplicas;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const Replica& replica : replicas_) {
      if (replica.has[i] == 0) continue;
      all[i] =
          all[i].defined() ? all[i] + replica.sums[i].to(all[i].device()) : replica.sums[i].clone();
      if (equal) break;
    }
  }
  return all;
}

std::optional<double> Accumulation::denominator() const {
  if (!replicas_[0].denominator) return std::nullopt;
  double sum = 0;
  for (const Replica& replica : replicas_) sum += replica.denominator.value_or(0);
  return sum;
}

void Accumulation::restore(const std::vector<Tensor>& sums, int64_t calls,
                           std::optional<double> denominator) {
  if (sums.size() != variables_.size() || calls < 0 || calls >= steps_) {
    throw InvalidArgument(cat("set_accumulated_gradients [", optimizer_, "]: ", sums.size(),
                              " sums of ", calls, " calls, expected ", variables_.size(),
                              " sums of 0 to ", steps_ - 1, " calls"));
  }
  if (denominator && !(*denominator >= 0 && std::isfinite(*denominator))) {
    throw InvalidArgument(cat("set_accumulated_gradients [", optimizer_, "]: denominator ",
                              *denominator, ", expected a finite number, 0 or more"));
  }
  check(sums, Replica{}, Kind::kNone);
  at::NoGradGuard no_grad;
  for (Replica& replica : replicas_) {
    std::fill(replica.has.begin(), replica.has.end(), 0);
    replica.calls = calls;
    replica.kind = Kind::kNone;
    replica.denominator = denominator ? std::optional<double>(0) : std::nullopt;
  }
  // The first replica brings everything: the others have nothing to add to it.
  add(replicas_[0], 0, sums, 1);
  replicas_[0].calls = calls;
  replicas_[0].denominator = denominator;
}

double divisor_over_replicas(double own, bool inside) {
  double sum = own;
  if (inside) {
    distribute::ReplicaContext* context = distribute::get_replica_context();
    sum = context->all_reduce(distribute::ReduceOp::kSum, at::scalar_tensor(own, at::kDouble))
              .item<double>();
  }
  return sum == 0 ? 1 : sum;
}

}  // namespace tutti::keras::optimizers
