#include <algorithm>
#include <regex>

#include "keras/optimizers/optimizer_impl.h"
#include "tutti/distribute/replica_context.h"
#include "tutti/distribute/strategy.h"
#include "tutti/keras/optimizers/wrappers.h"

namespace tutti::keras::optimizers {
namespace {

constexpr const char* kClass = "MultiOptimizer";

bool wraps(const Optimizer& optimizer) {
  return optimizer.class_name() == kClass || optimizer.class_name() == "LossScaleOptimizer";
}
void check_inner(const char* operation, const Optimizer& optimizer) {
  if (!wraps(optimizer)) return;
  throw InvalidArgument(cat(operation, ": a ", optimizer.class_name(),
                            ", expected an optimizer with a formula of its own; put a "
                            "LossScaleOptimizer around the MultiOptimizer instead"));
}

class Multi : public Optimizer::Impl {
 public:
  Multi(std::optional<OptimizerMap> map, std::function<Optimizer(const Variable&)> optimizer_of,
        const MultiOptimizerOptions& options)
      : Impl(kClass, options.name),
        map_(std::move(map)),
        optimizer_of_(std::move(optimizer_of)),
        loss_scale_factor_(options.loss_scale_factor) {
    if (loss_scale_factor_ && !(*loss_scale_factor_ > 0)) {
      throw InvalidArgument(cat("MultiOptimizer [", options.name, "]: loss_scale_factor ",
                                *loss_scale_factor_, ", expected a positive number"));
    }
  }

  std::vector<Optimizer> optimizers() const {
    std::vector<Optimizer> all;
    if (built_) {
      for (const Group& group : groups_) all.push_back(group.optimizer);
    } else if (map_) {
      all.push_back(map_->default_optimizer());
      for (const auto& [key, optimizer] : map_->items()) {
        const bool known = std::any_of(all.begin(), all.end(), [&](const Optimizer& other) {
          return other.is_same(optimizer);
        });
        if (!known) all.push_back(optimizer);
      }
    }
    return all;
  }

  void build(const std::vector<Variable>& variables) override {
    if (!built_)
      return distribute::once_for_all_replicas("optimizer build", [&] { make(variables); });
    const bool same = variables.size() == variables_.size() &&
                      std::equal(variables.begin(), variables.end(), variables_.begin(),
                                 [](const Variable& a, const Variable& b) { return a.is_same(b); });
    if (same) return;
    throw FailedPrecondition(
        cat("optimizer [", name(),
            "]: built a second time, with other variables; make an optimizer for each set"));
  }
  bool built() const override { return built_; }

  bool apply(const std::vector<Tensor>& gradients, const std::vector<Variable>& variables,
             const ApplyOptions& options) override {
    ApplyOptions inside = options;
    if (loss_scale_factor_) inside.scale /= *loss_scale_factor_;
    inside.may_be_empty = true;
    Parts& parts = deal(gradients, variables);
    bool any = false;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const bool updated =
          Impl::of(groups_[i].optimizer).apply(parts[i], groups_[i].variables, inside);
      any = any || updated;
    }
    forget(parts);
    if (any || options.may_be_empty) return any;
    throw InvalidArgument(cat("apply_gradients: no gradient for any of the ", variables_.size(),
                              " variables, expected at least one; does the loss depend on them?"));
  }
  bool all_finite(const std::vector<Tensor>& gradients, const std::vector<Variable>& variables,
                  bool sum_replicas) override {
    Parts& parts = deal(gradients, variables);
    bool finite = true;
    for (std::size_t i = 0; i < groups_.size() && finite; ++i) {  // all replicas know the same
      finite =
          Impl::of(groups_[i].optimizer).all_finite(parts[i], groups_[i].variables, sum_replicas);
    }
    forget(parts);
    return finite;
  }
  std::optional<double> loss_scale() const override { return loss_scale_factor_; }
  void drop_loss_scale_factor() override { loss_scale_factor_.reset(); }

