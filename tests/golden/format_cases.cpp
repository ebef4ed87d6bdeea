// formats.json, tfrecord/… and events/…: files that TensorFlow wrote are read, and what Tutti
// writes of the same values is what was recorded.

#include <png.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include "golden/golden_file.h"
#include "support/hex.h"
#include "tutti/io/events.h"
#include "tutti/io/example.h"
#include "tutti/io/tf_record.h"

namespace tutti::golden {
namespace {

using testing::from_hex;
using testing::to_hex;

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / cat("tutti_golden_format_", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

template <class Values>
void same_list(Verdict& verdict, const std::string& what, const Values& found,
               const Json& expected) {
  verdict.equal(cat(what, " size"), static_cast<int64_t>(found.size()),
                static_cast<int64_t>(expected.size()));
  for (std::size_t i = 0; i < found.size() && i < expected.size(); ++i)
    verdict.close(cat(what, " ", i), static_cast<double>(found[i]), expected.at(i));
}

void compare_example(const std::string& record, const Json& expected, Verdict& verdict) {
  const train::Example example = train::Example::parse(record);
  const auto& features = example.features.feature;
  for (const char* key : {"label", "neg", "empty"})
    same_list(verdict, key, features.at(key).int64_list().value, expected.at(key));
  same_list(verdict, "pixels", features.at("pixels").float_list().value, expected.at("pixels"));
  std::vector<std::string> raw;
  for (const std::string& value : features.at("raw").bytes_list().value)
    raw.push_back(to_hex(value));
  if (raw != expected.at("raw_hex").get<std::vector<std::string>>())
    verdict.fail(cat("raw: ", join(raw, ", ")));
  if (to_hex(example.serialize()) != expected.at("serialized_hex"))
    verdict.fail(cat("serialized: ", to_hex(example.serialize())));
}

void run_records(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const Json& inputs = entry.at("inputs");
  const Json& expected = entry.at("expected");
  const std::string path = file.folder() + inputs.at("file").get<std::string>();
  const io::TFRecordOptions options{.compression_type = inputs.at("compression")};
  verdict.equal("bytes", static_cast<int64_t>(std::filesystem::file_size(path)),
                expected.at("bytes"));
  const Folder folder;
  io::TFRecordWriter writer(folder.path("written"), options);
  for (const std::string& from : {path, folder.path("written")}) {
    io::TFRecordReader reader(from, options);
    for (const Json& record : expected.at("records")) {
      const auto found = reader.next();
      if (!found) return verdict.fail(cat(from, ": fewer records"));
      const std::string bytes(*found);
      if (to_hex(bytes) != record.at("serialized_hex"))
        verdict.fail(cat(from, ": ", to_hex(bytes)));
      compare_example(bytes, record, verdict);
      if (from == path) writer.write(bytes);
    }
    if (reader.next()) verdict.fail(cat(from, ": more records"));
    writer.close();
  }
  const auto bytes_of = [](const std::string& name) {
    std::ifstream stream(name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  };
  // Packed bytes depend on the version of zlib.
  if (options.compression_type.empty() && bytes_of(path) != bytes_of(folder.path("written")))
    verdict.fail("the file written is another one");
}

std::vector<uint8_t> pixels_of(const std::string& png) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_memory(&image, png.data(), png.size()) == 0) return {};
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr);
  pixels.push_back(static_cast<uint8_t>(image.format));
  return pixels;
}

void compare_tensor(const GoldenFile& file, const std::string& what, const Nest& found,
                    const Json& expected, Verdict& verdict) {
  if (expected.at("dtype") != "string")
    return verdict.close(what, found.leaf(), file.tensor(expected));
  const StringTensor& strings = found.strings();
  if (strings.sizes() != expected.at("shape").get<std::vector<int64_t>>())
    return verdict.fail(cat(what, ": shape ", shape_text(strings.sizes())));
  std::size_t i = 0;
  for (const std::string& value : strings.values()) {
    const std::string wanted = from_hex(expected.at("hex").at(i++));
    // PNG bytes depend on the writer, the pixels do not.
    const bool same =
        wanted.rfind("\x89PNG", 0) == 0 ? pixels_of(value) == pixels_of(wanted) : value == wanted;
    if (!same) verdict.fail(cat(what, ": string ", i - 1, " is ", to_hex(value)));
  }
}

void compare_value(const GoldenFile& file, const std::string& what, const io::SummaryValue& found,
                   const Json& expected, Verdict& verdict) {
  if (found.tag != expected.at("tag")) verdict.fail(cat(what, ": tag ", found.tag));
  if (found.plugin_name != expected.at("plugin"))
    verdict.fail(cat(what, ": plugin ", found.plugin_name));
  if (to_hex(found.plugin_content) != expected.at("plugin_content_hex"))
    verdict.fail(cat(what, ": content ", to_hex(found.plugin_content)));
  verdict.equal(cat(what, " data class"), found.data_class, expected.at("data_class"));
  verdict.equal(cat(what, " dtype"), found.tensor_dtype, expected.at("tensor_dtype_enum"));
  compare_tensor(file, what, found.value, expected.at("tensor"), verdict);
}

void compare_events(const GoldenFile& file, const std::string& path, const Json& expected,
                    Verdict& verdict) {
  io::EventFileReader reader(path);
  int64_t index = 0;
  for (const Json& event : expected) {
    const std::string what = cat("event ", index++);
    const auto found = reader.next();
    if (!found) return verdict.fail(cat(what, ": the end of ", path));
    verdict.equal(cat(what, " step"), found->step, event.at("step"));
    if (found->wall_time < 1e9) verdict.fail(cat(what, ": wall time ", found->wall_time));
    if (event.at("what") == "file_version") {
      if (found->kind != io::Event::Kind::kFileVersion ||
          found->file_version != event.at("file_version"))
        verdict.fail(cat(what, ": version ", found->file_version));
      continue;
    }
    if (found->kind != io::Event::Kind::kSummary ||
        found->values.size() != event.at("values").size()) {
      verdict.fail(cat(what, ": ", found->values.size(), " values"));
      continue;
    }
    for (std::size_t i = 0; i < found->values.size(); ++i)
      compare_value(file, what, found->values[i], event.at("values").at(i), verdict);
  }
  if (reader.next()) verdict.fail(cat("more events in ", path));
}

void run_events(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const Json& inputs = entry.at("inputs");
  const Json& expected = entry.at("expected");
  compare_events(file, file.folder() + inputs.at("file").get<std::string>(), expected.at("events"),
                 verdict);
  const Folder folder;
  io::EventFileWriter writer(folder.path("log"));
  const std::string name = std::filesystem::path(writer.path()).filename();
  if (!std::regex_match(
          name, std::regex("events\\.out\\.tfevents\\.[0-9]{10}\\..+\\.[0-9]+\\.[0-9]+\\.v2")))
    verdict.fail(cat("the file's name is ", name));
  for (const Json& scalar : inputs.at("scalars")) writer.scalar("loss", scalar.at(1), scalar.at(0));
  writer.histogram("weights", file.tensor(inputs.at("histogram_values")), 1,
                   {.buckets = inputs.at("histogram_buckets")});
  writer.image("picture", file.tensor(inputs.at("image")), 2);
  writer.close();
  compare_events(file, writer.path(), expected.at("events"), verdict);
}

}  // namespace

void run_format_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const std::string name = entry.at("name");
  if (name.rfind("tfrecord/", 0) == 0) return run_records(file, entry, verdict);
  if (name.rfind("events/", 0) == 0) return run_events(file, entry, verdict);
  if (name.rfind("progress/", 0) == 0) return run_progress_case(file, entry, verdict);
  if (name.rfind("summary/", 0) == 0) return run_summary_case(file, entry, verdict);
  throw Unknown{"not a file format"};
}

}  // namespace tutti::golden
