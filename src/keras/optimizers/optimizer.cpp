#include <cmath>

#include "keras/json.h"
#include "keras/optimizers/accumulation.h"
#include "keras/optimizers/rules.h"
#include "tutti/distribute/replica_context.h"
#include "tutti/distribute/strategy.h"
#include "tutti/keras/optimizers.h"

namespace tutti::keras::optimizers {
namespace {
void check_learning_rate(const std::string& name, double rate) {
  if (!(rate >= 0))
    throw InvalidArgument(
        cat("optimizer [", name, "]: learning_rate ", rate, ", expected 0 or more"));
}
}  // namespace

/// What every optimizer does around its formula.
struct Frame {
  distribute::GradientClipping clipping;
  std::optional<EmaOptions> ema;
  int64_t accumulation_steps = 1;
};

class Optimizer::Impl {
 public:
  Impl(std::string class_name, std::string name, Json config, std::shared_ptr<Rule> rule,
       const Frame& frame)
      : class_name(std::move(class_name)),
        name(std::move(name)),
        config(std::move(config)),
        rule(std::move(rule)),
        pass(frame.ema ? with_average(this->rule, *frame.ema) : this->rule),
        frame(frame) {}

  std::string class_name;
  std::string name;
  Json config;
  std::shared_ptr<Rule> rule;
  std::shared_ptr<distribute::UpdateRule> pass;  // the rule, or what goes around it
  Frame frame;
  std::vector<std::string> no_decay;
  std::unique_ptr<distribute::FusedUpdate> update;
  std::unique_ptr<Accumulation> accumulation;
  int64_t iterations_before_build = 0;
  std::function<void(Optimizer&)> when_built;

  void make(const std::vector<Variable>& variables) {
    std::vector<bool> decay;
    for (const Variable& variable : variables) {
      bool applies = true;
      for (const std::string& part : no_decay)
        applies = applies && variable.name().find(part) == std::string::npos;
      decay.push_back(applies);
    }
    auto made = std::make_unique<distribute::FusedUpdate>(variables, pass, frame.clipping, decay);
    made->set_iterations(iterations_before_build);
    if (frame.ema) {
      std::vector<Variable> averages = made->slots(kAverage);
      for (std::size_t i = 0; i < averages.size(); ++i)
        averages[i].assign(variables[i].read_value());
    }
    if (frame.accumulation_steps > 1)
      accumulation = std::make_unique<Accumulation>(name, frame.accumulation_steps, variables);
    update = std::move(made);
  }

  void apply(const std::vector<Tensor>& gradients, bool aggregate) {
    if (accumulation == nullptr) return update->apply(gradients, aggregate);
    accumulation->apply(gradients, aggregate, std::nullopt, *update);
  }
  void apply_sums(const std::vector<Tensor>& gradients, double denominator) {
    if (accumulation != nullptr)
      return accumulation->apply(gradients, /*aggregate=*/true, denominator, *update);
    const auto& own = update->variables();
    const distribute::ReplicaContext* context = distribute::get_replica_context();
    const bool inside =
        context != nullptr && !own.empty() && &context->strategy() == &own[0].strategy();
    const double divisor = divisor_over_replicas(denominator, inside);
    at::NoGradGuard no_grad;
    std::vector<Tensor> means;
    for (const Tensor& gradient : gradients)
      means.push_back(gradient.defined() ? gradient / divisor : gradient);
    update->apply(means, /*aggregate=*/true);
  }

  int64_t iterations() const { return update ? update->iterations() : iterations_before_build; }

  void check_outside(const char* operation) const {
    const distribute::ReplicaContext* context = distribute::get_replica_context();
    if (context == nullptr || context->strategy().is_default()) return;
    throw FailedPrecondition(cat(operation, " [", name, "]: called inside replica ",
                                 context->replica_id_in_sync_group(),
                                 ", expected outside; call it between two runs"));
  }

