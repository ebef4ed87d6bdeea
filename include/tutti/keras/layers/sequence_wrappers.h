#pragma once
// Layers around layers of sequences.

#include <optional>
#include <string>

#include "tutti/keras/layers/recurrent.h"

namespace tutti::keras::layers {

struct BidirectionalOptions {
  /// "concat", "sum", "mul", "ave", or "none": two outputs.
  std::string merge_mode = "concat";
  /// Unset: one like `layer` that goes the other way, with weights of its own.
  std::optional<RNN> backward_layer = std::nullopt;
  std::string name = "";
  Shape input_shape = {};
};
/// A recurrent layer forwards and another one backwards over the same sequences, their outputs put
/// together step by step. Both are new ones, made from `layer`'s configuration (weights
/// "…/forward_NAME/…", "…/backward_NAME/…"), unless a backward layer is given. States, as further
/// inputs and outputs, are the forward ones and then the backward ones. The outputs of masked steps
/// of whole sequences are 0.
class Bidirectional : public Layer {
 public:
  explicit Bidirectional(const RNN& layer, const BidirectionalOptions& options = {});
  /// Of stateful layers: both start from zeros.
  void reset_state() const;
};

struct TimeDistributedOptions {
  std::string name = "";
  Shape input_shape = {};
};
/// `layer` on every step of [batch, time, …]: the steps are rows of one batch.
class TimeDistributed : public Layer {
 public:
  explicit TimeDistributed(const Layer& layer, const TimeDistributedOptions& options = {});
};

}  // namespace tutti::keras::layers
