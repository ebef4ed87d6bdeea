// distribute_core.json: one call of the core API under one strategy. Each group of cases is a
// function that makes the call and says what came back; the comparison is common. The groups of
// variables are in variable_cases.cpp. Longer than usual: one table of groups over one comparison.

#include <functional>
#include <map>

#include "golden/golden_file.h"
#include "golden/workers.h"
#include "tutti/tutti.h"

namespace tutti::golden {
namespace {

using distribute::get_replica_context;
using distribute::ReduceOp;
using distribute::ReplicaContext;
using distribute::Strategy;
using distribute::ValueContext;

// ---- what a call gave

struct Found {
  enum class Kind { kNone, kTensor, kLiteral, kPerReplica, kMirrored, kSequence, kMap };
  Kind kind = Kind::kNone;
  Tensor tensor;
  Json literal;
  std::vector<Found> items;
  std::vector<std::string> keys;
};

Found branch(Found::Kind kind, std::vector<Found> items) {
  Found found;
  found.kind = kind;
  found.items = std::move(items);
  return found;
}

template <class T>
Found found_of(const T& value) {
  using Kind = Found::Kind;
  Found found;
  if constexpr (std::is_same_v<T, Found>) {
    return value;
  } else if constexpr (std::is_same_v<T, Tensor>) {
    found.kind = Kind::kTensor;
    found.tensor = value;
  } else if constexpr (std::is_arithmetic_v<T> || std::is_convertible_v<T, std::string>) {
    found.kind = Kind::kLiteral;
    found.literal = value;
  } else if constexpr (internal::kIsDistributedValues<T>) {
    found.kind = internal::kIsPerReplica<T> ? Kind::kPerReplica : Kind::kMirrored;
    for (const auto& component : value.values()) found.items.push_back(found_of(component));
  } else if constexpr (internal::kIsRunTimeNest<T>) {
    if (value.is_leaf()) return found_of(value.leaf());
    found.kind = value.kind() == NestKind::kMap ? Kind::kMap : Kind::kSequence;
    for (const auto& item : value.items()) found.items.push_back(found_of(item));
    found.keys = value.keys();
  } else if constexpr (internal::kIsVector<T>) {
    found.kind = Kind::kSequence;
    for (const auto& item : value) found.items.push_back(found_of(item));
  } else {
    found.kind = Kind::kSequence;
    std::apply([&](const auto&... items) { (found.items.push_back(found_of(items)), ...); }, value);
  }
  return found;
}

Found dict(std::map<std::string, Found> entries) {
  Found found;
  found.kind = Found::Kind::kMap;
  for (auto& [key, item] : entries) {
    found.keys.push_back(key);
    found.items.push_back(std::move(item));
  }
  return found;
}

// ---- comparison, with RULES.md 5

class Comparison {
 public:
  Comparison(const GoldenFile& file, Verdict& verdict) : file_(file), verdict_(verdict) {}

  void compare(const std::string& what, const Found& found, const Json& expected) {
    using Kind = Found::Kind;
    if (expected.is_null()) {
      if (found.kind != Kind::kNone) verdict_.fail(what + ": a value, expected none");
    } else if (expected.contains("PerReplica") || expected.contains("Mirrored")) {
      const bool per_replica = expected.contains("PerReplica");
      if (found.kind != (per_replica ? Kind::kPerReplica : Kind::kMirrored))
        return verdict_.fail(what + (per_replica ? ": no PerReplica" : ": no Mirrored"));
      items(what, found, expected.at(per_replica ? "PerReplica" : "Mirrored"));
    } else if (found.kind == Kind::kPerReplica || found.kind == Kind::kMirrored) {
      // Where TensorFlow came back with the bare object, all components must equal it.
      for (std::size_t i = 0; i < found.items.size(); ++i)
        compare(cat(what, " component ", i), found.items[i], expected);
    } else if (expected.contains("literal")) {
      if (found.kind != Kind::kLiteral || found.literal != expected.at("literal"))
        verdict_.fail(
            cat(what, ": ", found.literal.dump(), ", expected ", expected.at("literal").dump()));
    } else if (expected.contains("tuple") || expected.contains("list")) {
      if (found.kind != Kind::kSequence) return verdict_.fail(what + ": no sequence");
      items(what, found, expected.at(expected.contains("tuple") ? "tuple" : "list"));
    } else if (expected.contains("dict")) {
      dictionary(what, found, expected.at("dict"));
    } else if (found.kind != Kind::kTensor) {
      verdict_.fail(what + ": no tensor");
    } else {
      verdict_.close(what, found.tensor, file_.tensor(expected));
    }
  }

