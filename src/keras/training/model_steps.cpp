// What one replica does in a step, and what all replicas together then know.

#include "keras/training/training_state.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/nn.h"

namespace tutti::keras {
namespace {

std::vector<metrics::Metric> resolved(const std::vector<MetricSpec>& specs, const Batch& batch,
                                      const Tensor& y_pred) {
  std::vector<metrics::Metric> made;
  for (const MetricSpec& spec : specs) {
    made.push_back(spec.metric().defined()
                       ? spec.metric()
                       : metrics::from_string(spec.name(), batch.y.sizes(), y_pred.sizes()));
  }
  return made;
}

/// The sum of `own` over the replicas; a collective when there are several.
Tensor over_replicas(const Tensor& own) {
  distribute::ReplicaContext* replica = distribute::get_replica_context();
  if (replica == nullptr || replica->num_replicas_in_sync() == 1) return own;
  return replica->all_reduce(distribute::ReduceOp::kSum, own);
}

/// Losses and metrics are computed in float32 whatever the layers compute in.
Tensor in_full_precision(const Tensor& y_pred) {
  const bool half = y_pred.scalar_type() == at::kHalf || y_pred.scalar_type() == at::kBFloat16;
  return half ? y_pred.to(at::kFloat) : y_pred;
}

/// This replica's rows' part of the loss of the whole step: means divide by what all replicas have.
Tensor share_of_loss(const losses::Loss& loss, const Batch& batch, const Tensor& y_pred,
                     int64_t all_rows) {
  const Tensor values = loss.per_sample(batch.y, y_pred);
  const Tensor valid = loss.valid(batch.y, y_pred);
  Tensor weights = batch.sample_weight;
  if (valid.defined()) weights = losses::apply_weights(valid.to(values.scalar_type()), weights);
  const Tensor sum = losses::apply_weights(values, weights).sum();
  if (loss.reduction() == losses::Reduction::kSum) return sum;
  if (loss.reduction() == losses::Reduction::kMeanWithSampleWeight && weights.defined())
    return sum / over_replicas(weights.sum(values.scalar_type())).clamp_min(1e-12);
  if (valid.defined()) return sum / over_replicas(valid.sum()).clamp_min(1);
  const int64_t rows = batch.x.size(0);
  if (rows == 0) return sum;  // 0, with its zero gradients
  const double per_row = static_cast<double>(values.numel()) / static_cast<double>(rows);
  return sum / (per_row * static_cast<double>(all_rows));
}

}  // namespace

void Model::train_step(const Batch& batch) {
  Training& training = *training_;
  GradientTape tape;
  const Tensor y_pred = (*this)(batch.x, /*training=*/true);
  const Tensor loss = compute_loss(batch, y_pred);
  if (!training.trainable_known) {
    distribute::once_for_all_replicas("trainable variables", [&] {
      training.trainable = trainable_variables();
      training.trainable_known = true;
    });
  }
  training.optimizer.apply_gradients(
      tape.gradient(training.optimizer.scale_loss(loss), training.trainable), training.trainable);
  update_metrics(batch, y_pred);
}

void Model::test_step(const Batch& batch) {
  const Tensor y_pred = (*this)(batch.x, /*training=*/false);
  compute_loss(batch, y_pred);
  update_metrics(batch, y_pred);
}

Tensor Model::predict_step(const Batch& batch) { return (*this)(batch.x, /*training=*/false); }

Tensor Model::compute_loss(const Batch& batch, const Tensor& y_pred) {
  Training& training = *training_;
  if (!training.compiled)
    throw FailedPrecondition(cat("compute_loss [", name_,
                                 "]: the model is not compiled; call compile() with a loss first"));
  if (!batch.y.defined())
    throw InvalidArgument(
        cat("compute_loss [", name_, "]: data without labels, expected (x, y); the loss needs y"));
  if (!training.loss_metric) {
    distribute::once_for_all_replicas("loss metric", [&] { training.loss_metric.emplace("loss"); });
  }
  const int64_t rows = batch.x.size(0);
  // A step that the loop did not start has been counted by nobody yet.
  const int64_t all_rows = training.step_rows >= 0
                               ? training.step_rows
                               : over_replicas(at::scalar_tensor(rows, at::kLong)).item<int64_t>();
  Tensor loss = share_of_loss(training.loss, batch, in_full_precision(y_pred), all_rows);
  const double replicas = strategy_->num_replicas_in_sync();
  for (const Tensor& penalty : losses()) loss = loss + penalty / replicas;
  // The log is the mean over samples of the steps' losses: each replica adds its part of loss *
  // rows, and its own rows.
  auto state = training.loss_metric->variables();
  {
    at::NoGradGuard no_grad;
    if (strategy_->parameter_device()) {  // one copy: additions are aggregated first
      state[0].assign_add(loss.detach() * static_cast<double>(all_rows));
      state[1].assign_add(at::full({}, static_cast<double>(rows)));
    } else {
      state[0].value().add_(loss.detach(), static_cast<double>(all_rows));
      state[1].value().add_(static_cast<double>(rows));
    }
  }
  return loss;
}

void Model::update_metrics(const Batch& batch, const Tensor& y_pred) {
  Training& training = *training_;
  const Tensor outputs = in_full_precision(y_pred);
  if (!training.metrics_built) {
    distribute::once_for_all_replicas("metrics", [&] {
      training.metrics = resolved(training.metric_specs, batch, outputs);
      training.weighted_metrics = resolved(training.weighted_metric_specs, batch, outputs);
      training.metrics_built = true;
    });
  }
  at::NoGradGuard no_grad;
  for (const metrics::Metric& metric : training.metrics) metric.update_state(batch.y, outputs);
  for (const metrics::Metric& metric : training.weighted_metrics)
    metric.update_state(batch.y, outputs, batch.sample_weight);
}

std::vector<metrics::Metric> Model::metrics() const { return training_->all_metrics(); }

Logs Model::metrics_result() {
  Logs logs;
  for (const metrics::Metric& metric : training_->metrics)
    logs.set(metric.name(), metric.result().item<double>());
  for (const metrics::Metric& metric : training_->weighted_metrics) {
    const bool taken = logs.count(metric.name()) > 0;
    logs.set(taken ? cat("weighted_", metric.name()) : metric.name(),
             metric.result().item<double>());
  }
  if (training_->loss_metric) logs.set("loss", training_->loss_metric->result().item<double>());
  return logs;
}

void Model::reset_metrics() {
  for (const metrics::Metric& metric : training_->all_metrics()) metric.reset_state();
}

}  // namespace tutti::keras
