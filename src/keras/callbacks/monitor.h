#pragma once
// What EarlyStopping, ModelCheckpoint and ReduceLROnPlateau have in common: the watch on one
// number.

#include <optional>
#include <string>

#include "tutti/keras/callbacks/callback.h"

namespace tutti::keras::callbacks {

/// Whether a number is better than the best so far; strict, and never for NaN. Mode "auto" asks the
/// metric, and where that does not know, the name.
class Monitor {
 public:
  /// InvalidArgument for another mode than auto, min and max.
  Monitor(const char* callback, std::string name, const std::string& mode, double min_delta);
  /// Before training.
  void begin() { warned_ = false; }
  /// The monitored number; nothing, with one warning a training, when it is missing. `model` may be
  /// null.
  std::optional<double> read(const Model* model, const Logs& logs);
  /// After read(). Without a best so far, against the worst there is.
  bool better(double value, const std::optional<double>& best) const;
  const std::string& name() const { return name_; }

 private:
  bool goes_up(const Model* model) const;
  const char* callback_;
  std::string name_;
  double min_delta_;
  std::optional<bool> up_;
  bool warned_ = false;
};

/// Counts batches over epochs by the indices that on_train_batch_end is told, or, in fit, by the
/// steps that the loop has really made.
class BatchCounter {
 public:
  /// Whether `frequency` batches have passed since it last said so.
  bool due(int64_t batch, const TrainingPosition* position, int64_t frequency);
  void begin_epoch(const TrainingPosition* position);

 private:
  int64_t seen_ = 0;
  int64_t before_ = 0;  ///< batches of this epoch that are counted already
};

}  // namespace tutti::keras::callbacks
