#pragma once
// tutti::nn: losses of replicas, and torch modules of the user's own.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/distribute/strategy.h"
#include "tutti/distribute/variable.h"

namespace tutti::nn {

/// Sum of `per_example_loss` (times `sample_weight`) / `global_batch_size`; the default is replicas
/// × local size. An empty local batch gives 0. Replica context only (FailedPrecondition);
/// InvalidArgument for a scalar loss or a size that is not positive.
Tensor compute_average_loss(const Tensor& per_example_loss,
                            std::optional<int64_t> global_batch_size = std::nullopt,
                            const Tensor& sample_weight = {});

/// Sum of `regularization_loss` / replicas: what each replica adds, so that it counts once. Replica
/// context only.
Tensor scale_regularization_loss(const Tensor& regularization_loss);

/// The rows `ids` (int32 or int64, any shape) of `params` (rank 1 or more): shape ids.shape +
/// params.shape[1:]. Gradient to `params`: only the rows that were looked up, in LibTorch's sparse
/// layout; optimizers take it as it is. InvalidArgument for other dtypes and for ids out of range
/// (on GPUs LibTorch finds these later).
Tensor embedding_lookup(const Variable& params, const Tensor& ids);

namespace internal {
/// A Variable whose components become the given parameters (one a local replica), all equal to the
/// first.
Variable adopt_parameters(const std::string& name, std::vector<Tensor> parameters);
/// A Variable whose components are the given buffers (one a local replica), each of which its
/// replica goes on writing; outside replicas the first one's is read. Undefined under a strategy
/// that keeps one copy for several replicas.
Variable adopt_buffers(const std::string& name, std::vector<Tensor> buffers);
/// Index of this thread's replica in the strategy; 0 outside replicas.
std::size_t local_replica(const distribute::Strategy& strategy);
}  // namespace internal

/// A torch::nn::Module on every replica of the current strategy: parameters are mirrored variables
/// (one storage on CPU), buffers are each replica's own (and variables over them, buffers()).
/// `Module<Net> net(args...)` makes `Net(args...)` once a replica and copies the first one's
/// values. Buffers follow PyTorch's rules on each replica; outside replicas the first one's are
/// seen.
template <class M>
class Module {
 public:
  template <class... Args>
  requires(!(sizeof...(Args) == 1 && (std::is_same_v<std::decay_t<Args>, Module> &&
                                      ...))) explicit Module(const Args&... args)
      : strategy_(&distribute::get_strategy()) {
    strategy_->check_cross_replica("nn::Module");
    for (int i = 0; i < strategy_->num_local_replicas(); ++i) {
      auto module = std::make_shared<M>(args...);
      module->to(strategy_->devices()[static_cast<std::size_t>(i)].torch_device());
      replicas_.push_back(std::move(module));
    }
    mirror();
  }

  /// This replica's module; the first one's outside replicas.
  M* operator->() const { return replicas_[internal::local_replica(*strategy_)].get(); }
  M& operator*() const { return *operator->(); }
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    return operator->()->forward(std::forward<Args>(args)...);
  }

  const std::vector<Variable>& variables() const { return variables_; }
  /// ON_READ variables over the module's buffers; none under CentralStorageStrategy with several
  /// replicas.
  const std::vector<Variable>& buffers() const { return buffers_; }
  std::vector<Variable> trainable_variables() const {
    std::vector<Variable> trainable;
    for (const Variable& variable : variables_) {
      if (variable.trainable()) trainable.push_back(variable);
    }
    return trainable;
  }
  void train(bool on = true) {
    for (auto& module : replicas_) module->train(on);
  }
  void eval() { train(false); }

 private:
  void mirror() {
    std::vector<std::vector<std::pair<std::string, Tensor>>> parameters;
    for (auto& module : replicas_) {
      std::vector<std::pair<std::string, Tensor>> named;
      for (const auto& item : module->named_parameters()) {
        bool seen = false;  // a tied parameter is listed at each place
        for (const auto& [unused, tensor] : named) seen = seen || tensor.is_same(item.value());
        if (!seen) named.emplace_back(item.key(), item.value());
      }
      parameters.push_back(std::move(named));
    }
    for (std::size_t p = 0; p < parameters[0].size(); ++p) {
      std::vector<Tensor> copies;
      for (auto& replica : parameters) copies.push_back(replica[p].second);
      variables_.push_back(internal::adopt_parameters(parameters[0][p].first, std::move(copies)));
    }
    for (std::size_t i = 1; i < replicas_.size(); ++i) {
      auto source = replicas_[0]->named_buffers();
      auto target = replicas_[i]->named_buffers();
      for (const auto& item : source) {
        Tensor* buffer = target.find(item.key());
        if (buffer != nullptr && buffer->defined()) buffer->copy_(item.value());
      }
    }
    for (const auto& item : replicas_[0]->named_buffers()) {
      std::vector<Tensor> copies;
      for (auto& replica : replicas_) copies.push_back(replica->named_buffers()[item.key()]);
      if (!item.value().defined()) continue;
      Variable buffer = internal::adopt_buffers(item.key(), std::move(copies));
      if (buffer.defined()) buffers_.push_back(std::move(buffer));
    }
  }

  distribute::Strategy* strategy_;
  std::vector<std::shared_ptr<M>> replicas_;
  std::vector<Variable> variables_;
  std::vector<Variable> buffers_;
};

}  // namespace tutti::nn
