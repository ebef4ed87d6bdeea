#pragma once
// Certificates and tokens of a test, made by openssl in a folder that goes afterwards.

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "rpc/security.h"
#include "tutti/base/text.h"

namespace tutti::testing {

/// An authority, a task's certificate for 127.0.0.1 and localhost, one that has expired, one for
/// another host, and one of another authority.
class Certificates {
 public:
  Certificates() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tutti_pki_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    folder_ = pattern;
    write("names", "subjectAltName=DNS:localhost,IP:127.0.0.1");
    write("other_names", "subjectAltName=DNS:elsewhere.example");
    for (const char* authority : {"ca", "other_ca"}) {
      run(cat("openssl req -x509 ", kNewKey, " -keyout ", authority, ".key -out ", authority,
              ".pem -days 2 -subj /CN=", authority));
    }
    make("task", "ca", "names", 2);
    make("expired", "ca", "names", -1);
    make("elsewhere", "ca", "other_names", 2);
    make("stranger", "other_ca", "names", 2);
    token("token", std::string(kToken) + "\n");
    token("other_token", "another-token-of-another-cluster\n");
  }
  ~Certificates() { std::filesystem::remove_all(folder_); }
  Certificates(const Certificates&) = delete;

  static constexpr const char* kToken = "a-token-that-no-log-may-show-0123456789";

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::trunc) << text;
  }
  std::string token(const std::string& name, const std::string& text) const {
    write(name, text);
    ::chmod(path(name).c_str(), 0600);
    return path(name);
  }

  /// TLS with the certificate `name` and the right token.
  rpc::Security security(const std::string& name = "task", const std::string& ca = "ca") const {
    rpc::Security security;
    security.ca_file = path(ca + ".pem");
    security.certificate_file = path(name + ".pem");
    security.key_file = path(name + ".key");
    security.token_file = path("token");
    return security;
  }

 private:
  static constexpr const char* kNewKey = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

  void run(const std::string& command) const {
    const std::string line = cat("cd ", folder_.string(), " && ", command, " 2>log");
    if (std::system(line.c_str()) != 0) throw std::runtime_error("failed: " + line);
  }
  void make(const std::string& name, const std::string& ca, const std::string& names,
            int days) const {
    run(cat("openssl req ", kNewKey, " -keyout ", name, ".key -out ", name,
            ".csr -subj /CN=tutti"));
    run(cat("openssl x509 -req -in ", name, ".csr -CA ", ca, ".pem -CAkey ", ca,
            ".key -CAcreateserial -days ", days, " -extfile ", names, " -out ", name, ".pem"));
  }

  std::filesystem::path folder_;
};

}  // namespace tutti::testing