  double learning_rate() const override { refuse_learning_rate("learning_rate"); }
  void set_learning_rate(const LearningRate& /*rate*/) override {
    refuse_learning_rate("set_learning_rate");
  }
  int64_t iterations() const override {
    return built_ && !groups_.empty() ? groups_[0].optimizer.iterations()
                                      : iterations_before_build_;
  }
  void set_iterations(int64_t iterations) override {
    iterations_before_build_ = iterations;
    for (const Group& group : groups_) Impl::of(group.optimizer).set_iterations(iterations);
  }
  int64_t accumulation_steps() const override {
    const auto all = optimizers();
    return all.empty() ? 1 : Impl::of(all[0]).accumulation_steps();
  }
  int64_t accumulated_steps() const override {
    return groups_.empty() ? 0 : groups_[0].optimizer.accumulated_steps();
  }
  std::vector<Tensor> accumulated_gradients() const override {
    if (accumulation_steps() == 1) return {};
    std::vector<Tensor> all(variables_.size());
    for (const Group& group : groups_) {
      const auto sums = group.optimizer.accumulated_gradients();
      for (std::size_t i = 0; i < sums.size(); ++i) all[group.places[i]] = sums[i];
    }
    return all;
  }
  std::optional<double> accumulated_denominator() const override {
    return groups_.empty() ? std::nullopt
                           : Impl::of(groups_[0].optimizer).accumulated_denominator();
  }
  void set_accumulated_gradients(const std::vector<Tensor>& gradients, int64_t calls,
                                 std::optional<double> denominator) override {
    if (!built_ || gradients.size() != variables_.size()) {
      throw InvalidArgument(cat("set_accumulated_gradients [", name(), "]: ", gradients.size(),
                                " sums, expected ", variables_.size(),
                                ", of an optimizer that is built"));
    }
    for (const Group& group : groups_) {
      std::vector<Tensor> own;
      for (const std::size_t place : group.places) own.push_back(gradients[place]);
      Impl::of(group.optimizer).set_accumulated_gradients(own, calls, denominator);
    }
  }
  void finalize_variable_values() override {
    for (const Optimizer& optimizer : optimizers()) Impl::of(optimizer).finalize_variable_values();
  }
  void begin_training() override {
    for (const Optimizer& optimizer : optimizers()) Impl::of(optimizer).begin_training();
  }
  std::vector<Variable> variables() const override { return variables_; }
  std::vector<std::string> slot_names() const override {
    std::vector<std::string> names;
    for (const Optimizer& optimizer : optimizers()) {
      for (const std::string& name : optimizer.slot_names()) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
    return names;
  }
  std::vector<Variable> slots(const std::string& name) const override {
    std::vector<Variable> all;
    bool known = false;
    for (const Optimizer& optimizer : optimizers()) {
      const auto names = optimizer.slot_names();
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;
      known = true;
      const auto own = optimizer.slots(name);
      all.insert(all.end(), own.begin(), own.end());
    }
    if (!known && built_)
      throw NotFound(
          cat("optimizer slots: \"", name, "\", expected one of ", join(slot_names(), ", ")));
    return all;
  }
  void exclude_from_weight_decay(const ExcludeFromWeightDecay& which) override {
    if (!map_) {
      throw InvalidArgument(cat("exclude_from_weight_decay [", name(),
                                "]: an optimizer for each variable that a function names, expected "
                                "an OptimizerMap; call it on those optimizers"));
    }
    for (const Optimizer& optimizer : optimizers())
      Impl::of(optimizer).exclude_from_weight_decay(which);
  }
  Json config() const override {
    if (!map_) {
      throw Unimplemented(cat("config [", name(),
                              "]: an optimizer for each variable that a function names has no "
                              "description, expected an OptimizerMap"));
    }
    Json items = Json::object();
    for (const auto& [key, optimizer] : map_->items()) items[key] = described_once(key, optimizer);
    return {
        {"name", name()},
        {"loss_scale_factor", loss_scale_factor_ ? Json(*loss_scale_factor_) : Json()},
        {"optimizer_map",
         {{"default_optimizer", described(map_->default_optimizer())}, {"optimizer_map", items}}}};
  }

 private:
  /// One that stands under several keys is described under the first ("": it is the default).
  Json described_once(const std::string& key, const Optimizer& optimizer) const {
    if (optimizer.is_same(map_->default_optimizer())) return {{"same_as", ""}};
    for (const auto& [earlier, other] : map_->items()) {
      if (earlier == key) break;
      if (other.is_same(optimizer)) return {{"same_as", earlier}};
    }
    return described(optimizer);
  }

  struct Group {
    Optimizer optimizer;
    std::vector<Variable> variables;
    std::vector<std::size_t> places;  // among all variables
  };
  using Parts = std::vector<std::vector<Tensor>>;  // by group

  [[noreturn]] void refuse_learning_rate(const char* operation) const {
    throw InvalidArgument(cat(operation, " [", name(),
                              "]: a MultiOptimizer has no one learning rate, expected one of "
                              "optimizers(), which have"));
  }

  void make(const std::vector<Variable>& variables) {
    std::vector<Group> groups;
    for (std::size_t i = 0; i < variables.size(); ++i) {
      const Optimizer optimizer =
          map_ ? map_->at(variables[i].name()) : optimizer_of_(variables[i]);
      check_inner("MultiOptimizer", optimizer);
      auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& known) {
        return known.optimizer.is_same(optimizer);
      });
      if (group == groups.end()) group = groups.insert(groups.end(), {optimizer, {}, {}});
      group->variables.push_back(variables[i]);
      group->places.push_back(i);
    }
    for (const Group& group : groups) {
      Impl& own = Impl::of(group.optimizer);
      if (own.accumulation_steps() != Impl::of(groups[0].optimizer).accumulation_steps()) {
        throw InvalidArgument(cat("MultiOptimizer [", name(), "]: gradient_accumulation_steps ",
                                  own.accumulation_steps(), " and ",
                                  Impl::of(groups[0].optimizer).accumulation_steps(),
                                  ", expected the same for all its optimizers"));
      }
      own.drop_loss_scale_factor();
      own.build(group.variables);
      if (iterations_before_build_ != 0) own.set_iterations(iterations_before_build_);
    }
    groups_ = std::move(groups);
    variables_ = variables;
    const int replicas = variables.empty() ? 1 : variables[0].strategy().num_local_replicas();
    parts_.resize(static_cast<std::size_t>(replicas));
    built_ = true;
  }

