#include "data/pass_options.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "data/iterator_state.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::data {
namespace {

thread_local PassOptions t_options;

int64_t cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

int64_t half_the_memory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) / 2 * sysconf(_SC_PAGESIZE);
}

const char* policy_name(AutoShardPolicy policy) {
  switch (policy) {
    case AutoShardPolicy::kOff:
      return "OFF";
    case AutoShardPolicy::kAuto:
      return "AUTO";
    case AutoShardPolicy::kFile:
      return "FILE";
    case AutoShardPolicy::kData:
      return "DATA";
    case AutoShardPolicy::kHint:
      return "HINT";
  }
  return "unknown";
}

const char* policy_name(ExternalStatePolicy policy) {
  switch (policy) {
    case ExternalStatePolicy::kWarn:
      return "WARN";
    case ExternalStatePolicy::kIgnore:
      return "IGNORE";
    case ExternalStatePolicy::kFail:
      return "FAIL";
  }
  return "unknown";
}

const char* algorithm_name(AutotuneAlgorithm algorithm) {
  switch (algorithm) {
    case AutotuneAlgorithm::kDefault:
      return "DEFAULT";
    case AutotuneAlgorithm::kHillClimb:
      return "HILL_CLIMB";
    case AutotuneAlgorithm::kGradientDescent:
      return "GRADIENT_DESCENT";
    case AutotuneAlgorithm::kMaxParallelism:
      return "MAX_PARALLELISM";
    case AutotuneAlgorithm::kStageBased:
      return "STAGE_BASED";
  }
  return "unknown";
}

std::string value_text(bool value) { return value ? "true" : "false"; }
std::string value_text(int64_t value) { return cat(value); }
std::string value_text(const std::string& value) { return value; }
std::string value_text(ExternalStatePolicy value) { return policy_name(value); }
std::string value_text(AutotuneAlgorithm value) { return algorithm_name(value); }

/// The value that either of them sets. InvalidArgument when both do, differently.
template <class Value>
std::optional<Value> one_of(const char* name, const std::optional<Value>& a,
                            const std::optional<Value>& b) {
  if (a && b && *a != *b) {
    throw InvalidArgument(cat("with_options: ", name, " ", value_text(*b), ", but ", value_text(*a),
                              " further up in the pipeline, expected one value; set it once"));
  }
  return b ? b : a;
}

template <class Value>
std::optional<Value> last_of(const std::optional<Value>& a, const std::optional<Value>& b) {
  return b ? b : a;
}

/// What `b` sets, else what `a` does.
Options overridden(const Options& a, const Options& b) {
  Options all;
  all.autotune = {last_of(a.autotune.enabled, b.autotune.enabled),
                  last_of(a.autotune.cpu_budget, b.autotune.cpu_budget),
                  last_of(a.autotune.ram_budget, b.autotune.ram_budget),
                  last_of(a.autotune.autotune_algorithm, b.autotune.autotune_algorithm)};
  all.dataset_name = last_of(a.dataset_name, b.dataset_name);
  all.deterministic = last_of(a.deterministic, b.deterministic);
  const DistributeOptions &ours = a.experimental_distribute, &theirs = b.experimental_distribute;
  all.experimental_distribute = {theirs.auto_shard_policy == AutoShardPolicy::kAuto
                                     ? ours.auto_shard_policy
                                     : theirs.auto_shard_policy,
                                 last_of(ours.num_devices, theirs.num_devices)};
  all.experimental_external_state_policy =
      last_of(a.experimental_external_state_policy, b.experimental_external_state_policy);
  all.experimental_warm_start = last_of(a.experimental_warm_start, b.experimental_warm_start);
  all.threading = {
      last_of(a.threading.max_intra_op_parallelism, b.threading.max_intra_op_parallelism),
      last_of(a.threading.private_threadpool_size, b.threading.private_threadpool_size)};
  return all;
}

bool any_functions(const Plan& plan) {
  return plan.runs_functions() ||
         std::any_of(plan.inputs().begin(), plan.inputs().end(),
                     [](const PlanPtr& input) { return any_functions(*input); });
}