  bool waits() const { return update == nullptr || when_built != nullptr; }
  /// Inside replicas all of them call it.
  void make_once(Optimizer& handle, const std::vector<Variable>& variables) {
    distribute::once_for_all_replicas("optimizer build", [&] {
      if (update == nullptr) make(variables);
      if (when_built == nullptr) return;
      when_built(handle);
      when_built = nullptr;
    });
  }

  bool same_order(const std::vector<Variable>& variables) const {
    const auto& own = update->variables();
    if (own.size() != variables.size()) return false;
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (!own[i].is_same(variables[i])) return false;
    }
    return true;
  }

  /// The gradients in the order of the variables that it was built with.
  std::vector<Tensor> sorted(const std::vector<Tensor>& gradients,
                             const std::vector<Variable>& variables) const {
    const auto& own = update->variables();
    std::vector<Tensor> all(own.size());
    for (std::size_t i = 0; i < variables.size(); ++i) {
      std::size_t at = 0;
      while (at < own.size() && !own[at].is_same(variables[i])) ++at;
      if (at == own.size()) {
        throw InvalidArgument(cat(
            "apply_gradients [", name, "]: the variable ", variables[i].name(),
            ", expected one of the ", own.size(),
            " with which the optimizer was built; make an optimizer for each set of variables"));
      }
      all[at] = gradients[i];
    }
    return all;
  }
};

Optimizer::Impl& Optimizer::impl() const {
  if (impl_ == nullptr)
    throw FailedPrecondition(
        "optimizer: an empty handle, expected an optimizer; construct one, e.g. Adam()");
  return *impl_;
}

void Optimizer::build(const std::vector<Variable>& variables) {
  Impl& own = impl();
  if (own.waits()) return own.make_once(*this, variables);
  if (own.same_order(variables)) return;
  throw FailedPrecondition(
      cat("optimizer [", name(),
          "]: built a second time, with other variables; make an optimizer for each set"));
}

void Optimizer::apply_gradients(const std::vector<Tensor>& gradients,
                                const std::vector<Variable>& variables, bool skip_aggregation) {
  Impl& own = impl();
  if (gradients.size() != variables.size()) {
    throw InvalidArgument(cat("apply_gradients [", name(), "]: ", gradients.size(),
                              " gradients for ", variables.size(),
                              " variables, expected one each"));
  }
  if (own.waits()) own.make_once(*this, variables);
  if (own.same_order(variables)) {
    own.apply(gradients, !skip_aggregation);
  } else {
    own.apply(own.sorted(gradients, variables), !skip_aggregation);
  }
}
void Optimizer::apply_gradient_sums(const std::vector<Tensor>& gradients,
                                    const std::vector<Variable>& variables, double denominator) {
  Impl& own = impl();
  if (gradients.size() != variables.size()) {
    throw InvalidArgument(cat("apply_gradient_sums [", name(), "]: ", gradients.size(),
                              " gradients for ", variables.size(),
                              " variables, expected one each"));
  }
  if (!(denominator >= 0) || std::isinf(denominator)) {
    throw InvalidArgument(cat("apply_gradient_sums [", name(), "]: denominator ", denominator,
                              ", expected a finite number, 0 or more"));
  }
  if (own.waits()) own.make_once(*this, variables);
  own.apply_sums(own.same_order(variables) ? gradients : own.sorted(gradients, variables),
                 denominator);
}

