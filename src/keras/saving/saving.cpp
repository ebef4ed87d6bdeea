// Model::save and load_model: the architecture, the compiled parts and the optimizer as JSON, the
// numbers as tensors of the file.

#include <algorithm>
#include <filesystem>

#include "keras/saving/model_file.h"
#include "keras/saving/weights_file.h"
#include "tutti/base/log.h"

namespace tutti::keras {
namespace {

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw DataLoss(cat("load_model [", path, "]: ", what, "; the file is damaged"));
}

// ---- how a functional model's inputs or outputs are nested: a place in the list of them, or
// {"tuple": […]}, {"list": […]}, {"map": {…}}

Json structure_json(const SymbolicNest& nest, std::size_t& next) {
  if (nest.is_leaf()) return next++;
  const auto below = [&](const NestOf<KerasTensor>& item) {
    SymbolicNest part;
    static_cast<NestOf<KerasTensor>&>(part) = item;
    return structure_json(part, next);
  };
  Json items = nest.kind() == NestKind::kMap ? Json::object() : Json::array();
  for (std::size_t i = 0; i < nest.size(); ++i) {
    if (nest.kind() == NestKind::kMap) {
      items[nest.keys()[i]] = below(nest.items()[i]);
    } else {
      items.push_back(below(nest.items()[i]));
    }
  }
  const char* kind = nest.kind() == NestKind::kMap    ? "map"
                     : nest.kind() == NestKind::kList ? "list"
                                                      : "tuple";
  Json json = Json::object();
  json[kind] = std::move(items);
  return json;
}

class StructureReader {
 public:
  StructureReader(const std::string& path, const std::vector<KerasTensor>& tensors)
      : path_(path), tensors_(tensors) {}
  SymbolicNest read(const Json& json) {
    SymbolicNest nest;
    static_cast<NestOf<KerasTensor>&>(nest) = part(json, 0);
    if (next_ != tensors_.size()) damaged(path_, "inputs or outputs without their structure");
    return nest;
  }

 private:
  static constexpr int kDeepest = 100;
  NestOf<KerasTensor> part(const Json& json, int depth) {
    if (json.is_number_unsigned()) {
      if (json.get<std::size_t>() != next_ || next_ >= tensors_.size())
        damaged(path_, "an input or output that is not there");
      return tensors_[next_++];
    }
    if (!json.is_object() || json.size() != 1 || depth > kDeepest)
      damaged(path_, "a structure that is none");
    const std::string kind = json.begin().key();
    const Json& items = json.begin().value();
    if (kind == "map" && items.is_object()) {
      std::map<std::string, NestOf<KerasTensor>> entries;
      for (const auto& [key, item] : items.items()) entries.emplace(key, part(item, depth + 1));
      return NestOf<KerasTensor>::map(std::move(entries));
    }
    if ((kind != "list" && kind != "tuple") || !items.is_array())
      damaged(path_, "a structure that is none");
    std::vector<NestOf<KerasTensor>> entries;
    for (const Json& item : items) entries.push_back(part(item, depth + 1));
    return kind == "list" ? NestOf<KerasTensor>::list(std::move(entries))
                          : NestOf<KerasTensor>::tuple(std::move(entries));
  }

  const std::string& path_;
  const std::vector<KerasTensor>& tensors_;
  std::size_t next_ = 0;
};

}  // namespace

// ---- architectures

Json ModelFile::architecture(const Model& model) {
  Json json{{"format", kModelFormat}, {"name", model.name()}};
  if (!model.trainable()) json["trainable"] = false;
  if (model.dtype_policy().name() != "float32") json["dtype"] = model.dtype_policy().name();
  if (const auto* sequential = dynamic_cast<const Sequential*>(&model)) {
    json["kind"] = "sequential";
    json["layers"] = layers_json(model.layers());
    json["input_shape"] = sequential->input_shape();
    return json;
  }
  if (const auto* functional = dynamic_cast<const Functional*>(&model)) {
    json["kind"] = "functional";
    json["graph"] = Json::parse(model.body_->config());
    std::size_t next = 0;
    json["inputs"] = structure_json(functional->inputs(), next);
    next = 0;
    json["outputs"] = structure_json(functional->outputs(), next);
    return json;
  }
  throw Unimplemented(cat("save [", model.name(),
                          "]: a model of a class of your own has no description, expected a "
                          "Sequential or Functional; use save_weights or train::Checkpoint, and "
                          "make the model in the program that loads them"));
}