  /// This replica's gradients by group, in room that is kept.
  Parts& deal(const std::vector<Tensor>& gradients, const std::vector<Variable>& variables) {
    const distribute::ReplicaContext* replica = distribute::get_replica_context();
    const auto index =
        static_cast<std::size_t>(replica == nullptr ? 0 : replica->local_replica_id());
    Parts& parts = parts_[std::min(index, parts_.size() - 1)];
    parts.resize(groups_.size());
    std::size_t found = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      parts[g].resize(groups_[g].variables.size());
      for (std::size_t i = 0; i < parts[g].size(); ++i) {
        const std::size_t place =
            place_of(groups_[g].variables[i], groups_[g].places[i], variables);
        parts[g][i] = place < variables.size() ? gradients[place] : Tensor();
        found += place < variables.size() ? 1 : 0;
      }
    }
    if (found < variables.size()) refuse_unknown(variables);
    return parts;
  }
  /// Where a variable stands in the call; behind the end where it is not in it.
  static std::size_t place_of(const Variable& variable, std::size_t expected,
                              const std::vector<Variable>& variables) {
    if (expected < variables.size() && variables[expected].is_same(variable)) return expected;
    std::size_t at = 0;
    while (at < variables.size() && !variables[at].is_same(variable)) ++at;
    return at;
  }
  void refuse_unknown(const std::vector<Variable>& variables) const {
    for (const Variable& variable : variables) {
      const bool known = std::any_of(variables_.begin(), variables_.end(),
                                     [&](const Variable& own) { return own.is_same(variable); });
      if (known) continue;
      throw InvalidArgument(
          cat("apply_gradients [", name(), "]: the variable ", variable.name(),
              ", expected one of the ", variables_.size(),
              " with which the optimizer was built; make an optimizer for each set of variables"));
    }
  }
  static void forget(Parts& parts) {
    for (auto& part : parts) {
      for (Tensor& gradient : part) gradient.reset();
    }
  }

  std::optional<OptimizerMap> map_;
  std::function<Optimizer(const Variable&)> optimizer_of_;
  std::optional<double> loss_scale_factor_;
  bool built_ = false;
  std::vector<Group> groups_;
  std::vector<Variable> variables_;
  std::vector<Parts> parts_;  // by replica
  int64_t iterations_before_build_ = 0;
};

}  // namespace