/// Every plan of the pipeline that has seeds, in one order for equal pipelines.
void visit_seeded(const Plan& plan, const std::function<void(const Plan&, Nest)>& visit) {
  Nest seeds = plan.save_seeds();
  if (seeds.kind() != NestKind::kNone) visit(plan, std::move(seeds));
  for (const PlanPtr& input : plan.inputs()) visit_seeded(*input, visit);
}

/// A pass with the seeds of its plans.
class WholePass : public Iterator {
 public:
  explicit WholePass(PlanPtr plan) : plan_(std::move(plan)), pass_(plan_->iterator()) {}
  std::optional<Nest> next() override { return pass_->next(); }
  const RowTable* table() const override { return pass_->table(); }
  void next_rows(int64_t count, std::vector<int64_t>& indices) override {
    pass_->next_rows(count, indices);
  }
  Nest save() const override {
    check_functions();
    Nest pass = pass_->save();
    std::vector<Nest> seeds;
    visit_seeded(*plan_, [&](const Plan&, Nest state) { seeds.push_back(std::move(state)); });
    return Nest::map({{"pass", std::move(pass)}, {"seeds", Nest::list(std::move(seeds))}});
  }
  void restore(const Nest& saved) override {
    // First the pass: the passes that it makes draw seeds.
    pass_->restore(state::part(saved, "pass"));
    const Nest& seeds = state::part(saved, "seeds");
    std::size_t next = 0;
    visit_seeded(*plan_, [&](const Plan& plan, const Nest&) {
      if (next < seeds.size()) plan.restore_seeds(seeds.items()[next]);
      ++next;
    });
    if (next != seeds.size()) {
      throw DataLoss(cat("restore iterator: the seeds of ", seeds.size(),
                         " transformations, expected those of ", next,
                         "; restore it on an equal pipeline"));
    }
  }

 private:
  void check_functions() const {
    const auto policy = plan_->options().experimental_external_state_policy;
    if (!policy || *policy == ExternalStatePolicy::kIgnore || !any_functions(*plan_)) return;
    if (*policy == ExternalStatePolicy::kFail) {
      throw FailedPrecondition(
          "save iterator: functions of the user, whose state is not saved, with "
          "experimental_external_state_policy FAIL, expected none; use IGNORE if they have no "
          "state");
    }
    log_once(LogLevel::kWarning, "data/external_state",
             "save iterator: the state of the user's functions, if they have one, is not saved");
  }

  PlanPtr plan_;
  std::unique_ptr<Iterator> pass_;
};

}  // namespace

Options Options::merge(const Options& other) const {
  one_of("autotune.enabled", autotune.enabled, other.autotune.enabled);
  one_of("autotune.cpu_budget", autotune.cpu_budget, other.autotune.cpu_budget);
  one_of("autotune.ram_budget", autotune.ram_budget, other.autotune.ram_budget);
  one_of("autotune.autotune_algorithm", autotune.autotune_algorithm,
         other.autotune.autotune_algorithm);
  one_of("deterministic", deterministic, other.deterministic);
  one_of("experimental_distribute.num_devices", experimental_distribute.num_devices,
         other.experimental_distribute.num_devices);
  one_of("experimental_external_state_policy", experimental_external_state_policy,
         other.experimental_external_state_policy);
  one_of("threading.max_intra_op_parallelism", threading.max_intra_op_parallelism,
         other.threading.max_intra_op_parallelism);
  one_of("threading.private_threadpool_size", threading.private_threadpool_size,
         other.threading.private_threadpool_size);
  const auto ours = experimental_distribute.auto_shard_policy;
  const auto theirs = other.experimental_distribute.auto_shard_policy;
  if (ours != theirs && ours != AutoShardPolicy::kAuto && theirs != AutoShardPolicy::kAuto) {
    throw InvalidArgument(cat("with_options: experimental_distribute.auto_shard_policy ",
                              policy_name(theirs), ", but ", policy_name(ours),
                              " further up in the pipeline, expected one value; set it once"));
  }
  return overridden(*this, other);
}

