#include "train/state_file.h"

#include <ATen/ATen.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "io/tensor_bytes.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::train {
namespace {

using Json = nlohmann::json;

// The structure, as JSON: null, {"tensor": name}, {"strings": name, "sizes": […]}, {"tuple": […]},
// {"list": […]}, {"map": {…}}. Tensors are named by their path; the strings' are `path.bytes` and
// `path.lengths`.

class Writer {
 public:
  Json add(const Nest& nest, const std::string& path) {
    switch (nest.kind()) {
      case NestKind::kNone:
        return nullptr;
      case NestKind::kLeaf:
        file_.tensors.emplace_back(path, nest.leaf());
        return {{"tensor", index()}};
      case NestKind::kStrings:
        return add_strings(nest.strings(), path);
      case NestKind::kMap: {
        Json entries = Json::object();
        for (std::size_t i = 0; i < nest.size(); ++i)
          entries[nest.keys()[i]] = add(nest.items()[i], below(path, nest.keys()[i]));
        return {{"map", entries}};
      }
      case NestKind::kTuple:
      case NestKind::kList: {
        Json items = Json::array();
        for (std::size_t i = 0; i < nest.size(); ++i)
          items.push_back(add(nest.items()[i], below(path, std::to_string(i))));
        return {{nest.kind() == NestKind::kTuple ? "tuple" : "list", items}};
      }
      case NestKind::kObject:
        throw InvalidArgument(cat("write [", path, "]: found ", nest.structure(),
                                  ", expected tensors and strings in a state"));
    }
    return nullptr;
  }
  io::TensorFile& file() { return file_; }

 private:
  static std::string below(const std::string& path, const std::string& key) {
    return path.empty() ? key : cat(path, "/", key);
  }
  std::size_t index() const { return file_.tensors.size() - 1; }
  Json add_strings(const StringTensor& strings, const std::string& path) {
    std::string bytes;
    std::vector<int64_t> lengths;
    for (const std::string& text : strings.values()) {
      bytes += text;
      lengths.push_back(static_cast<int64_t>(text.size()));
    }
    Tensor packed = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
    if (!bytes.empty()) std::memcpy(packed.data_ptr(), bytes.data(), bytes.size());
    file_.tensors.emplace_back(cat(path, ".bytes"), packed);
    file_.tensors.emplace_back(cat(path, ".lengths"), at::tensor(lengths, at::kLong));
    return {{"strings", index() - 1}, {"sizes", strings.sizes()}};
  }

  io::TensorFile file_;
};

class Reader {
 public:
  Reader(const std::string& path, const io::TensorFile& file)
      : path_(path), file_(file), taken_(file.tensors.size(), false) {}

  Nest read(const Json& json, int depth = 0) {
    if (json.is_null()) return Nest();
    if (!json.is_object() || depth > kDeepest) damaged("a structure that is none");
    if (json.contains("tensor")) return Nest(tensor(json["tensor"]));
    if (json.contains("strings")) return Nest(strings(json));
    if (json.contains("map") && json["map"].is_object()) {
      std::map<std::string, Nest> entries;
      for (const auto& [key, value] : json["map"].items())
        entries.emplace(key, read(value, depth + 1));
      return Nest::map(std::move(entries));
    }
    const bool tuple = json.contains("tuple");
    const Json& list = tuple ? json["tuple"] : json.contains("list") ? json["list"] : json;
    if (!list.is_array()) damaged("a structure that is none");
    std::vector<Nest> items;
    for (const Json& item : list) items.push_back(read(item, depth + 1));
    return tuple ? Nest::tuple(std::move(items)) : Nest::list(std::move(items));
  }

 private:
  static constexpr int kDeepest = 100;
  [[noreturn]] void damaged(const std::string& what) const {
    throw DataLoss(cat("read [", path_, "]: ", what, "; the file is damaged"));
  }
  /// Each once: a short text that names one again and again would take any memory.
  const Tensor& tensor(const Json& index) {
    if (!index.is_number_unsigned() || index.get<uint64_t>() >= file_.tensors.size())
      damaged("a tensor that is not there");
    const auto at = index.get<std::size_t>();
    if (taken_[at]) damaged("a tensor that stands in two places");
    taken_[at] = true;
    return file_.tensors[at].second;
  }
  StringTensor strings(const Json& json) {
    if (!json["strings"].is_number_unsigned()) damaged("strings that are not there");
    const auto first = json["strings"].get<std::size_t>();
    const Tensor& bytes = tensor(first);
    const Tensor& lengths = tensor(first + 1);
    if (bytes.scalar_type() != at::kByte || lengths.scalar_type() != at::kLong ||
        lengths.dim() != 1 || !json.contains("sizes") || !json["sizes"].is_array())
      damaged("strings without bytes, lengths and sizes");
    std::vector<std::string> values;
    const char* at = static_cast<const char*>(bytes.const_data_ptr());
    int64_t left = bytes.numel();
    for (int64_t i = 0; i < lengths.numel(); ++i) {
      const int64_t length = lengths.const_data_ptr<int64_t>()[i];
      if (length < 0 || length > left) damaged("a string that is longer than its bytes");
      values.emplace_back(at, static_cast<std::size_t>(length));
      at += length;
      left -= length;
    }
    std::vector<int64_t> sizes;
    for (const Json& size : json["sizes"]) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX)
        damaged("strings of sizes that are none");
      sizes.push_back(size.get<int64_t>());
    }
    try {
      return StringTensor(std::move(values), std::move(sizes));
    } catch (const InvalidArgument& error) {
      damaged(error.what());
    }
  }

  const std::string& path_;
  const io::TensorFile& file_;
  std::vector<bool> taken_;
};

io::TensorFile file_with(const Nest& state, const std::string& about) {
  Writer writer;
  const Json structure = writer.add(state, "");
  const Json json{{"format", 1}, {"kind", "state"}, {"about", about}, {"structure", structure}};
  writer.file().metadata = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return std::move(writer.file());
}

StateFile state_of(const std::string& path, const io::TensorFile& file) {
  const Json json = Json::parse(file.metadata, nullptr, /*allow_exceptions=*/false);
  const bool known = json.is_object() && json.contains("kind") && json["kind"] == "state" &&
                     json.contains("structure") && json.contains("about") &&
                     json["about"].is_string();
  if (!known)
    throw InvalidArgument(
        cat("read [", path, "]: no checkpoint, expected a file that Checkpoint::write wrote"));
  return {Reader(path, file).read(json["structure"]), json["about"].get<std::string>()};
}

}  // namespace

void write_state(const std::string& path, const Nest& state, const std::string& about,
                 io::FileSystem& files) {
  io::write_tensor_file(path, file_with(state, about), files);
}

StateFile read_state(const std::string& path) {
  uint32_t digest = 0;
  const io::TensorFile file = io::read_tensor_file(path, digest);
  StateFile state = state_of(path, file);
  state.digest = digest;
  return state;
}

std::string state_bytes(const Nest& state) { return io::tensor_bytes(file_with(state, "")); }

Nest state_in(const std::string& where, std::string_view bytes) {
  return state_of(where, io::read_tensor_bytes(where, bytes)).state;
}

}  // namespace tutti::train
