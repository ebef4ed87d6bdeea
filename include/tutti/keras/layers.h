#pragma once
// The layers, with Keras' names, argument orders, defaults and channels-last shapes.

#include "tutti/keras/layers/activation.h"
#include "tutti/keras/layers/attention.h"
#include "tutti/keras/layers/augmentation.h"
#include "tutti/keras/layers/convolution.h"
#include "tutti/keras/layers/core.h"
#include "tutti/keras/layers/embedding.h"
#include "tutti/keras/layers/merging.h"
#include "tutti/keras/layers/normalization.h"
#include "tutti/keras/layers/pooling.h"
#include "tutti/keras/layers/preprocessing.h"
#include "tutti/keras/layers/recurrent.h"
#include "tutti/keras/layers/regularization.h"
#include "tutti/keras/layers/reshaping.h"
#include "tutti/keras/layers/sequence_wrappers.h"
#include "tutti/keras/layers/sizes.h"
#include "tutti/keras/layers/text.h"
