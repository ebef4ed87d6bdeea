// training.json: a fit or a hand-written loop on 1, 2 and 4 replicas, all of which must give the
// numbers of one (RULES.md, 1 and 3).

#include <set>

#include "golden/golden_file.h"
#include "golden/workers.h"
#include "tutti/tutti.h"

namespace tutti::golden {
namespace {

namespace layers = keras::layers;

void expect_keys(const Json& object, const std::set<std::string>& known, const std::string& what) {
  for (const auto& [key, value] : object.items()) {
    if (known.count(key) == 0) throw Unknown{cat(what, " \"", key, "\"")};
  }
}

layers::Layer layer_of(const Json& json) {
  const std::string type = json.at("type");
  const keras::Regularizer l2 = keras::regularizers::L2(json.value("l2", 0.0));
  const std::string activation = json.value("activation", "linear");
  if (type == "Dense") {
    expect_keys(json, {"type", "units", "activation", "l2", "use_bias"}, "argument of Dense");
    return layers::Dense(json.at("units"), {.activation = activation,
                                            .use_bias = json.value("use_bias", true),
                                            .kernel_regularizer = l2});
  }
  if (type == "Conv2D") {
    expect_keys(
        json,
        {"type", "filters", "kernel_size", "strides", "padding", "activation", "l2", "use_bias"},
        "argument of Conv2D");
    return layers::Conv2D(json.at("filters"), json.at("kernel_size").get<int64_t>(),
                          {.strides = json.value("strides", int64_t{1}),
                           .padding = json.value("padding", "valid"),
                           .activation = activation,
                           .use_bias = json.value("use_bias", true),
                           .kernel_regularizer = l2});
  }
  if (type == "BatchNormalization") {
    expect_keys(json, {"type", "momentum", "epsilon"}, "argument of BatchNormalization");
    return layers::BatchNormalization(
        {.momentum = json.value("momentum", 0.99), .epsilon = json.value("epsilon", 1e-3)});
  }
  if (type == "Activation") return layers::Activation(activation);
  if (type == "MaxPooling2D") return layers::MaxPooling2D(json.value("pool_size", int64_t{2}));
  if (type == "AveragePooling2D")
    return layers::AveragePooling2D(json.value("pool_size", int64_t{2}));
  if (type == "GlobalAveragePooling2D") return layers::GlobalAveragePooling2D();
  if (type == "Flatten") return layers::Flatten();
  if (type == "Dropout") return layers::Dropout(json.at("rate"));
  throw Unknown{cat("layer ", type)};
}

keras::losses::Loss loss_of(const Json& json, keras::losses::Reduction reduction =
                                                  keras::losses::Reduction::kSumOverBatchSize) {
  Json config = json;
  config.erase("class");
  expect_keys(config, {"from_logits", "label_smoothing"}, "argument of the loss");
  config["reduction"] = keras::losses::to_string(reduction);
  try {
    return keras::losses::Loss::from_config(json.at("class"), config.dump());
  } catch (const InvalidArgument&) {
    throw Unknown{cat("loss ", json.at("class").get<std::string>())};
  }
}

keras::optimizers::Optimizer optimizer_of(const Json& json) {
  Json config = json;
  config.erase("class");
  if (Json& rate = config["learning_rate"]; rate.is_object()) {
    Json arguments = rate;
    arguments.erase("class");
    rate = {{"class_name", rate.at("class")}, {"config", arguments}};
  }
  expect_keys(config,
              {"learning_rate", "momentum", "nesterov", "weight_decay", "clipnorm", "clipvalue",
               "global_clipnorm", "use_ema", "ema_momentum", "ema_overwrite_frequency",
               "gradient_accumulation_steps", "beta_1", "beta_2", "epsilon", "amsgrad", "rho",
               "centered", "initial_accumulator_value"},
              "argument of the optimizer");
  try {
    return keras::optimizers::Optimizer::from_config(json.at("class"), config.dump());
  } catch (const InvalidArgument&) {
    throw Unknown{cat("optimizer ", json.at("class").get<std::string>())};
  }
}

std::vector<keras::MetricSpec> metrics_of(const Json& inputs, const char* key) {
  std::vector<keras::MetricSpec> specs;
  const Json names = inputs.value(key, Json::array());
  for (const Json& name : names) specs.emplace_back(name.get<std::string>());
  return specs;
}

std::unique_ptr<distribute::MirroredStrategy> strategy_of(int replicas) {
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back(cat("cpu:", i));
  return std::make_unique<distribute::MirroredStrategy>(
      distribute::MirroredStrategyOptions{.devices = devices});
}

struct Run {
  const GoldenFile& file;
  const Json& inputs;
  Verdict& verdict;
  std::string where;
  distribute::Strategy* strategy;
  at::Tensor x, y;
  int64_t batch;

