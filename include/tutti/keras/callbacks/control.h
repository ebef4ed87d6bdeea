#pragma once
// Callbacks that steer the training: when it ends, how fast it learns, with which weights it is
// judged.
//
// `mode` "auto" asks the metric of the monitored name (without `val_`) which way is better, and
// where the metric does not know, the name: with "acc" in it, "fmeasure" at its front or "auc" at
// its end up, else down. Better is strictly better by more than min_delta; NaN never is. A
// monitored number that is missing gives one warning with those there are, and nothing is done.
//
// The loss of an epoch is measured while its weights change, and what is kept is the weights at its
// end: with monitor = "loss" the best epoch's number belongs to weights a little older. val_loss
// belongs to them exactly.

#include <functional>

#include "tutti/keras/callbacks/callback.h"

namespace tutti::keras::callbacks {

struct LambdaCallbackOptions {
  std::function<void(int64_t, const Logs&)> on_epoch_begin = {};
  std::function<void(int64_t, const Logs&)> on_epoch_end = {};
  std::function<void(const Logs&)> on_train_begin = {};
  std::function<void(const Logs&)> on_train_end = {};
  std::function<void(int64_t, const Logs&)> on_train_batch_begin = {};
  std::function<void(int64_t, const Logs&)> on_train_batch_end = {};
  std::function<void(const Logs&)> on_test_begin = {};
  std::function<void(const Logs&)> on_test_end = {};
  std::function<void(int64_t, const Logs&)> on_test_batch_begin = {};
  std::function<void(int64_t, const Logs&)> on_test_batch_end = {};
  std::function<void(const Logs&)> on_predict_begin = {};
  std::function<void(const Logs&)> on_predict_end = {};
  std::function<void(int64_t, const Logs&)> on_predict_batch_begin = {};
  std::function<void(int64_t, const Logs&)> on_predict_batch_end = {};
};
AnyCallback LambdaCallback(LambdaCallbackOptions options);

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0;
  int64_t patience = 0;
  int verbose = 0;
  /// auto, min or max.
  std::string mode = "auto";
  std::optional<double> baseline = std::nullopt;
  bool restore_best_weights = false;
  int64_t start_from_epoch = 0;
};
/// Stops training when the monitored number has not improved for `patience` epochs. With
/// restore_best_weights the model has the weights of the best epoch after fit, whatever ended it.
///
/// The order at the end: after the last epoch ModelCheckpoint saves what there is then; the weights
/// become the average of use_ema; on_train_end restores the best. So the best weights are those
/// that were trained, not averages, unless SwapEMAWeights({.swap_on_epoch = true}) stands in front;
/// and a file of the last epoch does not have them, whichever of the two callbacks stands first.
AnyCallback EarlyStopping(const EarlyStoppingOptions& options = {});

struct LearningRateSchedulerOptions {
  int verbose = 0;
};
/// Sets the optimizer's learning rate at the begin of each epoch to schedule(epoch) or
/// schedule(epoch, rate so far), and adds `learning_rate` to the epoch's logs. InvalidArgument when
/// it gives a number below 0 or not finite; an optimizer whose learning rate is a schedule already
/// is refused by its set_learning_rate.
AnyCallback LearningRateScheduler(std::function<double(int64_t)> schedule,
                                  const LearningRateSchedulerOptions& options = {});
AnyCallback LearningRateScheduler(std::function<double(int64_t, double)> schedule,
                                  const LearningRateSchedulerOptions& options = {});

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  double factor = 0.1;
  int64_t patience = 10;
  int verbose = 0;
  /// auto, min or max.
  std::string mode = "auto";
  double min_delta = 1e-4;
  int64_t cooldown = 0;
  double min_lr = 0;
};
/// Multiplies the learning rate with `factor` (below 1, else InvalidArgument), down to min_lr, when
/// the monitored number has not improved for `patience` epochs; then looks away for `cooldown`
/// epochs. The epoch's logs get `learning_rate`, as it was before. An optimizer whose learning rate
/// is a schedule is refused in on_train_begin, by its set_learning_rate.
AnyCallback ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});

struct TerminateOnNaNOptions {
  bool raise_error = false;
};
/// Stops at the batch whose loss is not finite, with a line that says so; raise_error:
/// FailedPrecondition instead.
AnyCallback TerminateOnNaN(const TerminateOnNaNOptions& options = {});

struct SwapEMAWeightsOptions {
  bool swap_on_epoch = false;
};
/// Evaluations and predictions (in fit and outside it, where it is given) see the average of
/// `use_ema` as weights; afterwards they are as they were. With swap_on_epoch the callbacks behind
/// it in the list see the average in on_epoch_end too, so that ModelCheckpoint saves it;
/// BackupAndRestore, which must save the weights that are trained, stands in front of it then.
/// InvalidArgument when the optimizer has no use_ema.
AnyCallback SwapEMAWeights(const SwapEMAWeightsOptions& options = {});

}  // namespace tutti::keras::callbacks
