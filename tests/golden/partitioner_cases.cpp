// partitioners.json: parts of shapes, placements on parameter servers, layouts of sharded
// variables.

#include "golden/golden_file.h"
#include "ps/placement.h"
#include "tutti/tutti.h"

namespace tutti::golden {
namespace {

namespace partitioners = distribute::partitioners;

partitioners::Partitioner partitioner_of(const std::string& name, const Json& args) {
  if (name == "FixedShardsPartitioner")
    return partitioners::FixedShardsPartitioner(args.at("num_shards").get<int64_t>());
  if (name == "MinSizePartitioner") {
    partitioners::MinSizePartitionerOptions options;
    options.min_shard_bytes = args.value("min_shard_bytes", options.min_shard_bytes);
    options.max_shards = args.value("max_shards", options.max_shards);
    options.bytes_per_string = args.value("bytes_per_string", options.bytes_per_string);
    return partitioners::MinSizePartitioner(options);
  }
  if (name == "MaxSizePartitioner") {
    partitioners::MaxSizePartitionerOptions options;
    options.max_shard_bytes = args.at("max_shard_bytes");
    if (args.contains("max_shards")) options.max_shards = args.at("max_shards").get<int64_t>();
    options.bytes_per_string = args.value("bytes_per_string", options.bytes_per_string);
    return partitioners::MaxSizePartitioner(options);
  }
  throw Unknown{"class " + name};
}

void run_partition(const Json& inputs, const Json& expected, Verdict& verdict) {
  const bool refused = expected.contains("error");
  try {
    const auto partitioner = partitioner_of(inputs.at("class"), inputs.at("args"));
    if (refused) return verdict.fail("no error");
    if (!expected.contains("results")) return verdict.fail("accepted, and no results to compare");
    for (const Json& result : expected.at("results")) {
      const auto parts = partitioner(result.at("shape").get<std::vector<int64_t>>(),
                                     dtype_from_name(result.at("dtype")), result.at("axis"));
      if (parts != result.at("partitions").get<std::vector<int64_t>>())
        verdict.fail(cat(result.dump(), ": ", shape_text(parts)));
    }
  } catch (const InvalidArgument& error) {
    if (!refused) verdict.fail(error.what());
  }
}

void run_placement(const Json& inputs, const Json& expected, Verdict& verdict) {
  const std::string which = inputs.at("variable_partitioner");
  partitioners::Partitioner partitioner;
  if (which == "fixed2") {
    partitioner = partitioners::FixedShardsPartitioner(2);
  } else if (which == "min16_max3") {
    partitioner = partitioners::MinSizePartitioner({.min_shard_bytes = 16, .max_shards = 3});
  } else if (which != "none") {
    throw Unknown{which};
  }
  ps::Placement placement(inputs.at("ps_tasks"), partitioner);
  int number = 0;
  for (const Json& variable : expected.at("variables")) {
    const std::string name = cat("v", number++);
    const auto plans =
        placement.place(name, variable.at("shape").get<std::vector<int64_t>>(), at::kFloat);
    const Json& shards = variable.at("shards");
    verdict.equal(name + ": shards", static_cast<int64_t>(plans.size()),
                  static_cast<int64_t>(shards.size()));
    for (std::size_t i = 0; i < std::min(plans.size(), shards.size()); ++i) {
      verdict.equal(name + ": ps task", plans[i].server, shards[i].at("ps_task"));
      if (plans[i].name != shards[i].at("name").get<std::string>())
        verdict.fail(cat("the name ", plans[i].name));
      if (plans[i].shape != shards[i].at("shape").get<std::vector<int64_t>>())
        verdict.fail(cat("the shape ", shape_text(plans[i].shape)));
    }
  }
}

void run_layout(const GoldenFile& file, const Json& inputs, const Json& expected,
                Verdict& verdict) {
  const auto shape = inputs.at("shape").get<std::vector<int64_t>>();
  const Tensor whole =
      at::arange(c10::multiply_integers(shape), at::kFloat).reshape(at::IntArrayRef(shape));
  std::vector<Variable> variables;
  int64_t begin = 0;
  for (int64_t rows : ps::rows_of_shards(shape[0], inputs.at("num_shards"))) {
    variables.emplace_back(whole.narrow(0, begin, rows));
    begin += rows;
  }
  distribute::ShardedVariable sharded(variables);
  verdict.equal("shards", static_cast<int64_t>(sharded.num_shards()), expected.at("num_shards"));
  if (sharded.sizes() != expected.at("shape").get<std::vector<int64_t>>())
    verdict.fail(cat("the shape ", shape_text(sharded.sizes())));
  for (std::size_t i = 0; i < variables.size(); ++i) {
    verdict.equal("offset", sharded.offsets()[i], expected.at("offsets")[i][0]);
    if (variables[i].sizes().vec() != expected.at("shard_shapes")[i].get<std::vector<int64_t>>())
      verdict.fail(cat("shard ", i, ": ", shape_text(variables[i].sizes())));
  }
  const auto compare = [&](const char* key, const Tensor& found) {
    if (expected.contains(key)) verdict.close(key, found, file.tensor(expected.at(key)));
  };
  compare("full", sharded);
  compare("slice_1_to_end_minus_1", sharded.slice({.start = 1, .stop = -1}));
  compare("slice_step2", sharded.slice({.step = 2}));
  if (expected.contains("embedding_lookup")) {
    const auto ids = expected.at("embedding_lookup").at("ids").get<std::vector<int64_t>>();
    verdict.close("embedding_lookup", sharded.embedding_lookup(at::tensor(ids, at::kLong)),
                  file.tensor(expected.at("embedding_lookup").at("value")));
  }
  sharded.assign(whole + 1);
  for (std::size_t i = 0; i < variables.size(); ++i) {
    verdict.close("shard after assign", variables[i].value(),
                  file.tensor(expected.at("shards_after_assign_plus_1")[i]));
  }
}

void run_layout_error(const std::string& what, Verdict& verdict) {
  const std::map<std::string, std::pair<std::vector<Variable>, std::string>> known{
      {"different_dtype",
       {{Variable(at::ones({1})), Variable(at::ones({1}, at::kInt))}, "the same dtype"}},
      {"different_inner_shape",
       {{Variable(at::ones({1, 1})), Variable(at::ones({1, 2}))},
        "the same shapes except for the first axis"}}};
  if (!known.contains(what)) throw Unknown{what};
  try {
    distribute::ShardedVariable sharded(known.at(what).first);
    verdict.fail("no error");
  } catch (const InvalidArgument& error) {
    if (std::string(error.what()).find(known.at(what).second) == std::string::npos)
      verdict.fail(cat("the message is ", error.what()));
  }
}

}  // namespace

void run_partitioner_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const std::string name = entry.at("name");
  const Json& inputs = entry.at("inputs");
  const Json& expected = entry.at("expected");
  if (name.starts_with("ps_placement/")) return run_placement(inputs, expected, verdict);
  if (name.starts_with("layout_error/")) return run_layout_error(inputs.at("what"), verdict);
  if (name.starts_with("layout/")) return run_layout(file, inputs, expected, verdict);
  run_partition(inputs, expected, verdict);
}

}  // namespace tutti::golden
