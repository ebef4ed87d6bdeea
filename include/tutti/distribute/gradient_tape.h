#pragma once
// Gradients of what was computed while the tape was open.

#include <cstddef>
#include <vector>

#include "tutti/distribute/variable.h"
#include "tutti/tensor/indexed_slices.h"

namespace tutti {

struct GradientTapeOptions {
  /// True: gradient() may be called several times.
  bool persistent = false;
};

/// Opens when it is made; belongs to one thread. With other tapes open on this thread the graph is
/// kept for them too.
class GradientTape {
 public:
  explicit GradientTape(const GradientTapeOptions& options = {});
  ~GradientTape();
  GradientTape(const GradientTape&) = delete;
  GradientTape& operator=(const GradientTape&) = delete;

  /// Makes gradients flow to a tensor that is no variable. It must be floating; use it only
  /// afterwards.
  void watch(Tensor& tensor);

  /// d target / d sources, undefined for sources that the target does not depend on; in LibTorch's
  /// sparse layout for a variable that was only looked up (nn::embedding_lookup). Runs backward
  /// into this replica's aliases of the variables, so their hooks fire and buffers are handed out
  /// without a copy. A target that is no scalar counts as its sum. Throws FailedPrecondition when
  /// called twice without `persistent`, and, naming the variable, when a source was updated after
  /// the forward.
  std::vector<Tensor> gradient(const Tensor& target, const std::vector<Variable>& sources);
  Tensor gradient(const Tensor& target, const Variable& source) {
    return gradient(target, std::vector<Variable>{source})[0];
  }
  /// The same as rows: those that nn::embedding_lookup looked up, duplicates kept; none when the
  /// target does not depend on the variable, all when it depends on it in another way too. The
  /// variable must have rank 1 or more (InvalidArgument).
  IndexedSlices gradient_slices(const Tensor& target, const Variable& source);
  std::vector<Tensor> gradient(const Tensor& target, const std::vector<Tensor>& watched);
  Tensor gradient(const Tensor& target, const Tensor& watched) {
    return gradient(target, std::vector<Tensor>{watched})[0];
  }

 private:
  std::vector<Tensor> backward(const Tensor& target, std::vector<Tensor> leaves,
                               const std::vector<Variable>& names);

  bool persistent_;
  bool used_ = false;
};

}  // namespace tutti
