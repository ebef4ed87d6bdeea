#pragma once
// JSON of others: at most so many bytes, so deep, no key twice; every complaint says where.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/names.h"
#include "tutti/base/error.h"

namespace tutti::cluster {

using Json = nlohmann::json;

struct JsonRules {
  std::size_t most_bytes = std::size_t{1} << 20;
  int deepest = 16;
  /// Of what is thrown: a user's mistake, or a server's.
  ErrorCode code = ErrorCode::kInvalidArgument;
};

/// A value in a document, and the path to it: `$.cluster.worker[1]`.
class JsonAt {
 public:
  JsonAt(const Json& value, std::string path, const std::string& operation, ErrorCode code)
      : value_(&value), path_(std::move(path)), operation_(&operation), code_(code) {}

  const Json& value() const { return *value_; }
  const std::string& path() const { return path_; }
  const std::string& operation() const { return *operation_; }
  bool is_object() const { return value_->is_object(); }
  bool is_array() const { return value_->is_array(); }
  bool is_string() const { return value_->is_string(); }
  bool is_null() const { return value_->is_null(); }

  /// Throws unless the value is an object or array; `remedy` ends the message.
  const JsonAt& expect_object(const std::string& remedy) const;
  const JsonAt& expect_array(const std::string& remedy) const;
  std::vector<std::string> keys() const;
  /// Of an object; find gives nothing for a missing key, at throws.
  std::optional<JsonAt> find(const std::string& key) const;
  JsonAt at(const std::string& key) const;
  std::size_t size() const { return value_->size(); }
  /// Of an array.
  JsonAt at(std::size_t index) const;
  std::string text() const;
  /// Text of a key that may be missing.
  std::string text_or(const std::string& key, const std::string& fallback) const;

  /// What the value is, for messages: `"a"`, `12`, `a list`.
  std::string description() const;
  [[noreturn]] void refuse(const Fault& fault) const;

 private:
  const Json* value_;
  std::string path_;
  const std::string* operation_;
  ErrorCode code_;
};

/// A parsed text. Throws `operation [path]: …` for what is no JSON or breaks the rules.
class JsonDocument {
 public:
  JsonDocument(std::string_view text, std::string operation, JsonRules rules = {});
  /// Of a value that was read otherwise.
  static JsonDocument of(Json root, std::string operation);
  /// Valid as long as the document stays where it is.
  JsonAt top() const { return JsonAt(root_, "$", operation_, code_); }

 private:
  JsonDocument() = default;
  std::string operation_;
  ErrorCode code_ = ErrorCode::kInvalidArgument;
  Json root_;
};

}  // namespace tutti::cluster
