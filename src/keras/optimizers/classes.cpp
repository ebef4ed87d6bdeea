// The classes of optimizers.h: their arguments by name, checked, and what is made of them.

#include <algorithm>
#include <array>

#include "keras/optimizers/rule_optimizer.h"
#include "tutti/keras/optimizers.h"

namespace tutti::keras::optimizers {
namespace {

// ---- arguments by their names in Keras
// -------------------------------------------------------------------------------------------------------------------

/// `Own<Options>::visit(options, visitor)` calls `visitor(name, field)` for the arguments that a
/// class has for itself.
template <class Options>
struct Own;

template <>
struct Own<SGDOptions> {
  static constexpr const char* kClass = "SGD";
  template <class O, class V>
  static void visit(O& o, V&& v) {
    v("momentum", o.momentum);
    v("nesterov", o.nesterov);
  }
};
template <>
struct Own<RMSpropOptions> {
  static constexpr const char* kClass = "RMSprop";
  template <class O, class V>
  static void visit(O& o, V&& v) {
    v("rho", o.rho);
    v("momentum", o.momentum);
    v("epsilon", o.epsilon);
    v("centered", o.centered);
  }
};
struct Betas {
  template <class O, class V>
  static void visit(O& o, V&& v) {
    v("beta_1", o.beta_1);
    v("beta_2", o.beta_2);
    v("epsilon", o.epsilon);
  }
};
struct BetasAndAmsgrad {
  template <class O, class V>
  static void visit(O& o, V&& v) {
    Betas::visit(o, v);
    v("amsgrad", o.amsgrad);
  }
};
template <>
struct Own<AdamOptions> : BetasAndAmsgrad {
  static constexpr const char* kClass = "Adam";
};
template <>
struct Own<AdamWOptions> : BetasAndAmsgrad {
  static constexpr const char* kClass = "AdamW";
};
template <>
struct Own<AdamaxOptions> : Betas {
  static constexpr const char* kClass = "Adamax";
};
template <>
struct Own<NadamOptions> : Betas {
  static constexpr const char* kClass = "Nadam";
};
template <>
struct Own<LambOptions> : Betas {
  static constexpr const char* kClass = "Lamb";
};
template <>
struct Own<AdagradOptions> {
  static constexpr const char* kClass = "Adagrad";
  template <class O, class V>
  static void visit(O& o, V&& v) {
    v("initial_accumulator_value", o.initial_accumulator_value);
    v("epsilon", o.epsilon);
  }
};
template <>
struct Own<AdadeltaOptions> {
  static constexpr const char* kClass = "Adadelta";
  template <class O, class V>
  static void visit(O& o, V&& v) {
    v("rho", o.rho);
    v("epsilon", o.epsilon);
  }
};
template <>
struct Own<FtrlOptions> {
  static constexpr const char* kClass = "Ftrl";
  template <class O, class V>
  static void visit(O& o, V&& v) {
    v("learning_rate_power", o.learning_rate_power);
    v("initial_accumulator_value", o.initial_accumulator_value);
    v("l1_regularization_strength", o.l1_regularization_strength);
    v("l2_regularization_strength", o.l2_regularization_strength);
    v("l2_shrinkage_regularization_strength", o.l2_shrinkage_regularization_strength);
    v("beta", o.beta);
  }
};
template <>
struct Own<LionOptions> {
  static constexpr const char* kClass = "Lion";
  template <class O, class V>
  static void visit(O& o, V&& v) {
    v("beta_1", o.beta_1);
    v("beta_2", o.beta_2);
  }
};
template <>
struct Own<AdafactorOptions> {
  static constexpr const char* kClass = "Adafactor";
  template <class O, class V>
  static void visit(O& o, V&& v) {
    v("beta_2_decay", o.beta_2_decay);
    v("epsilon_1", o.epsilon_1);
    v("epsilon_2", o.epsilon_2);
    v("clip_threshold", o.clip_threshold);
    v("relative_step", o.relative_step);
  }
};
template <>
struct Own<MuonOptions> {
  static constexpr const char* kClass = "Muon";
  template <class O, class V>
  static void visit(O& o, V&& v) {
    v("adam_beta_1", o.adam_beta_1);
    v("adam_beta_2", o.adam_beta_2);
    v("adam_weight_decay", o.adam_weight_decay);
    v("epsilon", o.epsilon);
    v("exclude_layers", o.exclude_layers);
    v("exclude_embeddings", o.exclude_embeddings);
    v("muon_a", o.muon_a);
    v("muon_b", o.muon_b);
    v("muon_c", o.muon_c);
    v("adam_lr_ratio", o.adam_lr_ratio);
    v("momentum", o.momentum);
    v("ns_steps", o.ns_steps);
    v("nesterov", o.nesterov);
    v("rms_rate", o.rms_rate);
  }
};
template <>
struct Own<ScheduleFreeAdamWOptions> : Betas {
  static constexpr const char* kClass = "ScheduleFreeAdamW";
  template <class O, class V>
  static void visit(O& o, V&& v) {
    Betas::visit(o, v);
    v("warmup_steps", o.warmup_steps);
  }
};

/// All but the learning rate and the loss scale factor, which the optimizer says itself.
template <class O, class V>
void visit_all(O& o, V&& v) {
  v("name", o.name);
  v("weight_decay", o.weight_decay);
  v("clipnorm", o.clipnorm);
  v("clipvalue", o.clipvalue);
  v("global_clipnorm", o.global_clipnorm);
  v("use_ema", o.use_ema);
  v("ema_momentum", o.ema_momentum);
  v("ema_overwrite_frequency", o.ema_overwrite_frequency);
  v("gradient_accumulation_steps", o.gradient_accumulation_steps);
  Own<std::remove_const_t<O>>::visit(o, v);
}

struct Writer {
  Json json = Json::object();
  template <class T>
  void operator()(const char* key, const T& value) {
    json[key] = value;
  }
  template <class T>
  void operator()(const char* key, const std::optional<T>& value) {
    json[key] = value ? Json(*value) : Json();
  }
};

struct Reader {
  const Json& json;
  template <class T>
  void operator()(const char* key, T& value) const {
    value = member<T>(json, key, value);
  }
  template <class T>
  void operator()(const char* key, std::optional<T>& value) const {
    const auto found = json.find(key);
    if (found == json.end()) return;
    if (found->is_null()) {
      value.reset();
    } else {
      value = member<T>(json, key, T());
    }
  }
};

/// A number, or {"class_name", "config"}.
LearningRate rate_from(const Json& json, const LearningRate& fallback,
                       const CustomObjects& custom_objects) {
  const auto found = json.find("learning_rate");
  if (found == json.end() || found->is_null()) return fallback;
  if (!found->is_object()) return {member<double>(json, "learning_rate", 0)};
  const auto class_name = member<std::string>(*found, "class_name", "");
  const std::string config = member<Json>(*found, "config", Json::object()).dump();
  const auto custom = custom_objects.find(class_name);
  if (custom != custom_objects.end() && custom->second.make_schedule) {
    LearningRate made = custom->second.make_schedule(config);
    if (!made.schedule())
      throw InvalidArgument(cat("learning rate schedule: the maker of \"", class_name,
                                "\" gave none, expected a schedule"));
    return made;
  }
  return {schedules::from_config(class_name, config)};
}

// ---- checks
// -------------------------------------------------------------------------------------------------------------------

[[noreturn]] void refuse(const std::string& optimizer, const char* argument, double value,
                         const char* expected) {
  throw InvalidArgument(
      cat("optimizer [", optimizer, "]: ", argument, " ", value, ", expected ", expected));
}

void check_own(const SGDOptions& o) {
  if (!(o.momentum >= 0 && o.momentum <= 1)) refuse(o.name, "momentum", o.momentum, "from 0 to 1");
}
void check_own(const FtrlOptions& o) {
  if (!(o.learning_rate_power <= 0))
    refuse(o.name, "learning_rate_power", o.learning_rate_power, "0 or less");
  const std::array<std::pair<const char*, double>, 4> strengths{
      {{"initial_accumulator_value", o.initial_accumulator_value},
       {"l1_regularization_strength", o.l1_regularization_strength},
       {"l2_regularization_strength", o.l2_regularization_strength},
       {"l2_shrinkage_regularization_strength", o.l2_shrinkage_regularization_strength}}};
  for (const auto& [argument, value] : strengths) {
    if (!(value >= 0)) refuse(o.name, argument, value, "0 or more");
  }
}
void check_own(const LionOptions& o) {
  if (!(o.beta_1 > 0 && o.beta_1 <= 1)) refuse(o.name, "beta_1", o.beta_1, "above 0, to 1");
}
void check_own(const ScheduleFreeAdamWOptions& o) {
  if (!(o.beta_1 > 0 && o.beta_1 <= 1)) refuse(o.name, "beta_1", o.beta_1, "above 0, to 1");
}
void check_own(const AdafactorOptions& o) {
  if (!(o.clip_threshold > 0))
    refuse(o.name, "clip_threshold", o.clip_threshold, "a positive number");
}
void check_own(const MuonOptions& o) {
  if (o.ns_steps < 1) refuse(o.name, "ns_steps", static_cast<double>(o.ns_steps), "at least 1");
}
template <class Options>
void check_own(const Options&) {}

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
      refuse(options.name, "a gradient bound of", *bound, "a positive number");
  }
  return {options.clipnorm, options.clipvalue, options.global_clipnorm};
}

