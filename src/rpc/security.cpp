#include "rpc/security.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/environment.h"
#include "rpc/address.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::rpc {
namespace {

constexpr std::size_t kMostFileBytes = 1 << 20;
constexpr std::size_t kMostTokens = 2;
constexpr std::size_t kShortestToken = 16;
constexpr std::size_t kLongestToken = 4096;

struct Descriptor {
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  int value;
};

/// What changes when a file's contents do.
std::string version_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "";
  return cat(status.st_dev, ".", status.st_ino, ".", status.st_size, ".", status.st_mtim.tv_sec,
             ".", status.st_mtim.tv_nsec, ".", status.st_mode);
}

// The messages never show a token, not even a bad one.
std::vector<std::string> parse_tokens(const std::string& path, const std::string& text) {
  std::vector<std::string> tokens;
  for (std::string line : split(text, '\n')) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    for (const char c : line) {
      if (c <= 0x20 || c >= 0x7f) {
        throw InvalidArgument(cat("token file [", path, "]: line ", tokens.size() + 1,
                                  " has a character that is not visible ASCII; write the token in "
                                  "base64 or hex"));
      }
    }
    if (line.size() < kShortestToken || line.size() > kLongestToken) {
      throw InvalidArgument(cat("token file [", path, "]: line ", tokens.size() + 1, " has ",
                                line.size(), " characters, expected ", kShortestToken, " to ",
                                kLongestToken, "; make one by: openssl rand -hex 32"));
    }
    tokens.push_back(line);
  }
  if (tokens.empty() || tokens.size() > kMostTokens) {
    throw InvalidArgument(cat("token file [", path, "]: ", tokens.size(),
                              " tokens, expected 1, or 2 while they are exchanged; one a line"));
  }
  return tokens;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  // Over the length of the one that a stranger chose: what it takes tells nothing of the secret.
  volatile unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference = static_cast<unsigned char>(difference | (a[i] ^ other));
  }
  return difference == 0;
}

}  // namespace

Security Security::from_environment() {
  Security security;
  security.ca_file = environment("TUTTI_TLS_CA").value_or("");
  security.certificate_file = environment("TUTTI_TLS_CERTIFICATE").value_or("");
  security.key_file = environment("TUTTI_TLS_KEY").value_or("");
  security.token_file = environment("TUTTI_TOKEN_FILE").value_or("");
  security.server_name = environment("TUTTI_TLS_SERVER_NAME").value_or("");
  return security;
}

void check_security(std::string_view operation, const std::string& address,
                    const Security& security) {
  const bool whole =
      !security.ca_file.empty() && !security.certificate_file.empty() && !security.key_file.empty();
  const bool none =
      security.ca_file.empty() && security.certificate_file.empty() && security.key_file.empty();
  if (!whole && !none) {
    throw InvalidArgument(cat(operation, " [", address, "]: authority \"", security.ca_file,
                              "\", certificate \"", security.certificate_file, "\", key \"",
                              security.key_file,
                              "\", expected all three files of TLS or none; see "
                              "docs/coordination.md, Security"));
  }
  if (is_loopback(parse_address(address))) return;
  if (whole && !security.token_file.empty()) return;
  throw FailedPrecondition(
      cat(operation, " [", address, "]: not on loopback and without ",
          whole ? "a token" : (security.token_file.empty() ? "TLS and a token" : "TLS"),
          ", expected both; name the files by TUTTI_TLS_CA, TUTTI_TLS_CERTIFICATE, TUTTI_TLS_KEY "
          "and TUTTI_TOKEN_FILE, or stay on 127.0.0.1, ::1 or localhost"));
}

std::string read_secret_file(const std::string& path) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.value < 0) {
    throw NotFound(cat("secret file [", path, "]: ", std::strerror(errno),
                       ", expected a file that this user may read"));
  }
  struct stat status {};
  if (::fstat(file.value, &status) != 0 || !S_ISREG(status.st_mode))
    throw PermissionDenied(cat("secret file [", path, "]: not a plain file"));
  if ((status.st_mode & 077) != 0 || (status.st_uid != ::geteuid() && status.st_uid != 0)) {
    throw PermissionDenied(cat("secret file [", path, "]: mode 0", (status.st_mode >> 6) & 7,
                               (status.st_mode >> 3) & 7, status.st_mode & 7, ", owner ",
                               status.st_uid, ", expected 0600 and user ", ::geteuid(),
                               "; run: chmod 600 ", path));
  }
  std::string text;
  char block[4096];
  for (;;) {
    const ssize_t size = ::read(file.value, block, sizeof block);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) throw NotFound(cat("secret file [", path, "]: ", std::strerror(errno)));
    if (size == 0) return text;
    text.append(block, static_cast<std::size_t>(size));
    if (text.size() > kMostFileBytes)
      throw ResourceExhausted(cat("secret file [", path, "]: more than 1 MiB"));
  }
}

TokenFile::TokenFile(std::string path) : path_(std::move(path)) {
  MutexLock lock(mutex_);
  version_ = version_of(path_);
  tokens_ = parse_tokens(path_, read_secret_file(path_));
}

void TokenFile::refresh() {
  const std::string version = version_of(path_);
  if (version == version_) return;
  version_ = version;
  try {
    tokens_ = parse_tokens(path_, read_secret_file(path_));
    log_info("token file [", path_, "]: read anew, ", tokens_.size(), " tokens");
  } catch (const Error& error) {
    log_warning(error.what(), "; the tokens before stay in use");
  }
}

std::string TokenFile::shown() {
  MutexLock lock(mutex_);
  refresh();
  return tokens_.front();
}

bool TokenFile::accepts(std::string_view token) {
  MutexLock lock(mutex_);
  refresh();
  bool accepted = false;
  for (const std::string& known : tokens_) accepted |= equal_in_constant_time(token, known);
  return accepted;
}

}  // namespace tutti::rpc