double Optimizer::learning_rate() const { return impl().rule->learning_rate(); }
void Optimizer::set_learning_rate(double learning_rate) {
  check_learning_rate(name(), learning_rate);
  impl().rule->set_learning_rate(learning_rate);
}
int64_t Optimizer::iterations() const { return impl().iterations(); }
int64_t Optimizer::gradient_steps() const {
  const Impl& own = impl();
  return own.iterations() * own.frame.accumulation_steps +
         (own.accumulation ? own.accumulation->calls() : 0);
}
std::vector<Tensor> Optimizer::accumulated_gradients() const {
  impl().check_outside("accumulated_gradients");
  return impl().accumulation ? impl().accumulation->sums() : std::vector<Tensor>{};
}
std::optional<double> Optimizer::accumulated_denominator() const {
  impl().check_outside("accumulated_denominator");
  return impl().accumulation ? impl().accumulation->denominator() : std::nullopt;
}
void Optimizer::set_accumulated_gradients(const std::vector<Tensor>& gradients, int64_t calls,
                                          std::optional<double> denominator) {
  impl().check_outside("set_accumulated_gradients");
  if (impl().accumulation == nullptr) {
    throw FailedPrecondition(
        cat("set_accumulated_gradients [", name(), "]: the optimizer ",
            built() ? "has no gradient_accumulation_steps" : "is not built",
            ", expected one that is built and accumulates; call build() first"));
  }
  impl().accumulation->restore(gradients, calls, denominator);
}
void Optimizer::finalize_variable_values() {
  Impl& own = impl();
  own.check_outside("finalize_variable_values");
  if (!own.frame.ema || !own.update) return;
  std::vector<Variable> variables = own.update->variables();
  const auto& averages = own.update->slots(kAverage);
  for (std::size_t i = 0; i < variables.size(); ++i) variables[i].assign(averages[i].read_value());
}
void Optimizer::set_iterations(int64_t iterations) {
  if (impl().update) {
    impl().update->set_iterations(iterations);
  } else {
    impl().iterations_before_build = iterations;
  }
}
bool Optimizer::built() const { return impl().update != nullptr; }
void Optimizer::when_built(std::function<void(Optimizer&)> action) {
  impl().when_built = std::move(action);
}
std::vector<Variable> Optimizer::trainable_variables() const {
  return impl().update ? impl().update->variables() : std::vector<Variable>{};
}
std::vector<std::string> Optimizer::slot_names() const { return impl().pass->slot_names(); }
std::vector<Variable> Optimizer::slots(const std::string& name) const {
  return impl().update ? impl().update->slots(name) : std::vector<Variable>{};
}
void Optimizer::exclude_from_weight_decay(const std::vector<std::string>& names) {
  if (built())
    throw FailedPrecondition(
        "exclude_from_weight_decay: the optimizer is built, expected the call before its first "
        "update");
  impl().no_decay.insert(impl().no_decay.end(), names.begin(), names.end());
}
std::string Optimizer::class_name() const { return impl().class_name; }
std::string Optimizer::name() const { return impl().name; }
std::string Optimizer::config() const {
  Json json = impl().config;
  json["learning_rate"] = learning_rate();
  if (!impl().no_decay.empty()) json["exclude_from_weight_decay"] = impl().no_decay;
  return json.dump();
}

