// What one replica does in a step, and what all replicas together then know.

#include <algorithm>

#include "keras/optimizers/optimizer_impl.h"
#include "keras/training/training_state.h"
#include "tutti/base/log.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/nn.h"

namespace tutti::keras {
namespace {

/// The sum of `own` over the replicas; a collective when there are several.
Tensor over_replicas(const Tensor& own) {
  distribute::ReplicaContext* replica = distribute::get_replica_context();
  if (replica == nullptr || replica->num_replicas_in_sync() == 1) return own;
  return replica->all_reduce(distribute::ReduceOp::kSum, own);
}

/// One output of one replica, and what it is compared with.
struct Comparison {
  Tensor y;
  Tensor y_pred;
  Tensor sample_weight;
  Tensor mask;
  int64_t rows = 0;
  int64_t all_rows = 0;
};

/// Losses and metrics are computed in float32 whatever the model computes in.
Tensor at_least_float(const Tensor& y_pred) {
  const at::ScalarType dtype = y_pred.scalar_type();
  return dtype == at::kHalf || dtype == at::kBFloat16 ? y_pred.to(at::kFloat) : y_pred;
}

/// The mask in the shape of `values`, whose first axes it must have.
Tensor spread(const Tensor& mask, const Tensor& values) {
  Tensor spread = mask;
  while (spread.dim() < values.dim()) spread = spread.unsqueeze(-1);
  bool fits = spread.dim() == values.dim();
  for (int64_t d = 0; fits && d < mask.dim(); ++d) fits = spread.size(d) == values.size(d);
  if (!fits)
    throw InvalidArgument(cat("loss: a mask of shape ", shape_text(mask.sizes()),
                              " for values of shape ", shape_text(values.sizes()),
                              ", expected one entry for each value"));
  return spread.expand_as(values);
}

/// This replica's rows' part of the loss of the whole step: means divide by what all replicas have.
Tensor share_of_loss(const losses::Loss& loss, const Comparison& part) {
  const Tensor values = loss.per_sample(part.y, part.y_pred);
  Tensor valid = loss.valid(part.y, part.y_pred);
  if (part.mask.defined()) {
    const Tensor mask = spread(part.mask, values);
    valid = valid.defined() ? valid.logical_and(mask) : mask;
  }
  Tensor weights = part.sample_weight;
  if (valid.defined()) weights = losses::apply_weights(valid.to(values.scalar_type()), weights);
  const Tensor weighted = losses::apply_weights(values, weights);
  const Tensor sum = weighted.sum();
  if (loss.reduction() == losses::Reduction::kSum) return sum;
  if (loss.reduction() == losses::Reduction::kMeanWithSampleWeight && weights.defined())
    return sum / over_replicas(weights.sum(values.scalar_type())).clamp_min(1e-12);
  if (valid.defined()) return sum / over_replicas(valid.sum()).clamp_min(1);
  if (part.rows == 0) return sum;  // 0, with its zero gradients
  const double per_row = static_cast<double>(weighted.numel()) / static_cast<double>(part.rows);
  return sum / (per_row * static_cast<double>(part.all_rows));
}

/// Adds a step to a mean over samples: each replica its part of loss * rows, and its own rows.
void record(const metrics::Mean& metric, const Tensor& share, const Comparison& part,
            bool one_copy) {
  at::NoGradGuard no_grad;
  auto state = metric.variables();
  if (one_copy) {  // additions are aggregated first
    state[0].assign_add(share.detach() * static_cast<double>(part.all_rows));
    state[1].assign_add(at::full({}, static_cast<double>(part.rows)));
  } else {
    state[0].value().add_(share.detach(), static_cast<double>(part.all_rows));
    state[1].value().add_(static_cast<double>(part.rows));
  }
}

const Tensor& leaf_of(const Nest& y_pred, const std::vector<Tensor>& leaves, std::size_t index) {
  return y_pred.is_leaf() ? y_pred.leaf() : leaves[index];
}

/// Of a mask the steps that count, times the sample weights.
Tensor masked_weights(const Tensor& mask, const Tensor& sample_weight) {
  if (!mask.defined()) return sample_weight;
  return losses::apply_weights(mask.to(at::kFloat), sample_weight);
}

std::vector<metrics::Metric> resolved(const std::vector<MetricSpec>& specs, const Tensor& y,
                                      const Tensor& y_pred) {
  std::vector<metrics::Metric> made;
  for (const MetricSpec& spec : specs) {
    made.push_back(spec.metric().defined()
                       ? spec.metric()
                       : metrics::from_string(spec.name(),
                                              y.defined() ? y.sizes() : at::IntArrayRef(),
                                              y_pred.sizes()));
  }
  return made;
}

/// What the steps train, asked once for all replicas.
template <class Training>  // Model::Training, whose name is private
void know_trainable(Model& model, Training& training) {
  if (training.trainable_known) return;
  distribute::once_for_all_replicas("trainable variables", [&] {
    training.trainable = model.trainable_variables();
    training.trainable_known = true;
    if (training.trainable.empty())
      log_warning("fit [", model.name(), "]: the model does not have any trainable weights");
  });
}

}  // namespace

void Model::train_step(const Batch& batch) {
  Training& training = *training_;
  if (optimizers::Optimizer::Impl::of(training.optimizer).when_built != nullptr) {
    // A state waits for the optimizer. It says how this step's loss is scaled, and at which weights
    // gradients are taken.
    if (!built()) build_before_call(batch.inputs());
    if (built()) {
      know_trainable(*this, training);
      training.optimizer.build(training.trainable);
      distribute::once_for_all_replicas("begin_training",
                                        [&] { training.optimizer.begin_training(); });
    }
  }
  GradientTape tape;
  const Nest y_pred = (*this)(batch.inputs(), /*training=*/true);
  const Tensor loss = compute_loss(batch, y_pred);
  know_trainable(*this, training);
  if (!training.trainable.empty()) {
    training.optimizer.apply_gradients(
        tape.gradient(training.optimizer.scale_loss(loss), training.trainable), training.trainable);
  }
  update_metrics(batch, y_pred);
}

void Model::test_step(const Batch& batch) {
  const Nest y_pred = (*this)(batch.inputs(), /*training=*/false);
  compute_loss(batch, y_pred);
  update_metrics(batch, y_pred);
}

Nest Model::predict_step(const Batch& batch) { return (*this)(batch.inputs(), /*training=*/false); }

Tensor Model::compute_loss(const Batch& batch, const Nest& y_pred) {
  Training& training = *training_;
  if (!training.compiled)
    throw FailedPrecondition(cat("compute_loss [", name(),
                                 "]: the model is not compiled; call compile() with a loss first"));
  if (!training.loss_metric) {
    distribute::once_for_all_replicas("loss metric", [&] {
      training.know_outputs(*this, y_pred);
      training.make_loss_metrics();
    });
  }
  Comparison part;
  part.rows = batch.rows();
  // A step that the loop did not start has been counted by nobody yet.
  part.all_rows = training.step_rows >= 0
                      ? training.step_rows
                      : over_replicas(at::scalar_tensor(part.rows, at::kLong)).item<int64_t>();
  const bool one_copy = strategy_->parameter_device().has_value();
  const std::size_t replica = nn::internal::local_replica(*strategy_);
  const Nest targets = batch.targets(), sample_weights = batch.sample_weights();
  const std::vector<Tensor> leaves = y_pred.is_leaf() ? std::vector<Tensor>() : flatten(y_pred);
  Tensor loss;
  for (std::size_t i = 0; i < training.outputs.size(); ++i) {
    const OutputTraining& output = training.outputs[i];
    if (!output.loss.defined()) continue;
    const Tensor& predicted = leaf_of(y_pred, leaves, i);
    part.y = part_of(targets, training.outputs, i);
    if (!part.y.defined()) {
      throw InvalidArgument(
          cat("compute_loss [", name(), "]: data without labels",
              training.outputs.size() > 1 ? cat(" for the output \"", output.name, "\"") : "",
              ", expected (x, y); the loss needs y"));
    }
    part.y_pred = at_least_float(predicted);
    part.sample_weight = part_of(sample_weights, training.outputs, i);
    part.mask = training.mask_of(replica, predicted);
    Tensor share = share_of_loss(output.loss, part);
    if (output.loss_metric) record(*output.loss_metric, share, part, one_copy);
    if (output.weight != 1) share = share * output.weight;
    loss = loss.defined() ? loss + share : std::move(share);
  }
  const double replicas = strategy_->num_replicas_in_sync();
  for (const Tensor& penalty : losses()) {
    const Tensor share = penalty / replicas;
    loss = loss.defined() ? loss + share : share;
  }
  if (!loss.defined()) {
    throw InvalidArgument(
        cat("compute_loss [", name(), "]: no loss, expected one, e.g. compile({.loss = \"mse\"})"));
  }
  record(*training.loss_metric, loss, part, one_copy);
  return loss;
}

void Model::update_metrics(const Batch& batch, const Nest& y_pred) {
  Training& training = *training_;
  const Nest targets = batch.targets();
  const std::vector<Tensor> leaves = y_pred.is_leaf() ? std::vector<Tensor>() : flatten(y_pred);
  if (!training.metrics_built) {
    distribute::once_for_all_replicas("metrics", [&] {
      training.know_outputs(*this, y_pred);
      for (std::size_t i = 0; i < training.outputs.size(); ++i) {
        OutputTraining& output = training.outputs[i];
        const Tensor y = part_of(targets, training.outputs, i);
        const Tensor& predicted = leaf_of(y_pred, leaves, i);
        output.metrics =
            resolved(metrics_of(*this, training.metric_specs, training.outputs, i), y, predicted);
        output.weighted_metrics = resolved(
            metrics_of(*this, training.weighted_metric_specs, training.outputs, i), y, predicted);
      }
      training.name_metrics();
      training.metrics_built = true;
    });
  }
  at::NoGradGuard no_grad;
  const Nest sample_weights = batch.sample_weights();
  const std::size_t replica = nn::internal::local_replica(*strategy_);
  for (std::size_t i = 0; i < training.outputs.size(); ++i) {
    const OutputTraining& output = training.outputs[i];
    if (output.metrics.empty() && output.weighted_metrics.empty()) continue;
    const Tensor& predicted = leaf_of(y_pred, leaves, i);
    const Tensor y = part_of(targets, training.outputs, i);
    const Tensor mask = training.mask_of(replica, predicted);
    const Tensor values = at_least_float(predicted);
    for (const metrics::Metric& metric : output.metrics)
      metric.update_state(y, values, masked_weights(mask, {}));
    if (output.weighted_metrics.empty()) continue;
    const Tensor weights = masked_weights(mask, part_of(sample_weights, training.outputs, i));
    for (const metrics::Metric& metric : output.weighted_metrics)
      metric.update_state(y, values, weights);
  }
}

std::vector<metrics::Metric> Model::metrics() const { return training_->all_metrics(); }

std::vector<std::string> Model::metrics_names() const {
  std::vector<std::string> names{"loss"};
  for (const OutputTraining& output : training_->outputs) {
    if (output.loss_metric) names.push_back(output.loss_metric->name());
  }
  for (const auto& [name, metric] : training_->named_metrics) names.push_back(name);
  return names;
}

Logs Model::metrics_result() {
  Logs logs;
  for (const auto& [name, metric] : training_->named_metrics) logs.set(name, metric.log_value());
  for (const OutputTraining& output : training_->outputs) {
    if (output.loss_metric)
      logs.set(output.loss_metric->name(), output.loss_metric->result().item<double>());
  }
  if (training_->loss_metric) logs.set("loss", training_->loss_metric->result().item<double>());
  return logs;
}

void Model::reset_metrics() {
  for (const metrics::Metric& metric : training_->all_metrics()) metric.reset_state();
}

}  // namespace tutti::keras