 private:
  void items(const std::string& what, const Found& found, const Json& expected) {
    verdict_.equal(what + " size", static_cast<int64_t>(found.items.size()),
                   static_cast<int64_t>(expected.size()));
    for (std::size_t i = 0; i < std::min(found.items.size(), expected.size()); ++i)
      compare(cat(what, "[", i, "]"), found.items[i], expected[i]);
  }
  void dictionary(const std::string& what, const Found& found, const Json& expected) {
    if (found.kind != Found::Kind::kMap) return verdict_.fail(what + ": no map");
    verdict_.equal(what + " size", static_cast<int64_t>(found.items.size()),
                   static_cast<int64_t>(expected.size()));
    for (std::size_t i = 0; i < found.items.size(); ++i) {
      if (!expected.contains(found.keys[i])) {
        verdict_.fail(what + ": unexpected key " + found.keys[i]);
      } else {
        compare(what + "." + found.keys[i], found.items[i], expected.at(found.keys[i]));
      }
    }
  }

  const GoldenFile& file_;
  Verdict& verdict_;
};

/// TensorFlow's words, and the one that must stand in our message for them.
constexpr std::pair<const char*, const char*> kKeyWords[] = {
    {"boom", "boom"},
    {"in merge", "in merge"},
    {"cross-replica", "cross-replica"},
    {"Mixing", "mixing"},
    {"valid ReduceOp", "SUM"},
    {"Invalid reduction dimension", "axis"},
    {"AddN", "("},  // the shapes are shown
    {"Shape mismatch", "shape"},
    {"ConcatOp : Dimension", "shape"},
    {"ConcatOp : Can't", "scalar"},
    {"non-DistributedValues", "PerReplica"},
    {"Requires start", "scalar"}};

void check_error(Verdict& verdict, const Error& error, const Json& expected) {
  if (!expected.contains("error"))
    return verdict.fail(cat("threw ", error.what(), ", expected a value"));
  const std::string type = expected.at("error");
  const ErrorCode code = type == "RuntimeError"          ? ErrorCode::kFailedPrecondition
                         : type == "NotImplementedError" ? ErrorCode::kUnimplemented
                                                         : ErrorCode::kInvalidArgument;
  if (error.code() != code)
    verdict.fail(
        cat("threw ", to_string(error.code()), ", expected ", to_string(code), ": ", error.what()));
  const std::string theirs = expected.at("message");
  const std::string ours = error.what();
  for (const auto& [word, needed] : kKeyWords) {
    if (theirs.find(word) != std::string::npos && ours.find(needed) == std::string::npos)
      verdict.fail(cat("\"", ours, "\" lacks \"", needed, "\""));
  }
}

// ---- the strategies and their inputs

struct Case {
  const GoldenFile& file;
  Strategy& strategy;
  std::string strategy_name;
  std::string what;  // the name behind the group
  const Json& inputs;

