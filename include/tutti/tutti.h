#pragma once
// All of Tutti. ATen's operators and factories come with it; torch::nn does not (include
// torch/torch.h for that).

#include <ATen/ATen.h>

#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/collectives/communicator.h"
#include "tutti/compat/v1.h"
#include "tutti/data/dataset.h"
#include "tutti/data/readers.h"
#include "tutti/datasets/datasets.h"
#include "tutti/distribute/config.h"
#include "tutti/distribute/extended.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/nn.h"
#include "tutti/distribute/strategies.h"
#include "tutti/distribute/strategy.h"
#include "tutti/io/events.h"
#include "tutti/io/example.h"
#include "tutti/io/parsing.h"
#include "tutti/io/tf_record.h"
#include "tutti/keras/callbacks.h"
#include "tutti/keras/layers.h"
#include "tutti/keras/losses.h"
#include "tutti/keras/metrics.h"
#include "tutti/keras/model.h"
#include "tutti/keras/optimizers.h"
#include "tutti/keras/torch_model.h"
#include "tutti/tensor/indexed_slices.h"
#include "tutti/tensor/printing.h"
#include "tutti/tensor/tensor_spec.h"
#include "tutti/version.h"
