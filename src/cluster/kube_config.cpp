#include "cluster/kube_config.h"

#include <yaml.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tutti/base/text.h"

namespace tutti::cluster {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 20;
constexpr std::size_t kDeepest = 32;

/// The file's bytes, nothing when it cannot be read; InvalidArgument above 1 MiB.
std::optional<std::string> read_file(const std::string& operation, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  if (!file || std::filesystem::is_directory(path, error)) return std::nullopt;
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kLargestFile)
    refuse(operation, path, {"more than 1 MiB", "less", "name another file"});
  return text;
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.pop_back();
  return text;
}

// --- YAML ----------------------------------------------------------------------------------------

class YamlReader {
 public:
  YamlReader(const std::string& operation, const std::string& text) : operation_(operation) {
    if (yaml_parser_initialize(&parser_) == 0)
      throw ResourceExhausted("YAML [parser]: no memory, expected some; free memory");
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
  }
  ~YamlReader() { yaml_parser_delete(&parser_); }
  YamlReader(const YamlReader&) = delete;
  YamlReader& operator=(const YamlReader&) = delete;

  Json read() {
    Json root;
    std::vector<Open> open;
    for (;;) {
      yaml_event_t event;
      if (yaml_parser_parse(&parser_, &event) == 0) {
        fail(parser_.problem_mark, parser_.problem == nullptr ? "no YAML" : parser_.problem);
      }
      const std::unique_ptr<yaml_event_t, decltype(&yaml_event_delete)> owner(&event,
                                                                              &yaml_event_delete);
      if (event.type == YAML_STREAM_END_EVENT || event.type == YAML_DOCUMENT_END_EVENT) return root;
      take(event, open, root);
    }
  }

 private:
  struct Open {
    Json* value;
    std::optional<std::string> key;  // of a mapping, when its value comes next
  };

  [[noreturn]] void fail(const yaml_mark_t& mark, const std::string& found) const {
    refuse(operation_, cat("line ", mark.line + 1), {found, "plain YAML", "correct the file"});
  }

  void take(const yaml_event_t& event, std::vector<Open>& open, Json& root) const {
    switch (event.type) {
      case YAML_SCALAR_EVENT:
        place(event, scalar(event), open, root);
        return;
      case YAML_SEQUENCE_START_EVENT:
      case YAML_MAPPING_START_EVENT: {
        if (open.size() == kDeepest) fail(event.start_mark, "values more than 32 levels deep");
        const bool is_list = event.type == YAML_SEQUENCE_START_EVENT;
        Json* const value = place(event, is_list ? Json::array() : Json::object(), open, root);
        open.push_back({value, std::nullopt});
        return;
      }
      case YAML_SEQUENCE_END_EVENT:
      case YAML_MAPPING_END_EVENT:
        open.pop_back();
        return;
      case YAML_ALIAS_EVENT:
        fail(event.start_mark, "an alias");
      default:
        return;  // begins of the stream and of the document
    }
  }

  Json* place(const yaml_event_t& event, Json value, std::vector<Open>& open, Json& root) const {
    if (open.empty()) {
      root = std::move(value);
      return &root;
    }
    Open& top = open.back();
    if (top.value->is_array()) {
      top.value->push_back(std::move(value));
      return &top.value->back();
    }
    if (!top.key) {
      if (event.type != YAML_SCALAR_EVENT) fail(event.start_mark, "a key that is no text");
      const std::string key = text_of(event);
      if (top.value->contains(key)) fail(event.start_mark, cat("the key ", shown(key), " twice"));
      top.key = key;
      return nullptr;
    }
    Json& member = (*top.value)[*top.key];
    top.key.reset();
    member = std::move(value);
    return &member;
  }

