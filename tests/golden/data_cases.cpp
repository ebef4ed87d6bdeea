// data.json: what datasets give in one process. A pipeline is a sentence in the recordings, so each
// sentence is written here as the program that it stands for. The tables are long because they are
// tables.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "golden/golden_file.h"
#include "tutti/tutti.h"

namespace tutti::golden {
namespace {

using data::Dataset;
using data::range;
using Elements = Dataset<Nest>;
using Make = std::function<Elements()>;
using Numbers = std::vector<int64_t>;

Tensor ints(const Numbers& values) { return at::tensor(values, at::kInt); }
Tensor longs(const Numbers& values) { return at::tensor(values, at::kLong); }

/// Element i is range(i + 1).
Dataset<Tensor> ramps(int64_t count) {
  return range(count).map([](const Tensor& i) { return at::arange(i.item<int64_t>() + 1); });
}
Dataset<Tensor> even(int64_t count) {
  return range(count).filter([](const Tensor& x) { return x % 2 == 0; });
}
Dataset<Tensor> tenth_by_difference() {
  return range(5).map([](const Tensor& x) {
    const int64_t by = x.item<int64_t>() - 2;
    if (by == 0) throw InvalidArgument("map: Integer division by zero");
    return at::scalar_tensor(10 / by, at::kLong);
  });
}
Dataset<Tensor> in_turn(int64_t cycle, int64_t block) {
  return range(1, 5).interleave(
      [](const Tensor& i) { return data::from_tensors(i).repeat(i.item<int64_t>() + 2); },
      {.cycle_length = cycle, .block_length = block});
}
Dataset<Tensor> generated(std::vector<Tensor> elements, TensorSpec spec) {
  return data::from_generator<Tensor>(
      [elements] {
        return [elements, i = std::size_t{0}]() mutable -> std::optional<Tensor> {
          if (i == elements.size()) return std::nullopt;
          return elements[i++];
        };
      },
      spec);
}
Dataset<Tensor> numbers_of(const Numbers& values) {
  return data::from_tensor_slices(longs(values));
}
Dataset<Tensor> constant(int64_t value) {
  return data::from_tensors(at::scalar_tensor(value, at::kInt)).repeat();
}
Dataset<Tensor> of_lengths(const Numbers& lengths) {
  return numbers_of(lengths).map(
      [](const Tensor& n) { return at::arange(n.item<int64_t>(), at::kInt); });
}
int64_t parity(const Tensor& x) { return x.item<int64_t>() % 2; }

const std::map<std::string, Make>& sources_and_batches() {
  static const std::map<std::string, Make> kAll{
      {"range(5)", [] { return range(5); }},
      {"range(2, 9, 3)", [] { return range(2, 9, 3); }},
      {"range(5, 0, -2)", [] { return range(5, 0, -2); }},
      {"range(3, 3)", [] { return range(3, 3); }},
      {"from_tensors([1,2,3])",
       [] {
         return data::from_tensors(ints({1, 2, 3}));
       }},
      {"from_tensor_slices([1.5,2.5])",
       [] {
         return data::from_tensor_slices(at::tensor({1.5F, 2.5F}));
       }},
      {"from_tensor_slices(([1,2],[[3],[4]]))",
       [] {
         return data::from_tensor_slices(ints({1, 2}), ints({3, 4}).reshape({2, 1}));
       }},
      {"from_tensor_slices({a:[1,2], b:(['x','y'],)})",
       [] {
         return data::from_tensor_slices(
             Nest::map({{"a", ints({1, 2})}, {"b", Nest::tuple({StringTensor{"x", "y"}})}}));
       }},
      {"from_tensor_slices(([1,2],[3]))",
       [] {
         return data::from_tensor_slices(ints({1, 2}), ints({3}));
       }},
      {"from_tensor_slices(3)",
       [] { return data::from_tensor_slices(at::scalar_tensor(3, at::kInt)); }},
      {"range(10).batch(4, drop_remainder=False)", [] { return range(10).batch(4); }},
      {"range(10).batch(4, drop_remainder=True)",
       [] { return range(10).batch(4, {.drop_remainder = true}); }},
      {"range(8).batch(4, drop_remainder=False)", [] { return range(8).batch(4); }},
      {"range(3).batch(5, drop_remainder=False)", [] { return range(3).batch(5); }},
      {"range(3).batch(5, drop_remainder=True)",
       [] { return range(3).batch(5, {.drop_remainder = true}); }},
      {"range(3).batch(0)", [] { return range(3).batch(0); }},
      {"ramps(4).batch(2), ramp i = range(i+1)", [] { return ramps(4).batch(2); }},
      {"from_tensor_slices(([1,2,3],['a','b','c'])).batch(2)",
       [] {
         const std::vector<std::string> letters{"a", "b", "c"};
         return data::from_tensor_slices(ints({1, 2, 3}), letters).batch(2);
       }},
      {"range(10).batch(2).batch(3)", [] { return range(10).batch(2).batch(3); }},
      {"ramps(5).padded_batch(2)", [] { return ramps(5).padded_batch(2); }},
      {"ramps(5).padded_batch(3, padding_values=-1)",
       [] {
         return ramps(5).padded_batch(3,
                                      {.padding_values = Nest(at::scalar_tensor(-1, at::kLong))});
       }},
      {"ramps(4).padded_batch(2, padded_shapes=[6])",
       [] { return ramps(4).padded_batch(2, {.padded_shapes = data::ShapeNest(Numbers{6})}); }},
      {"ramps(4).padded_batch(2, padded_shapes=[3])",
       [] { return ramps(4).padded_batch(2, {.padded_shapes = data::ShapeNest(Numbers{3})}); }},
      {"range(5).batch(2).unbatch()", [] { return range(5).batch(2).unbatch(); }},
      {"range(10).batch(4).rebatch(3)", [] { return range(10).batch(4).rebatch(3); }},
      {"range(10).batch(4).rebatch([2,2,1])",
       [] {
         return range(10).batch(4).rebatch(Numbers{2, 2, 1});
       }},
      {"slices {a:[1,2,3], b:[[1],[2],[3]]} batch(2)",
       [] {
         return data::from_tensor_slices(
                    Nest::map({{"a", ints({1, 2, 3})}, {"b", ints({1, 2, 3}).reshape({3, 1})}}))
             .batch(2);
       }},
      {"range(3).batch(2).repeat(2)", [] { return range(3).batch(2).repeat(2); }},
      {"range(3).repeat(2).batch(2)", [] { return range(3).repeat(2).batch(2); }},
      // The recording took the first four.
      {"range(3).repeat().batch(2)", [] { return range(3).repeat().batch(2).take(4); }},
      {"generator 0,1,2 with signature int32 scalar",
       [] {
         const auto scalar = [](int value) { return at::scalar_tensor(value, at::kInt); };
         return generated({scalar(0), scalar(1), scalar(2)}, {{}, at::kInt});
       }},
      {"generator [1],[1,2] with signature shape [1]",
       [] {
         return generated({ints({1}), ints({1, 2})}, {{1}, at::kInt});
       }},
      {"Dataset.counter(start=5, step=2).take(3)",
       [] { return data::counter({.start = 5, .step = 2}).take(3); }},
  };
  return kAll;
}

const std::map<std::string, Make>& functions() {
  static const std::map<std::string, Make> kAll{
      {"range(4).map(x*x)", [] { return range(4).map([](const Tensor& x) { return x * x; }); }},
      {"range(3).map(x -> (x, x+1.0 as float))",
       [] {
         return range(3).map(
             [](const Tensor& x) { return std::tuple(x, x.to(at::kFloat) + 1.0F); });
       }},
      {"(a,b) slices map a*b",
       [] {
         return data::from_tensor_slices(ints({1, 2}), ints({3, 4}))
             .map([](const Tensor& a, const Tensor& b) { return a * b; });
       }},
      {"range(8).map(x+1, num_parallel_calls=4)",
       [] {
         return range(8).map([](const Tensor& x) { return x + 1; }, {.num_parallel_calls = 4});
       }},
      {"range(5).map(10 // (x-2)), integer division by zero at x=2",
       [] { return tenth_by_difference(); }},
      {"the same then ignore_errors()", [] { return tenth_by_difference().ignore_errors(); }},
      {"range(10).filter(x%3==0)",
       [] { return range(10).filter([](const Tensor& x) { return x % 3 == 0; }); }},
      {"range(4).flat_map(i -> range(i))",
       [] { return range(4).flat_map([](const Tensor& i) { return range(i.item<int64_t>()); }); }},
      {"range(1,5).interleave(i -> repeat of i, i+2 times; cycle 2, block 1)",
       [] { return in_turn(2, 1); }},
      {"range(1,5).interleave(i -> repeat of i, i+2 times; cycle 2, block 3)",
       [] { return in_turn(2, 3); }},
      {"range(1,5).interleave(i -> repeat of i, i+2 times; cycle 3, block 2)",
       [] { return in_turn(3, 2); }},
      {"range(1,5).interleave(i -> repeat of i, i+2 times; cycle 1, block 1)",
       [] { return in_turn(1, 1); }},
      {"range(1,6).scan(0, (s,x) -> (s+x, s+x))",
       [] {
         return range(1, 6).scan(
             at::scalar_tensor(0, at::kLong),
             [](const Tensor& sum, const Tensor& x) { return std::pair(sum + x, sum + x); });
       }},
      {"range(10).take_while(x<4)",
       [] { return range(10).take_while([](const Tensor& x) { return x < 4; }); }},
      {"slices [1,2,1,3,2].unique()",
       [] {
         return data::from_tensor_slices(ints({1, 2, 1, 3, 2})).unique();
       }},
      {"range(10).group_by_window(x%2, batch(3), window 3)",
       [] {
         return range(10).group_by_window(
             parity, [](int64_t, const Dataset<Tensor>& group) { return group.batch(3); }, 3);
       }},
      {"ramps of lengths [1,4,2,6,3,5,2], boundaries [3,5], batch sizes [2,2,2]",
       [] {
         return of_lengths({1, 4, 2, 6, 3, 5, 2})
             .bucket_by_sequence_length([](const Tensor& x) { return x.numel(); }, {3, 5},
                                        {2, 2, 2});
       }},
      {"range(3).map(+1).cache().repeat(2)",
       [] { return range(3).map([](const Tensor& x) { return x + 1; }).cache().repeat(2); }},
      {"range(8).filter(even).apply(assert_cardinality(4))",
       [] { return even(8).assert_cardinality(4); }},
      {"same with 5", [] { return even(8).assert_cardinality(5); }},
  };
  return kAll;
}

const std::map<std::string, Make>& others() {
  static const std::map<std::string, Make> kAll{
      {"zip(range(3), range(10,20))", [] { return data::zip(range(3), range(10, 20)); }},
      {"zip(range(3), range(2).repeat())", [] { return data::zip(range(3), range(2).repeat()); }},
      {"range(2).concatenate(range(7,9))", [] { return range(2).concatenate(range(7, 9)); }},
      {"int64 with float",
       [] { return range(2).concatenate(data::from_tensor_slices(at::tensor({1.5F}))); }},
      {"range(5).take(0)", [] { return range(5).take(0); }},
      {"range(5).take(2)", [] { return range(5).take(2); }},
      {"range(5).take(7)", [] { return range(5).take(7); }},
      {"range(5).skip(0)", [] { return range(5).skip(0); }},
      {"range(5).skip(2)", [] { return range(5).skip(2); }},
      {"range(5).skip(-1)", [] { return range(5).skip(-1); }},
      {"range(2).repeat(0)", [] { return range(2).repeat(0); }},
      {"range(2).repeat(1)", [] { return range(2).repeat(1); }},
      {"range(2).repeat(3)", [] { return range(2).repeat(3); }},
      {"range(2).repeat()", [] { return range(2).repeat(); }},
      {"range(0).repeat()", [] { return range(0).repeat(); }},
      {"range(8).shard(3, 0)", [] { return range(8).shard(3, 0); }},
      {"range(8).shard(3, 2)", [] { return range(8).shard(3, 2); }},
      {"range(8).shard(3, 3)", [] { return range(8).shard(3, 3); }},
      {"range(7).window(size=3, shift=None, stride=1, drop_remainder=False)",
       [] { return range(7).window(3); }},
      {"range(7).window(size=3, shift=1, stride=1, drop_remainder=False)",
       [] { return range(7).window(3, {.shift = 1}); }},
      {"range(7).window(size=3, shift=1, stride=1, drop_remainder=True)",
       [] { return range(7).window(3, {.shift = 1, .drop_remainder = true}); }},
      {"range(7).window(size=2, shift=3, stride=1, drop_remainder=False)",
       [] { return range(7).window(2, {.shift = 3}); }},
      {"range(7).window(size=3, shift=2, stride=2, drop_remainder=False)",
       [] { return range(7).window(3, {.shift = 2, .stride = 2}); }},
      {"range(6).window(3, 1, drop_remainder=True).flat_map(w -> w.batch(3))",
       [] {
         return range(6)
             .window(3, {.shift = 1, .drop_remainder = true})
             .flat_map([](const Dataset<Tensor>& window) { return window.batch(3); });
       }},
      {"slices [7,8].enumerate()",
       [] {
         return data::from_tensor_slices(ints({7, 8})).enumerate();
       }},
      {"choose_from_datasets([range(3), range(10,13)], [0,1,1,0,1,0,0])",
       [] {
         return data::choose_from_datasets<Tensor>({range(3), range(10, 13)},
                                                   numbers_of({0, 1, 1, 0, 1, 0, 0}));
       }},
      {"choose([range(2), range(10,14)], [0,0,0,1,1]): stops at the empty one",
       [] {
         return data::choose_from_datasets<Tensor>({range(2), range(10, 14)},
                                                   numbers_of({0, 0, 0, 1, 1}));
       }},
      {"choose([1,2,3 constants], range(3).repeat(2))",
       [] {
         return data::choose_from_datasets<Tensor>({constant(1), constant(2), constant(3)},
                                                   range(3).repeat(2));
       }},
      {"sample_from_datasets([range(3), range(10,13)], weights [1,0])",
       [] {
         return data::sample_from_datasets<Tensor>({range(3), range(10, 13)}, {.weights = {1, 0}});
       }},
      {"range(3).prefetch(2)", [] { return range(3).prefetch(2); }},
      {"range(4).shuffle(1)", [] { return range(4).shuffle(1); }},
      {"range(6).take(5).skip(1).shard(2,0).batch(2)",
       [] { return range(6).take(5).skip(1).shard(2, 0).batch(2); }},
  };
  return kAll;
}

// ---- comparing ----

std::string without(std::string text, const std::string& part) {
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part))
    text.erase(at, part.size());
  return text;
}

