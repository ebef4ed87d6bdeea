#include "keras/training/train_loop.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "distribute/worker_group.h"
#include "keras/callbacks/progbar_logger.h"

namespace tutti::keras {
namespace {

using callbacks::values_of;

/// Restores what it saw, so that an evaluation in the middle of an epoch leaves the epoch's numbers
/// alone. Metrics that the evaluation itself made begin at zero.
class MetricsSnapshot {
 public:
  explicit MetricsSnapshot(const Model& model) : model_(model) {
    for (const metrics::Metric& metric : model.metrics()) {
      for (const Variable& variable : metric.variables()) {
        std::vector<Tensor> copies;
        for (const Tensor& component : variable.components()) copies.push_back(component.clone());
        saved_.emplace_back(variable, std::move(copies));
      }
    }
  }
  MetricsSnapshot(const MetricsSnapshot&) = delete;
  MetricsSnapshot& operator=(const MetricsSnapshot&) = delete;
  ~MetricsSnapshot() {
    at::NoGradGuard no_grad;
    for (const metrics::Metric& metric : model_.metrics()) {
      for (const Variable& variable : metric.variables()) restore(variable);
    }
  }

 private:
  void restore(const Variable& variable) {
    const auto saved = std::find_if(saved_.begin(), saved_.end(), [&](const auto& entry) {
      return entry.first.is_same(variable);
    });
    auto components = variable.components();
    for (std::size_t i = 0; i < components.size(); ++i) {
      if (saved == saved_.end()) {
        components[i].zero_();
      } else {
        components[i].copy_(saved->second[i]);
      }
    }
  }