namespace {

template <class Options>
distribute::GradientClipping clipping_of(const Options& options) {
  const int set =
      (options.clipnorm ? 1 : 0) + (options.clipvalue ? 1 : 0) + (options.global_clipnorm ? 1 : 0);
  if (set > 1) {
    throw InvalidArgument(
        cat("optimizer [", options.name, "]: ", set,
            " of clipnorm, clipvalue and global_clipnorm are set, expected at most one"));
  }
  for (const auto& bound : {options.clipnorm, options.clipvalue, options.global_clipnorm}) {
    if (bound && !(*bound > 0))
      throw InvalidArgument(cat("optimizer [", options.name, "]: a gradient bound of ", *bound,
                                ", expected a positive number"));
  }
  return {options.clipnorm, options.clipvalue, options.global_clipnorm};
}

template <class Options>
Frame frame_of(const Options& options) {
  Frame frame{clipping_of(options)};
  if (options.use_ema) {
    if (!(options.ema_momentum >= 0 && options.ema_momentum <= 1)) {
      throw InvalidArgument(cat("optimizer [", options.name, "]: ema_momentum ",
                                options.ema_momentum, ", expected from 0 to 1"));
    }
    if (options.ema_overwrite_frequency && *options.ema_overwrite_frequency < 1) {
      throw InvalidArgument(cat("optimizer [", options.name, "]: ema_overwrite_frequency ",
                                *options.ema_overwrite_frequency,
                                ", expected at least 1, or none"));
    }
    frame.ema = EmaOptions{options.ema_momentum, options.ema_overwrite_frequency};
  }
  if (options.gradient_accumulation_steps) {
    frame.accumulation_steps = *options.gradient_accumulation_steps;
    if (frame.accumulation_steps < 2) {
      throw InvalidArgument(cat("optimizer [", options.name, "]: gradient_accumulation_steps ",
                                frame.accumulation_steps, ", expected at least 2, or none"));
    }
  }
  return frame;
}

template <class Options>
Json common_config(const Options& options) {
  check_learning_rate(options.name, options.learning_rate);
  Json json{{"name", options.name}, {"learning_rate", options.learning_rate}};
  auto put = [&](const char* key, const std::optional<double>& value) {
    json[key] = value ? Json(*value) : Json();
  };
  put("weight_decay", options.weight_decay);
  put("clipnorm", options.clipnorm);
  put("clipvalue", options.clipvalue);
  put("global_clipnorm", options.global_clipnorm);
  auto put_count = [&](const char* key, const std::optional<int64_t>& value) {
    json[key] = value ? Json(*value) : Json();
  };
  json["use_ema"] = options.use_ema;
  json["ema_momentum"] = options.ema_momentum;
  put_count("ema_overwrite_frequency", options.ema_overwrite_frequency);
  put_count("gradient_accumulation_steps", options.gradient_accumulation_steps);
  return json;
}

template <class Options>
void read_common(const Json& json, Options& options) {
  auto get = [&](const char* key) -> std::optional<double> {
    if (!json.contains(key) || json[key].is_null()) return std::nullopt;
    return member<double>(json, key, 0);
  };
  options.learning_rate = member<double>(json, "learning_rate", options.learning_rate);
  options.name = member<std::string>(json, "name", options.name);
  options.clipnorm = get("clipnorm");
  options.clipvalue = get("clipvalue");
  options.global_clipnorm = get("global_clipnorm");
  auto count = [&](const char* key) -> std::optional<int64_t> {
    if (!json.contains(key) || json[key].is_null()) return std::nullopt;
    return member<int64_t>(json, key, 0);
  };
  options.use_ema = member<bool>(json, "use_ema", false);
  options.ema_momentum = member<double>(json, "ema_momentum", options.ema_momentum);
  options.ema_overwrite_frequency = count("ema_overwrite_frequency");
  options.gradient_accumulation_steps = count("gradient_accumulation_steps");
  if constexpr (std::is_same_v<decltype(options.weight_decay), double>) {
    options.weight_decay = get("weight_decay").value_or(options.weight_decay);
  } else {
    options.weight_decay = get("weight_decay");
  }
}

Json adam_config(const AdamOptions& options) {
  Json json = common_config(options);
  json.update({{"beta_1", options.beta_1},
               {"beta_2", options.beta_2},
               {"epsilon", options.epsilon},
               {"amsgrad", options.amsgrad}});
  return json;
}

AdamOptions adam_of(const AdamWOptions& o) {
  return {.learning_rate = o.learning_rate,
          .beta_1 = o.beta_1,
          .beta_2 = o.beta_2,
          .epsilon = o.epsilon,
          .amsgrad = o.amsgrad,
          .weight_decay = o.weight_decay,
          .clipnorm = o.clipnorm,
          .clipvalue = o.clipvalue,
          .global_clipnorm = o.global_clipnorm,
          .use_ema = o.use_ema,
          .ema_momentum = o.ema_momentum,
          .ema_overwrite_frequency = o.ema_overwrite_frequency,
          .gradient_accumulation_steps = o.gradient_accumulation_steps,
          .name = o.name};
}

template <class Options>
void read_adam(const Json& json, Options& options) {
  read_common(json, options);
  options.beta_1 = member<double>(json, "beta_1", options.beta_1);
  options.beta_2 = member<double>(json, "beta_2", options.beta_2);
  options.epsilon = member<double>(json, "epsilon", options.epsilon);
  options.amsgrad = member<bool>(json, "amsgrad", options.amsgrad);
}

}  // namespace

