#pragma once
// Metrics of Keras 3, with exact results over replicas.

#include "tutti/keras/metrics/confusion_metrics.h"
#include "tutti/keras/metrics/mean_metrics.h"
#include "tutti/keras/metrics/metric.h"
#include "tutti/keras/metrics/score_metrics.h"
