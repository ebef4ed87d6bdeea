#pragma once
// What calls add to the loss, and where a call begins.

#include <vector>

#include "distribute/context_stack.h"
#include "tutti/tensor/tensor.h"

namespace tutti::keras::layers {

/// What one layer or model has added since the outermost call that it is part of began. Each local
/// replica has its own, and looks at no other.
class CallLosses {
 public:
  /// For the replicas of the current strategy.
  CallLosses();
  /// InvalidArgument for an undefined tensor; `owner` is named in FailedPrecondition under a
  /// strategy of more replicas than those it was made for.
  void add(const Tensor& loss, const std::string& owner);
  void clear();
  void append_to(std::vector<Tensor>& losses) const;

 private:
  struct alignas(64) Slot {
    std::vector<Tensor> losses;
  };
  static std::size_t here();

  std::vector<Slot> slots_;
};

/// The outermost call of a layer or model on this thread clears what was added before, in itself
/// and in all that it holds; calls within it do not.
class CallScope {
 public:
  CallScope() = default;
  ~CallScope() {
    if (outermost_) distribute::thread_context().in_layer_call = false;
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  /// Whether it is the outermost one.
  bool enter() {
    bool& inside = distribute::thread_context().in_layer_call;
    outermost_ = !inside;
    inside = true;
    return outermost_;
  }

 private:
  bool outermost_ = false;
};

}  // namespace tutti::keras::layers
