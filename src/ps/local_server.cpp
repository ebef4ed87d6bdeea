#include "ps/local_server.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "distribute/context_stack.h"
#include "tutti/base/text.h"

namespace tutti::ps {
namespace {

namespace optimizers = keras::optimizers;

/// In no strategy, whatever the caller is in, and without gradient.
class Outside {
 public:
  Outside() { std::swap(callers_, distribute::thread_context()); }
  ~Outside() { std::swap(callers_, distribute::thread_context()); }
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

 private:
  distribute::ThreadContext callers_;
  at::NoGradGuard no_grad_;
};

void check_spec(const char* operation, const VariableDescription& description,
                const TensorSpec& found) {
  if (found != description.spec) {
    throw InvalidArgument(cat(operation, " [", description.name, "]: found ", found, ", expected ",
                              description.spec, ", the variable's"));
  }
}

/// Values [n, …] of rows of the variable: all in range.
void check_rows(const char* operation, const VariableDescription& description, const Tensor& values,
                const Tensor& rows) {
  TensorSpec expected = description.spec;
  if (expected.shape.empty()) {
    throw InvalidArgument(
        cat(operation, " [", description.name, "]: rows of a scalar, expected a dimension"));
  }
  const int64_t count = expected.shape[0];
  if (values.defined()) {
    expected.shape[0] = rows.numel();
    check_spec(operation, {description.name, expected}, TensorSpec::of(values));
  }
  if (rows.numel() == 0) return;
  const auto low = rows.min().item<int64_t>(), high = rows.max().item<int64_t>();
  if (low < 0 || high >= count) {
    throw OutOfRange(cat(operation, " [", description.name, "]: the row ", low < 0 ? low : high,
                         ", expected one in [0, ", count, ")"));
  }
}

bool same(const OptimizerDescription& a, const OptimizerDescription& b) {
  return a.class_name == b.class_name && a.config == b.config && a.variables == b.variables &&
         a.without_decay == b.without_decay;
}

Nest text(const std::string& value) { return StringTensor(value); }
Nest numbers(const std::vector<int64_t>& values) {
  Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}
std::vector<int64_t> numbers_of(const Nest& nest) {
  const Tensor tensor = nest.leaf().contiguous();
  if (tensor.scalar_type() != at::kLong || tensor.dim() != 1)
    throw InvalidArgument("ps set_state: numbers that are no int64 vector");
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}

Nest state_of(const SeenTags& seen) {
  std::vector<Nest> workers;
  for (const auto& [name, worker] : seen.workers()) {
    std::vector<int64_t> all{static_cast<int64_t>(worker.incarnation),
                             static_cast<int64_t>(worker.all_up_to)};
    for (uint64_t sequence : worker.above) all.push_back(static_cast<int64_t>(sequence));
    workers.push_back(Nest::tuple({text(name), numbers(all)}));
  }
  return Nest::list(std::move(workers));
}
std::map<std::string, SeenTags::Worker> seen_of(const Nest& state) {
  std::map<std::string, SeenTags::Worker> workers;
  for (const Nest& entry : state.items()) {
    const std::vector<int64_t> all = numbers_of(entry[1]);
    if (all.size() < 2) throw InvalidArgument("ps set_state: a worker without its numbers");
    SeenTags::Worker worker{static_cast<uint64_t>(all[0]), static_cast<uint64_t>(all[1]), {}};
    for (std::size_t i = 2; i < all.size(); ++i) worker.above.insert(static_cast<uint64_t>(all[i]));
    workers.emplace(entry[0].strings().item(), std::move(worker));
  }
  return workers;
}

}  // namespace

LocalServer::Held& LocalServer::held(Contents& contents, const char* operation, int64_t id) {
  if (id < 0 || static_cast<std::size_t>(id) >= contents.variables.size()) {
    throw NotFound(cat(operation, ": no variable ", id, ", expected one of the ",
                       contents.variables.size(), " that were created here"));
  }
  return contents.variables[static_cast<std::size_t>(id)];
}

LocalServer::HeldOptimizer& LocalServer::held_optimizer(Contents& contents, const char* operation,
                                                        int64_t id) {
  if (id < 0 || static_cast<std::size_t>(id) >= contents.optimizers.size()) {
    throw NotFound(cat(operation, ": no optimizer ", id, ", expected one of the ",
                       contents.optimizers.size(), " that were created here"));
  }
  return contents.optimizers[static_cast<std::size_t>(id)];
}

template <class Change>
Applied LocalServer::once(const Tag& tag, Change change) {
  if (contents_.seen.check(tag)) return {true, contents_.version};
  change();
  contents_.seen.add(tag);
  return {false, ++contents_.version};
}

int64_t LocalServer::do_create(const VariableDescription& description, const Tensor& value) {
  const Outside outside;
  MutexLock lock(mutex_);
  for (std::size_t i = 0; i < contents_.variables.size(); ++i) {
    const VariableDescription& there = contents_.variables[i].description;
    if (there.name != description.name) continue;
    if (there.spec != description.spec || there.trainable != description.trainable) {
      throw AlreadyExists(cat("ps create [", description.name, "]: there is one of ", there.spec,
                              ", expected ", description.spec, "; give it another name"));
    }
    return static_cast<int64_t>(i);
  }
  contents_.variables.push_back({description, Variable(value, {.trainable = description.trainable,
                                                               .name = description.name})});
  return static_cast<int64_t>(contents_.variables.size()) - 1;
}

std::vector<VariableInfo> LocalServer::do_variables() {
  MutexLock lock(mutex_);
  std::vector<VariableInfo> all;
  for (const Held& held : contents_.variables)
    all.push_back({static_cast<int64_t>(all.size()), held.description});
  return all;
}

ReadResult LocalServer::do_read(const std::vector<int64_t>& variables) {
  const Outside outside;
  MutexLock lock(mutex_);
  ReadResult result;
  result.version = contents_.version;
  for (int64_t id : variables)
    result.values.push_back(held(contents_, "ps read", id).variable.read_value());
  return result;
}

Tensor LocalServer::do_gather(int64_t variable, const Tensor& rows) {
  const Outside outside;
  MutexLock lock(mutex_);
  const Held& from = held(contents_, "ps gather", variable);
  check_rows("ps gather", from.description, {}, rows);
  return from.variable.value().index_select(0, rows);
}

Applied LocalServer::do_write(const Tag& tag, Write kind, const std::vector<int64_t>& variables,
                              const std::vector<Tensor>& values) {
  const Outside outside;
  MutexLock lock(mutex_);
  std::vector<Variable*> into;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    Held& to = held(contents_, "ps write", variables[i]);
    check_spec("ps write", to.description, TensorSpec::of(values[i]));
    into.push_back(&to.variable);
  }
  return once(tag, [&] {
    for (std::size_t i = 0; i < into.size(); ++i) {
      if (kind == Write::kAssign) into[i]->assign(values[i]);
      if (kind == Write::kAdd) into[i]->assign_add(values[i]);
      if (kind == Write::kSub) into[i]->assign_sub(values[i]);
    }
  });
}

