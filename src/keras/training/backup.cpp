// The state of a training in a file, and the way back into one.

#include "distribute/variable_checkpoint.h"
#include "keras/saving/optimizer_state.h"
#include "keras/training/train_loop.h"

namespace tutti::keras {
namespace {

constexpr int kFormatVersion = 1;

/// Replicas that have a component each, which a sum or a mean would not give back bit for bit.
bool has_components(const Variable& variable, const distribute::Strategy& strategy) {
  return strategy.num_replicas_in_sync() > 1 &&
         variable.components().size() == static_cast<std::size_t>(strategy.num_local_replicas()) &&
         variable.synchronization() == VariableSynchronization::kOnRead;
}

std::string component_name(const std::string& name, std::size_t index) {
  return cat("components/", name, "/", index);
}

void put_components(const std::string& name, const Variable& variable, const Model& model,
                    io::TensorFile& file) {
  if (!has_components(variable, model.strategy())) return;
  const Tensor components = tutti::internal::all_components(variable);
  for (int64_t i = 0; i < components.size(0); ++i)
    file.tensors.emplace_back(component_name(name, static_cast<std::size_t>(i)),
                              components[i].clone());
}

const Tensor* find(const io::TensorFile& file, const std::string& name) {
  for (const auto& [key, tensor] : file.tensors) {
    if (key == name) return &tensor;
  }
  return nullptr;
}

/// Of a backup that was written with as many replicas; with another number there is the aggregate.
void take_components(const std::string& name, const Variable& variable, const Model& model,
                     const io::TensorFile& file) {
  const distribute::Strategy& strategy = model.strategy();
  if (!has_components(variable, strategy)) return;
  std::vector<Tensor> components = variable.components();
  const auto first = static_cast<std::size_t>(strategy.first_replica_id());
  const auto all = static_cast<std::size_t>(strategy.num_replicas_in_sync());
  if (find(file, component_name(name, all)) != nullptr ||
      find(file, component_name(name, all - 1)) == nullptr)
    return;
  std::vector<const Tensor*> values;
  for (std::size_t i = 0; i < components.size(); ++i) {
    values.push_back(find(file, component_name(name, first + i)));
    if (values.back() == nullptr || values.back()->sizes() != components[i].sizes()) return;
  }
  at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < components.size(); ++i) components[i].copy_(*values[i]);
}

std::string weight_name(std::size_t index) { return cat("weight", index); }
std::string metric_name(std::size_t metric, std::size_t variable) {
  return cat("metrics/", metric, "/", variable);
}

}  // namespace

io::TensorFile TrainLoop::backup_of(const Model& model, const TrainingPosition& position) {
  const Model::Training& training = *model.training_;
  io::TensorFile file;
  const std::vector<Variable> weights = model.weights();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    file.tensors.emplace_back(cat("weights/", weights[i].name()),
                              tutti::internal::saved_value(weights[i]));
    put_components(weight_name(i), weights[i], model, file);
  }
  const auto metrics = training.all_metrics();
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    const std::vector<Variable> variables = metrics[m].variables();
    for (std::size_t i = 0; i < variables.size(); ++i) {
      file.tensors.emplace_back(metric_name(m, i), tutti::internal::saved_value(variables[i]));
      put_components(metric_name(m, i), variables[i], model, file);
    }
  }
  const auto rate = learning_rate_of(training.optimizer);
  const Json json{{"format", kFormatVersion},
                  {"kind", "backup"},
                  {"epoch", position.epoch},
                  {"step", position.step},
                  {"in_pass", position.in_pass},
                  {"passes", position.passes},
                  {"pass_begin", position.pass_begin},
                  {"pass_steps", position.pass_steps},
                  {"seed", position.seed},
                  {"random_step", training.random_step},
                  {"seen_steps", training.seen_steps},
                  {"metrics", metrics.size()},
                  {"learning_rate", rate ? Json(*rate) : Json()},
                  {"optimizer", put_optimizer(model, file)}};
  file.metadata = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return file;
}

