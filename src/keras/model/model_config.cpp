// Models of layers as descriptions, and back.

#include <algorithm>
#include <map>
#include <optional>

#include "keras/layers/config.h"
#include "keras/model/model_body.h"

namespace tutti::keras {

using layers::KerasTensor;
using layers::Layer;
using layers::LayerBase;
using layers::SymbolicCall;

namespace {

[[noreturn]] void damaged(const std::string& name, const std::string& what) {
  throw DataLoss(cat("Functional [", name, "]: ", what, "; the file is damaged"));
}

/// Which of a layer's calls in this graph it is, in their order.
class Places {
 public:
  explicit Places(const std::vector<std::shared_ptr<const SymbolicCall>>& calls) {
    for (const auto& call : calls) by_layer_[call->layer.get()].push_back(call.get());
    for (auto& [layer, own] : by_layer_) {
      std::sort(own.begin(), own.end(),
                [](const SymbolicCall* a, const SymbolicCall* b) { return a->place < b->place; });
    }
  }
  const std::vector<const SymbolicCall*>& of(const layers::LayerImpl* layer) const {
    return by_layer_.at(layer);
  }
  /// ["name", call, output].
  Json json(const KerasTensor& tensor) const {
    const auto& own = of(tensor.layer().get());
    const auto at = std::find(own.begin(), own.end(), tensor.call().get()) - own.begin();
    return Json::array({tensor.layer()->name(), at, tensor.index()});
  }
  Json json(const std::vector<KerasTensor>& tensors) const {
    Json list = Json::array();
    for (const KerasTensor& tensor : tensors) list.push_back(json(tensor));
    return list;
  }

 private:
  std::map<const layers::LayerImpl*, std::vector<const SymbolicCall*>> by_layer_;
};

/// Puts a graph together again, call by call, as their inputs become known.
class GraphReader {
 public:
  GraphReader(const Json& json, std::string name, const layers::LayerLimits& limits)
      : json_(json), name_(std::move(name)), limits_(limits) {}

  std::shared_ptr<FunctionalBody> read() {
    make_layers();
    for (bool progress = true; progress;) {
      progress = false;
      for (auto& [name, layer] : layers_) progress = call_what_is_ready(layer) || progress;
    }
    return std::make_shared<FunctionalBody>(name_, tensors("input_layers"),
                                            tensors("output_layers"));
  }

 private:
  struct Node {
    Layer layer;
    Json inbound;
    std::vector<std::vector<KerasTensor>> outputs;  // of each call so far
  };
  void make_layers() {
    const Json list = member<Json>(json_, "layers", Json::array());
    if (!list.is_array()) damaged(name_, "no list of layers");
    for (const Json& item : list) {
      Node node;
      node.layer = layers::layer_from_json(member<std::string>(item, "class_name", ""),
                                           member<Json>(item, "config", Json::object()), limits_);
      node.inbound = member<Json>(item, "inbound", Json::array());
      if (!node.inbound.is_array()) damaged(name_, "a layer without its calls");
      if (node.inbound.empty()) {
        node.outputs.push_back({layers::tensor_of_input(node.layer)});
      }
      if (!layers_.emplace(node.layer->name(), node).second) damaged(name_, "a name twice");
    }
  }
  bool call_what_is_ready(Node& node) {
    bool progress = false;
    while (node.outputs.size() < node.inbound.size()) {
      std::vector<KerasTensor> inputs;
      const Json& wanted = node.inbound[node.outputs.size()];
      if (!wanted.is_array() || wanted.empty()) damaged(name_, "a call without inputs");
      for (const Json& item : wanted) {
        const auto tensor = find(item);
        if (!tensor) return progress;
        inputs.push_back(*tensor);
      }
      node.outputs.push_back(node.layer.call_all(inputs));
      progress = true;
    }
    return progress;
  }
  std::optional<KerasTensor> find(const Json& item) const {
    if (!item.is_array() || item.size() != 3 || !item[0].is_string() ||
        !item[1].is_number_unsigned() || !item[2].is_number_unsigned())
      damaged(name_, "a tensor that is not [layer, call, output]");
    const auto node = layers_.find(item[0].get<std::string>());
    if (node == layers_.end()) damaged(name_, "a layer that is not there");
    const auto call = item[1].get<std::size_t>();
    if (call >= node->second.outputs.size()) return std::nullopt;
    const auto& outputs = node->second.outputs[call];
    const auto output = item[2].get<std::size_t>();
    if (output >= outputs.size()) damaged(name_, "an output that is not there");
    return outputs[output];
  }
  std::vector<KerasTensor> tensors(const char* key) const {
    const Json list = member<Json>(json_, key, Json::array());
    if (!list.is_array()) damaged(name_, cat("no list of ", key));
    std::vector<KerasTensor> found;
    for (const Json& item : list) {
      const auto tensor = find(item);
      if (!tensor) damaged(name_, "a call whose inputs never come");
      found.push_back(*tensor);
    }
    return found;
  }

  const Json& json_;
  std::string name_;
  layers::LayerLimits limits_;
  std::map<std::string, Node> layers_;
};

Layer sequential_from(const Json& json, const LayerBase& base) {
  auto body = std::make_shared<SequentialBody>(base.name);
  const Json list = member<Json>(json, "layers", Json::array());
  if (!list.is_array())
    throw DataLoss(cat("Sequential [", base.name, "]: no list of layers; the file is damaged"));
  for (const Json& item : list) {
    body->append(layers::layer_from_json(member<std::string>(item, "class_name", ""),
                                         member<Json>(item, "config", Json::object()),
                                         base.limits));
  }
  const auto shape = member<layers::Shape>(json, "build_shape", {});
  if (!shape.empty()) body->build_for(shape);
  return Layer(body);
}

Layer functional_from(const Json& json, const LayerBase& base) {
  return Layer(GraphReader(json, base.name, base.limits).read());
}

constexpr layers::LayerEntry kModels[] = {{"Sequential", sequential_from},
                                          {"Functional", functional_from}};

}  // namespace

std::string FunctionalBody::config() const {
  const Places places(calls_);
  Json json = layers::base_config(*this);
  json["layers"] = Json::array();
  for (const Layer& layer : layers_) {
    Json calls = Json::array();
    for (const SymbolicCall* call : places.of(layer.impl().get())) {
      if (!call->inputs.empty()) calls.push_back(places.json(call->inputs));
    }
    json["layers"].push_back({{"class_name", layer->class_name()},
                              {"config", Json::parse(layer->config())},
                              {"inbound", calls}});
  }
  json["input_layers"] = places.json(inputs_);
  json["output_layers"] = places.json(outputs_);
  return json.dump();
}

namespace layers {
LayerFamily model_layers() { return kModels; }
}  // namespace layers

}  // namespace tutti::keras
