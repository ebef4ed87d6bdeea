#pragma once
// Small helpers around the JSON of configurations.

#include <nlohmann/json.hpp>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::keras {

using Json = nlohmann::json;

/// Throws DataLoss that names `what` when the text is no JSON object.
inline Json parse_object(const std::string& what, const std::string& text) {
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
