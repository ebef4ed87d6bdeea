#include "base/environment.h"

#include <charconv>
#include <cstdlib>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {

std::optional<std::string> environment(const std::string& name) {
  const char* text = std::getenv(name.c_str());
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::string(text);
}

int64_t environment_int(const std::string& name, int64_t fallback, int64_t low, int64_t high) {
  const auto text = environment(name);
  if (!text) return fallback;
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (status != std::errc() || end != text->data() + text->size() || value < low || value > high) {
    throw InvalidArgument(cat("environment [", name, "]: \"", *text,
                              "\", expected a whole number from ", low, " to ", high,
                              "; correct it or unset it"));
  }
  return value;
}

bool environment_flag(const std::string& name) {
  const auto text = environment(name);
  if (!text) return false;
  const std::string lower = to_lower(*text);
  if (lower == "1" || lower == "true" || lower == "yes" || lower == "on") return true;
  if (lower == "0" || lower == "false" || lower == "no" || lower == "off") return false;
  throw InvalidArgument(
      cat("environment [", name, "]: \"", *text, "\", expected 1 or 0; correct it or unset it"));
}

}  // namespace tutti
