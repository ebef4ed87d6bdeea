// Model::save and load_model: the architecture, the compiled parts and the optimizer as JSON, the
// numbers as tensors of the file.

#include <algorithm>
#include <filesystem>

#include "keras/saving/model_file.h"
#include "keras/saving/shared_files.h"
#include "keras/saving/weights_file.h"
#include "tutti/base/log.h"

namespace tutti::keras {
namespace {

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw DataLoss(cat("load_model [", path, "]: ", what, "; the file is damaged"));
}

/// Of inputs or outputs: null for one tensor, "list", or the keys of a map.
Json structure_json(const SymbolicNest& nest) {
  if (nest.is_leaf()) return Json();
  return nest.kind() == NestKind::kMap ? Json(nest.keys()) : Json("list");
}

SymbolicNest in_structure(const Json& structure, const std::vector<KerasTensor>& tensors,
                          const std::string& path) {
  if (structure.is_null() && tensors.size() == 1) return tensors[0];
  if (structure == "list") return tensors;
  std::map<std::string, KerasTensor> by_name;
  if (structure.is_array() && structure.size() == tensors.size()) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (structure[i].is_string()) by_name.emplace(structure[i].get<std::string>(), tensors[i]);
    }
  }
  if (by_name.size() != tensors.size())
    damaged(path, "inputs or outputs that do not fit their names");
  return by_name;
}

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
    json["model"] = Json::parse(model.body_->config());
    json["inputs"] = structure_json(functional->inputs());
    json["outputs"] = structure_json(functional->outputs());
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
    layers.push_back(
        layers::layer_from_json(class_name, member<Json>(layer, "config", Json::object()), limits));
  }
  auto model = std::make_unique<Sequential>(
      std::move(layers), SequentialOptions{.name = member<std::string>(json, "name", "")});
  model->build(member<layers::Shape>(json, "input_shape", {}));
  return model;
}

std::unique_ptr<Model> ModelFile::functional_from(const Json& json, const std::string& path,
                                                  const layers::LayerLimits& limits) {
  const layers::Layer layer =
      layers::layer_from_json("Functional", member<Json>(json, "model", Json()), limits);
  const auto body = std::dynamic_pointer_cast<FunctionalBody>(layer.impl());
  const SymbolicNest inputs =
      in_structure(member<Json>(json, "inputs", Json()), body->inputs(), path);
  const SymbolicNest outputs =
      in_structure(member<Json>(json, "outputs", Json()), body->outputs(), path);
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

void save_model_file(const Model& model, const std::string& path, bool make_folder) {
  check_outside_replicas("save", path);
  const auto collect = [&] {
    Json json = ModelFile::architecture(model);
    io::TensorFile file;
    put_weights(model, file);
    if (model.compiled()) {
      json["compiled"] = ModelFile::compiled_part(model);
      ModelFile::put_slots(model, file);
    }
    file.metadata =
        json.dump(-1, ' ', false, Json::error_handler_t::replace);  // a name need not be UTF-8
    return file;
  };
  save_together(model.strategy(), "save", path, collect, make_folder);
}

void Model::save(const std::string& path) const {
  save_model_file(*this, path, /*make_folder=*/false);
}

std::string Model::to_json() const {
  check_built("to_json");
  return ModelFile::architecture(*this).dump(-1, ' ', false, Json::error_handler_t::replace);
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
  const io::TensorFile file = read_together(distribute::get_strategy(), "load_model", path,
                                            [&] { check_size(path, options.max_bytes); });
  const Json json = parse_object(cat("load_model [", path, "]"), file.metadata);
  // No weight may be larger than the largest in the file: a false description takes no memory.
  layers::LayerLimits limits{.weight_entries = 0};
  for (const auto& [name, tensor] : file.tensors)
    limits.weight_entries = std::max(limits.weight_entries, tensor.numel());
  limits.custom = &options.custom_objects;
  std::unique_ptr<Model> model = ModelFile::model_from(json, path, limits);
  take_weights(*model, file, path);
  if (options.compile && json.contains("compiled"))
    ModelFile::restore_compiled(*model, json["compiled"], file, path, options.custom_objects);
  return model;
}

/// `path`: what messages call it.
template <class Load>
std::unique_ptr<Model> guarded(const std::string& path, Load&& load) {
  try {
    return load();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    // LibTorch's and the JSON library's own, of descriptions that cannot be.
    const std::string what = error.what();
    damaged(path, what.substr(0, what.find('\n')));
  }
}

}  // namespace

std::unique_ptr<Model> load_model(const std::string& path, const LoadModelOptions& options) {
  check_outside_replicas("load_model", path);
  return guarded(path, [&] { return load(path, options); });
}

std::unique_ptr<Model> model_from_json(const std::string& json,
                                       const CustomObjects& custom_objects) {
  const char* const where = "model_from_json";
  check_outside_replicas(where, "text");
  return guarded(where, [&] {
    layers::LayerLimits limits;
    limits.custom = &custom_objects;
    return ModelFile::model_from(parse_object(where, json), where, limits);
  });
}

}  // namespace tutti::keras