OptimizerMap::OptimizerMap(const Optimizer& default_optimizer,
                           const std::map<std::string, Optimizer>& optimizer_map)
    : default_(default_optimizer) {
  check_inner("OptimizerMap", default_optimizer);
  for (const auto& [key, optimizer] : optimizer_map) insert(key, optimizer);
}

void OptimizerMap::insert(const std::string& key, const Optimizer& optimizer) {
  check_inner("OptimizerMap", optimizer);
  try {
    const std::regex pattern(key);
  } catch (const std::regex_error& error) {
    throw InvalidArgument(
        cat("OptimizerMap: the key \"", key,
            "\" is no regular expression, expected one or a whole name: ", error.what()));
  }
  if (!map_.emplace(key, optimizer).second) {
    throw InvalidArgument(cat("OptimizerMap: the key \"", key,
                              "\" is there already, expected each key once; make a new map"));
  }
}

const Optimizer& OptimizerMap::at(const std::string& variable_name) const {
  const auto exact = map_.find(variable_name);
  if (exact != map_.end()) return exact->second;
  const Optimizer* found = nullptr;
  for (const auto& [key, optimizer] : map_) {
    if (!std::regex_match(variable_name, std::regex(key))) continue;
    if (found != nullptr) {
      throw InvalidArgument(cat("OptimizerMap: several keys match the variable ", variable_name,
                                ", expected one at most; name it by a key of its own"));
    }
    found = &optimizer;
  }
  return found != nullptr ? *found : default_;
}

MultiOptimizer::MultiOptimizer(const OptimizerMap& optimizer_map,
                               const MultiOptimizerOptions& options)
    : Optimizer(std::make_shared<Multi>(optimizer_map, nullptr, options)) {}
MultiOptimizer::MultiOptimizer(std::function<Optimizer(const Variable&)> optimizer_of,
                               const MultiOptimizerOptions& options)
    : Optimizer(std::make_shared<Multi>(std::nullopt, std::move(optimizer_of), options)) {}

std::vector<Optimizer> MultiOptimizer::optimizers() const {
  return static_cast<const Multi&>(impl()).optimizers();
}

Optimizer multi_from_config(const Json& json, const CustomObjects& custom_objects) {
  if (!json.contains("optimizer_map")) {
    throw InvalidArgument(
        "optimizer: a MultiOptimizer without optimizers, expected {\"optimizer_map\": "
        "{\"default_optimizer\", \"optimizer_map\"}}; construct it from an OptimizerMap");
  }
  const Json& map = json["optimizer_map"];
  OptimizerMap optimizers(
      from_description(member<Json>(map, "default_optimizer", Json::object()), custom_objects));
  const Json items = member<Json>(map, "optimizer_map", Json::object());
  for (const auto& [key, optimizer] : items.items()) {  // keys ascend, as in the map
    if (!optimizer.contains("same_as")) {
      optimizers.insert(key, from_description(optimizer, custom_objects));
      continue;
    }
    const auto earlier = member<std::string>(optimizer, "same_as", "");
    const auto known = optimizers.items().find(earlier);
    optimizers.insert(
        key, known != optimizers.items().end() ? known->second : optimizers.default_optimizer());
  }
  MultiOptimizerOptions options;
  options.name = member<std::string>(json, "name", options.name);
  if (json.contains("loss_scale_factor") && !json["loss_scale_factor"].is_null())
    options.loss_scale_factor = member<double>(json, "loss_scale_factor", 1);
  return MultiOptimizer(optimizers, options);
}

}  // namespace tutti::keras::optimizers
