// The matrix of synchronization x aggregation x context of tf.Variable, row by row.

#include <functional>
#include <memory>

#include "golden/golden_file.h"
#include "golden/workers.h"
#include "tutti/tutti.h"

namespace tutti::golden {
namespace {

using distribute::Strategy;

/// The strategy that a case's name begins with; null: the default one.
std::unique_ptr<Strategy> strategy_named(const std::string& name) {
  if (name == "default") return nullptr;
  if (name == "one_device") return std::make_unique<distribute::OneDeviceStrategy>("cpu:0");
  if (name == "central2")
    return std::make_unique<distribute::CentralStorageStrategy>(
        distribute::CentralStorageStrategyOptions{.compute_devices = {"cpu:0", "cpu:1"}});
  if (name.rfind("mirrored", 0) != 0) throw Unknown{cat("strategy ", name)};
  distribute::MirroredStrategyOptions options;
  for (int i = 0; i < std::stoi(name.substr(8)); ++i) options.devices.push_back(cat("cpu:", i));
  return std::make_unique<distribute::MirroredStrategy>(options);
}

/// A case's strategy, and the scope that makes it current.
struct Setting {
  explicit Setting(const std::string& name)
      : owned(strategy_named(name)),
        strategy(owned ? owned.get() : &distribute::get_strategy()),
        scope(strategy->scope()) {}
  explicit Setting(Strategy& given) : strategy(&given), scope(given.scope()) {}
  std::unique_ptr<Strategy> owned;
  Strategy* strategy;
  distribute::Scope scope;
};

VariableSynchronization synchronization_named(const std::string& name) {
  if (name == "AUTO") return VariableSynchronization::kAuto;
  if (name == "NONE") return VariableSynchronization::kNone;
  return name == "ON_WRITE" ? VariableSynchronization::kOnWrite : VariableSynchronization::kOnRead;
}

const char* name_of(VariableSynchronization synchronization) {
  switch (synchronization) {
    case VariableSynchronization::kAuto:
      return "AUTO";
    case VariableSynchronization::kNone:
      return "NONE";
    case VariableSynchronization::kOnWrite:
      return "ON_WRITE";
    case VariableSynchronization::kOnRead:
      break;
  }
  return "ON_READ";
}

VariableAggregation aggregation_named(const std::string& name) {
  if (name == "NONE") return VariableAggregation::kNone;
  if (name == "SUM") return VariableAggregation::kSum;
  return name == "MEAN" ? VariableAggregation::kMean : VariableAggregation::kOnlyFirstReplica;
}

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c == '/') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

int id() { return distribute::get_replica_context()->replica_id_in_sync_group(); }

/// Runs `body`; true when it failed as the golden error says it must, by class.
void expect_error(const std::string& what, const Json& error, Verdict& verdict,
                  const std::function<void()>& body) {
  const std::string wanted = error.at("error").get<std::string>();
  try {
    body();
  } catch (const Unimplemented&) {
    if (wanted != "NotImplementedError") verdict.fail(cat(what, ": Unimplemented, not ", wanted));
    return;
  } catch (const FailedPrecondition&) {
    if (wanted != "RuntimeError") verdict.fail(cat(what, ": FailedPrecondition, not ", wanted));
    return;
  } catch (const InvalidArgument&) {
    if (wanted == "NotImplementedError" || wanted == "RuntimeError")
      verdict.fail(cat(what, ": InvalidArgument, not ", wanted));
    return;
  }
  verdict.fail(cat(what, ": no error, expected ", wanted));
}

/// Compares `read()` with a golden value, or its failure with a golden error.
void compare_read(const std::string& what, const Json& wanted, const GoldenFile& file,
                  Verdict& verdict, const std::function<Tensor()>& read) {
  if (wanted.is_object() && wanted.contains("error"))
    return expect_error(what, wanted, verdict, [&] { read(); });
  if (wanted.is_object()) return verdict.close(what, read(), file.tensor(wanted));
  verdict.close(what, read().item<double>(), wanted);
}

void compare_list(const std::string& what, const Json& wanted, const GoldenFile& file,
                  Verdict& verdict, const std::vector<Tensor>& found) {
  const Json& list = wanted.is_array() ? wanted : wanted.at("list");
  if (list.size() != found.size())
    return verdict.fail(cat(what, ": ", found.size(), " values, expected ", list.size()));
  for (std::size_t i = 0; i < found.size(); ++i)
    compare_read(cat(what, " ", i), list[i], file, verdict, [&] { return found[i]; });
}

// ---- variable/…

template <class Value>
void assign(Variable v, const std::string& operation, const Value& value) {
  if (operation == "assign") {
    v.assign(value);
  } else if (operation == "assign_add") {
    v.assign_add(value);
  } else {
    v.assign_sub(value);
  }
}

void run_row(Strategy& strategy, const Variable& v, const Json& row) {
  const auto operation = row.at("op").get<std::string>();
  const auto value = row.at("value").get<std::string>();
  auto number = [&](double x) { return at::scalar_tensor(x, at::TensorOptions(v.dtype())); };
  if (row.at("context") == "replica") {
    strategy.run([&] {
      if (value == "per_replica_tensor") return assign(v, operation, number((id() + 1) * 2));
      if (value == "same_tensor") return assign(v, operation, number(3));
      assign(v, operation, c10::Scalar(value == "literal" ? 3 : 0));
    });
  } else if (value == "per_replica") {
    assign(v, operation,
           strategy.distribute_values_from_function([&](distribute::ValueContext context) {
             return number((context.replica_id_in_sync_group + 1) * 2);
           }));
  } else if (value == "tensor") {
    assign(v, operation, number(3));
  } else {
    assign(v, operation, c10::Scalar(3));
  }
}

/// A fresh variable before, everything that can be seen of it after.
void compare_row(Strategy& strategy, const Variable& v, const Json& row, const GoldenFile& file,
                 Verdict& verdict) {
  const std::string what =
      cat(row.at("context").get<std::string>(), " ", row.at("op").get<std::string>(), " ",
          row.at("value").get<std::string>());
  if (row.contains("error")) {
    expect_error(what, row, verdict, [&] { run_row(strategy, v, row); });
  } else {
    try {
      run_row(strategy, v, row);
    } catch (const Error& error) {
      verdict.fail(cat(what, ": ", error.what()));
    }
  }
  if (row.contains("replica_read")) {
    const PerReplica<Tensor> read = strategy.run([&] { return v.read_value(); });
    compare_list(what + ": replica_read", row.at("replica_read"), file, verdict,
                 strategy.local_results(read));
  }
  compare_list(what + ": components", row.at("components"), file, verdict,
               strategy.local_results(v));
  compare_read(what + ": cross_read", row.at("cross_read"), file, verdict,
               [&] { return v.read_value(); });
}

/// `compare` adds to the verdict, unless docs/differences.md declares this part different: then it
/// must find something.
void part(const std::string& name, Verdict& verdict, const std::function<void(Verdict&)>& compare,
          bool must_differ = true) {
  if (!verdict.differs(name)) return compare(verdict);
  Verdict apart(1e-6);
  compare(apart);
  if (apart.failures().empty() && must_differ)
    verdict.fail(cat(name, ": declared different, but it agrees; take it off the list"));
}

/// `key`: of a worker's part of what is expected; empty: all of it.
void run_matrix_case(const GoldenFile& file, const Json& entry, const std::string& key,
                     const Setting& setting, Verdict& verdict) {
  const std::vector<std::string> names = parts_of(entry.at("name").get<std::string>());
  const auto expected_of = [&](const Json& which) -> const Json& {
    return key.empty() ? which.at("expected") : which.at("expected").at(key);
  };
  const Json& expected = expected_of(entry);
  const Json& inputs = entry.at("inputs");
  const std::string dtype_name = inputs.value("dtype", "float32");
  const at::ScalarType dtype = dtype_name == "float32" ? at::kFloat
                               : dtype_name == "int32" ? at::kInt
                                                       : at::kBool;
  const auto aggregation = inputs.at("aggregation").get<std::string>();
  auto make = [&] {
    const Tensor initial = at::scalar_tensor(dtype == at::kBool ? 1 : 10, at::TensorOptions(dtype));
    VariableOptions options{
        .name = "v",
        .synchronization = synchronization_named(inputs.at("synchronization").get<std::string>()),
        .aggregation = aggregation_named(aggregation)};
    if (inputs.contains("trainable")) options.trainable = inputs.at("trainable").get<bool>();
    return Variable(initial, options);
  };
  if (!expected.at("create").is_string())
    return expect_error("create", expected.at("create"), verdict, make);

  const Variable fresh = make();
  std::string type = expected.at("class").get<std::string>();
  if (type == "ResourceVariable") type = "Variable";
  if (fresh.type_name() != type) verdict.fail(cat("class ", fresh.type_name()));
  if (name_of(fresh.synchronization()) != expected.at("synchronization").get<std::string>())
    verdict.fail(cat("synchronization ", name_of(fresh.synchronization())));
  if (fresh.aggregation() != aggregation_named(expected.at("aggregation").get<std::string>()))
    verdict.fail("aggregation");
  part("trainable", verdict, [&](Verdict& found) {
    found.equal("trainable", fresh.trainable(), expected.at("trainable").get<bool>());
  });
  std::vector<std::string> components;
  for (const Json& name : expected.at("component_names")) {
    const auto text = name.get<std::string>();
    components.push_back(text.substr(0, text.find(':')));
  }
  if (fresh.component_names() != components)
    verdict.fail(cat("component_names ", join(fresh.component_names(), ", ")));
  compare_read("cross_read", expected.at("cross_read"), file, verdict,
               [&] { return fresh.read_value(); });

  if (!expected.contains("rows")) return;
  const Json* rows = &expected.at("rows");
  if (rows->is_string()) {  // "as ON_WRITE"
    const std::string other = cat(names[0], "/variable/ON_WRITE/", aggregation, "/", dtype_name);
    rows = nullptr;
    for (const Json& candidate : file.cases()) {
      if (candidate.at("name") == other) rows = &expected_of(candidate).at("rows");
    }
    if (rows == nullptr) return;  // it was not recorded for this strategy
  }
  for (const Json& row : *rows) {
    part(
        cat(row.at("context").get<std::string>(), " ", row.at("op").get<std::string>(), " ",
            row.at("value").get<std::string>()),
        verdict, [&](Verdict& found) { compare_row(*setting.strategy, make(), row, file, found); },
        key != "worker0");  // whose own value may be that of all
  }
}

// ---- variable_ops/…

void compare_value(const std::string& what, const Json& expected, const GoldenFile& file,
                   Verdict& verdict, const std::function<std::vector<Tensor>()>& results) {
  if (expected.contains("error")) return expect_error(what, expected, verdict, [&] { results(); });
  const Json& value = expected.at("value");
  if (value.contains("PerReplica"))
    return compare_list(what, value.at("PerReplica"), file, verdict, results());
  if (value.contains("list")) return compare_list(what, value.at("list"), file, verdict, results());
  const Json& single = value.contains("variable") ? value.at("variable") : value;
  for (const Tensor& result : results()) verdict.close(what, result, file.tensor(single));
}

std::vector<Tensor> diverged_none(Strategy& strategy, const std::string& then) {
  Variable v(at::zeros({}), {.name = "v", .synchronization = VariableSynchronization::kOnWrite});
  strategy.run([&] { v.assign(at::scalar_tensor(id() + 5, at::kFloat)); });
  if (then == "local_results") return strategy.local_results(v);
  if (then == "cross_read") return {v.read_value()};
  if (then == "times_2") return {v * 2};
  if (then == "reduce_sum") return {strategy.reduce("SUM", v)};
  return strategy.local_results(strategy.run([&] { return v.read_value(); }));
}

void on_read_sum_counter(Strategy& strategy, const Json& expected, const GoldenFile& file,
                         Verdict& verdict) {
  Variable v(at::zeros({}), {.name = "v",
                             .synchronization = VariableSynchronization::kOnRead,
                             .aggregation = VariableAggregation::kSum});
  const Json& wanted = expected.at("value").at("dict");
  strategy.run([&] { v.assign_add(at::scalar_tensor(id() + 1, at::kFloat)); });
  verdict.close("cross_read", v.read_value(), file.tensor(wanted.at("cross_read")));
  v.assign(6);
  compare_list("components", wanted.at("after_cross_assign_6_components"), file, verdict,
               strategy.local_results(v));
  verdict.close("cross_read_2", v.read_value(), file.tensor(wanted.at("cross_read_2")));
  verdict.close("plus_1", v + 1, file.tensor(wanted.at("numpy_plus_1")));
}

std::vector<Tensor> two_mean_updates(Strategy& strategy) {
  Variable v(at::arange(1, 3, at::kFloat),
             {.name = "v", .aggregation = VariableAggregation::kMean});
  return strategy.local_results(strategy.run([&] {
    const Tensor x = at::scalar_tensor(id() + 1, at::kFloat);
    v.assign_add(at::stack({x, -x}));
    v.assign_sub(at::stack({x / 2, x}));
    return v.read_value();
  }));
}

std::vector<Tensor> scatter_add(Strategy& strategy, const std::string& aggregation) {
  Variable v(at::zeros({4}), {.name = "v", .aggregation = aggregation_named(aggregation)});
  return strategy.local_results(strategy.run([&] {
    v.scatter_add({at::tensor({id() + 1.0F, 10.0F}), at::tensor({id(), 3}, at::kLong), {4}});
    return v.read_value();
  }));
}

void run_ops_case(const GoldenFile& file, const Json& entry, const Json& expected,
                  const Setting& setting, Verdict& verdict) {
  const std::vector<std::string> names = parts_of(entry.at("name").get<std::string>());
  const std::string& operation = names[2];
  Strategy& strategy = *setting.strategy;
  if (operation == "on_read_sum_counter")
    return on_read_sum_counter(strategy, expected, file, verdict);
  compare_value(operation, expected, file, verdict, [&]() -> std::vector<Tensor> {
    if (operation == "diverged_none")
      return diverged_none(strategy, names.size() > 3 ? names[3] : "cross_read");
    if (operation == "two_mean_updates") return two_mean_updates(strategy);
    if (operation == "scatter_add") return scatter_add(strategy, names[3]);
    throw Unknown{operation};
  });
}

}  // namespace

void run_variable_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const auto name = entry.at("name").get<std::string>();
  const Setting setting(parts_of(name)[0]);
  if (name.find("/variable/") != std::string::npos)
    return run_matrix_case(file, entry, "", setting, verdict);
  run_ops_case(file, entry, entry.at("expected"), setting, verdict);
}

void run_variable_case_of(const GoldenFile& file, const Json& entry, const Worker& worker,
                          Verdict& verdict) {
  const Setting setting(worker.strategy);
  if (entry.at("name").get<std::string>().find("/variable/") != std::string::npos)
    return run_matrix_case(file, entry, worker.key, setting, verdict);
  run_ops_case(file, entry, worker.expected, setting, verdict);
}

}  // namespace tutti::golden