  std::string fn() const { return inputs.value("fn", ""); }
  std::string op() const { return inputs.at("op"); }
  /// The file writes integers as integers.
  static Tensor tensor_of(const Json& json) {
    std::vector<double> data;
    std::vector<int64_t> sizes;
    bool integers = true;
    const std::function<void(const Json&, std::size_t)> walk = [&](const Json& level,
                                                                   std::size_t depth) {
      if (!level.is_array()) {
        integers = integers && level.is_number_integer();
        return data.push_back(level.get<double>());
      }
      if (sizes.size() <= depth) sizes.push_back(static_cast<int64_t>(level.size()));
      for (const Json& item : level) walk(item, depth + 1);
    };
    walk(json, 0);
    return at::tensor(data, at::kDouble).view(sizes).to(integers ? at::kInt : at::kFloat);
  }
  /// `list` has a piece for each replica of all workers.
  PerReplica<Tensor> per_replica_of(const Json& list) const {
    std::vector<Tensor> components;
    for (int i = 0; i < strategy.num_local_replicas(); ++i)
      components.push_back(
          tensor_of(list.at(static_cast<std::size_t>(strategy.first_replica_id() + i))));
    return PerReplica<Tensor>(std::move(components));
  }
  PerReplica<Tensor> per_replica() const { return per_replica_of(inputs.at("per_replica")); }
  /// `scalars` or `vectors`: the components that the strategy's other cases of that name list.
  PerReplica<Tensor> named(const std::string& name) const {
    for (const Json& entry : file.cases()) {
      const std::string other = entry.at("name");
      if (other.find(strategy_name + "/reduce/" + name + "/") == 0)
        return per_replica_of(entry.at("inputs").at("per_replica"));
    }
    throw std::runtime_error("no case lists " + name);
  }
  NestOf<PerReplica<Tensor>> nest(bool with_plain) const {
    using N = NestOf<PerReplica<Tensor>>;
    std::vector<N> list{N(named("vectors"))};
    if (with_plain) {
      const auto count = static_cast<std::size_t>(strategy.num_local_replicas());
      list.push_back(
          N(PerReplica<Tensor>(std::vector<Tensor>(count, at::scalar_tensor(2.0, at::kFloat)))));
    }
    return N::map({{"a", N(named("scalars"))}, {"b", N::list(std::move(list))}});
  }
};

Tensor id_tensor() {
  return at::scalar_tensor(get_replica_context()->replica_id_in_sync_group(), at::kInt);
}
bool is_last() {
  const ReplicaContext& replica = *get_replica_context();
  return replica.replica_id_in_sync_group() == replica.num_replicas_in_sync() - 1;
}

// ---- the groups

Found run_run(const Case& c) {
  Strategy& strategy = c.strategy;
  if (c.what == "scalar") return found_of(strategy.run([] { return id_tensor() * 10; }));
  if (c.what == "tuple")
    return found_of(
        strategy.run([] { return std::tuple(id_tensor(), id_tensor().to(at::kFloat) + 0.5); }));
  if (c.what == "dict_nested")
    return found_of(strategy.run([] {
      const Tensor id = id_tensor();
      return Nest::map({{"a", id}, {"b", Nest::list({id + 1, Nest::tuple({id + 2})})}});
    }));
  if (c.what == "none") {
    strategy.run([] {});
    return Found();
  }
  if (c.what == "python_literal") return found_of(strategy.run([] { return 7; }));
  if (c.what == "vector_uneven")
    return found_of(strategy.run([] {
      return at::arange(get_replica_context()->replica_id_in_sync_group() + 1, at::kInt);
    }));
  if (c.what == "args_distributed")
    return found_of(strategy.run([](Tensor a, double b) { return a * 2 + b; },
                                 c.per_replica_of(c.inputs.at("a")),
                                 c.inputs.at("b").get<double>()));
  if (c.what == "args_not_a_list")
    return found_of(strategy.run([](Tensor x) { return x; }, at::ones({})));
  if (c.what == "exception_in_fn") {
    return found_of(strategy.run([] {
      if (is_last()) throw InvalidArgument("boom");
      return 1;
    }));
  }
  if (c.what == "nested_run") {
    strategy.run([&] { strategy.run([] {}); });
    return Found();
  }
  throw Unknown{c.fn()};
}

Found run_reduce(const Case& c) {
  Strategy& strategy = c.strategy;
  if (c.what == "in_replica_context") {
    strategy.run([&] { strategy.reduce("SUM", at::ones({})); });
    return Found();
  }
  if (c.what == "op_bad_string") return found_of(strategy.reduce(c.op(), c.named("scalars")));
  if (c.what.find("plain_tensor/") == 0)
    return found_of(strategy.reduce(c.op(), Case::tensor_of(c.inputs.at("value"))));
  if (c.what.find("nested/") == 0) return found_of(strategy.reduce(c.op(), c.nest(false)));
  const Json axis = c.inputs.value("axis", Json());
  if (axis.is_null()) return found_of(strategy.reduce(c.op(), c.per_replica(), std::nullopt));
  return found_of(strategy.reduce(c.op(), c.per_replica(), axis.get<int64_t>()));
}

Found run_gather(const Case& c) {
  Strategy& strategy = c.strategy;
  if (c.what == "in_replica_context") {
    strategy.run([&] { strategy.gather(at::ones({1}), 0); });
    return Found();
  }
  return found_of(strategy.gather(c.per_replica(), c.inputs.at("axis").get<int64_t>()));
}

Found run_local_results(const Case& c) {
  Strategy& strategy = c.strategy;
  if (c.what == "distributed") return found_of(strategy.local_results(c.per_replica()));
  if (c.what == "plain")
    return found_of(strategy.local_results(Case::tensor_of(c.inputs.at("value"))));
  if (c.what == "host_number")
    return found_of(strategy.local_results(c.inputs.at("value").get<int>()));
  if (c.what != "nested") throw Unknown{c.what};
  // A map with a tensor and a number is a pair here.
  std::vector<Found> nests;
  for (const auto& [a, b] : strategy.local_results(std::pair(c.named("scalars"), 7)))
    nests.push_back(dict({{"a", found_of(a)}, {"b", found_of(b)}}));
  return branch(Found::Kind::kSequence, std::move(nests));
}

Found run_all_reduce(const Case& c) {
  Strategy& strategy = c.strategy;
  if (c.what == "op_bad")
    return found_of(
        strategy.run([&](Tensor x) { return get_replica_context()->all_reduce(c.op(), x); },
                     c.named("scalars")));
  if (c.what.find("nested/") == 0)
    return found_of(strategy.run(
        [&](const Nest& nest) { return get_replica_context()->all_reduce(c.op(), nest); },
        c.nest(true)));
  if (c.what == "gradient")
    return found_of(strategy.run(
        [](Tensor x) {
          Tensor a = x.clone();
          GradientTape tape;
          tape.watch(a);
          const Tensor z =
              (id_tensor() + 1) * get_replica_context()->all_reduce(ReduceOp::kSum, a * a);
          return std::tuple(z.detach(), tape.gradient(z, a));
        },
        c.per_replica()));
  return found_of(strategy.run(
      [&](Tensor x) { return get_replica_context()->all_reduce(c.op(), x); }, c.per_replica()));
}

Found run_all_gather(const Case& c) {
  const auto axis = c.inputs.at("axis").get<int64_t>();
  return found_of(c.strategy.run(
      [&](Tensor x) { return get_replica_context()->all_gather(x, axis); }, c.per_replica()));
}

Found run_merge_call(const Case& c) {
  Strategy& strategy = c.strategy;
  if (c.what == "sum_in_cross_replica")
    return found_of(strategy.run(
        [](Tensor x) {
          return get_replica_context()->merge_call(
                     [](Strategy& merged, const PerReplica<Tensor>& values) {
                       Tensor sum = at::zeros({});
                       for (const Tensor& value : merged.local_results(values)) sum = sum + value;
                       return sum;
                     },
                     x) *
                 2;
        },
        c.per_replica()));
  if (c.what == "returns_arg")
    return found_of(strategy.run(
        [](Tensor x) {
          return get_replica_context()->merge_call(
              [](Strategy&, const PerReplica<Tensor>& values) { return values; }, x);
        },
        c.named("scalars")));
  if (c.what == "exception") {
    strategy.run([] {
      get_replica_context()->merge_call([](Strategy&) { throw InvalidArgument("in merge"); });
    });
    return Found();
  }
  if (c.what != "in_merge_call") throw Unknown{c.fn()};
  return found_of(strategy.run([] {
    return get_replica_context()->merge_call([](Strategy&) {
      return std::tuple(get_replica_context() == nullptr, distribute::in_cross_replica_context());
    });
  }));
}

/// Named, so that a component of a distributed result can be one.
struct Contexts {
  bool has_strategy, is_this, cross_replica, no_replica;
};
Contexts contexts(const Strategy& strategy) {
  return {distribute::has_strategy(), &distribute::get_strategy() == &strategy,
          distribute::in_cross_replica_context(), get_replica_context() == nullptr};
}
Found contexts_found(const Contexts& c) {
  return dict({{"has_strategy", found_of(c.has_strategy)},
               {"get_strategy_is_this", found_of(c.is_this)},
               {"in_cross_replica_context", found_of(c.cross_replica)},
               {"replica_context_is_none", found_of(c.no_replica)}});
}
Found contexts_found(const PerReplica<Contexts>& all) {
  std::vector<Found> items;
  for (const Contexts& c : all.values()) items.push_back(contexts_found(c));
  return branch(Found::Kind::kPerReplica, std::move(items));
}

Found run_context(const Case& c) {
  Strategy& strategy = c.strategy;
  if (c.what == "outside") return contexts_found(contexts(strategy));
  if (c.what == "in_run") return contexts_found(strategy.run([&] { return contexts(strategy); }));
  if (c.what == "in_merge_call")
    return contexts_found(strategy.run([&] {
      return get_replica_context()->merge_call([&](Strategy&) { return contexts(strategy); });
    }));
  if (c.what == "replica_ids")
    return found_of(
        std::tuple(strategy.run([] { return id_tensor(); }), strategy.num_replicas_in_sync()));
  if (c.what == "variable_created_in_scope") {
    const Variable outside(at::zeros({}));
    auto scope = strategy.scope();
    const Variable inside(at::zeros({}));
    return found_of(std::tuple(strategy.variable_created_in_scope(outside),
                               strategy.variable_created_in_scope(inside)));
  }
  auto scope = strategy.scope();
  if (c.what == "in_scope") return contexts_found(contexts(strategy));
  if (c.what == "replica_context_in_scope") return found_of(get_replica_context() == nullptr);
  if (c.what == "same_scope_twice") {
    auto inner = strategy.scope();
    return contexts_found(contexts(strategy));
  }
  if (c.what != "other_scope_inside") throw Unknown{c.fn()};
  distribute::OneDeviceStrategy other("cpu:0");
  auto inner = other.scope();
  return found_of(distribute::get_strategy().num_replicas_in_sync());
}

Found run_extended(const Case& c) {
  auto extended = c.strategy.extended();
  if (c.what.find("reduce_to_same_devices/") == 0) {
    const auto value = c.per_replica();
    return found_of(extended.reduce_to(c.op(), value, value));
  }
  if (c.what == "batch_reduce_to") {
    const auto scalars = c.named("scalars"), vectors = c.named("vectors");
    std::vector<Found> results;
    for (const auto& result :
         extended.batch_reduce_to("SUM", {{scalars, scalars}, {vectors, vectors}}))
      results.push_back(found_of(std::get<Mirrored<Tensor>>(result)));
    return branch(Found::Kind::kSequence, std::move(results));
  }
  if (c.what != "update_plain_arg") throw Unknown{c.what};
  auto scope = c.strategy.scope();
  const Variable v(at::scalar_tensor(10.0, at::kFloat));
  const auto returned = extended.update(
      v, [](Variable variable, const Tensor& delta) { return variable.assign_add(delta); },
      at::scalar_tensor(2.0, at::kFloat));
  const bool grouped = std::is_same_v<std::decay_t<decltype(returned)>, Mirrored<Tensor>>;
  return dict({{"read", found_of(extended.read_var(v))},
               {"returned", found_of(std::string(grouped ? "grouped" : "apart"))}});
}

Found run_values_from_function(const Case& c) {
  return found_of(c.strategy.distribute_values_from_function([](ValueContext context) {
    return at::scalar_tensor(context.replica_id_in_sync_group * 0.5, at::kFloat);
  }));
}

const std::map<std::string, Found (*)(const Case&)> kGroups{
    {"run", run_run},
    {"values_from_function", run_values_from_function},
    {"reduce", run_reduce},
    {"gather", run_gather},
    {"local_results", run_local_results},
    {"all_reduce", run_all_reduce},
    {"all_gather", run_all_gather},
    {"merge_call", run_merge_call},
    {"context", run_context},
    {"extended", run_extended}};

void with_strategy(const std::string& name, const std::function<void(Strategy&)>& body) {
  if (name == "default") return body(distribute::get_strategy());
  if (name == "one_device") {
    distribute::OneDeviceStrategy strategy("cpu:0");
    return body(strategy);
  }
  if (name == "central2") {
    distribute::CentralStorageStrategy strategy({.compute_devices = {"cpu:0", "cpu:1"}});
    return body(strategy);
  }
  if (name.find("mirrored") != 0) throw Unknown{"several processes"};
  distribute::MirroredStrategyOptions options;
  for (int i = 0; i < std::stoi(name.substr(8)); ++i) options.devices.push_back(cat("cpu:", i));
  distribute::MirroredStrategy strategy(options);
  body(strategy);
}

/// One case under one strategy, or as one of its workers sees it.
void run_case(const GoldenFile& file, const Json& entry, Strategy& strategy, const Json& expected,
              Verdict& verdict) {
  const std::string name = entry.at("name");
  const std::string strategy_name = name.substr(0, name.find('/'));
  const std::string rest = name.substr(strategy_name.size() + 1);
  const std::string group = rest.substr(0, rest.find('/'));
  if (group == "num_replicas")
    return verdict.equal("num_replicas_in_sync", strategy.num_replicas_in_sync(),
                         expected.at("num_replicas_in_sync").get<int64_t>());
  const auto known = kGroups.find(group);
  if (known == kGroups.end()) throw Unknown{"group " + group};
  const Case c{file, strategy, strategy_name,
               rest.size() > group.size() ? rest.substr(group.size() + 1) : "", entry.at("inputs")};
  try {
    const Found found = known->second(c);
    if (expected.contains("error"))
      return verdict.fail(cat("a value, expected ", expected.at("error").dump()));
    Comparison(file, verdict).compare("value", found, expected.at("value"));
  } catch (const Error& error) {
    check_error(verdict, error, expected);
  }
}

}  // namespace

void run_distribute_core_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const std::string name = entry.at("name");
  const std::string strategy_name = name.substr(0, name.find('/'));
  const bool of_variables = name.find("/variable/") != std::string::npos ||
                            name.find("/variable_ops/") != std::string::npos;
  if (strategy_name.find("mwms") == 0) {
    return run_on_workers(entry, verdict, [&](const Worker& worker, Verdict& found) {
      if (of_variables) return run_variable_case_of(file, entry, worker, found);
      run_case(file, entry, worker.strategy, worker.expected, found);
    });
  }
  if (of_variables) return run_variable_case(file, entry, verdict);
  with_strategy(strategy_name, [&](Strategy& strategy) {
    run_case(file, entry, strategy, entry.at("expected"), verdict);
  });
}

}  // namespace tutti::golden
