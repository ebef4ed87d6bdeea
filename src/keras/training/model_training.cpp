// compile, fit, evaluate, predict: arguments are checked and turned into sources of steps.

#include <algorithm>
#include <cmath>

#include "keras/training/train_loop.h"
#include "tutti/base/log.h"

namespace tutti::keras {

namespace {

constexpr int64_t kDefaultBatchSize = 32;

void check_options(const FitOptions& options) {
  if (options.epochs < 1 || options.initial_epoch < 0) {
    throw InvalidArgument(cat("fit: epochs ", options.epochs, ", initial_epoch ",
                              options.initial_epoch, ", expected at least 1 and at least 0"));
  }
  if (options.steps_per_epoch && *options.steps_per_epoch < 1) {
    throw InvalidArgument(
        cat("fit: steps_per_epoch ", *options.steps_per_epoch, ", expected at least 1, or none"));
  }
  options.validation_freq.check();
  if (options.validation_steps && *options.validation_steps < 1) {
    throw InvalidArgument(
        cat("fit: validation_steps ", *options.validation_steps, ", expected at least 1, or none"));
  }
}

/// For evaluate and predict, whose only limit is `steps`.
void check_steps(const char* operation, const std::optional<int64_t>& steps) {
  if (steps && *steps < 1)
    throw InvalidArgument(cat(operation, ": steps ", *steps, ", expected at least 1, or none"));
}

void check_end(const char* operation, const distribute::DistributedPlan& plan,
               const std::optional<int64_t>& steps, const char* option) {
  if (steps || plan.cardinality() != data::kInfinite) return;
  throw InvalidArgument(
      cat(operation, ": a dataset without end, expected ", option, "; or call take()"));
}

void refuse_array_options(const char* operation, const std::optional<int64_t>& batch_size,
                          const Arrays& sample_weight, double validation_split = 0) {
  if (batch_size || sample_weight.defined() || validation_split != 0) {
    throw InvalidArgument(cat(
        operation,
        ": batch_size, sample_weight or validation_split with a dataset, expected them with arrays "
        "only; a dataset batches, weighs and splits itself"));
  }
}

/// Where the training rows end and the validation rows begin.
int64_t split_point(int64_t rows, double validation_split) {
  if (!(validation_split >= 0 && validation_split < 1)) {
    throw InvalidArgument(
        cat("fit: validation_split ", validation_split, ", expected from 0 to below 1"));
  }
  const auto split =
      static_cast<int64_t>(std::floor(static_cast<double>(rows) * (1 - validation_split)));
  if (split == 0 || split == rows) {
    throw InvalidArgument(cat("fit: validation_split ", validation_split, " of ", rows,
                              " rows leaves ", split, " to train and ", rows - split,
                              " to validate on, expected some of both"));
  }
  return split;
}

std::unique_ptr<StepSource> validation_source(const ValidationData& data, const FitOptions& options,
                                              distribute::Strategy& strategy) {
  if (data.arrays()) {
    const auto& [x, y, weight] = *data.arrays();
    const int64_t batch =
        options.validation_batch_size.value_or(options.batch_size.value_or(kDefaultBatchSize));
    return array_source("fit (validation_data)", {x, y, weight}, batch, Shuffle::Kind::kNone,
                        strategy);
  }
  auto plan = data.distributed();
  if (data.plan()) plan = strategy.distribute_dataset(data::Dataset<Nest>(data.plan())).plan();
  if (!plan) return nullptr;
  check_end("fit (validation_data)", *plan, options.validation_steps, "validation_steps");
  return dataset_source("fit (validation_data)", std::move(plan), strategy);
}

/// With a loss scale where half precision would lose small gradients.
optimizers::Optimizer scaled_if_needed(const Model& model, const optimizers::Optimizer& optimizer) {
  const DTypePolicy mixed("mixed_float16");
  const auto layers = model.layers();
  const bool needed = mixed_precision::global_policy() == mixed ||
                      std::any_of(layers.begin(), layers.end(), [&](const layers::Layer& layer) {
                        return layer->dtype_policy() == mixed;
                      });
  if (!needed || optimizer.class_name() == "LossScaleOptimizer") return optimizer;
  return optimizers::LossScaleOptimizer(optimizer);
}

}  // namespace

Shuffle::Shuffle(const char* word) : kind_(Kind::kBatches), given_(true) {
  if (std::string(word) != "batch")
    throw InvalidArgument(cat("fit: shuffle \"", word, "\", expected true, false or \"batch\""));
}

bool ValidationFrequency::is_due(int64_t epoch) const {
  if (every_ > 0) return (epoch + 1) % every_ == 0;
  return std::find(epochs_.begin(), epochs_.end(), epoch + 1) != epochs_.end();
}

void ValidationFrequency::check() const {
  if (epochs_.empty() && every_ < 1)
    throw InvalidArgument(cat("fit: validation_freq ", every_, ", expected at least 1"));
  for (int64_t epoch : epochs_) {
    if (epoch < 1)
      throw InvalidArgument(
          cat("fit: epoch ", epoch, " in validation_freq, expected epochs from 1 on"));
  }
}

namespace {

void check_metrics(const Metrics& metrics) {
  auto check = [](const std::vector<MetricSpec>& list) {
    for (const MetricSpec& spec : list) {
      if (!spec.metric().defined()) metrics::check_name(spec.name());
    }
  };
  check(metrics.list());
  for (const MetricList& list : metrics.lists()) check(list);
  for (const auto& [name, list] : metrics.by_name()) check(list);
}

}  // namespace

void Model::compile(const CompileOptions& options) {
  if (options.steps_per_execution < 1) {
    throw InvalidArgument(cat("compile [", name(), "]: steps_per_execution ",
                              options.steps_per_execution, ", expected at least 1"));
  }
  check_metrics(options.metrics);
  check_metrics(options.weighted_metrics);
  auto training = std::make_unique<Training>(strategy_->num_local_replicas());
  training->compiled = true;
  training->optimizer =
      options.auto_scale_loss ? scaled_if_needed(*this, options.optimizer) : options.optimizer;
  training->loss = options.loss;
  training->loss_weights = options.loss_weights;
  training->metric_specs = options.metrics;
  training->weighted_metric_specs = options.weighted_metrics;
  training->steps_per_execution = options.steps_per_execution;
  training->auto_scale_loss = options.auto_scale_loss;
  training_ = std::move(training);
}

bool Model::compiled() const { return training_->compiled; }

optimizers::Optimizer& Model::optimizer() {
  if (!compiled())
    throw FailedPrecondition(
        cat("optimizer [", name(),
            "]: the model is not compiled, so it has no optimizer; call compile() first"));
  return training_->optimizer;
}

namespace {

Nest class_weights(const char* operation, const Arrays& y, const Arrays& sample_weight,
                   const std::map<int64_t, double>& class_weight) {
  if (sample_weight.defined())
    throw InvalidArgument(cat(operation, ": class_weight and sample_weight, expected one of them"));
  if (!y.defined())
    throw InvalidArgument(cat(operation, ": class_weight without labels, expected y"));
  return weights_of_classes(operation, unwrapped(y), class_weight);
}

void check_compiled(const Model& model, const char* operation) {
  if (model.compiled()) return;
  throw FailedPrecondition(
      cat(operation, " [", model.name(),
          "]: the model is not compiled, expected a loss and an optimizer; call compile() first"));
}

}  // namespace

History Model::fit(const Arrays& x, const Arrays& y, const FitOptions& options) {
  check_compiled(*this, "fit");
  check_options(options);
  Nest weight = options.sample_weight;
  if (!options.class_weight.empty())
    weight = class_weights("fit", y, options.sample_weight, options.class_weight);
  const int64_t batch = options.batch_size.value_or(kDefaultBatchSize);
  std::unique_ptr<StepSource> validation =
      validation_source(options.validation_data, options, *strategy_);
  ArrayData arrays{x, y, weight};
  if (!validation && options.validation_split != 0) {
    const int64_t rows = count_rows(x);
    const int64_t split = split_point(rows, options.validation_split);
    // Of lengths that differ, the source says more than a slice could.
    array_source("fit", arrays, batch, Shuffle::Kind::kNone, *strategy_);
    validation = array_source(
        "fit (validation_split)",
        {rows_of(x, split, rows), rows_of(y, split, rows), rows_of(weight, split, rows)},
        options.validation_batch_size.value_or(batch), Shuffle::Kind::kNone, *strategy_);
    arrays = {rows_of(x, 0, split), rows_of(y, 0, split), rows_of(weight, 0, split)};
  }
  auto source = array_source("fit", std::move(arrays), batch, options.shuffle.kind(), *strategy_);
  return TrainLoop(*this, options, std::move(source), std::move(validation)).run();
}

History Model::fit(const data::Dataset<Nest>& dataset, const FitOptions& options) {
  return fit(strategy_->distribute_dataset(dataset), options);
}

History Model::fit(const distribute::DistributedDataset<Nest>& dataset, const FitOptions& options) {
  check_compiled(*this, "fit");
  check_options(options);
  refuse_array_options("fit", options.batch_size, options.sample_weight, options.validation_split);
  if (options.shuffle.given() && options.shuffle.kind() != Shuffle::Kind::kNone)
    log_warning("fit [", name(),
                "]: shuffle is for arrays and ignored here; call shuffle() on the dataset");
  check_end("fit", *dataset.plan(), options.steps_per_epoch, "steps_per_epoch");
  return TrainLoop(*this, options,
                   dataset_source("fit", dataset.plan(), *strategy_, options.class_weight),
                   validation_source(options.validation_data, options, *strategy_))
      .run();
}

namespace {

/// What evaluate and predict tell their callbacks before they begin, and the bar they draw.
template <class Options>
std::unique_ptr<ProgressBar> begin(const char* operation, Model& model, const StepSource& source,
                                   const Options& options) {
  check_steps(operation, options.steps);
  const int verbose = resolve_verbose(options.verbose, model.strategy());
  const int64_t steps = options.steps.value_or(source.steps());
  for (const auto& callback : options.callbacks) {
    callback->set_model(&model);
    callback->set_params({verbose, 1, steps});
  }
  const int drawn = bar_verbose(verbose, options.callbacks);
  return drawn == 0 ? nullptr : make_bar(steps, drawn);
}

Logs evaluate_source(Model& model, StepSource& source, const EvaluateOptions& options) {
  check_compiled(model, "evaluate");
  const auto bar = begin("evaluate", model, source, options);
  Logs logs;
  guarded_over_workers(model, [&] {
    logs = TrainLoop::evaluate(model, source, options.steps, options.callbacks, bar.get());
  });
  return logs;
}

Nest predict_source(Model& model, StepSource& source, const PredictOptions& options) {
  const auto bar = begin("predict", model, source, options);
  Nest outputs;
  guarded_over_workers(model, [&] {
    outputs = TrainLoop::predict(model, source, options.steps, options.callbacks, bar.get());
  });
  return outputs;
}

Tensor only_output(const Model& model, Nest outputs) {
  if (!outputs.is_leaf())
    throw InvalidArgument(cat("predict [", model.name(), "]: outputs of the structure ",
                              outputs.structure(), ", expected one tensor; call predict_all"));
  return std::move(outputs.leaf());
}

}  // namespace

Logs Model::evaluate(const Arrays& x, const Arrays& y, const EvaluateOptions& options) {
  auto source = array_source("evaluate", {x, y, options.sample_weight},
                             options.batch_size.value_or(kDefaultBatchSize), Shuffle::Kind::kNone,
                             *strategy_);
  return evaluate_source(*this, *source, options);
}
Logs Model::evaluate(const data::Dataset<Nest>& dataset, const EvaluateOptions& options) {
  return evaluate(strategy_->distribute_dataset(dataset), options);
}
Logs Model::evaluate(const distribute::DistributedDataset<Nest>& dataset,
                     const EvaluateOptions& options) {
  refuse_array_options("evaluate", options.batch_size, options.sample_weight);
  check_end("evaluate", *dataset.plan(), options.steps, "steps");
  auto source = dataset_source("evaluate", dataset.plan(), *strategy_);
  return evaluate_source(*this, *source, options);
}

Nest Model::predict_all(const Arrays& x, const PredictOptions& options) {
  auto source = array_source("predict", {x, {}, {}}, options.batch_size.value_or(kDefaultBatchSize),
                             Shuffle::Kind::kNone, *strategy_);
  return predict_source(*this, *source, options);
}
Nest Model::predict_all(const data::Dataset<Nest>& dataset, const PredictOptions& options) {
  return predict_all(strategy_->distribute_dataset(dataset), options);
}
Nest Model::predict_all(const distribute::DistributedDataset<Nest>& dataset,
                        const PredictOptions& options) {
  refuse_array_options("predict", options.batch_size, {});
  check_end("predict", *dataset.plan(), options.steps, "steps");
  auto source = dataset_source("predict", dataset.plan(), *strategy_);
  return predict_source(*this, *source, options);
}
Tensor Model::predict(const Arrays& x, const PredictOptions& options) {
  return only_output(*this, predict_all(x, options));
}
Tensor Model::predict(const data::Dataset<Nest>& dataset, const PredictOptions& options) {
  return only_output(*this, predict_all(dataset, options));
}
Tensor Model::predict(const distribute::DistributedDataset<Nest>& dataset,
                      const PredictOptions& options) {
  return only_output(*this, predict_all(dataset, options));
}

namespace {

Step whole_batch(const char* operation, ArrayData arrays, const distribute::Strategy& strategy) {
  const int64_t rows = std::max<int64_t>(1, count_rows(arrays.x));
  auto source = array_source(operation, std::move(arrays), rows, Shuffle::Kind::kNone, strategy);
  source->start(0);
  return *source->next();
}

}  // namespace

Logs Model::train_on_batch(const Arrays& x, const Arrays& y, const Arrays& sample_weight,
                           const std::map<int64_t, double>& class_weight) {
  check_compiled(*this, "train_on_batch");
  Nest weight = sample_weight;
  if (!class_weight.empty())
    weight = class_weights("train_on_batch", y, sample_weight, class_weight);
  TrainLoop::run_step(*this, whole_batch("train_on_batch", {x, y, weight}, *strategy_),
                      &Model::train_step);
  return metrics_result();
}
Logs Model::test_on_batch(const Arrays& x, const Arrays& y, const Arrays& sample_weight) {
  check_compiled(*this, "test_on_batch");
  TrainLoop::run_step(*this, whole_batch("test_on_batch", {x, y, sample_weight}, *strategy_),
                      &Model::test_step);
  return metrics_result();
}
Nest Model::predict_on_batch(const Arrays& x) {
  JoinedOutputs outputs;
  outputs.add(TrainLoop::predict_step(*this,
                                      whole_batch("predict_on_batch", {x, {}, {}}, *strategy_),
                                      /*in_turn=*/false));
  return outputs.joined(*this);
}

}  // namespace tutti::keras
