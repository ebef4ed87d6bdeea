#include "distribute/variable_checkpoint.h"

#include <ATen/ATen.h>

#include <cstring>

#include "distribute/variable_state.h"
#include "distribute/worker_group.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::internal {
namespace {

bool is_dealt_out(const VariableState& state) {
  return state.on_read() && state.aggregation == VariableAggregation::kSum && state.has_others();
}

}  // namespace

Tensor saved_value(const Variable& variable) {
  const VariableState& state = variable.state();
  state.strategy->check_cross_replica("save");
  Tensor value = variable.read_value();
  distribute::WorkerGroup* workers = state.strategy->workers();
  // Of this aggregation reading asks nobody, and each worker has the value of its own first
  // replica.
  if (workers == nullptr || !state.on_read() || workers->reads_locally() ||
      state.aggregation != VariableAggregation::kOnlyFirstReplica)
    return value;
  return workers->of_first(value);
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

namespace {

constexpr int kTextAxes = 6;  // no tensor of a user is int8 with so many axes

class Peers : public WorkerPeers {
 public:
  explicit Peers(distribute::WorkerGroup& group) : group_(group) {}
  int worker() const override { return group_.worker(); }
  int num_workers() const override { return group_.num_workers(); }
  const void* identity() const override { return &group_; }

 private:
  void count_as_moving(bool on) const override { group_.count_as_moving(on); }
  std::vector<std::string> gather(const std::string& mine) const override {
    const uint64_t size = mine.size();
    std::vector<int64_t> shape(kTextAxes, 1);
    shape[0] = static_cast<int64_t>(sizeof(size) + size);
    const Tensor parcel = at::empty(shape, at::kChar);
    auto* bytes = static_cast<char*>(parcel.mutable_data_ptr());
    std::memcpy(bytes, &size, sizeof(size));
    std::memcpy(bytes + sizeof(size), mine.data(), size);
    const Tensor all = group_.all_gather(parcel, group_.options());
    const auto* at = static_cast<const char*>(all.const_data_ptr());
    std::vector<std::string> texts;
    for (int worker = 0; worker < num_workers(); ++worker) {
      uint64_t length = 0;
      std::memcpy(&length, at, sizeof(length));
      texts.emplace_back(at + sizeof(length), length);
      at += sizeof(length) + length;
    }
    return texts;
  }
  void call_guarded(FunctionRef<void()> body) const override { group_.guarded(body); }

  distribute::WorkerGroup& group_;
};

}  // namespace

std::shared_ptr<WorkerPeers> peers_of(const distribute::Strategy& strategy) {
  distribute::WorkerGroup* group = strategy.workers();
  return group == nullptr ? nullptr : std::make_shared<Peers>(*group);
}

std::shared_ptr<WorkerPeers> peers_of(const std::vector<Variable>& variables) {
  return variables.empty() ? nullptr : peers_of(*variables[0].state().strategy);
}

Tensor all_components(const Variable& variable) {
  at::NoGradGuard no_grad;
  std::vector<Tensor> here;
  for (const Tensor& component : variable.components()) here.push_back(component.detach().cpu());
  Tensor joined = at::stack(here);
  if (distribute::WorkerGroup* workers = variable.state().strategy->workers())
    joined = workers->all_gather(joined, workers->options());
  return joined;
}

}  // namespace tutti::internal

namespace tutti {
namespace {

class TrackableVariable : public SharedTrackable {
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
  std::shared_ptr<WorkerPeers> peers() const override {
    return internal::peers_of(std::vector<Variable>{variable_});
  }

 private:
  Variable variable_;
};

/// {"random_step": the step of the next run}.
class TrackableStrategy : public SharedTrackable {
 public:
  explicit TrackableStrategy(distribute::Strategy& strategy) : strategy_(strategy) {}
  Nest state() const override {
    return Nest::map({{kRandomStep, Nest(at::scalar_tensor(next_step(), at::kLong))}});
  }
  void check_state(const Nest& state) const override { step_in(state); }
  void set_state(const Nest& state) override { strategy_.set_random_step(step_in(state)); }
  std::shared_ptr<WorkerPeers> peers() const override { return internal::peers_of(strategy_); }

 private:
  static constexpr const char* kRandomStep = "random_step";
  int64_t next_step() const { return strategy_.next_random_step(); }
  static int64_t step_in(const Nest& state) {
    const bool is_map = state.kind() == NestKind::kMap && state.keys().size() == 1 &&
                        state.keys()[0] == kRandomStep;
    const Tensor step = is_map && state[kRandomStep].kind() == NestKind::kLeaf
                            ? state[kRandomStep].leaf()
                            : Tensor();
    if (!step.defined() || step.numel() != 1 || step.scalar_type() != at::kLong ||
        step.item<int64_t>() < 0)
      throw InvalidArgument(cat("strategy: a state ", state.structure(),
                                ", expected the step of its random numbers, 0 or more"));
    return step.item<int64_t>();
  }
  distribute::Strategy& strategy_;
};

}  // namespace

std::shared_ptr<Trackable> trackable(const Variable& variable) {
  return std::make_shared<TrackableVariable>(variable);
}

namespace distribute {
std::shared_ptr<Trackable> trackable(Strategy& strategy) {
  return std::make_shared<TrackableStrategy>(strategy);
}
}  // namespace distribute

}  // namespace tutti
