#include "cluster/checked_json.h"

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti::cluster {
namespace {

constexpr std::size_t kLongestKeyShown = 40;

std::string member_path(const std::string& path, const std::string& key) {
  const bool plain = !key.empty() && key.size() <= kLongestKeyShown &&
                     std::all_of(key.begin(), key.end(), [](unsigned char c) {
                       return c < 0x80 && (std::isalnum(c) != 0 || c == '_' || c == '-');
                     });
  return plain ? cat(path, ".", key) : cat(path, "[", shown(key.substr(0, kLongestKeyShown)), "]");
}

std::string element_path(const std::string& path, std::size_t index) {
  return cat(path, "[", index, "]");
}

/// Builds the value event by event and knows at each where it stands.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(const std::string& operation, const JsonRules& rules, Json& root)
      : operation_(operation), rules_(rules), root_(root) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    Frame& frame = open_.back();
    frame.key = value;
    if (frame.value->contains(value)) {
      refuse({"a key that is there already", "every key once", "remove one of them"});
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing
    // value - invalid literal; last read: '…'; expected …": what is between the place and the text.
    std::string reason = error.what();
    if (const auto at = reason.find(": "); at != std::string::npos) reason = reason.substr(at + 2);
    if (const auto at = reason.find("; last read"); at != std::string::npos) reason.resize(at);
    if (reason.size() > 120) reason.resize(120);
    std::replace_if(
        reason.begin(), reason.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
    refuse({cat("no JSON at byte ", position, " (", reason, ")"), "JSON", "mend the text"});
  }

  [[noreturn]] void refuse(const Fault& fault) const {
    JsonAt(root_, path(), operation_, rules_.code).refuse(fault);
  }

 private:
  struct Frame {
    Json* value;
    std::string key;
  };

  std::string path() const {
    std::string text = "$";
    for (const Frame& frame : open_) {
      if (frame.value->is_array()) {
        // What is open inside is the last element already.
        text = element_path(text, frame.value->size() - (&frame == &open_.back() ? 0 : 1));
      } else if (&frame != &open_.back() || !frame.key.empty()) {
        text = member_path(text, frame.key);
      }
    }
    return text;
  }

  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Frame& frame = open_.back();
    if (frame.value->is_array()) {
      frame.value->push_back(std::move(value));
      return &frame.value->back();
    }
    Json& member = (*frame.value)[frame.key];
    member = std::move(value);
    return &member;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (static_cast<int>(open_.size()) == rules_.deepest) {
      refuse({cat("values more than ", rules_.deepest, " levels deep"), "a flatter document",
              "take out what does not belong there"});
    }
    open_.push_back({place(std::move(value)), {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& operation_;
  const JsonRules& rules_;
  Json& root_;
  std::vector<Frame> open_;
};

}  // namespace

JsonDocument::JsonDocument(std::string_view text, std::string operation, JsonRules rules)
    : operation_(std::move(operation)), code_(rules.code) {
  Builder builder(operation_, rules, root_);
  if (text.size() > rules.most_bytes) {
    builder.refuse({cat(text.size(), " bytes"), cat("at most ", rules.most_bytes),
                    "take out what does not belong there"});
  }
  Json::sax_parse(text, &builder);
}

JsonDocument JsonDocument::of(Json root, std::string operation) {
  JsonDocument document;
  document.operation_ = std::move(operation);
  document.root_ = std::move(root);
  return document;
}

void JsonAt::refuse(const Fault& fault) const {
  throw_error(code_, cat(*operation_, " [", path_, "]: ", fault.found, ", expected ",
                         fault.expected, "; ", fault.remedy));
}

std::string JsonAt::description() const {
  switch (value_->type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return shown(value_->get_ref<const std::string&>());
    default:
      return value_->dump();  // null, true, false, numbers
  }
}

const JsonAt& JsonAt::expect_object(const std::string& remedy) const {
  if (!is_object()) refuse({description(), "an object", remedy});
  return *this;
}

const JsonAt& JsonAt::expect_array(const std::string& remedy) const {
  if (!is_array()) refuse({description(), "a list", remedy});
  return *this;
}

std::vector<std::string> JsonAt::keys() const {
  std::vector<std::string> names;
  for (const auto& [key, value] : value_->items()) names.push_back(key);
  return names;
}

std::optional<JsonAt> JsonAt::find(const std::string& key) const {
  const auto found = value_->find(key);
  if (found == value_->end()) return std::nullopt;
  return JsonAt(*found, member_path(path_, key), *operation_, code_);
}

JsonAt JsonAt::at(const std::string& key) const {
  expect_object(cat("give it the key ", key));
  if (auto found = find(key)) return *found;
  refuse({cat("no key ", key), "one", "add it"});
}

JsonAt JsonAt::at(std::size_t index) const {
  return JsonAt((*value_)[index], element_path(path_, index), *operation_, code_);
}

std::string JsonAt::text() const {
  if (!is_string()) refuse({description(), "a string", "put it in quotes, or correct it"});
  return value_->get<std::string>();
}

std::string JsonAt::text_or(const std::string& key, const std::string& fallback) const {
  const auto found = find(key);
  return found && !found->is_null() ? found->text() : fallback;
}

}  // namespace tutti::cluster