  static std::string text_of(const yaml_event_t& event) {
    return {reinterpret_cast<const char*>(event.data.scalar.value), event.data.scalar.length};
  }
  static Json scalar(const yaml_event_t& event) {
    const std::string text = text_of(event);
    if (event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return text;
    if (text == "true") return true;
    if (text == "false") return false;
    if (text.empty() || text == "null" || text == "~") return nullptr;
    return text;
  }

  const std::string& operation_;
  yaml_parser_t parser_;
};

// --- kube config -------------------------------------------------------------------------------

std::string decoded_base64(const JsonAt& at) {
  static const std::string kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : at.text()) {
    if (c == '=' || c == '\n' || c == '\r') continue;
    const std::size_t digit = kAlphabet.find(c);
    if (digit == std::string::npos) at.refuse({"text that is no base64", "base64", "correct it"});
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

struct KubeFile {
  std::string folder;
  JsonDocument document;
};

class KubeConfig {
 public:
  KubeConfig(const std::string& operation, const std::vector<std::string>& paths)
      : operation_(operation) {
    for (const std::string& path : paths) {
      const auto text = read_file(operation, path);
      if (!text) continue;
      const std::string name = cat(operation, " ", path);
      files_.push_back({std::filesystem::path(path).parent_path().string(),
                        JsonDocument::of(parse_yaml(name, *text), name)});
      files_.back().document.top().expect_object("write a kubectl configuration");
    }
    if (!files_.empty()) return;
    throw FailedPrecondition(cat(operation, " [", join(paths, ":"),
                                 "]: no such file, expected a "
                                 "kubectl configuration; name it by KUBECONFIG, or use "
                                 "KubernetesExecutableLocation::kWithinCluster in a pod"));
  }

  KubernetesAccess access() const {
    const Found context = find("contexts", "context", current_context());
    const Found cluster = find("clusters", "cluster", context.at.at("cluster").text());
    KubernetesAccess access;
    access.server = cluster.at.at("server").text();
    while (!access.server.empty() && access.server.back() == '/') access.server.pop_back();
    if (const auto skip = cluster.at.find("insecure-skip-tls-verify"))
      access.tls.verify = skip->value() != true;
    access.tls.authority = pem(cluster, "certificate-authority");
    const std::string user_name = context.at.text_or("user", "");
    if (!user_name.empty()) add_user(find("users", "user", user_name), access);
    return access;
  }

 private:
  struct Found {
    JsonAt at;
    const KubeFile* file;
  };

  std::string current_context() const {
    for (const KubeFile& file : files_) {
      const std::string name = file.document.top().text_or("current-context", "");
      if (!name.empty()) return name;
    }
    throw FailedPrecondition(cat(operation_,
                                 " [current-context]: none, expected one; choose it by "
                                 "kubectl config use-context"));
  }

  /// Of the list `lists`, the entry that is named `name`, its member `member`.
  Found find(const char* lists, const char* member, const std::string& name) const {
    for (const KubeFile& file : files_) {
      const auto list = file.document.top().find(lists);
      if (!list || list->is_null()) continue;
      list->expect_array("write a list of names");
      for (std::size_t i = 0; i < list->size(); ++i) {
        if (list->at(i).at("name").text() != name) continue;
        Found found{list->at(i).at(member), &file};
        found.at.expect_object("write what it is");
        return found;
      }
    }
    refuse(operation_, lists, {cat("no entry ", shown(name)), "one", "add it, or name another"});
  }

  /// `key-data` in base64, or the file that `key` names.
  std::string pem(const Found& found, const std::string& key) const {
    if (const auto data = found.at.find(key + "-data")) return decoded_base64(*data);
    const auto path = found.at.find(key);
    return path && !path->is_null() ? file_of(found, *path) : "";
  }

  std::string file_of(const Found& found, const JsonAt& path) const {
    const auto whole = std::filesystem::path(found.file->folder) / path.text();
    const auto text = read_file(path.operation(), whole.string());
    if (!text)
      path.refuse({cat("the file ", whole.string(), ", which cannot be read"), "a file",
                   "correct the path"});
    return *text;
  }

  void add_user(const Found& user, KubernetesAccess& access) const {
    access.token = user.at.text_or("token", "");
    if (const auto path = user.at.find("tokenFile"); path && access.token.empty())
      access.token = trimmed(file_of(user, *path));
    access.tls.certificate = pem(user, "client-certificate");
    access.tls.key = pem(user, "client-key");
    if (!access.token.empty() || !access.tls.certificate.empty()) return;
    for (const char* other : {"exec", "auth-provider", "username"}) {
      if (!user.at.find(other)) continue;
      throw Unimplemented(cat(user.at.operation(), " [", user.at.path(), "]: credentials by ",
                              other,
                              ", expected a token or a client certificate; make a token by "
                              "kubectl create token, or run the program in a pod"));
    }
  }

  const std::string& operation_;
  std::vector<KubeFile> files_;
};

}  // namespace

Json parse_yaml(const std::string& operation, const std::string& text) {
  if (text.size() > kLargestFile) refuse(operation, "YAML", {"more than 1 MiB", "less", "mend it"});
  return YamlReader(operation, text).read();
}

KubernetesAccess access_within_cluster(const std::string& operation, const Variables& variables,
                                       const std::string& folder) {
  const char* const outside = "not in a pod of Kubernetes";
  const std::string host = variables.require("KUBERNETES_SERVICE_HOST", outside);
  const std::string port = variables.require("KUBERNETES_SERVICE_PORT", outside);
  const bool is_ipv6 = host.find(':') != std::string::npos && host[0] != '[';
  const std::string address = cat(is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", ":", port);
  if (const auto fault = fault_of_address(address))
    refuse(operation, "KUBERNETES_SERVICE_HOST", *fault);
  KubernetesAccess access;
  access.server = "https://" + address;
  for (const auto& [name, text] : {std::pair<const char*, std::string*>{"token", &access.token},
                                   {"ca.crt", &access.tls.authority}}) {
    const std::string path = cat(folder, "/", name);
    const auto bytes = read_file(operation, path);
    if (!bytes || trimmed(*bytes).empty()) {
      throw FailedPrecondition(cat(operation, " [", path,
                                   "]: cannot be read, expected the pod's "
                                   "service account; give the pod one (automountServiceAccountToken"
                                   "), with the right to list pods"));
    }
    *text = *bytes;
  }
  access.token = trimmed(access.token);
  return access;
}

KubernetesAccess access_by_kube_config(const std::string& operation, const Variables& variables) {
  std::vector<std::string> paths;
  for (const std::string& path : split(variables.text("KUBECONFIG"), ':')) {
    if (!path.empty()) paths.push_back(path);
  }
  if (paths.empty()) paths.push_back(cat(variables.text("HOME"), "/.kube/config"));
  return KubeConfig(operation, paths).access();
}

}  // namespace tutti::cluster