SGD::SGD(const SGDOptions& options) {
  Json json = common_config(options);
  if (!(options.momentum >= 0 && options.momentum <= 1)) {
    throw InvalidArgument(cat("optimizer [", options.name, "]: momentum ", options.momentum,
                              ", expected from 0 to 1"));
  }
  json.update({{"momentum", options.momentum}, {"nesterov", options.nesterov}});
  impl_ = std::make_shared<Impl>("SGD", options.name, std::move(json), make_rule(options),
                                 frame_of(options));
}

Adam::Adam(const AdamOptions& options) {
  impl_ = std::make_shared<Impl>("Adam", options.name, adam_config(options), make_rule(options),
                                 frame_of(options));
}

AdamW::AdamW(const AdamWOptions& options) {
  const AdamOptions adam = adam_of(options);
  impl_ = std::make_shared<Impl>("AdamW", options.name, adam_config(adam), make_rule(adam),
                                 frame_of(options));
}

RMSprop::RMSprop(const RMSpropOptions& options) {
  Json json = common_config(options);
  json.update({{"rho", options.rho},
               {"momentum", options.momentum},
               {"epsilon", options.epsilon},
               {"centered", options.centered}});
  impl_ = std::make_shared<Impl>("RMSprop", options.name, std::move(json), make_rule(options),
                                 frame_of(options));
}

Adagrad::Adagrad(const AdagradOptions& options) {
  Json json = common_config(options);
  json.update({{"initial_accumulator_value", options.initial_accumulator_value},
               {"epsilon", options.epsilon}});
  impl_ = std::make_shared<Impl>("Adagrad", options.name, std::move(json), make_rule(options),
                                 frame_of(options));
}

namespace {

Optimizer from_json(const std::string& class_name, const Json& json) {
  const std::string name = to_lower(class_name);
  if (name == "sgd") {
    SGDOptions options;
    read_common(json, options);
    options.momentum = member<double>(json, "momentum", 0);
    options.nesterov = member<bool>(json, "nesterov", false);
    return SGD(options);
  }
  if (name == "adam") {
    AdamOptions options;
    read_adam(json, options);
    return Adam(options);
  }
  if (name == "adamw") {
    AdamWOptions options;
    read_adam(json, options);
    return AdamW(options);
  }
  if (name == "rmsprop") {
    RMSpropOptions options;
    read_common(json, options);
    options.rho = member<double>(json, "rho", options.rho);
    options.momentum = member<double>(json, "momentum", options.momentum);
    options.epsilon = member<double>(json, "epsilon", options.epsilon);
    options.centered = member<bool>(json, "centered", options.centered);
    return RMSprop(options);
  }
  if (name == "adagrad") {
    AdagradOptions options;
    read_common(json, options);
    options.initial_accumulator_value =
        member<double>(json, "initial_accumulator_value", options.initial_accumulator_value);
    options.epsilon = member<double>(json, "epsilon", options.epsilon);
    return Adagrad(options);
  }
  throw InvalidArgument(
      cat("optimizer: \"", class_name, "\", expected sgd, adam, adamw, rmsprop or adagrad"));
}

}  // namespace

Optimizer Optimizer::from_config(const std::string& class_name, const std::string& config) {
  const Json json = parse_object(cat("optimizer ", class_name), config);
  Optimizer optimizer = from_json(class_name, json);
  optimizer.exclude_from_weight_decay(
      member<std::vector<std::string>>(json, "exclude_from_weight_decay", {}));
  return optimizer;
}

Optimizer::Optimizer(const std::string& name) : Optimizer(from_config(name, "{}")) {}

}  // namespace tutti::keras::optimizers
