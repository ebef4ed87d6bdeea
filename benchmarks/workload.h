#pragma once
// The data and weights that benchmarks/peers/workloads.py wrote, the same for every contender.

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "tutti/distribute/strategy.h"

namespace tutti::bench {

struct Workload {
  std::string name;
  int64_t batch = 0;  ///< of one replica
  int replicas = 0;
  int workers = 1;  ///< processes, each with as many replicas
  int64_t warm = 0;
  int64_t steps = 0;
  double learning_rate = 0;
  double momentum = 0;
  at::Tensor x;  ///< all replicas' rows, replica after replica
  at::Tensor y;
  std::vector<at::Tensor> weights;  ///< Keras' order and layouts
};

/// Reads DIR/NAME/manifest.json and the raw files beside it.
Workload read_workload(const std::string& folder, const std::string& name);

struct Measurement {
  double seconds = 0;
  double loss_first = 0;
  double loss_last = 0;
};

/// One step a call; returns the loss over all replicas.
using StepFunction = std::function<double(bool want_loss)>;
/// A first step, warm-up steps, then the measured ones.
Measurement measure(const Workload& work, const StepFunction& step);

/// The workload's model as Keras layers, in a hand-written loop or in fit.
Measurement run_loop(distribute::Strategy& strategy, const Workload& work);
Measurement run_fit(distribute::Strategy& strategy, const Workload& work);
/// ResNet-20 as a torch::nn::Module of its own (C3).
Measurement run_module(distribute::Strategy& strategy, const Workload& work);

}  // namespace tutti::bench
