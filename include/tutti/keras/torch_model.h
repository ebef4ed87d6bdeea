#pragma once
// A torch::nn::Module of the user's own as a Keras model.

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/distribute/nn.h"
#include "tutti/keras/model_base.h"
#include "tutti/tensor/static_nest.h"

namespace tutti::keras {

namespace internal {
/// forward's result as a nest: a Tensor, a tuple or vector of Tensors, a map, a Nest.
template <class Result>
Nest to_outputs(const Result& result) {
  if constexpr (std::is_convertible_v<Result, Nest>) {
    return result;
  } else {
    return to_nest(result);
  }
}

template <class M, std::size_t... kIndex>
constexpr bool takes_tensors(std::index_sequence<kIndex...>) {
  return requires(M & module, const Tensor& tensor) {
    module.forward((static_cast<void>(kIndex), tensor)...);
  };
}
template <class M, std::size_t... kIndex>
Nest forward_tensors(M& module, const std::vector<Tensor>& inputs, std::index_sequence<kIndex...>) {
  return to_outputs(module.forward(inputs[kIndex]...));
}
[[noreturn]] void refuse_inputs(const Model& model, std::size_t inputs);

/// Calls forward(Nest), forward(std::vector<Tensor>) or forward(Tensor, …) with up to four tensors.
template <class M>
Nest forward_module(const Model& model, M& module, const Nest& inputs) {
  if constexpr (requires { module.forward(inputs); }) {
    return to_outputs(module.forward(inputs));
  } else {
    const std::vector<Tensor> tensors = flatten(inputs);
    if constexpr (requires { module.forward(tensors); }) {
      return to_outputs(module.forward(tensors));
    } else {
      if constexpr (takes_tensors<M>(std::make_index_sequence<1>())) {
        if (tensors.size() == 1)
          return forward_tensors(module, tensors, std::make_index_sequence<1>());
      }
      if constexpr (takes_tensors<M>(std::make_index_sequence<2>())) {
        if (tensors.size() == 2)
          return forward_tensors(module, tensors, std::make_index_sequence<2>());
      }
      if constexpr (takes_tensors<M>(std::make_index_sequence<3>())) {
        if (tensors.size() == 3)
          return forward_tensors(module, tensors, std::make_index_sequence<3>());
      }
      if constexpr (takes_tensors<M>(std::make_index_sequence<4>())) {
        if (tensors.size() == 4)
          return forward_tensors(module, tensors, std::make_index_sequence<4>());
      }
      refuse_inputs(model, tensors.size());
    }
  }
}
}  // namespace internal

/// A torch::nn::Module `M` with fit, evaluate, predict, callbacks and checkpoints. It needs no
/// torch/torch.h here: the program that defines M includes it.
///
///     keras::TorchModel<Net> model(args…);      // Net(args…) once for each replica
///     model.compile({.optimizer = "adam", .loss = "mse"});
///     model.fit(x, y);
///
/// Its weights are M's parameters, under PyTorch's names ("hidden.weight"), in their order, then
/// its buffers, which each replica keeps for itself (the first one's are seen outside and saved).
/// The module's train() or eval() is called as `training` says. `forward` takes one Tensor, up to
/// four, a vector of them or a Nest, and gives a Tensor, a tuple or vector of them, a map or a
/// Nest.
template <class M>
class TorchModel : public Model {
 public:
  template <class... Args>
  requires(!(sizeof...(Args) == 1 && (std::is_same_v<std::decay_t<Args>, nn::Module<M>> &&
                                      ...))) explicit TorchModel(const Args&... args)
      : TorchModel(nn::Module<M>(args...)) {}
  /// A module that is there already, and shared with it.
  explicit TorchModel(const nn::Module<M>& module) : module_(module) {
    for (const Variable& variable : module_.variables()) track(variable);
    for (const Variable& buffer : module_.buffers()) track(buffer);
  }

  Tensor call(const Tensor& x, bool training) override {
    return call_all(Nest(x), training).leaf();
  }
  Nest call_all(const Nest& inputs, bool training) override {
    M& module = *module_;
    if (module.is_training() != training) module.train(training);
    return internal::forward_module(*this, module, inputs);
  }
  void build(const layers::Shape&) override {}
  bool built() const override { return true; }
  /// This replica's module; the first one's outside replicas.
  M* operator->() const { return module_.operator->(); }
  const nn::Module<M>& module() const { return module_; }

 protected:
  /// One row for each child.
  std::vector<SummaryRow> summary_rows() const override {
    std::vector<SummaryRow> rows;
    for (const auto& child : module_->named_children()) {
      SummaryRow row{child.key(), child.value()->name(), "?"};
      for (const Tensor& parameter : child.value()->parameters()) row.params += parameter.numel();
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  nn::Module<M> module_;
};

}  // namespace tutti::keras