void TrainLoop::make_state(Model& model, const Step& step) {
  struct StepRows {
    int64_t& rows;
    ~StepRows() { rows = -1; }
  } rows{model.training_->step_rows};
  rows.rows = step.rows;
  model.strategy().run_replicas([&](int replica) {
    at::NoGradGuard no_grad;
    const Batch& batch = step.batches[static_cast<std::size_t>(replica)];
    const Nest y_pred = model(batch.inputs(), /*training=*/false);
    if (batch.targets().kind() == NestKind::kNone) return;
    model.compute_loss(batch, y_pred);
    model.update_metrics(batch, y_pred);
  });
}

bool TrainLoop::take_metrics(Model& model, const io::TensorFile& file, int64_t count) {
  const auto metrics = model.training_->all_metrics();
  if (static_cast<int64_t>(metrics.size()) != count) return false;
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    const std::vector<Variable> variables = metrics[m].variables();
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const Tensor* value = find(file, metric_name(m, i));
      if (value == nullptr) return false;
      tutti::internal::restore_value(variables[i], *value);
      take_components(metric_name(m, i), variables[i], model, file);
    }
  }
  return true;
}

namespace {
void take_position(const Json& json, TrainingPosition& position) {
  position.epoch = member<int64_t>(json, "epoch", 0);
  position.step = member<int64_t>(json, "step", 0);
  position.in_pass = member<bool>(json, "in_pass", false);
  position.passes = member<int64_t>(json, "passes", 0);
  position.pass_begin = member<int64_t>(json, "pass_begin", 0);
  position.pass_steps = member<int64_t>(json, "pass_steps", 0);
  position.seed = member<uint64_t>(json, "seed", position.seed);
}
}  // namespace

int64_t TrainLoop::resume() {
  position_.seed = training_->seed();
  if (!position_.resume_from) return options_.initial_epoch;
  const io::TensorFile file = std::move(*position_.resume_from);
  position_.resume_from.reset();
  const std::string& path = position_.path;
  const Json json = parse_object(cat("fit [", path, "]"), file.metadata);
  if (member<std::string>(json, "kind", "") != "backup" ||
      member<int>(json, "format", 0) != kFormatVersion) {
    throw InvalidArgument(cat("fit [", path, "]: a file of kind \"",
                              member<std::string>(json, "kind", ""), "\" and format ",
                              member<int>(json, "format", 0), ", expected a backup of format ",
                              kFormatVersion, "; give BackupAndRestore a folder of its own"));
  }
  take_position(json, position_);

  // The last pass is begun again: to go on in it, or only for a batch whose shapes make what is not
  // there yet.
  training_->set_seed(position_.seed);
  const auto metrics = member<int64_t>(json, "metrics", 0);
  const bool made =
      model_.built() && (position_.step == 0 ||
                         static_cast<int64_t>(model_.training_->all_metrics().size()) == metrics);
  int64_t taken = 0;
  if (position_.passes > 0) {
    training_->count_passes(position_.passes - 1);
    training_->start(position_.pass_begin);
    if (!made) {
      if (const auto step = training_->next()) make_state(model_, *step);
      taken = 1;
    }
    if (position_.in_pass) training_->skip(position_.pass_steps - taken);
  }

  take_weights(model_, file, path);
  const std::vector<Variable> weights = model_.weights();
  for (std::size_t i = 0; i < weights.size(); ++i)
    take_components(weight_name(i), weights[i], model_, file);
  auto& training = *model_.training_;
  take_optimizer(model_, member<Json>(json, "optimizer", Json::object()), file, path);
  if (const auto rate = learning_rate_of(training.optimizer)) {
    const auto saved = member<double>(json, "learning_rate", *rate);
    if (saved != *rate) training.optimizer.set_learning_rate(saved);
  }
  training.random_step = member<int64_t>(json, "random_step", -1);
  training.seen_steps = member<int64_t>(json, "seen_steps", -1);
  model_.reset_metrics();
  if (position_.step > 0 && !take_metrics(model_, file, metrics)) {
    log_warning("fit [", model_.name(), "]: ", path, " has other metrics than the model; those of ",
                "epoch ", position_.epoch + 1, " count the steps from here on");
  }
  log_line(level(), cat("fit [", model_.name(), "]: goes on at epoch ", position_.epoch + 1,
                        ", step ", position_.step, ", from ", path));
  return position_.epoch;
}

}  // namespace tutti::keras
