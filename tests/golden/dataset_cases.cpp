// distributed_dataset.json: what each replica gets at each step. A pipeline is a list of steps
// (golden/README.md of the recordings); `next` must give both what TensorFlow's `next` gave and
// what its get_next_as_optional gave, wherever the two are not declared different.

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "golden/golden_file.h"
#include "golden/workers.h"
#include "tutti/tutti.h"

namespace tutti::golden {
namespace {

using data::Dataset;
using data::InputContext;
using distribute::Strategy;
using Elements = Dataset<Nest>;

int64_t integer(const Json& step, std::size_t index) { return step.at(index).get<int64_t>(); }

Dataset<Tensor> ramps(int64_t count) {
  return data::range(count).map([](const Tensor& i) { return at::arange(i.item<int64_t>() + 1); });
}

Dataset<Tensor> generator_batches(const std::vector<int64_t>& sizes) {
  return data::from_generator<Tensor>(
      [sizes] {
        return [sizes, i = std::size_t{0}, from = int64_t{0}]() mutable -> std::optional<Tensor> {
          if (i == sizes.size()) return std::nullopt;
          const int64_t begin = from;
          from += sizes[i++];
          return at::arange(begin, from);
        };
      },
      TensorSpec{{-1}, at::kLong});
}

Elements slices_dict(int64_t count) {
  return data::from_tensor_slices(
      Nest::map({{"a", (at::arange(count).to(at::kFloat) / 2).reshape({count, 1})},
                 {"b", Nest::map({{"c", at::arange(count) + 100}})}}));
}

/// Files of lines "f<i>l<j>", i + 3 in file i, until the program ends.
class TextFiles {
 public:
  TextFiles()
      : folder_(std::filesystem::temp_directory_path() / cat("tutti_golden_lines_", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~TextFiles() { std::filesystem::remove_all(folder_); }
  std::vector<std::string> paths(int64_t count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto i = static_cast<int64_t>(paths_.size()); i < count; ++i) {
      paths_.push_back((folder_ / cat("lines", i, ".txt")).string());
      std::ofstream file(paths_.back());
      for (int64_t j = 0; j < i + 3; ++j) file << "f" << i << "l" << j << "\n";
    }
    return {paths_.begin(), paths_.begin() + count};
  }

 private:
  std::filesystem::path folder_;
  std::mutex mutex_;
  std::vector<std::string> paths_;
};

Elements text_files(int64_t count) {
  static TextFiles files;  // workers are threads
  return data::text_lines(files.paths(count));
}

std::optional<Elements> source(const Json& step, const InputContext& context) {
  const std::string name = step.at(0);
  if (name == "range") return data::range(integer(step, 1));
  if (name == "range_ctx")
    return data::range(integer(step, context.input_pipeline_id() == 0 ? 1 : 2));
  if (name == "slices_dict") return slices_dict(integer(step, 1));
  if (name == "text_files") return text_files(integer(step, 1));
  if (name == "slices_tuple") {
    const int64_t n = integer(step, 1);
    return data::from_tensor_slices((at::arange(2 * n).to(at::kFloat) / 4).reshape({n, 2}),
                                    at::arange(n));
  }
  if (name == "matrix") {
    const int64_t rows = integer(step, 1);
    const int64_t columns = integer(step, 2);
    return data::from_tensor_slices(at::arange(rows * columns).reshape({rows, columns}));
  }
  if (name == "ramps") return ramps(integer(step, 1));
  if (name == "generator_batches") return generator_batches(step.at(1));
  if (name == "concat_batched")
    return data::range(integer(step, 1))
        .batch(integer(step, 2))
        .concatenate(data::range(integer(step, 3)).batch(integer(step, 4)));
  if (name == "zip_batched") {
    const int64_t n = integer(step, 1);
    const int64_t size = integer(step, 2);
    return data::zip(data::range(n).batch(size), data::range(100, 100 + n).batch(size));
  }
  if (name == "strings") {
    std::vector<std::string> strings;
    for (int64_t i = 0; i < integer(step, 1); ++i) strings.push_back(cat("s", i));
    return data::from_tensor_slices(strings);
  }
  return std::nullopt;
}

Elements transformed(const Elements& input, const Json& step, const InputContext& context) {
  const std::string name = step.at(0);
  if (name == "batch")
    return input.batch(integer(step, 1), {.drop_remainder = step.size() > 2 && step.at(2)});
  if (name == "batch_ctx") return input.batch(context.get_per_replica_batch_size(integer(step, 1)));
  if (name == "shard_ctx")
    return input.shard(context.num_input_pipelines(), context.input_pipeline_id());
  if (name == "padded_batch") return input.padded_batch(integer(step, 1));
  if (name == "repeat") return input.repeat(integer(step, 1));
  if (name == "take") return input.take(integer(step, 1));
  if (name == "skip") return input.skip(integer(step, 1));
  if (name == "cache") return input.cache();
  if (name == "prefetch") return input.prefetch(integer(step, 1));
  if (name == "unbatch") return input.unbatch();
  if (name == "enumerate") return Elements(input.enumerate());
  if (name == "map_times10")
    return input.map(
        [](const Nest& x) { return x.map_leaves([](const Tensor& leaf) { return leaf * 10; }); });
  if (name == "filter_even")
    return input.filter([](const Nest& x) { return x.leaf().item<int64_t>() % 2 == 0; });
  if (name == "filter_first_mod8")
    return input.filter([](const Nest& x) { return x.leaf()[0].item<int64_t>() % 8 == 0; });
  throw Unknown{cat("pipeline step ", name)};
}

Elements pipeline(const Json& inputs, const InputContext& context) {
  const Json& steps = inputs.at("pipeline");
  std::optional<Elements> dataset = source(steps.at(0), context);
  if (!dataset) throw Unknown{cat("source ", steps.at(0).at(0).get<std::string>())};
  for (std::size_t i = 1; i < steps.size(); ++i) dataset = transformed(*dataset, steps[i], context);
  return *dataset;
}

data::AutoShardPolicy policy_of(const std::string& name) {
  if (name == "OFF") return data::AutoShardPolicy::kOff;
  if (name == "AUTO") return data::AutoShardPolicy::kAuto;
  if (name == "FILE") return data::AutoShardPolicy::kFile;
  if (name == "DATA") return data::AutoShardPolicy::kData;
  if (name == "HINT") return data::AutoShardPolicy::kHint;
  throw Unknown{cat("policy ", name)};
}

distribute::InputOptions options_of(const Json& inputs) {
  distribute::InputOptions options;
  const Json given = inputs.value("input_options", Json::object());
  for (const auto& [key, value] : given.items()) {
    if (key == "experimental_fetch_to_device") {
      options.fetch_to_device = value.get<bool>();
    } else if (key == "experimental_replication_mode" && value == "PER_REPLICA") {
      options.replication_mode = distribute::InputReplicationMode::kPerReplica;
    } else {
      throw Unknown{cat("input option ", key)};
    }
  }
  return options;
}

/// A strategy of the recordings: default, one_device, mirroredN.
struct NamedStrategy {
  explicit NamedStrategy(const std::string& name) {
    if (name == "one_device") {
      own = std::make_unique<distribute::OneDeviceStrategy>("cpu:0");
    } else if (name.rfind("mirrored", 0) == 0) {
      distribute::MirroredStrategyOptions options;
      const int replicas = std::stoi(name.substr(8));
      for (int i = 0; i < replicas; ++i) options.devices.push_back(cat("cpu:", i));
      own = std::make_unique<distribute::MirroredStrategy>(options);
    } else if (name != "default") {
      throw Unknown{cat("strategy ", name)};
    }
  }
  Strategy& operator*() const { return own ? *own : distribute::get_strategy(); }
  std::unique_ptr<Strategy> own;
};

distribute::DistributedDataset<Nest> distributed(Strategy& strategy, const Json& inputs,
                                                 std::vector<InputContext>& contexts) {
  if (inputs.at("api") == "experimental_distribute_dataset") {
    Elements dataset = pipeline(inputs, InputContext());
    if (inputs.contains("policy"))
      dataset = dataset.with_options(
          {.experimental_distribute = {.auto_shard_policy = policy_of(inputs.at("policy"))}});
    return strategy.distribute_dataset(dataset, options_of(inputs));
  }
  return strategy.distribute_datasets_from_function(
      [&](const InputContext& context) {
        contexts.push_back(context);
        return pipeline(inputs, context);
      },
      options_of(inputs));
}

std::string without(std::string text, const std::string& part) {
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part))
    text.erase(at, part.size());
  return text;
}

std::string plain(const std::string& text) {
  std::string result = without(without(text, "tf."), ", name=None");
  std::erase_if(result, [](char c) { return std::isspace(static_cast<unsigned char>(c)); });
  return without(result, "distribute.");
}

void compare_text(Verdict& verdict, const std::string& what, const std::string& found,
                  const std::string& expected) {
  if (plain(found) != plain(expected))
    verdict.fail(cat(what, ": ", found, ", expected ", expected));
}

void compare_nest(const GoldenFile& file, Verdict& verdict, const std::string& what,
                  const Nest& found, const Json& expected) {
  const bool tuple = expected.contains("tuple");
  if (!tuple && !expected.contains("dict")) {
    const std::string dtype = expected.at("dtype");
    if (dtype == "string") {
      const StringTensor strings(expected.at("data").get<std::vector<std::string>>(),
                                 expected.at("shape").get<std::vector<int64_t>>());
      if (!found.is_strings() || found.strings() != strings)
        verdict.fail(cat(what, ": ", found, ", expected ", strings));
      return;
    }
    if (!found.is_leaf() || dtype_name(found.leaf().scalar_type()) != dtype)
      return verdict.fail(cat(what, ": ", found.structure(), ", expected one ", dtype));
    return verdict.close(what, found.leaf(), file.tensor(expected));
  }
  const Json& children = expected.at(tuple ? "tuple" : "dict");
  if (found.kind() != (tuple ? NestKind::kTuple : NestKind::kMap) ||
      found.size() != children.size()) {
    return verdict.fail(cat(what, ": ", found.structure(), ", expected ", expected.dump()));
  }
  std::size_t i = 0;
  for (const auto& [key, child] : children.items()) {
    compare_nest(file, verdict, cat(what, " ", key), tuple ? found[i] : found[key], child);
    ++i;
  }
}

using Steps = std::vector<NestOf<PerReplica<Tensor>>>;

void compare_steps(const GoldenFile& file, Verdict& verdict, const std::string& what,
                   const Steps& found, const Json& expected) {
  if (found.size() != expected.size())
    return verdict.equal(what, static_cast<int64_t>(found.size()),
                         static_cast<int64_t>(expected.size()));
  for (std::size_t s = 0; s < found.size(); ++s) {
    const Json& parts = expected[s];
    for (std::size_t r = 0; r < parts.size(); ++r) {
      const Nest part = select_replica(r, found[s]);
      compare_nest(file, verdict, cat(what, ", step ", s, ", replica ", r), part, parts[r]);
    }
    const auto count = [&](const auto& component) {
      verdict.equal(cat(what, ", replicas"), static_cast<int64_t>(component.size()),
                    static_cast<int64_t>(parts.size()));
    };
    found[s].for_each(count, count);
  }
}

Steps take(const distribute::DistributedDataset<Nest>& dataset, const Json& inputs,
           const Json& expected) {
  Steps steps;
  auto limit = inputs.value("max_steps", std::size_t{1000});
  if (dataset.cardinality() == data::kInfinite) limit = expected.at("steps").size();
  auto iterator = dataset.iterator();
  while (steps.size() < limit) {
    auto step = iterator.get_next_as_optional();
    if (!step) break;
    steps.push_back(std::move(*step));
  }
  return steps;
}

void compare_contexts(Verdict& verdict, const std::vector<InputContext>& found,
                      const Json& expected) {
  verdict.equal("calls of the dataset function", static_cast<int64_t>(found.size()),
                static_cast<int64_t>(expected.size()));
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    const Json& context = expected[i];
    verdict.equal("pipelines", found[i].num_input_pipelines(), context.at("num_input_pipelines"));
    verdict.equal("pipeline id", found[i].input_pipeline_id(), context.at("input_pipeline_id"));
    verdict.equal("replicas", found[i].num_replicas_in_sync(), context.at("num_replicas_in_sync"));
    compare_text(verdict, "context", found[i].to_string(), context.at("text"));
  }
}