std::string Options::to_string() const {
  std::vector<std::string> all;
  const auto add = [&](const char* name, const auto& value) {
    if (value) all.push_back(cat(name, "=", value_text(*value)));
  };
  add("autotune.enabled", autotune.enabled);
  add("autotune.cpu_budget", autotune.cpu_budget);
  add("autotune.ram_budget", autotune.ram_budget);
  add("autotune.autotune_algorithm", autotune.autotune_algorithm);
  add("dataset_name", dataset_name);
  add("deterministic", deterministic);
  if (experimental_distribute.auto_shard_policy != AutoShardPolicy::kAuto)
    all.push_back(
        cat("auto_shard_policy=", policy_name(experimental_distribute.auto_shard_policy)));
  add("num_devices", experimental_distribute.num_devices);
  add("external_state_policy", experimental_external_state_policy);
  add("warm_start", experimental_warm_start);
  add("threading.max_intra_op_parallelism", threading.max_intra_op_parallelism);
  add("threading.private_threadpool_size", threading.private_threadpool_size);
  return join(all, ", ");
}

Options Plan::options() const {
  Options all;
  for (const PlanPtr& input : inputs_) all = overridden(all, input->options());
  return all;
}

const PassOptions& current_pass_options() { return t_options; }

PassOptionsScope::PassOptionsScope(PassOptions options)
    : outer_(std::exchange(t_options, std::move(options))) {}
PassOptionsScope::~PassOptionsScope() { t_options = std::move(outer_); }

void check_options(const Options& options) {
  const auto check = [](const char* name, const std::optional<int64_t>& value, int64_t least) {
    if (value && *value < least)
      throw InvalidArgument(
          cat("with_options: ", name, " ", *value, ", expected at least ", least));
  };
  check("autotune.cpu_budget", options.autotune.cpu_budget, 1);
  check("autotune.ram_budget", options.autotune.ram_budget, 1);
  check("experimental_distribute.num_devices", options.experimental_distribute.num_devices, 1);
  check("threading.max_intra_op_parallelism", options.threading.max_intra_op_parallelism, 1);
  check("threading.private_threadpool_size", options.threading.private_threadpool_size, 0);
  const auto algorithm = options.autotune.autotune_algorithm.value_or(AutotuneAlgorithm::kDefault);
  if (algorithm != AutotuneAlgorithm::kDefault && algorithm != AutotuneAlgorithm::kMaxParallelism) {
    throw Unimplemented(cat("with_options: autotune.autotune_algorithm ", algorithm_name(algorithm),
                            ", expected DEFAULT or MAX_PARALLELISM: calls are as many as "
                            "autotune.cpu_budget says, nothing is searched"));
  }
}

PassSettings::PassSettings() {
  static const Options kDefaults;
  const Options& options = t_options ? *t_options : kDefaults;
  deterministic = options.deterministic.value_or(true);
  warm_start = options.experimental_warm_start.value_or(false);
  autotune = options.autotune.enabled.value_or(true);
  cpu_budget = std::max<int64_t>(1, options.autotune.cpu_budget.value_or(cores()));
  ram_budget = options.autotune.ram_budget.value_or(half_the_memory());
  most_threads = options.threading.private_threadpool_size.value_or(0);
  cores_per_thread = static_cast<int>(options.threading.max_intra_op_parallelism.value_or(1));
}

int PassSettings::calls(int64_t num_parallel_calls) const {
  const int64_t calls = num_parallel_calls < 0 ? cpu_budget : num_parallel_calls;
  return static_cast<int>(most_threads > 0 ? std::min(calls, most_threads) : calls);
}

namespace {
PassOptions options_of(const Plan& plan) {
  if (t_options) return t_options;
  auto options = std::make_shared<const Options>(plan.options());
  return options->to_string().empty() ? nullptr : std::move(options);
}
}  // namespace

std::unique_ptr<Iterator> plain_pass(const Plan& plan) {
  const PassOptionsScope scope(options_of(plan));
  return plan.iterator();
}

std::unique_ptr<Iterator> begin_pass(const PlanPtr& plan) {
  const PassOptionsScope scope(options_of(*plan));
  return std::make_unique<WholePass>(plan);
}

}  // namespace tutti::data
