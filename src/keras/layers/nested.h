#pragma once
// Layers inside layers, and what layers check.

#include <memory>
#include <optional>
#include <vector>

#include "keras/layers/config.h"

namespace tutti::keras::layers {

/// {"class_name": …, "config": {…}}, from which nested_layer makes the layer again.
Json nested_json(const LayerImpl& layer);
/// DataLoss when there is none under `key`.
Layer nested_layer(const Json& json, const char* key, const LayerLimits& limits);
Layer nested_layer(const Json& description, const LayerLimits& limits);
/// Builds `inner`; its weights' names begin with `outer`'s.
void build_inside(const LayerImpl& outer, LayerImpl& inner, const std::vector<Shape>& inputs);

/// "Class [name]", how every message about a layer begins.
inline std::string head(const LayerImpl& layer) {
  return cat(layer.class_name(), " [", layer.name(), "]: ");
}
inline void check_count(const LayerImpl& layer, const char* what, int64_t value) {
  if (value < 1) throw InvalidArgument(cat(head(layer), what, " ", value, ", expected at least 1"));
}
inline void check_rate(const LayerImpl& layer, const char* what, double value) {
  if (!(value >= 0 && value < 1))
    throw InvalidArgument(cat(head(layer), what, " ", value, ", expected from 0 to below 1"));
}
/// One of the words, or InvalidArgument that lists them.
void check_word(const LayerImpl& layer, const char* what, const std::string& word,
                const std::vector<std::string>& words);

template <class T>
std::optional<T> optional_member(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  return member<T>(json, key, T{});
}
/// A list of integers, or as in Keras one; empty when there is none.
inline std::vector<int64_t> integers(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found != json.end() && found->is_number_integer()) return {found->get<int64_t>()};
  return member<std::vector<int64_t>>(json, key, {});
}
template <class T>
void put(Json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}

}  // namespace tutti::keras::layers