std::string plain(const std::string& text) {
  std::string result = without(without(text, "tf."), ", name=None");
  std::erase_if(result, [](char c) { return std::isspace(static_cast<unsigned char>(c)); });
  return result;
}

Json numbers_json(const Tensor& tensor) {
  if (tensor.dim() == 0) {
    if (tensor.is_floating_point()) return tensor.item<double>();
    if (tensor.scalar_type() == at::kBool) return tensor.item<bool>();
    return tensor.item<int64_t>();
  }
  Json rows = Json::array();
  for (int64_t i = 0; i < tensor.size(0); ++i) rows.push_back(numbers_json(tensor[i]));
  return rows;
}

/// As the recordings have it: as it is, or "hex:…" when a byte is not printable ASCII.
std::string text_of(const std::string& bytes) {
  const auto printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (std::all_of(bytes.begin(), bytes.end(), printable)) return bytes;
  std::string hex = "hex:";
  for (char c : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

Json strings_json(const StringTensor& strings) {
  if (strings.dim() == 0) return text_of(strings.item());
  Json rows = Json::array();
  for (int64_t i = 0; i < strings.size(0); ++i) rows.push_back(strings_json(strings[i]));
  return rows;
}

Json element_json(const Nest& element) {
  if (element.is_leaf()) return numbers_json(element.leaf());
  if (element.is_strings()) return strings_json(element.strings());
  Json items = Json::array();
  if (element.kind() == NestKind::kObject) {
    for (const Nest& item : from_nest<Dataset<Nest>>(element)) items.push_back(element_json(item));
    return {{"dataset", items}};
  }
  if (element.kind() == NestKind::kMap) {
    Json entries = Json::object();
    for (const std::string& key : element.keys()) entries[key] = element_json(element[key]);
    return {{"dict", entries}};
  }
  for (const Nest& item : element.items()) items.push_back(element_json(item));
  return {{element.kind() == NestKind::kTuple ? "tuple" : "list", items}};
}

void compare_json(Verdict& verdict, const std::string& what, const Json& found,
                  const Json& expected) {
  if (found.is_number_float() && expected.is_number())
    return verdict.close(what, found.get<double>(), expected);
  const bool nested = found.is_structured() && found.type() == expected.type();
  if (!nested || found.size() != expected.size()) {
    if (found != expected)
      verdict.fail(cat(what, ": ", found.dump(), ", expected ", expected.dump()));
    return;
  }
  for (const auto& [key, value] : expected.items()) {
    const Json* other = found.is_array()      ? &found[std::stoul(key)]
                        : found.contains(key) ? &found[key]
                                              : nullptr;
    if (other == nullptr) return verdict.fail(cat(what, ": no ", key));
    compare_json(verdict, cat(what, " ", key), *other, value);
  }
}

void compare_error(Verdict& verdict, const std::string& what, const std::string& expected,
                   const Error& error) {
  static const std::map<std::string, ErrorCode> kCodes{
      {"ValueError", ErrorCode::kInvalidArgument},
      {"TypeError", ErrorCode::kInvalidArgument},
      {"InvalidArgumentError", ErrorCode::kInvalidArgument},
      {"FailedPreconditionError", ErrorCode::kFailedPrecondition},
      {"NotFoundError", ErrorCode::kNotFound},
      {"DataLossError", ErrorCode::kDataLoss}};
  const auto code = kCodes.find(expected);
  if (code == kCodes.end()) throw Unknown{cat("error class ", expected)};
  if (error.code() != code->second)
    verdict.fail(cat(what, ": ", error.what(), ", expected ", expected));
}

Json cardinality_json(int64_t cardinality) {
  if (cardinality == data::kInfinite) return "INFINITE";
  if (cardinality == data::kUnknown) return "UNKNOWN";
  return cardinality;
}

void compare_elements(Verdict& verdict, const Elements& dataset, const Json& expected) {
  auto pass = dataset.iterator();
  const Json& elements = expected.at("elements");
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::string what = cat("element ", i);
    const bool error = elements[i].is_object() && elements[i].contains("error");
    try {
      const auto element = pass.next();
      if (!element) return verdict.fail(cat(what, ": the end, expected ", elements[i].dump()));
      if (error) return verdict.fail(cat(what, ": ", *element, ", expected an error"));
      compare_json(verdict, what, element_json(*element), elements[i]);
    } catch (const Error& thrown) {
      if (!error) throw;
      if (!verdict.differs("error")) compare_error(verdict, what, elements[i].at("error"), thrown);
      return;
    }
  }
  if (!expected.contains("truncated_after") && pass.next())
    verdict.fail(cat("more than ", elements.size(), " elements"));
}

void compare_dataset(Verdict& verdict, const Make& make, const Json& expected) {
  if (expected.contains("create_error")) {
    try {
      make();
      verdict.fail(cat("no error, expected ", expected.dump()));
    } catch (const Error& error) {
      compare_error(verdict, "create", expected.at("create_error"), error);
    }
    return;
  }
  const Elements dataset = make();
  const std::string spec = cat(dataset.element_spec());
  if (!verdict.differs("element_spec") && plain(spec) != plain(expected.at("element_spec")))
    verdict.fail(cat("element_spec: ", spec, ", expected ", expected.at("element_spec").dump()));
  const Json cardinality = cardinality_json(dataset.cardinality());
  if (!verdict.differs("cardinality") && cardinality != expected.at("cardinality"))
    verdict.fail(
        cat("cardinality: ", cardinality.dump(), ", expected ", expected.at("cardinality").dump()));
  compare_elements(verdict, dataset, expected);
}

// ---- single values ----

Json two_iterators() {
  const auto dataset = range(3);
  auto i = dataset.iterator();
  auto j = dataset.iterator();
  Json values = Json::array();
  for (auto* pass : {&i, &i, &j, &i, &j}) values.push_back(pass->get_next().item<int64_t>());
  return values;
}

Json shuffle_rules() {
  const auto pass = [](const Dataset<Tensor>& dataset) {
    Numbers all;
    for (const Tensor& element : dataset) all.push_back(element.item<int64_t>());
    return all;
  };
  const auto fixed = range(20).shuffle(20, {.seed = 7, .reshuffle_each_iteration = false});
  const auto fresh = range(20).shuffle(20, {.seed = 7});
  const Numbers first = pass(fresh);
  Numbers sorted = first;
  std::sort(sorted.begin(), sorted.end());
  return {{"same_without_reshuffle", pass(fixed) == pass(fixed)},
          {"different_with_reshuffle", pass(fresh) != first},
          {"is_permutation", sorted == pass(range(20))}};
}

Json value_of(const std::string& what) {
  const auto add = [](const Tensor& sum, const Tensor& x) { return sum + x; };
  const auto count = [](int64_t so_far, const Tensor&) { return so_far + 1; };
  if (what == "range(5).reduce(0, +)")
    return range(5).reduce(at::scalar_tensor(0, at::kLong), add).item<int64_t>();
  if (what == "range(9).filter(x%2).reduce(0, s+1)")
    return range(9).filter([](const Tensor& x) { return x % 2 == 1; }).reduce(int64_t{0}, count);
  if (what == "len(range(7).batch(2))") return range(7).batch(2).length();
  if (what == "len(range(7).repeat())") return range(7).repeat().length();
  if (what == "bool(range(0))") return static_cast<bool>(range(0));
  if (what == "from_tensors(5).get_single_element()")
    return data::from_tensors(at::scalar_tensor(5)).get_single_element().item<int64_t>();
  if (what == "range(2).get_single_element()") return range(2).get_single_element().item<int64_t>();
  if (what == "two iterators i,j of range(3): i,i,j,i,j") return two_iterators();
  if (what == "seeded shuffle of 20: equal passes without reshuffle, different with it")
    return shuffle_rules();
  throw Unknown{cat("value ", what)};
}

void run_value(const Json& entry, Verdict& verdict) {
  const Json& expected = entry.at("expected");
  try {
    const Json found = value_of(entry.at("inputs").at("what"));
    if (expected.contains("error")) return verdict.fail(cat(found.dump(), ", expected an error"));
    compare_json(verdict, "value", found, expected.at("value"));
  } catch (const Error& error) {
    if (!expected.contains("error")) throw;
    compare_error(verdict, "value", expected.at("error"), error);
  }
}

// ---- text files ----

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

void run_text_lines(const Json& entry, Verdict& verdict) {
  const Json& inputs = entry.at("inputs");
  const auto folder =
      std::filesystem::temp_directory_path() / cat("tutti_golden_text_", ::getpid());
  std::filesystem::create_directories(folder);
  std::vector<std::string> texts;
  if (inputs.contains("file_hex")) texts.push_back(bytes_of(inputs.at("file_hex")));
  if (inputs.contains("files_text"))
    texts = inputs.at("files_text").get<std::vector<std::string>>();
  std::vector<std::string> files;
  for (const std::string& text : texts) {
    files.push_back(folder / cat("file", files.size()));
    std::ofstream(files.back(), std::ios::binary) << text;
  }
  if (files.empty()) files.push_back("/nonexistent/golden.txt");
  compare_dataset(
      verdict, [&] { return data::text_lines(files); }, entry.at("expected"));
  std::filesystem::remove_all(folder);
}

}  // namespace

void run_data_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const std::string name = entry.at("name");
  if (run_reader_case(file, entry, verdict)) return;
  if (name.starts_with("value/")) return run_value(entry, verdict);
  if (name.starts_with("file/text_line/")) return run_text_lines(entry, verdict);
  if (!name.starts_with("pipeline/")) throw Unknown{"reader of records"};
  const std::string sentence = entry.at("inputs").at("pipeline");
  for (const auto* table : {&sources_and_batches(), &functions(), &others()}) {
    const auto found = table->find(sentence);
    if (found != table->end()) return compare_dataset(verdict, found->second, entry.at("expected"));
  }
  throw Unknown{cat("pipeline ", sentence)};
}

}  // namespace tutti::golden