std::unique_ptr<Model> ModelFile::sequential_from(const Json& json, const std::string& path,
                                                  const layers::LayerLimits& limits) {
  const Json described = member<Json>(json, "layers", Json::array());
  if (!described.is_array() || described.empty()) damaged(path, "no list of layers");
  std::vector<layers::Layer> layers;
  for (const Json& layer : described) {
    const auto class_name = member<std::string>(layer, "class_name", "");
    if (class_name.empty()) damaged(path, "a layer without class");
    layers.push_back(layers::layer_from_json(
        class_name, member<Json>(layer, "config", Json::object()), limits));
  }
  auto model = std::make_unique<Sequential>(
      std::move(layers), SequentialOptions{.name = member<std::string>(json, "name", "")});
  model->build(member<layers::Shape>(json, "input_shape", {}));
  return model;
}

std::unique_ptr<Model> ModelFile::functional_from(const Json& json, const std::string& path,
                                                  const layers::LayerLimits& limits) {
  Json graph = member<Json>(json, "graph", Json());
  if (!graph.is_object()) damaged(path, "no graph of layers");
  graph["name"] = member<std::string>(json, "name", "");
  const layers::Layer layer = layers::layer_from_json("Functional", graph, limits);
  const auto body = std::dynamic_pointer_cast<FunctionalBody>(layer.impl());
  const SymbolicNest inputs =
      StructureReader(path, body->inputs()).read(member<Json>(json, "inputs", Json()));
  const SymbolicNest outputs =
      StructureReader(path, body->outputs()).read(member<Json>(json, "outputs", Json()));
  return std::unique_ptr<Model>(new Functional(body, inputs, outputs));
}

std::unique_ptr<Model> ModelFile::model_from(const Json& json, const std::string& path,
                                             const layers::LayerLimits& limits) {
  const auto kind = member<std::string>(json, "kind", "");
  const auto format = member<int>(json, "format", 0);
  if ((kind != "sequential" && kind != "functional") || format != kModelFormat) {
    throw InvalidArgument(cat("load_model [", path, "]: a file of kind \"", kind, "\" and format ",
                              format, ", expected a model of format ", kModelFormat,
                              "; weights are read by load_weights"));
  }
  std::unique_ptr<Model> model = kind == "sequential" ? sequential_from(json, path, limits)
                                                      : functional_from(json, path, limits);
  const auto dtype = member<std::string>(json, "dtype", "float32");
  if (dtype != model->dtype_policy().name()) model->policy_ = DTypePolicy(dtype);
  if (!member<bool>(json, "trainable", true)) model->set_trainable(false);
  return model;
}

// ---- files

void Model::save(const std::string& path) const {
  check_outside_replicas("save", path);
  Json json = ModelFile::architecture(*this);
  io::TensorFile file;
  put_weights(*this, file);
  if (compiled()) {
    json["compiled"] = ModelFile::compiled_part(*this);
    ModelFile::put_slots(*this, file);
  }
  file.metadata =
      json.dump(-1, ' ', false, Json::error_handler_t::replace);  // a name need not be UTF-8
  io::write_tensor_file(path, file);
}

namespace {

void check_size(const std::string& path, int64_t max_bytes) {
  std::error_code failed;  // reading says what it is
  const auto bytes = std::filesystem::file_size(path, failed);
  if (failed || bytes <= static_cast<uint64_t>(std::max<int64_t>(max_bytes, 0))) return;
  throw InvalidArgument(
      cat("load_model [", path, "]: ", bytes, " bytes, expected at most max_bytes = ", max_bytes));
}

std::unique_ptr<Model> load(const std::string& path, const LoadModelOptions& options) {
  const io::TensorFile file = io::read_tensor_file(path);
  const Json json = parse_object(cat("load_model [", path, "]"), file.metadata);
  // No weight may be larger than the largest in the file: a false description takes no memory.
  layers::LayerLimits limits{.weight_entries = 0};
  for (const auto& [name, tensor] : file.tensors)
    limits.weight_entries = std::max(limits.weight_entries, tensor.numel());
  std::map<std::string, std::function<layers::Layer(const std::string&)>> custom_layers;
  for (const auto& [name, object] : options.custom_objects) {
    if (object.make_layer) custom_layers.emplace(name, object.make_layer);
  }
  limits.custom = &custom_layers;
  std::unique_ptr<Model> model = ModelFile::model_from(json, path, limits);
  take_weights(*model, file, path);
  if (options.compile && json.contains("compiled"))
    ModelFile::restore_compiled(*model, json["compiled"], file, path, options.custom_objects);
  return model;
}

}  // namespace

std::unique_ptr<Model> load_model(const std::string& path, const LoadModelOptions& options) {
  check_outside_replicas("load_model", path);
  check_size(path, options.max_bytes);
  try {
    return load(path, options);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    // LibTorch's and the JSON library's own, of descriptions that cannot be.
    const std::string what = error.what();
    damaged(path, what.substr(0, what.find('\n')));
  }
}

}  // namespace tutti::keras