  Run(const GoldenFile& file, const Json& inputs, Verdict& verdict, distribute::Strategy& under)
      : file(file),
        inputs(inputs),
        verdict(verdict),
        where(cat(under.num_replicas_in_sync(), " replicas")),
        strategy(&under),
        x(file.tensor(inputs.at("x"))),
        y(file.tensor(inputs.at("y"))),
        batch(inputs.at("batch_size")) {}

  std::unique_ptr<keras::Sequential> model() const {
    std::vector<layers::Layer> stack;
    for (const Json& layer : inputs.at("layers")) stack.push_back(layer_of(layer));
    auto model = std::make_unique<keras::Sequential>(std::move(stack));
    layers::Shape shape = x.sizes().vec();
    shape[0] = -1;
    model->build(shape);
    model->set_weights(file.tensors(inputs.at("initial_weights")));
    return model;
  }

  void compare_logs(const std::string& what, const keras::Logs& found, const Json& expected) const {
    for (const auto& [name, value] : expected.items()) {
      if (found.count(name) == 0) {
        verdict.fail(cat(where, " ", what, ": no ", name));
      } else {
        verdict.close(cat(where, " ", what, " ", name), found.at(name), value);
      }
    }
    if (found.size() != expected.size())
      verdict.fail(
          cat(where, " ", what, ": ", found.size(), " numbers, expected ", expected.size()));
  }

  void compare_weights(const std::string& what, const std::vector<at::Tensor>& found,
                       const Json& expected) const {
    const auto wanted = file.tensors(expected);
    if (found.size() != wanted.size())
      return verdict.fail(
          cat(where, " ", what, ": ", found.size(), " tensors, expected ", wanted.size()));
    for (std::size_t i = 0; i < found.size(); ++i)
      verdict.close(cat(where, " ", what, " ", i), found[i], wanted[i]);
  }
};

void run_fit(Run& run, const Json& expected) {
  auto scope = run.strategy->scope();
  auto model = run.model();
  const Json& inputs = run.inputs;
  model->compile({.optimizer = optimizer_of(inputs.at("optimizer")),
                  .loss = loss_of(inputs.at("loss")),
                  .metrics = metrics_of(inputs, "metrics"),
                  .weighted_metrics = metrics_of(inputs, "weighted_metrics"),
                  .steps_per_execution = inputs.value("steps_per_execution", int64_t{1})});
  keras::FitOptions options;
  options.epochs = inputs.at("epochs");
  options.verbose = 0;
  options.shuffle = false;
  std::vector<std::pair<int64_t, double>> running;
  options.callbacks = {keras::callbacks::LambdaCallback(
      {.on_train_batch_end = [&](int64_t step, const keras::Logs& logs) {
        running.emplace_back(step, logs["loss"]);
      }})};
  const Json class_weight = inputs.value("class_weight", Json::object());
  for (const auto& [label, weight] : class_weight.items())
    options.class_weight[std::stoll(label)] = weight;
  options.validation_freq = inputs.value("validation_freq", int64_t{1});
  if (inputs.contains("validation_data")) {
    const Json& data = inputs.at("validation_data");
    options.validation_data =
        std::pair(run.file.tensor(data.at("x")), run.file.tensor(data.at("y")));
  }
  if (inputs.contains("validation_batch_size"))
    options.validation_batch_size = inputs.at("validation_batch_size").get<int64_t>();
  auto dataset = data::from_tensor_slices(run.x, run.y).batch(run.batch);
  keras::History history;
  const bool as_dataset = inputs.value("input", "") == "dataset";
  if (as_dataset) {
    history = model->fit(dataset, options);
  } else {
    options.batch_size = run.batch;
    options.validation_split = inputs.value("validation_split", 0.0);
    if (inputs.contains("sample_weight"))
      options.sample_weight = run.file.tensor(inputs.at("sample_weight"));
    history = model->fit(run.x, run.y, options);
  }
  const Json& epochs = expected.at("history");
  for (const auto& [name, values] : epochs.items()) {
    const auto found = history.history.find(name);
    if (found == history.history.end() || found->second.size() != values.size()) {
      run.verdict.fail(cat(run.where, " history ", name, ": missing or of another length"));
      continue;
    }
    for (std::size_t e = 0; e < values.size(); ++e)
      run.verdict.close(cat(run.where, " history ", name, " epoch ", e), found->second[e],
                        values[e]);
  }
  run.verdict.equal(cat(run.where, " history names"), static_cast<int64_t>(history.history.size()),
                    static_cast<int64_t>(epochs.size()));
  const Json& steps = expected.at("running_loss");
  run.verdict.equal(cat(run.where, " running losses"), static_cast<int64_t>(running.size()),
                    static_cast<int64_t>(steps.size()));
  for (std::size_t i = 0; i < std::min<std::size_t>(steps.size(), running.size()); ++i) {
    run.verdict.equal(cat(run.where, " running loss ", i, " index"), running[i].first,
                      steps[i][0].get<int64_t>());
    run.verdict.close(cat(run.where, " running loss ", i), running[i].second, steps[i][1]);
  }
  run.compare_weights("final weights", model->get_weights(), expected.at("final_weights"));
  run.verdict.equal(cat(run.where, " iterations"), model->optimizer().iterations(),
                    expected.at("iterations").get<int64_t>());
  keras::EvaluateOptions quiet;
  quiet.verbose = 0;
  if (!as_dataset) {
    quiet.batch_size = run.batch;
    if (inputs.contains("sample_weight"))
      quiet.sample_weight = run.file.tensor(inputs.at("sample_weight"));
  }
  run.compare_logs(
      "evaluate",
      as_dataset ? model->evaluate(dataset, quiet) : model->evaluate(run.x, run.y, quiet),
      expected.at("evaluate"));
  run.verdict.close(cat(run.where, " predict"),
                    model->predict(run.x, {.batch_size = run.batch, .verbose = 0}),
                    run.file.tensor(expected.at("predict")));
}

void run_loop(Run& run, const Json& expected) {
  auto scope = run.strategy->scope();
  auto model = run.model();
  auto optimizer = optimizer_of(run.inputs.at("optimizer"));
  const auto loss_object = loss_of(run.inputs.at("loss"), keras::losses::Reduction::kNone);
  auto dataset =
      run.strategy->distribute_dataset(data::from_tensor_slices(run.x, run.y).batch(run.batch));
  auto train_step = [&](Tensor images, Tensor labels) {
    GradientTape tape;
    const Tensor predictions = (*model)(images, /*training=*/true);
    Tensor loss = nn::compute_average_loss(loss_object(labels, predictions), run.batch);
    for (const Tensor& penalty : model->losses())
      loss = loss + nn::scale_regularization_loss(penalty);
    const auto variables = model->trainable_variables();
    optimizer.apply_gradients(tape.gradient(loss, variables), variables);
    return loss.detach();
  };
  std::size_t step = 0;
  const int64_t epochs = run.inputs.at("epochs");
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (auto [images, labels] : dataset) {
      const auto losses = run.strategy->run(train_step, images, labels);
      const Json& parts = expected.at("per_replica_loss").at(step);
      for (std::size_t r = 0; r < losses.size(); ++r) {
        run.verdict.close(cat(run.where, " step ", step, " loss of replica ", r),
                          losses[r].item<double>(), parts.at(r));
      }
      run.verdict.close(cat(run.where, " step ", step, " loss"),
                        run.strategy->reduce(distribute::ReduceOp::kSum, losses).item<double>(),
                        expected.at("step_loss").at(step));
      ++step;
    }
    if (epoch + 1 < epochs) {
      run.compare_weights(cat("weights after epoch ", epoch), model->get_weights(),
                          expected.at("weights_after_epoch").at(static_cast<std::size_t>(epoch)));
    }
  }
  run.verdict.equal(cat(run.where, " steps"), static_cast<int64_t>(step),
                    static_cast<int64_t>(expected.at("step_loss").size()));
  run.compare_weights("final weights", model->get_weights(), expected.at("final_weights"));
  at::NoGradGuard no_grad;
  run.verdict.close(cat(run.where, " predict"), (*model)(run.x),
                    run.file.tensor(expected.at("predict")));
}

bool has_batch_normalization(const Json& inputs) {
  for (const Json& layer : inputs.at("layers")) {
    if (layer.at("type") == "BatchNormalization") return true;
  }
  return false;
}

}  // namespace

