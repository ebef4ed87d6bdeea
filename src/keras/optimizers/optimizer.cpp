// The handle.

#include "tutti/keras/optimizers/optimizer.h"

#include <cmath>

#include "keras/optimizers/optimizer_impl.h"
#include "tutti/distribute/replica_context.h"
#include "tutti/distribute/strategy.h"

namespace tutti::keras::optimizers {

void Optimizer::Impl::check_outside(const char* operation) const {
  const distribute::ReplicaContext* context = distribute::get_replica_context();
  if (context == nullptr || context->strategy().is_default()) return;
  throw FailedPrecondition(cat(operation, " [", name_, "]: called inside replica ",
                               context->replica_id_in_sync_group(),
                               ", expected outside; call it between two runs"));
}

Json described(const Optimizer& optimizer) {
  return {{"class_name", optimizer.class_name()}, {"config", Json::parse(optimizer.config())}};
}
Optimizer from_description(const Json& json, const CustomObjects& custom_objects) {
  return optimizer_from(member<std::string>(json, "class_name", ""),
                        member<Json>(json, "config", Json::object()), custom_objects);
}

Optimizer::Impl& Optimizer::impl() const {
  if (impl_ == nullptr)
    throw FailedPrecondition(
        "optimizer: an empty handle, expected an optimizer; construct one, e.g. Adam()");
  return *impl_;
}

void Optimizer::build(const std::vector<Variable>& variables) {
  Impl& own = impl();
  own.build(variables);
  if (own.when_built == nullptr) return;
  distribute::once_for_all_replicas("optimizer restore", [&] {
    own.when_built(*this);
    own.when_built = nullptr;
  });
}
void Optimizer::when_built(std::function<void(Optimizer&)> action) {
  impl().when_built = std::move(action);
}

void Optimizer::apply_gradients(const std::vector<Tensor>& gradients,
                                const std::vector<Variable>& variables, bool skip_aggregation) {
  Impl& own = impl();
  if (gradients.size() != variables.size()) {
    throw InvalidArgument(cat("apply_gradients [", name(), "]: ", gradients.size(),
                              " gradients for ", variables.size(),
                              " variables, expected one each"));
  }
  if (own.waits()) build(variables);
  own.apply(gradients, variables, {.sum_replicas = !skip_aggregation});
}

void Optimizer::apply_gradient_sums(const std::vector<Tensor>& gradients,
                                    const std::vector<Variable>& variables, double denominator) {
  Impl& own = impl();
  if (gradients.size() != variables.size()) {
    throw InvalidArgument(cat("apply_gradient_sums [", name(), "]: ", gradients.size(),
                              " gradients for ", variables.size(),
                              " variables, expected one each"));
  }
  if (!(denominator >= 0) || std::isinf(denominator)) {
    throw InvalidArgument(cat("apply_gradient_sums [", name(), "]: denominator ", denominator,
                              ", expected a finite number, 0 or more"));
  }
  if (own.waits()) build(variables);
  own.apply(gradients, variables, {.denominator = denominator});
}

Tensor Optimizer::scale_loss(const Tensor& loss) const {
  const std::optional<double> scale = impl().loss_scale();
  return scale ? loss * *scale : loss;
}

double Optimizer::learning_rate() const { return impl().learning_rate(); }
void Optimizer::set_learning_rate(const LearningRate& learning_rate) {
  impl().set_learning_rate(learning_rate);
}
int64_t Optimizer::iterations() const { return impl().iterations(); }
void Optimizer::set_iterations(int64_t iterations) { impl().set_iterations(iterations); }
int64_t Optimizer::gradient_steps() const {
  const Impl& own = impl();
  return own.iterations() * own.accumulation_steps() + own.accumulated_steps();
}
int64_t Optimizer::accumulated_steps() const { return impl().accumulated_steps(); }
std::vector<Tensor> Optimizer::accumulated_gradients() const {
  return impl().accumulated_gradients();
}
std::optional<double> Optimizer::accumulated_denominator() const {
  return impl().accumulated_denominator();
}
void Optimizer::set_accumulated_gradients(const std::vector<Tensor>& gradients, int64_t calls,
                                          std::optional<double> denominator) {
  impl().set_accumulated_gradients(gradients, calls, denominator);
}
void Optimizer::finalize_variable_values() { impl().finalize_variable_values(); }
void Optimizer::begin_training() { impl().begin_training(); }
bool Optimizer::built() const { return impl().built(); }
std::vector<Variable> Optimizer::trainable_variables() const { return impl().variables(); }
std::vector<std::string> Optimizer::slot_names() const { return impl().slot_names(); }
std::vector<Variable> Optimizer::slots(const std::string& name) const { return impl().slots(name); }
void Optimizer::exclude_from_weight_decay(const ExcludeFromWeightDecay& which) {
  impl().exclude_from_weight_decay(which);
}
std::string Optimizer::class_name() const { return impl().class_name(); }
std::string Optimizer::name() const { return impl().name(); }
std::string Optimizer::config() const { return impl().config().dump(); }
Optimizer::Optimizer(const std::string& name) : Optimizer(from_config(name, "{}")) {}

}  // namespace tutti::keras::optimizers
