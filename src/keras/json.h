#pragma once
// Small helpers around the JSON of configurations.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::keras {

using Json = nlohmann::json;

/// Of lists and objects inside one another. Our models need four for a model inside a model; what
/// is nested without end would take all the stack when it is copied.
inline constexpr int kDeepestJson = 1000;

/// Throws DataLoss that names `what` when the text is no JSON object, or nested too deep.
inline Json parse_object(const std::string& what, const std::string& text) {
  int deep = 0, deepest = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') ++i;
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '[' || c == '{')) deepest = std::max(deepest, ++deep);
    if (!quoted && (c == ']' || c == '}')) --deep;
  }
  if (deepest > kDeepestJson)
    throw DataLoss(cat(what, ": a configuration nested too deep, ", deepest,
                       " lists and objects inside one another, expected at most ", kDeepestJson,
                       "; the file is damaged"));
  Json json = Json::parse(text.empty() ? "{}" : text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    throw DataLoss(
        cat(what, ": a configuration that is no JSON object, expected one; the file is damaged"));
  return json;
}

/// A member, or `fallback` when it is missing; DataLoss when it has another type.
template <class T>
T member(const Json& json, const char* key, T fallback) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return fallback;
  try {
    return found->get<T>();
  } catch (const Json::exception& error) {
    throw DataLoss(cat("configuration [", key, "]: ", error.what(),
                       "; the file is damaged or from another version"));
  }
}

}  // namespace tutti::keras
