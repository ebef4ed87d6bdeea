// compile, fit, evaluate, predict: arguments are checked and turned into sources of steps.

#include <algorithm>
#include <cmath>

#include "keras/training/train_loop.h"

namespace tutti::keras {

std::string automatic_name(const std::string& class_name);

namespace {

constexpr int64_t kDefaultBatchSize = 32;

Tensor rows_of(const Tensor& array, int64_t begin, int64_t end) {
  return array.defined() ? array.narrow(0, begin, end - begin) : array;
}

void check_options(const FitOptions& options) {
  if (options.epochs < 1 || options.initial_epoch < 0) {
    throw InvalidArgument(cat("fit: epochs ", options.epochs, ", initial_epoch ",
                              options.initial_epoch, ", expected at least 1 and at least 0"));
  }
  if (options.steps_per_epoch && *options.steps_per_epoch < 1) {
    throw InvalidArgument(
        cat("fit: steps_per_epoch ", *options.steps_per_epoch, ", expected at least 1, or none"));
  }
  if (options.validation_freq < 1)
    throw InvalidArgument(
        cat("fit: validation_freq ", options.validation_freq, ", expected at least 1"));
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
                          const Tensor& sample_weight, double validation_split = 0) {
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
    return array_source("fit (validation_data)", {x, y, weight}, batch, false, strategy);
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

Model::Model(std::string name)
    : name_(name.empty() ? automatic_name("Sequential") : std::move(name)),
      strategy_(&distribute::get_strategy()),
      training_(std::make_unique<Training>()) {}

Model::~Model() = default;

void Model::compile(const CompileOptions& options) {
  if (options.steps_per_execution < 1) {
    throw InvalidArgument(cat("compile [", name_, "]: steps_per_execution ",
                              options.steps_per_execution, ", expected at least 1"));
  }
  for (const auto& list : {options.metrics, options.weighted_metrics}) {
    for (const MetricSpec& spec : list) {
      if (!spec.metric().defined()) metrics::check_name(spec.name());
    }
  }
  if (!options.loss.defined())
    throw InvalidArgument(
        cat("compile [", name_, "]: no loss, expected one, e.g. .loss = \"mse\""));
  auto training = std::make_unique<Training>();
  training->compiled = true;
  training->optimizer =
      options.auto_scale_loss ? scaled_if_needed(*this, options.optimizer) : options.optimizer;
  training->loss = options.loss;
  training->metric_specs = options.metrics;
  training->weighted_metric_specs = options.weighted_metrics;
  training->steps_per_execution = options.steps_per_execution;
  training_ = std::move(training);
}

bool Model::compiled() const { return training_->compiled; }

optimizers::Optimizer& Model::optimizer() {
  if (!compiled())
    throw FailedPrecondition(
        cat("optimizer [", name_,
            "]: the model is not compiled, so it has no optimizer; call compile() first"));
  return training_->optimizer;
}

namespace {

void check_compiled(const Model& model, const char* operation) {
  if (model.compiled()) return;
  throw FailedPrecondition(
      cat(operation, " [", model.name(),
          "]: the model is not compiled, expected a loss and an optimizer; call compile() first"));
}

}  // namespace

History Model::fit(const Tensor& x, const Tensor& y, const FitOptions& options) {
  check_compiled(*this, "fit");
  check_options(options);
  Tensor weight = options.sample_weight;
  if (!options.class_weight.empty()) {
    if (weight.defined())
      throw InvalidArgument("fit: class_weight and sample_weight, expected one of them");
    if (!y.defined()) throw InvalidArgument("fit: class_weight without labels, expected y");
    weight = weights_of_classes(y, options.class_weight);
  }
  const int64_t batch = options.batch_size.value_or(kDefaultBatchSize);
  std::unique_ptr<StepSource> validation =
      validation_source(options.validation_data, options, *strategy_);
  int64_t rows = x.defined() && x.dim() > 0 ? x.size(0) : 0;
  if (!validation && options.validation_split != 0) {
    const int64_t split = split_point(rows, options.validation_split);
    validation = array_source(
        "fit (validation_split)",
        {rows_of(x, split, rows), rows_of(y, split, rows), rows_of(weight, split, rows)},
        options.validation_batch_size.value_or(batch), false, *strategy_);
    rows = split;
  }
  ArrayData arrays{x, y, weight};
  if (x.defined() && x.dim() > 0 && rows < x.size(0))
    arrays = {rows_of(x, 0, rows), rows_of(y, 0, rows), rows_of(weight, 0, rows)};
  return TrainLoop(*this, options,
                   array_source("fit", std::move(arrays), batch, options.shuffle, *strategy_),
                   std::move(validation))
      .run();
}

History Model::fit(const data::Dataset<Nest>& dataset, const FitOptions& options) {
  return fit(strategy_->distribute_dataset(dataset), options);
}

History Model::fit(const distribute::DistributedDataset<Nest>& dataset, const FitOptions& options) {
  check_compiled(*this, "fit");
  check_options(options);
  refuse_array_options("fit", options.batch_size, options.sample_weight, options.validation_split);
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
  const int verbose = resolve_verbose(options.verbose);
  const int64_t steps = options.steps.value_or(source.steps());
  for (const auto& callback : options.callbacks) {
    callback->set_model(&model);
    callback->set_params({verbose, 1, steps});
  }
  return verbose == 0 ? nullptr : make_bar(steps, verbose);
}

Logs evaluate_source(Model& model, StepSource& source, const EvaluateOptions& options) {
  check_compiled(model, "evaluate");
  const auto bar = begin("evaluate", model, source, options);
  return TrainLoop::evaluate(model, source, options.steps, options.callbacks, bar.get());
}

Tensor predict_source(Model& model, StepSource& source, const PredictOptions& options) {
  const auto bar = begin("predict", model, source, options);
  return TrainLoop::predict(model, source, options.steps, options.callbacks, bar.get());
}

}  // namespace

Logs Model::evaluate(const Tensor& x, const Tensor& y, const EvaluateOptions& options) {
  auto source = array_source("evaluate", {x, y, options.sample_weight},
                             options.batch_size.value_or(kDefaultBatchSize), false, *strategy_);
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

Tensor Model::predict(const Tensor& x, const PredictOptions& options) {
  auto source = array_source("predict", {x, {}, {}}, options.batch_size.value_or(kDefaultBatchSize),
                             false, *strategy_);
  return predict_source(*this, *source, options);
}
Tensor Model::predict(const data::Dataset<Nest>& dataset, const PredictOptions& options) {
  return predict(strategy_->distribute_dataset(dataset), options);
}
Tensor Model::predict(const distribute::DistributedDataset<Nest>& dataset,
                      const PredictOptions& options) {
  refuse_array_options("predict", options.batch_size, {});
  check_end("predict", *dataset.plan(), options.steps, "steps");
  auto source = dataset_source("predict", dataset.plan(), *strategy_);
  return predict_source(*this, *source, options);
}

namespace {

Step whole_batch(const char* operation, const Tensor& x, const Tensor& y, const Tensor& weight,
                 const distribute::Strategy& strategy) {
  auto source = array_source(operation, {x, y, weight},
                             x.defined() && x.dim() > 0 ? std::max<int64_t>(1, x.size(0)) : 1,
                             false, strategy);
  source->start(0);
  return *source->next();
}

}  // namespace

Logs Model::train_on_batch(const Tensor& x, const Tensor& y, const Tensor& sample_weight) {
  check_compiled(*this, "train_on_batch");
  TrainLoop::run_step(*this, whole_batch("train_on_batch", x, y, sample_weight, *strategy_),
                      &Model::train_step);
  return metrics_result();
}
Logs Model::test_on_batch(const Tensor& x, const Tensor& y, const Tensor& sample_weight) {
  check_compiled(*this, "test_on_batch");
  TrainLoop::run_step(*this, whole_batch("test_on_batch", x, y, sample_weight, *strategy_),
                      &Model::test_step);
  return metrics_result();
}

}  // namespace tutti::keras
