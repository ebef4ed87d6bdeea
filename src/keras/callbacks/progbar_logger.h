#pragma once
// What the bar of fit and that of the ProgbarLogger share.

#include "keras/training/progress_bar.h"
#include "tutti/keras/callbacks/callback.h"

namespace tutti::keras::callbacks {

/// The numbers in the order of the chosen layout: sorted, or loss and metrics as compiled, then
/// those of the validation alike, then the others. `model` may be null.
ProgressBar::Values values_of(const Model* model, const Logs& logs);
/// Whether it draws, so that fit need not.
bool is_progbar_logger(const Callback& callback);

}  // namespace tutti::keras::callbacks