template <class Options>
Frame frame_of(const Options& options) {
  Frame frame{clipping_of(options)};
  if (options.use_ema) {
    if (!(options.ema_momentum >= 0 && options.ema_momentum <= 1))
      refuse(options.name, "ema_momentum", options.ema_momentum, "from 0 to 1");
    if (options.ema_overwrite_frequency && *options.ema_overwrite_frequency < 1) {
      refuse(options.name, "ema_overwrite_frequency",
             static_cast<double>(*options.ema_overwrite_frequency), "at least 1, or none");
    }
    frame.ema = EmaOptions{options.ema_momentum, options.ema_overwrite_frequency};
  }
  frame.loss_scale_factor = options.loss_scale_factor;
  if (frame.loss_scale_factor && !(*frame.loss_scale_factor > 0))
    refuse(options.name, "loss_scale_factor", *frame.loss_scale_factor, "a positive number");
  if (options.gradient_accumulation_steps) {
    frame.accumulation_steps = *options.gradient_accumulation_steps;
    if (frame.accumulation_steps < 2) {
      refuse(options.name, "gradient_accumulation_steps",
             static_cast<double>(frame.accumulation_steps), "at least 2, or none");
    }
  }
  return frame;
}

// ---- making them
// -------------------------------------------------------------------------------------------------------------------

