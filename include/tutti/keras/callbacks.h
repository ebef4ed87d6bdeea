#pragma once
// Callbacks: what a user hangs into the training loop.

#include "tutti/keras/callbacks/callback.h"  // IWYU pragma: export
#include "tutti/keras/callbacks/control.h"   // IWYU pragma: export
#include "tutti/keras/callbacks/output.h"    // IWYU pragma: export
