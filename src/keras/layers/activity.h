#pragma once
// Penalties on what a layer gives out.

#include <vector>

#include "tutti/keras/regularizers.h"

namespace tutti::keras::layers {

/// The activity regulariser of a layer. Each replica keeps the penalty of its last call: that of
/// the output, divided by the rows of the batch as in Keras; an empty batch has none.
class ActivityPenalty {
 public:
  explicit ActivityPenalty(Regularizer regularizer = {}) : regularizer_(std::move(regularizer)) {}
  /// When the layer is built, under its strategy.
  void prepare();
  Tensor record(Tensor output) {
    if (regularizer_.defined()) keep(output);
    return output;
  }
  void add_to(std::vector<Tensor>& losses) const;

 private:
  struct alignas(64) Slot {
    Tensor penalty;
  };
  void keep(const Tensor& output);
  std::size_t slot() const;

  Regularizer regularizer_;
  std::vector<Slot> slots_;
};

}  // namespace tutti::keras::layers
