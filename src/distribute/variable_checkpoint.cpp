#include "distribute/variable_checkpoint.h"

#include "distribute/variable_state.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::internal {
namespace {

bool is_dealt_out(const VariableState& state) {
  return state.on_read() && state.aggregation == VariableAggregation::kSum && state.has_others();
}

}  // namespace

Tensor saved_value(const Variable& variable) {
  variable.state().strategy->check_cross_replica("save");
  return variable.read_value();
}

void restore_value(const Variable& variable, const Tensor& value) {
  VariableState& state = variable.state();
  state.strategy->check_cross_replica("restore");
  Variable target = variable;
  const bool counts = at::isIntegralType(state.dtype, /*includeBool=*/false) && value.defined() &&
                      value.scalar_type() == state.dtype &&
                      value.sizes() == at::IntArrayRef(state.shape);
  if (!is_dealt_out(state) || !counts) {
    target.assign(value);  // which refuses what does not fit
    return;
  }
  at::NoGradGuard no_grad;
  const auto replicas = static_cast<int64_t>(state.strategy->num_replicas_in_sync());
  const Tensor share = at::div(value, replicas, /*rounding_mode=*/"floor");
  const Tensor left = value - share * replicas;
  int64_t index = state.strategy->first_replica_id();
  state.write_all(
      [&](Tensor& component) { component.copy_(share + left.gt(index++).to(state.dtype)); });
}

}  // namespace tutti::internal

namespace tutti {
namespace {

class TrackableVariable : public Trackable {
 public:
  explicit TrackableVariable(Variable variable) : variable_(std::move(variable)) {}
  Nest state() const override { return Nest(internal::saved_value(variable_)); }
  void check_state(const Nest& state) const override {
    const Tensor& value = state.leaf();
    if (value.sizes() != variable_.sizes() || value.scalar_type() != variable_.dtype())
      throw InvalidArgument(cat("variable \"", variable_.name(),
                                "\": ", dtype_name(value.scalar_type()), " ",
                                shape_text(value.sizes()), ", expected ",
                                dtype_name(variable_.dtype()), " ", shape_text(variable_.sizes())));
  }
  void set_state(const Nest& state) override { internal::restore_value(variable_, state.leaf()); }

 private:
  Variable variable_;
};

}  // namespace

std::shared_ptr<Trackable> trackable(const Variable& variable) {
  return std::make_shared<TrackableVariable>(variable);
}

}  // namespace tutti
