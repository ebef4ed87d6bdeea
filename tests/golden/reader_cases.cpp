// data.json, file/…: what the readers make of recorded files.

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "golden/golden_file.h"
#include "support/hex.h"
#include "tutti/data/readers.h"
#include "tutti/io/parsing.h"

namespace tutti::golden {
namespace {

using testing::from_hex;

std::string string_of(const Json& json) {
  const std::string text = json.get<std::string>();
  return text.rfind("hex:", 0) == 0 ? from_hex(text.substr(4)) : text;
}

/// The case's file, removed afterwards.
class InputFile {
 public:
  explicit InputFile(const Json& inputs)
      : path_(std::filesystem::temp_directory_path() / cat("tutti_golden_reader_", getpid())) {
    std::ofstream(path_, std::ios::binary)
        << (inputs.contains("file_hex") ? from_hex(inputs.at("file_hex"))
                                        : inputs.at("file_text").get<std::string>());
  }
  ~InputFile() { std::filesystem::remove(path_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

io::FeatureConfig config_of(const std::string& text) {
  const bool is_float = text.find("float32") != std::string::npos;
  const bool is_string = text.find("string") != std::string::npos;
  const at::ScalarType dtype = is_string ? kString : is_float ? at::kFloat : at::kLong;
  if (text.rfind("VarLen", 0) == 0) return io::VarLenFeature{dtype};
  io::FixedLenFeature fixed{{}, dtype};
  const std::string shape = text.substr(text.find('[') + 1, text.find(']') - text.find('[') - 1);
  if (!shape.empty()) fixed.shape.push_back(std::stoll(shape));
  const auto at = text.find("default ");
  if (at != std::string::npos)
    fixed.default_value = at::scalar_tensor(std::stoll(text.substr(at + 8)), dtype);
  return fixed;
}

data::Dataset<Nest> dataset_of(const std::string& name, const Json& inputs,
                               const std::string& file) {
  const auto number = [&](const char* key) { return inputs.value(key, int64_t{0}); };
  if (name.rfind("file/fixed_length/", 0) == 0) {
    return data::FixedLengthRecordDataset(
        {file}, number("record_bytes"),
        {.header_bytes = number("header_bytes"), .footer_bytes = number("footer_bytes")});
  }
  if (name.rfind("file/csv/", 0) == 0) {
    const bool has_default =
        inputs.at("defaults").get<std::string>().find("9.0") != std::string::npos;
    const data::CsvColumn second =
        has_default ? data::CsvColumn(9.0F) : data::CsvColumn(at::kFloat);
    return data::CsvDataset({file}, {at::kInt, second, kString}, {.header = inputs.at("header")});
  }
  const data::TFRecordDataset records({file});
  if (!inputs.contains("spec")) return records;
  io::FeatureConfigs configs;
  for (const auto& [key, text] : inputs.at("spec").items())
    configs.emplace(key, config_of(text.get<std::string>()));
  return records.map([configs](const StringTensor& record) {
    return io::parse_single_example(record.item(), configs);
  });
}

void compare(const std::string& what, const Nest& found, const Json& expected, Verdict& verdict) {
  if (found.is_strings()) {
    if (found.strings().dim() != 0 || found.strings().item() != string_of(expected))
      verdict.fail(cat(what, ": ", found.strings(), ", expected ", expected.dump()));
    return;
  }
  if (found.is_leaf()) {
    // The sparse vector of a VarLenFeature is the dense one of its values.
    const bool is_sparse = expected.is_object() && expected.contains("sparse");
    const Json& values = is_sparse ? expected.at("sparse").at("values") : expected;
    if (is_sparse)
      verdict.equal(what, found.leaf().numel(), expected.at("sparse").at("dense_shape").at(0));
    const Tensor flat = found.leaf().reshape({-1});
    if (!values.is_array()) {
      verdict.equal(cat(what, " rank"), found.leaf().dim(), 0);
      return verdict.close(what, flat.item<double>(), values);
    }
    verdict.equal(cat(what, " size"), flat.numel(), static_cast<int64_t>(values.size()));
    for (int64_t i = 0; i < flat.numel() && i < static_cast<int64_t>(values.size()); ++i)
      verdict.close(what, flat[i].item<double>(), values.at(static_cast<std::size_t>(i)));
    return;
  }
  const Json& parts = found.kind() == NestKind::kMap ? expected.at("dict") : expected.at("tuple");
  verdict.equal(cat(what, " parts"), static_cast<int64_t>(found.size()),
                static_cast<int64_t>(parts.size()));
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found.kind() == NestKind::kMap) {
      const std::string& key = found.keys()[i];
      compare(cat(what, ".", key), found.items()[i], parts.at(key), verdict);
    } else {
      compare(cat(what, ".", i), found.items()[i], parts.at(i), verdict);
    }
  }
}

/// A word of TensorFlow's message that ours must have.
std::string key_word(const std::string& message) {
  for (const char* word : {"exact multiple", "required", "corrupted"}) {
    if (message.find(word) != std::string::npos) return word;
  }
  return message;
}

void compare_error(const Error& error, const Json& expected, Verdict& verdict) {
  const std::string wanted = expected.at("error");
  const ErrorCode code =
      wanted == "DataLossError" ? ErrorCode::kDataLoss : ErrorCode::kInvalidArgument;
  if (error.code() != code) verdict.fail(cat("the error is ", error.what(), ", expected ", wanted));
  if (std::string(error.what()).find(key_word(expected.at("message"))) == std::string::npos)
    verdict.fail(cat("the message is \"", error.what(), "\", expected ", expected.dump()));
}

std::string spec_text(const SpecNest& spec) {
  if (spec.is_strings()) return "TensorSpec(shape=(), dtype=string)";
  if (spec.is_leaf()) return spec.leaf().to_string();
  std::vector<std::string> items;
  for (const SpecNest& item : spec.items()) items.push_back(spec_text(item));
  return cat("(", join(items, ", "), ")");
}

/// Without `tf.`, `, name=None` and white space.
std::string plain(std::string text) {
  for (const char* drop : {"tf.", ", name=None", " ", "\n"}) {
    for (auto at = text.find(drop); at != std::string::npos; at = text.find(drop))
      text.erase(at, std::string(drop).size());
  }
  return text;
}

}  // namespace

bool run_reader_case(const GoldenFile&, const Json& entry, Verdict& verdict) {
  const std::string name = entry.at("name");
  if (name.rfind("file/tfrecord/", 0) != 0 && name.rfind("file/fixed_length/", 0) != 0 &&
      name.rfind("file/csv/", 0) != 0)
    return false;
  const Json& inputs = entry.at("inputs");
  const Json& expected = entry.at("expected");
  const InputFile file(inputs);
  const data::Dataset<Nest> dataset = dataset_of(name, inputs, file.path());
  // What a function gives has the spec of what it gave first; there is none of a sparse tensor.
  if (!inputs.contains("spec")) {
    const std::string found = plain(spec_text(dataset.element_spec()));
    if (found != plain(expected.at("element_spec")))
      verdict.fail(cat("element_spec: ", found, ", expected ", expected.at("element_spec").dump()));
  }
  if (expected.at("cardinality") != "UNKNOWN") verdict.fail("the cardinality is not UNKNOWN");
  verdict.equal("cardinality", dataset.cardinality(), data::kUnknown);
  const auto pass = dataset.plan()->iterator();
  std::size_t index = 0;
  for (const Json& element : expected.at("elements")) {
    const std::string what = cat("element ", index++);
    try {
      const auto found = pass->next();
      if (!found) {
        verdict.fail(cat(what, ": the end, expected ", element.dump()));
        return true;
      }
      compare(what, *found, element, verdict);
    } catch (const Error& error) {
      if (!element.is_object() || !element.contains("error")) throw;
      compare_error(error, element, verdict);
      return true;  // the recording ends there
    }
  }
  if (pass->next()) verdict.fail("more elements than expected");
  return true;
}

}  // namespace tutti::golden
