// Batches of the records of Example files.

#include "data/iteration.h"
#include "tutti/data/experimental.h"
#include "tutti/data/readers.h"

namespace tutti::data::experimental {
namespace {

Nest with_label(const Nest& parsed, const std::string& label_key) {
  std::map<std::string, Nest> features;
  for (std::size_t i = 0; i < parsed.size(); ++i) {
    if (parsed.keys()[i] != label_key) features.emplace(parsed.keys()[i], parsed.items()[i]);
  }
  return Nest::tuple({Nest::map(std::move(features)), parsed[label_key]});
}

Dataset<StringTensor> records_of(const std::string& filename) {
  return TFRecordDataset({filename});
}

Dataset<StringTensor> read(const std::vector<std::string>& file_patterns,
                           const MakeBatchedFeaturesDatasetOptions& options) {
  const auto files =
      list_files(file_patterns, {.shuffle = options.shuffle, .seed = options.shuffle_seed});
  InterleaveOptions interleaving{.cycle_length = options.reader_num_threads};
  if (options.reader_num_threads != 1) {
    interleaving.num_parallel_calls = options.reader_num_threads;
    interleaving.deterministic = !options.sloppy_ordering;
  }
  if (!options.reader) return files.interleave(records_of, interleaving);
  return files.interleave(
      [reader = options.reader](const std::string& file) { return reader(file); }, interleaving);
}

}  // namespace

Dataset<Nest> ParseExampleDataset::operator()(const Dataset<Nest>& records) const {
  if (features.empty())
    throw InvalidArgument("parse_example_dataset: no features, expected at least one");
  const SpecNest spec = records.element_spec();
  if (!spec.is_leaf() || spec.leaf().dtype != kString) {
    throw InvalidArgument(cat("parse_example_dataset: elements ", spec,
                              ", expected vectors of records; batch() them first"));
  }
  MapOptions options{.deterministic = deterministic};
  if (num_parallel_calls != 1) options.num_parallel_calls = num_parallel_calls;
  if (num_parallel_calls == 1) options.deterministic = std::nullopt;  // nothing to overtake
  return records.map(
      [features = features](const Nest& batch) {
        return io::parse_example(batch.strings(), features);
      },
      options);
}

Dataset<Nest> make_batched_features_dataset(const std::vector<std::string>& file_patterns,
                                            int64_t batch_size, const io::FeatureConfigs& features,
                                            const MakeBatchedFeaturesDatasetOptions& options) {
  if (options.label_key && features.count(*options.label_key) == 0) {
    std::vector<std::string> names;
    for (const auto& [name, config] : features) names.push_back(name);
    throw InvalidArgument(cat("make_batched_features_dataset: label_key \"", *options.label_key,
                              "\", expected one of ", join(names, ", ")));
  }
  Dataset<StringTensor> records = read(file_patterns, options);
  if (options.shuffle)
    records = records.shuffle(options.shuffle_buffer_size, {.seed = options.shuffle_seed});
  if (options.num_epochs != 1) records = records.repeat(options.num_epochs.value_or(-1));
  Dataset<Nest> parsed =
      records.batch(batch_size, {.drop_remainder = options.drop_final_batch || !options.num_epochs})
          .apply(parse_example_dataset(features, options.parser_num_threads));
  if (options.label_key) {
    parsed = parsed.map(
        [key = *options.label_key](const Nest& features) { return with_label(features, key); });
  }
  return parsed.prefetch(options.prefetch_buffer_size);
}

Dataset<Nest> make_batched_features_dataset(const std::string& file_pattern, int64_t batch_size,
                                            const io::FeatureConfigs& features,
                                            const MakeBatchedFeaturesDatasetOptions& options) {
  return make_batched_features_dataset(std::vector<std::string>{file_pattern}, batch_size, features,
                                       options);
}

}  // namespace tutti::data::experimental