void compare_error(Verdict& verdict, const Json& expected, const Error& error) {
  const std::string name = expected.at("error");
  const bool agrees = name == "ValueError"            ? error.code() == ErrorCode::kInvalidArgument
                      : name == "NotImplementedError" ? error.code() == ErrorCode::kUnimplemented
                      : name == "IndexError"          ? error.code() == ErrorCode::kOutOfRange
                      : name == "NotFoundError"       ? error.code() == ErrorCode::kNotFound
                                                      : false;
  if (!agrees) verdict.fail(cat(error.what(), ", expected ", name));
}

void run_dataset(const GoldenFile& file, const Json& inputs, const Json& expected,
                 Strategy& strategy, Verdict& verdict) {
  std::vector<InputContext> contexts;
  std::optional<distribute::DistributedDataset<Nest>> dataset;
  try {
    dataset = distributed(strategy, inputs, contexts);
    if (expected.contains("create")) verdict.fail(cat("no error, expected ", expected.dump()));
  } catch (const Error& error) {
    if (!expected.contains("create")) throw;
    if (!verdict.differs("create")) {
      compare_error(verdict, expected.at("create"), error);
    } else if (error.code() != ErrorCode::kInvalidArgument) {
      verdict.fail(cat(error.what(), ", expected InvalidArgument"));
    }
  }
  if (expected.contains("input_contexts"))
    compare_contexts(verdict, contexts, expected.at("input_contexts"));
  if (!dataset || !expected.contains("steps")) return;

  compare_text(verdict, "element_spec", cat(dataset->element_spec()), expected.at("element_spec"));
  compare_text(verdict, "the iterator's element_spec", cat(dataset->iterator().element_spec()),
               expected.at("element_spec"));
  const Steps steps = take(*dataset, inputs, expected);
  if (!verdict.differs("steps")) compare_steps(file, verdict, "steps", steps, expected.at("steps"));
  Json optional_steps = expected.at("optional_steps");
  if (optional_steps.is_array() && !verdict.differs("optional_steps")) {
    if (optional_steps.back().is_object()) optional_steps.erase(optional_steps.size() - 1);
    compare_steps(file, verdict, "optional steps", steps, optional_steps);
  }
  const int64_t cardinality = dataset->cardinality();
  if (!verdict.differs("cardinality"))
    verdict.equal("cardinality", cardinality, expected.at("cardinality"));
  if (cardinality >= 0)
    verdict.equal("cardinality as steps", cardinality, static_cast<int64_t>(steps.size()));
}