void run_training_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const Json& inputs = entry.at("inputs");
  expect_keys(inputs,
              {"layers",
               "loss",
               "optimizer",
               "metrics",
               "weighted_metrics",
               "batch_size",
               "epochs",
               "x",
               "y",
               "initial_weights",
               "weight_names",
               "sample_weight",
               "class_weight",
               "validation_data",
               "validation_split",
               "validation_freq",
               "validation_batch_size",
               "steps_per_execution",
               "input",
               "kind"},
              "input");
  const bool loop = inputs.value("kind", "") == "custom_loop";
  if (inputs.contains("kind") && !loop)
    throw Unknown{cat("kind ", inputs.at("kind").get<std::string>())};
  const Json& expected = entry.at("expected");
  const auto compare = [&](distribute::Strategy& strategy, const std::string& which,
                           Verdict& found) {
    Run run(file, inputs, found, strategy);
    if (loop) {
      run_loop(run, expected.at(which));
    } else {
      run_fit(run, expected.at(which));
    }
  };
  const bool has_own = loop || has_batch_normalization(inputs);
  for (int replicas : {1, 2, 4}) {
    const auto strategy = strategy_of(replicas);
    compare(*strategy, has_own && replicas > 1 ? cat("mirrored", replicas) : "none", verdict);
  }
  if (has_own && !expected.contains("mwms2_worker0")) return;
  for (int replicas : {1, 2}) {
    if (has_own && replicas > 1) continue;
    run_on_workers(
        2, replicas, verdict, [&](int) -> const Json& { return expected; },
        [&](const Worker& worker, Verdict& found) {
          compare(worker.strategy, has_own ? cat("mwms2_", worker.key) : "none", found);
        });
  }
}

}  // namespace tutti::golden