template <class Options>
std::shared_ptr<RuleOptimizer> make(const Options& options) {
  check_learning_rate(options.name, options.learning_rate);
  check_own(options);
  Writer writer;
  visit_all(options, writer);
  return std::make_shared<RuleOptimizer>(Own<Options>::kClass, options.name, std::move(writer.json),
                                         make_rule(options), frame_of(options));
}

template <class Options>
Optimizer from_json(const Json& json, const CustomObjects& custom_objects) {
  Options options;
  options.learning_rate = rate_from(json, options.learning_rate, custom_objects);
  const Reader reader{json};
  visit_all(options, reader);
  reader("loss_scale_factor", options.loss_scale_factor);
  const std::shared_ptr<RuleOptimizer> made = make(options);
  made->exclude_from_weight_decay(
      {.var_names = member<std::vector<std::string>>(json, "exclude_from_weight_decay", {})});
  made->exclude_by_whole_name(
      member<std::vector<std::string>>(json, "exclude_variables_from_weight_decay", {}));
  made->set_evaluating(member<bool>(json, "evaluating", false));
  return Optimizer(made);
}

struct Class {
  const char* name;
  Optimizer (*make)(const Json&, const CustomObjects&);
};
constexpr Class kClasses[] = {{"SGD", from_json<SGDOptions>},
                              {"RMSprop", from_json<RMSpropOptions>},
                              {"Adam", from_json<AdamOptions>},
                              {"AdamW", from_json<AdamWOptions>},
                              {"Adamax", from_json<AdamaxOptions>},
                              {"Nadam", from_json<NadamOptions>},
                              {"Adagrad", from_json<AdagradOptions>},
                              {"Adadelta", from_json<AdadeltaOptions>},
                              {"Ftrl", from_json<FtrlOptions>},
                              {"Lion", from_json<LionOptions>},
                              {"Lamb", from_json<LambOptions>},
                              {"Adafactor", from_json<AdafactorOptions>},
                              {"Muon", from_json<MuonOptions>},
                              {"ScheduleFreeAdamW", from_json<ScheduleFreeAdamWOptions>}};
/// Around others: they cannot be made from a name alone.
constexpr Class kWrappers[] = {{"LossScaleOptimizer", loss_scale_from_config},
                               {"MultiOptimizer", multi_from_config}};

}  // namespace

SGD::SGD(const SGDOptions& options) : Optimizer(make(options)) {}
RMSprop::RMSprop(const RMSpropOptions& options) : Optimizer(make(options)) {}
Adam::Adam(const AdamOptions& options) : Optimizer(make(options)) {}
AdamW::AdamW(const AdamWOptions& options) : Optimizer(make(options)) {}
Adamax::Adamax(const AdamaxOptions& options) : Optimizer(make(options)) {}
Nadam::Nadam(const NadamOptions& options) : Optimizer(make(options)) {}
Adagrad::Adagrad(const AdagradOptions& options) : Optimizer(make(options)) {}
Adadelta::Adadelta(const AdadeltaOptions& options) : Optimizer(make(options)) {}
Ftrl::Ftrl(const FtrlOptions& options) : Optimizer(make(options)) {}
Lion::Lion(const LionOptions& options) : Optimizer(make(options)) {}
Lamb::Lamb(const LambOptions& options) : Optimizer(make(options)) {}
Adafactor::Adafactor(const AdafactorOptions& options) : Optimizer(make(options)) {}
Muon::Muon(const MuonOptions& options) : Optimizer(make(options)) {}
ScheduleFreeAdamW::ScheduleFreeAdamW(const ScheduleFreeAdamWOptions& options)
    : Optimizer(make(options)) {}

Optimizer Optimizer::from_config(const std::string& class_name, const std::string& config) {
  return optimizer_from(class_name, parse_object(cat("optimizer ", class_name), config), {});
}

Optimizer optimizer_from(const std::string& class_name, const Json& json,
                         const CustomObjects& custom_objects) {
  const std::string wanted = to_lower(class_name);
  std::string known;
  for (const Class& one : kClasses) {
    if (to_lower(one.name) == wanted) return one.make(json, custom_objects);
    known += cat(known.empty() ? "" : ", ", to_lower(one.name));
  }
  for (const Class& one : kWrappers) {
    if (to_lower(one.name) == wanted) return one.make(json, custom_objects);
  }
  throw InvalidArgument(cat("optimizer: \"", class_name, "\", expected one of ", known));
}

}  // namespace tutti::keras::optimizers
