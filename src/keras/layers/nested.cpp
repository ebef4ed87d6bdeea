#include "keras/layers/nested.h"

#include <algorithm>

namespace tutti::keras::layers {

Json nested_json(const LayerImpl& layer) {
  return {{"class_name", layer.class_name()}, {"config", Json::parse(layer.config())}};
}

Layer nested_layer(const Json& description, const LayerLimits& limits) {
  return layer_from_json(member<std::string>(description, "class_name", ""),
                         member<Json>(description, "config", Json::object()), limits);
}

Layer nested_layer(const Json& json, const char* key, const LayerLimits& limits) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object())
    throw DataLoss(cat("configuration [", key, "]: no layer, expected one; the file is damaged"));
  return nested_layer(*found, limits);
}

void build_inside(const LayerImpl& outer, LayerImpl& inner, const std::vector<Shape>& inputs) {
  struct Renamed {
    LayerImpl& layer;
    std::string name;
    ~Renamed() { layer.set_name(name); }
  };
  const Renamed renamed{inner, inner.name()};
  inner.set_name(cat(outer.name(), "/", inner.name()));
  inner.build_for(inputs);
}

void check_word(const LayerImpl& layer, const char* what, const std::string& word,
                const std::vector<std::string>& words) {
  if (std::find(words.begin(), words.end(), word) != words.end()) return;
  throw InvalidArgument(
      cat(head(layer), what, " \"", word, "\", expected one of ", join(words, ", ")));
}

}  // namespace tutti::keras::layers