Applied LocalServer::do_scatter(const Tag& tag, Write kind, int64_t variable,
                                const IndexedSlices& slices) {
  const Outside outside;
  MutexLock lock(mutex_);
  Held& to = held(contents_, "ps scatter", variable);
  check_rows("ps scatter", to.description, slices.values, slices.indices);
  const IndexedSlices whole{slices.values, slices.indices, to.description.spec.shape};
  return once(tag, [&] {
    if (kind == Write::kAssign) to.variable.scatter_update(whole);
    if (kind == Write::kAdd) to.variable.scatter_add(whole);
    if (kind == Write::kSub) to.variable.scatter_sub(whole);
  });
}

int64_t LocalServer::add_optimizer(Contents& contents, const OptimizerDescription& description) {
  HeldOptimizer made;
  made.description = description;
  optimizers::ExcludeFromWeightDecay without_decay;
  for (int64_t id : description.variables) {
    made.variables.push_back(held(contents, "ps create_optimizer", id).variable);
    if (!made.variables.back().trainable()) {
      throw InvalidArgument(cat("ps create_optimizer [", description.name, "]: the variable ",
                                made.variables.back().name(), ", expected a trainable one"));
    }
  }
  for (int64_t id : description.without_decay)
    without_decay.var_list.push_back(held(contents, "ps create_optimizer", id).variable);
  made.optimizer = optimizers::Optimizer::from_config(description.class_name, description.config);
  if (!without_decay.var_list.empty()) made.optimizer.exclude_from_weight_decay(without_decay);
  made.optimizer.build(made.variables);
  contents.optimizers.push_back(std::move(made));
  return static_cast<int64_t>(contents.optimizers.size()) - 1;
}

int64_t LocalServer::do_create_optimizer(const OptimizerDescription& description) {
  const Outside outside;
  MutexLock lock(mutex_);
  for (std::size_t i = 0; i < contents_.optimizers.size(); ++i) {
    const OptimizerDescription& there = contents_.optimizers[i].description;
    if (there.name != description.name) continue;
    if (!same(there, description)) {
      throw AlreadyExists(cat("ps create_optimizer [", description.name, "]: there is a ",
                              there.class_name,
                              " with other arguments or variables; give it "
                              "another name"));
    }
    return static_cast<int64_t>(i);
  }
  return add_optimizer(contents_, description);
}

