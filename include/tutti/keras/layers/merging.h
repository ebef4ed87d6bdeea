#pragma once
// Layers of several inputs that make one output. Inputs broadcast; an input of lower rank gets axes
// of size 1 behind the batch axis. Fewer than two inputs, or shapes that do not fit, are
// InvalidArgument. When every input has a mask, a step of the output counts where any input's does.

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/keras/layers/core.h"

namespace tutti::keras::layers {

/// Sum.
class Add : public Layer {
 public:
  explicit Add(const LayerOptions& options = {});
};
/// The first of two less the second.
class Subtract : public Layer {
 public:
  explicit Subtract(const LayerOptions& options = {});
};
/// Product; what a mask leaves out counts as 1, and is 0 where all leave it out.
class Multiply : public Layer {
 public:
  explicit Multiply(const LayerOptions& options = {});
};
/// Mean.
class Average : public Layer {
 public:
  explicit Average(const LayerOptions& options = {});
};
/// Largest; what a mask leaves out does not count.
class Maximum : public Layer {
 public:
  explicit Maximum(const LayerOptions& options = {});
};
/// Smallest; what a mask leaves out does not count.
class Minimum : public Layer {
 public:
  explicit Minimum(const LayerOptions& options = {});
};

struct ConcatenateOptions {
  int64_t axis = -1;
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// One behind the other along `axis`; all other axes must agree.
class Concatenate : public Layer {
 public:
  explicit Concatenate(const ConcatenateOptions& options = {});
};

/// One axis of each of two inputs; one number means both.
struct AxisPair {
  int64_t first;
  int64_t second;
  AxisPair(int64_t both) : first(both), second(both) {}  // NOLINT: Dot(1)
  AxisPair(int64_t first, int64_t second) : first(first), second(second) {}
};
struct DotOptions {
  /// Makes both of norm 1 along their axis, so that the result is the cosine.
  bool normalize = false;
  std::string name = "";
  bool trainable = true;
  std::string dtype = "";
  Shape input_shape = {};
};
/// The sum over one axis of each of two inputs, sample by sample: [N, A, B] and [N, C, A] with axes
/// {1, 2} give [N, B, C]; two [N, A] give [N, 1].
class Dot : public Layer {
 public:
  explicit Dot(AxisPair axes, const DotOptions& options = {});
};

/// A new layer of the class, called on `inputs`: symbolic tensors, in a functional model, or
/// tensors.
KerasTensor add(const std::vector<KerasTensor>& inputs, const LayerOptions& options = {});
Tensor add(const std::vector<Tensor>& inputs, const LayerOptions& options = {});
KerasTensor subtract(const std::vector<KerasTensor>& inputs, const LayerOptions& options = {});
Tensor subtract(const std::vector<Tensor>& inputs, const LayerOptions& options = {});
KerasTensor multiply(const std::vector<KerasTensor>& inputs, const LayerOptions& options = {});
Tensor multiply(const std::vector<Tensor>& inputs, const LayerOptions& options = {});
KerasTensor average(const std::vector<KerasTensor>& inputs, const LayerOptions& options = {});
Tensor average(const std::vector<Tensor>& inputs, const LayerOptions& options = {});
KerasTensor maximum(const std::vector<KerasTensor>& inputs, const LayerOptions& options = {});
Tensor maximum(const std::vector<Tensor>& inputs, const LayerOptions& options = {});
KerasTensor minimum(const std::vector<KerasTensor>& inputs, const LayerOptions& options = {});
Tensor minimum(const std::vector<Tensor>& inputs, const LayerOptions& options = {});
KerasTensor concatenate(const std::vector<KerasTensor>& inputs,
                        const ConcatenateOptions& options = {});
Tensor concatenate(const std::vector<Tensor>& inputs, const ConcatenateOptions& options = {});
KerasTensor dot(const std::vector<KerasTensor>& inputs, AxisPair axes,
                const DotOptions& options = {});
Tensor dot(const std::vector<Tensor>& inputs, AxisPair axes, const DotOptions& options = {});

}  // namespace tutti::keras::layers