  const Model& model_;
  std::vector<std::pair<Variable, std::vector<Tensor>>> saved_;
};

}  // namespace

int resolve_verbose(int verbose, const distribute::Strategy& strategy) {
  if (verbose >= 0 && verbose <= 2) return verbose;
  if (verbose != kVerboseAuto)
    throw InvalidArgument(cat("verbose: ", verbose, ", expected kVerboseAuto, 0, 1 or 2"));
  return isatty(STDOUT_FILENO) ? 1 : 2;
}

Logs metrics_to_draw(Model& model) {
  const distribute::WorkerGroup::LocalReads local(model.strategy().workers());
  return model.metrics_result();
}

void guarded_over_workers(const Model& model, FunctionRef<void()> body) {
  distribute::WorkerGroup* workers = model.strategy().workers();
  if (workers == nullptr) return body();
  workers->guarded(body);
}

int bar_verbose(int verbose, const std::vector<callbacks::AnyCallback>& callbacks) {
  for (const auto& callback : callbacks) {
    if (callbacks::is_progbar_logger(*callback.get())) return 0;
  }
  return verbose;
}

void warn_out_of_data(const char* operation, const Model& model) {
  log_warning(operation, " [", model.name(),
              "]: Your input ran out of data; interrupting training. Make sure that your dataset "
              "or generator can generate at least `steps_per_epoch * epochs` batches. You may need "
              "to use the `.repeat()` function when building your dataset.");
}

TrainLoop::TrainLoop(Model& model, const FitOptions& options, std::unique_ptr<StepSource> training,
                     std::unique_ptr<StepSource> validation)
    : model_(model),
      options_(options),
      training_(std::move(training)),
      validation_(std::move(validation)),
      verbose_(resolve_verbose(options.verbose, model.strategy())) {
  known_steps_ = options.steps_per_epoch.value_or(training_->steps());
  for (const auto& callback : options_.callbacks) callback->position_ = &position_;
}

TrainLoop::~TrainLoop() {
  for (const auto& callback : options_.callbacks) callback->position_ = nullptr;
}

History TrainLoop::run() {
  History history;
  guarded_over_workers(model_, [&] { history = run_now(); });
  return history;
}

History TrainLoop::run_now() {
  const callbacks::Params params{verbose_, options_.epochs, known_steps_};
  for (const auto& callback : options_.callbacks) {
    callback->set_model(&model_);
    callback->set_params(params);
  }
  model_.stop_training = false;
  model_.training_->trainable_known = false;
  log_begin();
  model_.training_->optimizer.begin_training();
  Logs last;
  for (const auto& callback : options_.callbacks) callback->on_train_begin({});
  for (int64_t epoch = resume(); epoch < options_.epochs && !model_.stop_training && !out_of_data_;
       ++epoch) {
    try {
      run_epoch(epoch);
    } catch (...) {
      model_.training_->in_epoch = false;
      throw;
    }
  }
  model_.training_->optimizer.finalize_variable_values();
  log_end();
  if (!history_.epoch.empty()) {
    for (const auto& [name, values] : history_.history) last.set(name, values.back());
  }
  for (const auto& callback : options_.callbacks) callback->on_train_end(last);
  return history_;
}

namespace {
/// What the reduction means in fit, where a loss knows all replicas' rows.
const char* meaning_of(losses::Reduction reduction) {
  switch (reduction) {
    case losses::Reduction::kSum:
      return "the sum over the rows of all replicas";
    case losses::Reduction::kMeanWithSampleWeight:
      return "divided by the sample weights of all replicas' rows";
    default:
      return "the mean over the rows of all replicas";
  }
}
/// "the data has ceil(7 rows / 3) = 3", from what a plan's steps_text() says.
std::string data_text(const std::string& steps) {
  constexpr std::string_view kEndless = "without end";
  if (!steps.starts_with(kEndless)) return "the data has " + steps;
  return "the data is endless" + steps.substr(kEndless.size());
}
}  // namespace

void TrainLoop::log_begin() const {
  if (log_level() > level()) return;
  std::string steps = training_->steps_text();
  if (options_.steps_per_epoch)
    steps = cat(*options_.steps_per_epoch, ", as steps_per_epoch says; ", data_text(steps));
  log_line(level(), cat("fit [", model_.name(), "]: steps an epoch: ", steps));
  const auto say = [&](const std::string& output, const losses::Loss& loss) {
    if (!loss.defined()) return;
    log_line(level(),
             cat("fit [", model_.name(), "]: ", output, "loss ", loss.name(), ", reduction ",
                 losses::to_string(loss.reduction()), ": ", meaning_of(loss.reduction())));
  };
  const PerOutput<losses::Loss>& loss = model_.training_->loss;
  if (loss.all()) say("", *loss.all());
  for (const losses::Loss& each : loss.list()) say("", each);
  for (const auto& [output, each] : loss.by_name()) say(output + " ", each);
}

void TrainLoop::log_end() const {
  if (log_level() > level()) return;
  log_line(level(), cat("fit [", model_.name(), "]: ", history_.epoch.size(), " epochs: ",
                        all_.text(), ", global step ", model_.training_->optimizer.iterations()));
}

void TrainLoop::log_epoch(int64_t epoch) const {
  if (log_level() > LogLevel::kDebug) return;
  log_debug("fit [", model_.name(), "]: epoch ", epoch + 1, ": ", epoch_.text(), ", ",
            std::chrono::duration<double, std::milli>(waited_).count(),
            " ms waiting for data, global step ", model_.training_->optimizer.iterations());
}

std::string TrainLoop::Work::text() const {
  const double seconds = std::chrono::duration<double>(took).count();
  return cat(steps, " steps with ", rows, " samples in ", seconds * 1e3, " ms, ",
             std::llround(static_cast<double>(rows) / std::max(seconds, 1e-9)), " samples/s");
}

bool TrainLoop::validates_after(int64_t epoch) const {
  return validation_ != nullptr && options_.validation_freq.is_due(epoch);
}

void TrainLoop::run_epoch(int64_t epoch) {
  const int64_t first = position_.step;  // not 0 where a backup was of the middle of the epoch
  if (first == 0) model_.reset_metrics();
  position_.epoch = epoch;
  model_.training_->in_epoch = true;
  for (const auto& callback : options_.callbacks) callback->on_epoch_begin(epoch, {});
  const int verbose = bar_verbose(verbose_, options_.callbacks);
  if (verbose != 0 && options_.epochs > 1)
    std::cout << "Epoch " << epoch + 1 << "/" << options_.epochs << "\n" << std::flush;
  bar_ = make_bar(known_steps_, verbose);
  int64_t step = first;
  const int64_t end = options_.steps_per_epoch.value_or(-1);
  const auto begin = Clock::now();
  waited_ = {};
  epoch_ = {};
  do {
    if (!run_execution(step, end)) break;
  } while ((end < 0 || step < end) && !model_.stop_training);
  epoch_.took = Clock::now() - begin;
  epoch_.steps = step - first;
  all_ = {all_.steps + epoch_.steps, all_.rows + epoch_.rows, all_.took + epoch_.took};
  log_epoch(epoch);
  model_.training_->in_epoch = false;
  if (step == 0) {
    throw InvalidArgument(cat(
        "fit [", model_.name(), "]: the dataset is empty, expected at least one batch in epoch ",
        epoch + 1, "; check filters, drop_remainder and, after a first epoch, .repeat()"));
  }
  if (end < 0) position_.in_pass = false;
  position_.epoch = epoch + 1;
  position_.step = 0;
  Logs logs = model_.metrics_result();
  if (validates_after(epoch)) {
    const Logs validation =
        evaluate(model_, *validation_, options_.validation_steps, options_.callbacks, nullptr);
    for (const auto& [name, value] : validation) logs.set(cat("val_", name), value);
  }
  for (const auto& callback : options_.callbacks) callback->on_epoch_end(epoch, logs);
  history_.add(epoch, logs);
  // The first pass over data of unknown length tells it; the next may still be of another one.
  if (!options_.steps_per_epoch && !model_.stop_training) known_steps_ = step;
  bar_->set_target(model_.stop_training ? std::max(step, known_steps_) : step);
  bar_->update(step, values_of(&model_, logs), /*finalize=*/true);
}

/// Up to steps_per_execution steps, with the batch hooks around them. False when the data has
/// ended.
bool TrainLoop::run_execution(int64_t& step, int64_t end) {
  const int64_t first = step;
  int64_t last = first + model_.training_->steps_per_execution;
  if (end >= 0) last = std::min(last, end);
  logs_.reset();
  while (step < last) {
    auto next = next_step(step);
    if (!next) break;
    if (step == first) {
      for (const auto& callback : options_.callbacks) callback->on_train_batch_begin(first, {});
    }
    run_step(model_, *next, &Model::train_step);
    epoch_.rows += next->rows;
    position_.step = ++step;
  }
  if (step > first) {
    // Keras names the step at which the execution was to end, also when the data ended before.
    const int64_t index = first + model_.training_->steps_per_execution - 1;
    for (const auto& callback : options_.callbacks)
      callback->on_train_batch_end(index, batch_logs(callback));
    draw(step);
  }
  return step == last;
}

Logs TrainLoop::batch_logs(const callbacks::AnyCallback& callback) {
  if (!callback->needs_batch_logs()) return {};
  if (callbacks::is_progbar_logger(*callback.get())) return logs_to_draw();
  if (!logs_) logs_ = model_.metrics_result();
  return *logs_;
}

Logs TrainLoop::logs_to_draw() {
  if (logs_) return *logs_;
  if (model_.strategy().workers() != nullptr) return metrics_to_draw(model_);
  logs_ = model_.metrics_result();
  return *logs_;
}

void TrainLoop::draw(int64_t seen) {
  if (bar_->due(seen)) bar_->update(seen, values_of(&model_, logs_to_draw()), /*finalize=*/false);
}

std::optional<Step> TrainLoop::wait_for_data() {
  const auto begin = Clock::now();
  auto step = training_->next();
  waited_ += Clock::now() - begin;
  if (step) ++position_.pass_steps;
  return step;
}

void TrainLoop::start_pass() {
  position_.pass_begin = model_.training_->next_random_step();
  training_->start(position_.pass_begin);
  position_.in_pass = true;
  position_.pass_steps = 0;
  ++position_.passes;
}

std::optional<Step> TrainLoop::next_step(int64_t step) {
  if (!position_.in_pass) start_pass();
  auto next = wait_for_data();
  if (next || !options_.steps_per_epoch) return next;
  if (step == 0) {  // at the border of an epoch a finite dataset begins again
    start_pass();
    if ((next = wait_for_data())) return next;
  }
  if (step > 0) warn_out_of_data("fit", model_);
  out_of_data_ = true;
  return std::nullopt;
}

void TrainLoop::run_step(Model& model, const Step& step, void (Model::*part)(const Batch&)) {
  struct StepRows {
    int64_t& rows;
    ~StepRows() { rows = -1; }
  } rows{model.training_->step_rows};
  rows.rows = step.rows;
  const bool with_gradients = part == &Model::train_step;
  if (with_gradients) model.strategy().set_random_step(model.training_->begin_random_step());
  model.strategy().run_replicas([&](int replica) {
    at::AutoGradMode mode(with_gradients);
    (model.*part)(step.batches[static_cast<std::size_t>(replica)]);
  });
}

namespace {

/// The steps of one pass in executions of steps_per_execution, with the hooks around each: Keras
/// names the step at which the execution was to end, also when the data ended before.
template <class Begin, class Run, class End>
int64_t run_pass(StepSource& source, std::optional<int64_t> limit, int64_t together, Begin&& begin,
                 Run&& run, End&& end) {
  source.start(0);
  int64_t seen = 0;
  for (bool more = true; more && (!limit || seen < *limit);) {
    const int64_t first = seen;
    int64_t last = first + together;
    if (limit) last = std::min(last, *limit);
    while (seen < last) {
      auto step = source.next();
      if (!step) break;
      if (seen == first) begin(first);
      run(*step);
      ++seen;
    }
    more = seen == last;
    if (seen > first) end(first + together - 1, seen);
  }
  return seen;
}

}  // namespace

Logs TrainLoop::evaluate(Model& model, StepSource& source, std::optional<int64_t> limit,
                         const std::vector<callbacks::AnyCallback>& callbacks, ProgressBar* bar) {
  std::optional<MetricsSnapshot> snapshot;
  if (model.training_->in_epoch) snapshot.emplace(model);
  model.reset_metrics();
  for (const auto& callback : callbacks) callback->on_test_begin({});
  const int64_t seen = run_pass(
      source, limit, model.training_->steps_per_execution,
      [&](int64_t first) {
        for (const auto& callback : callbacks) callback->on_test_batch_begin(first, {});
      },
      [&](const Step& step) { run_step(model, step, &Model::test_step); },
      [&](int64_t last, int64_t done) {
        for (const auto& callback : callbacks) {
          const bool needs = callback->needs_batch_logs();
          const bool draws = needs && callbacks::is_progbar_logger(*callback.get());
          callback->on_test_batch_end(last, draws   ? metrics_to_draw(model)
                                            : needs ? model.metrics_result()
                                                    : Logs());
        }
        if (bar != nullptr && bar->due(done))
          bar->update(done, values_of(&model, metrics_to_draw(model)), /*finalize=*/false);
      });
  if (seen == 0)
    throw InvalidArgument(
        cat("evaluate [", model.name(), "]: the dataset is empty, expected at least one batch"));
  if (limit && seen < *limit) warn_out_of_data("evaluate", model);
  const Logs logs = model.metrics_result();
  if (bar != nullptr) {
    bar->set_target(seen);
    bar->update(seen, values_of(&model, logs), /*finalize=*/true);
  }
  for (const auto& callback : callbacks) callback->on_test_end(logs);
  return logs;
}

std::vector<Nest> TrainLoop::predict_step(Model& model, const Step& step, bool in_turn) {
  std::vector<Nest> parts(step.batches.size());
  model.strategy().run_replicas([&](int replica) {
    at::NoGradGuard no_grad;
    const auto index = static_cast<std::size_t>(replica);
    parts[index] = model.predict_step(step.batches[index]);
  });
  if (distribute::WorkerGroup* workers = model.strategy().workers())
    return joined_over(*workers, parts, in_turn);
  return parts;
}

Nest TrainLoop::predict(Model& model, StepSource& source, std::optional<int64_t> limit,
                        const std::vector<callbacks::AnyCallback>& callbacks, ProgressBar* bar) {
  JoinedOutputs outputs;
  for (const auto& callback : callbacks) callback->on_predict_begin({});
  const int64_t seen = run_pass(
      source, limit, model.training_->steps_per_execution,
      [&](int64_t first) {
        for (const auto& callback : callbacks) callback->on_predict_batch_begin(first, {});
      },
      [&](const Step& step) { outputs.add(predict_step(model, step, source.deals_in_turn())); },
      [&](int64_t last, int64_t done) {
        for (const auto& callback : callbacks) callback->on_predict_batch_end(last, {});
        if (bar != nullptr) bar->update(done, {}, /*finalize=*/false);
      });
  Nest joined = outputs.joined(model);
  if (limit && seen < *limit) warn_out_of_data("predict", model);
  if (bar != nullptr) {
    bar->set_target(seen);
    bar->update(seen, {}, /*finalize=*/true);
  }
  for (const auto& callback : callbacks) callback->on_predict_end({});
  return joined;
}

}  // namespace tutti::keras