void run_input_context(const Json& entry, Verdict& verdict) {
  const Json& inputs = entry.at("inputs");
  const Json& expected = entry.at("expected");
  const InputContext context(inputs.at("num_input_pipelines"), inputs.at("input_pipeline_id"),
                             inputs.at("num_replicas_in_sync"));
  compare_contexts(verdict, {context}, Json::array({expected}));
  const Json& size = expected.at("per_replica_batch_size");
  try {
    const int64_t found = context.get_per_replica_batch_size(inputs.at("global_batch_size"));
    if (size.is_number()) return verdict.equal("per-replica batch size", found, size);
    verdict.fail(cat(found, ", expected ", size.dump()));
  } catch (const Error& error) {
    if (size.is_number()) throw;
    compare_error(verdict, size, error);
  }
}

void run_batch_sizes(const Json& entry, Verdict& verdict) {
  const Json& inputs = entry.at("inputs");
  const int workers = inputs.at("num_workers");
  for (int worker = 0; worker < workers; ++worker) {
    const auto found = data::batch_sizes_for_worker(inputs.at("global_batch"), workers,
                                                    inputs.at("num_replicas_per_worker"), worker);
    const auto expected =
        entry.at("expected").at("sizes_per_worker").at(worker).get<std::vector<int64_t>>();
    if (found != expected)
      verdict.fail(
          cat("worker ", worker, ": ", join(found, " "), ", expected ", join(expected, " ")));
  }
}

}  // namespace

void run_distributed_dataset_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const std::string name = entry.at("name");
  const Json& inputs = entry.at("inputs");
  if (name.rfind("mwms", 0) == 0) {
    return run_on_workers(entry, verdict, [&](const Worker& worker, Verdict& found) {
      run_dataset(file, inputs, worker.expected, worker.strategy, found);
    });
  }
  if (name.rfind("input_context/", 0) == 0) return run_input_context(entry, verdict);
  if (name.rfind("batch_sizes_for_worker/", 0) == 0) return run_batch_sizes(entry, verdict);
  const NamedStrategy strategy(inputs.at("strategy"));
  run_dataset(file, inputs, entry.at("expected"), *strategy, verdict);
}

}  // namespace tutti::golden