Applied LocalServer::do_push(const Tag& tag, int64_t optimizer,
                             const std::vector<Gradient>& gradients) {
  const Outside outside;
  MutexLock lock(mutex_);
  HeldOptimizer& held = held_optimizer(contents_, "ps push", optimizer);
  const std::vector<int64_t>& own = held.description.variables;
  std::vector<Tensor> ordered(own.size());
  for (const Gradient& gradient : gradients) {
    const auto at = std::find(own.begin(), own.end(), gradient.variable);
    if (at == own.end()) {
      throw InvalidArgument(cat("ps push [", held.description.name, "]: the variable ",
                                gradient.variable, ", expected one of the optimizer's"));
    }
    const VariableDescription& description =
        contents_.variables[static_cast<std::size_t>(gradient.variable)].description;
    Tensor& into = ordered[static_cast<std::size_t>(at - own.begin())];
    if (gradient.rows.defined()) {
      check_rows("ps push", description, gradient.values, gradient.rows);
      into = IndexedSlices{gradient.values, gradient.rows, description.spec.shape}.to_sparse();
    } else {
      check_spec("ps push", description, TensorSpec::of(gradient.values));
      into = gradient.values;
    }
  }
  return once(tag, [&] { held.optimizer.apply_gradients(ordered, held.variables); });
}

int64_t LocalServer::do_iterations(int64_t optimizer) {
  MutexLock lock(mutex_);
  return held_optimizer(contents_, "ps iterations", optimizer).optimizer.iterations();
}

Applied LocalServer::do_set_learning_rate(const Tag& tag, int64_t optimizer, double rate) {
  const Outside outside;
  MutexLock lock(mutex_);
  HeldOptimizer& held = held_optimizer(contents_, "ps set_learning_rate", optimizer);
  return once(tag, [&] { held.optimizer.set_learning_rate(rate); });
}

// --- the whole ---------------------------------------------------------------------------------

Nest LocalServer::do_state() {
  const Outside outside;
  MutexLock lock(mutex_);
  std::vector<Nest> variables, all_optimizers;
  for (const Held& held : contents_.variables) {
    variables.push_back(
        Nest::tuple({text(held.description.name), numbers({held.description.trainable ? 1 : 0}),
                     Nest(held.variable.read_value())}));
  }
  for (HeldOptimizer& held : contents_.optimizers) {
    const OptimizerDescription& about = held.description;
    all_optimizers.push_back(Nest::tuple(
        {text(about.name), text(about.class_name), text(about.config), numbers(about.variables),
         numbers(about.without_decay), optimizers::trackable(held.optimizer)->state()}));
  }
  return Nest::map({{"variables", Nest::list(std::move(variables))},
                    {"optimizers", Nest::list(std::move(all_optimizers))},
                    {"seen", state_of(contents_.seen)},
                    {"version", numbers({contents_.version})}});
}

LocalServer::Contents LocalServer::contents_of(const Nest& state) {
  Contents contents;
  for (const Nest& entry : state["variables"].items()) {
    VariableDescription description{entry[0].strings().item(), TensorSpec::of(entry[2].leaf()),
                                    numbers_of(entry[1]).at(0) != 0};
    Variable variable(entry[2].leaf(),
                      {.trainable = description.trainable, .name = description.name});
    contents.variables.push_back({std::move(description), std::move(variable)});
  }
  for (const Nest& entry : state["optimizers"].items()) {
    const int64_t id = add_optimizer(
        contents, {entry[0].strings().item(), entry[1].strings().item(), entry[2].strings().item(),
                   numbers_of(entry[3]), numbers_of(entry[4])});
    const auto into =
        optimizers::trackable(contents.optimizers[static_cast<std::size_t>(id)].optimizer);
    into->check_state(entry[5]);
    into->set_state(entry[5]);
  }
  contents.seen.set_workers(seen_of(state["seen"]));
  contents.version = numbers_of(state["version"]).at(0);
  return contents;
}

void LocalServer::do_set_state(const Nest& state) {
  const Outside outside;
  Contents contents;
  try {
    contents = contents_of(state);
  } catch (const std::exception& error) {  // NotFound of a key, out_of_range of an empty vector
    throw InvalidArgument(
        cat("ps set_state: ", error.what(), ", expected what state() of a server gave"));
  }
  MutexLock lock(mutex_);
  contents_ = std::move(contents);
}

}  // namespace tutti::ps
