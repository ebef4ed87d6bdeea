// optimizers.json: 20 updates with given gradients, alone and with the gradients shared out to two
// replicas.

#include "golden/golden_file.h"
#include "tutti/tutti.h"

namespace tutti::golden {
namespace {

using keras::optimizers::LossScaleOptimizer;

/// An argument that is a schedule is a class with its arguments.
Json config_of(const Json& args) {
  Json config = args;
  for (auto& [key, value] : config.items()) {
    if (!value.is_object()) continue;
    Json own = value;
    own.erase("class");
    value = {{"class_name", value.at("class")}, {"config", own}};
  }
  return config;
}

keras::optimizers::Optimizer optimizer_of(const Json& inputs) {
  const std::string name = inputs.at("class");
  Json config = config_of(inputs.value("args", Json::object()));
  if (inputs.contains("inner")) {
    const Json& inner = inputs.at("inner");
    config["inner_optimizer"] = {{"class_name", inner.at("class")},
                                 {"config", config_of(inner.value("args", Json::object()))}};
  }
  return keras::optimizers::Optimizer::from_config(name, config.dump());
}

void compare_defaults(const Json& expected, const keras::optimizers::Optimizer& optimizer,
                      Verdict& verdict) {
  const Json config = Json::parse(optimizer.config());
  for (const auto& [key, value] : expected.items()) {
    if (key == "name") continue;
    if (!config.contains(key)) {
      verdict.fail(cat("config: no ", key));
    } else if (value.is_number() && config[key].is_number()) {
      verdict.close(cat("config ", key), config[key].get<double>(), value);
    } else if (config[key] != value) {
      verdict.fail(cat("config ", key, ": ", config[key].dump(), ", expected ", value.dump()));
    }
  }
}

void compare_state(const GoldenFile& file, const std::string& where, const Json& expected,
                   keras::optimizers::Optimizer& optimizer, Verdict& verdict) {
  for (const auto& [name, value] : expected.items()) {
    if (name == "iteration") {  // Keras' variable counts calls, its property updates
      verdict.close(cat(where, name), at::scalar_tensor(optimizer.gradient_steps(), at::kLong),
                    file.tensor(value));
    } else if (name == "learning_rate") {
      verdict.close(cat(where, name), at::scalar_tensor(optimizer.learning_rate(), at::kFloat),
                    file.tensor(value));
    } else if (name.rfind("variable", 0) == 0) {
      // Nadam's product of its momentum's schedule: a function of the number of updates, no state.
    } else if (name.find('_') == std::string::npos) {
      // Adafactor names both means of a variable as it, of which the second one is recorded; a
      // variable of rank 1 has a placeholder there. Slots are of those that have them.
      const at::Tensor wanted = file.tensor(value);
      if (wanted.dim() > 0)
        verdict.close(cat(where, name), optimizer.slots("c").at(0).read_value(), wanted);
    } else {  // w0_momentum: the slot "momentum" of variable 0
      const auto underscore = name.find('_');
      const auto index = static_cast<std::size_t>(std::stoi(name.substr(1, underscore - 1)));
      const std::string slot = name.substr(underscore + 1);
      const at::Tensor wanted = file.tensor(value);
      if (slot == "gradient_accumulator") {
        const at::Tensor sum = optimizer.accumulated_gradients().at(index);
        verdict.close(cat(where, name), sum.defined() ? sum : at::zeros_like(wanted), wanted);
      } else {
        verdict.close(cat(where, name), optimizer.slots(slot).at(index).read_value(), wanted);
      }
    }
  }
}

void run_updates(const GoldenFile& file, const Json& entry, int replicas, Verdict& verdict) {
  const Json& inputs = entry.at("inputs");
  const std::string where = cat(replicas, replicas == 1 ? " replica " : " replicas ");
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back(cat("cpu:", i));
  distribute::MirroredStrategy strategy({.devices = devices});
  auto scope = strategy.scope();
  auto optimizer = optimizer_of(inputs);
  std::vector<Variable> variables;
  for (const at::Tensor& initial : file.tensors(inputs.at("initial")))
    variables.emplace_back(initial, VariableOptions{.name = cat("w", variables.size())});
  const Json& steps = file.resolve(inputs.at("gradients"));
  const Json& after = entry.at("expected").at("after_step");
  const Json* scales = entry.at("expected").contains("scale_before_step")
                           ? &entry.at("expected").at("scale_before_step")
                           : nullptr;
  for (std::size_t step = 0; step < steps.size(); ++step) {
    auto gradients = file.tensors(steps[step]);
    if (scales != nullptr) {
      const auto scale = LossScaleOptimizer::of(optimizer).dynamic_scale();
      verdict.close(cat(where, "scale before step ", step + 1), scale, scales->at(step));
      for (at::Tensor& gradient : gradients) gradient = gradient * scale;
    }
    strategy.run([&] {
      // A quarter and three quarters: the sum over the replicas is exactly the gradient.
      const int id = distribute::get_replica_context()->replica_id_in_sync_group();
      const double share = replicas == 1 ? 1 : id == 0 ? 0.25 : 0.75;
      std::vector<at::Tensor> own;
      for (const at::Tensor& gradient : gradients) own.push_back(gradient * share);
      optimizer.apply_gradients(own, variables);
    });
    const std::string number = std::to_string(step + 1);
    if (!after.contains(number)) continue;
    const auto expected = file.tensors(after.at(number).at("variables"));
    for (std::size_t i = 0; i < variables.size(); ++i) {
      verdict.close(cat(where, "variable ", i, " after step ", number), variables[i].read_value(),
                    expected[i]);
    }
    verdict.equal(cat(where, "iterations after step ", number), optimizer.iterations(),
                  after.at(number).at("iterations").get<int64_t>());
  }
  compare_state(file, where, entry.at("expected").at("optimizer_variables"), optimizer, verdict);
  if (scales != nullptr) {
    verdict.close(cat(where, "final scale"), LossScaleOptimizer::of(optimizer).dynamic_scale(),
                  entry.at("expected").at("final_scale"));
  }
  if (!entry.at("expected").contains("after_finalize")) return;
  optimizer.finalize_variable_values();
  const auto averages = file.tensors(entry.at("expected").at("after_finalize"));
  for (std::size_t i = 0; i < variables.size(); ++i) {
    verdict.close(cat(where, "variable ", i, " after finalize"), variables[i].read_value(),
                  averages[i]);
  }
}

}  // namespace

void run_optimizer_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const Json& expected = entry.at("expected");
  if (expected.contains("config"))
    return compare_defaults(expected.at("config"), optimizer_of(entry.at("inputs")), verdict);
  if (!expected.contains("after_step")) throw Unknown{"expectation"};
  for (int replicas : {1, 2}) run_updates(file, entry, replicas, verdict);
}

}  // namespace tutti::golden
