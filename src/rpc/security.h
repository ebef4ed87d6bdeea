#pragma once
// Who may talk to a server: files of certificates, and of a token. docs/coordination.md,
// "Security".

#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace tutti::rpc {

/// Files that prove who we are and that tell whom to believe. TLS is mutual: both sides show a
/// certificate that the authority has signed. All three of its files are set, or none.
struct Security {
  std::string ca_file;           // the authority's certificates, PEM
  std::string certificate_file;  // this task's, PEM
  std::string key_file;          // its key, PEM, mode 0600
  std::string token_file;        // one token a line, mode 0600; see TokenFile
  std::string server_name;       // the name in the server's certificate, if not the host's

  bool has_tls() const { return !ca_file.empty(); }

  /// TUTTI_TLS_CA, TUTTI_TLS_CERTIFICATE, TUTTI_TLS_KEY, TUTTI_TLS_SERVER_NAME, TUTTI_TOKEN_FILE.
  static Security from_environment();
};

/// Throws FailedPrecondition when `address` is not on loopback and `security` lacks TLS or the
/// token, InvalidArgument when only a part of TLS' files is named. `operation` begins the message.
void check_security(std::string_view operation, const std::string& address,
                    const Security& security);

/// The whole of a small file that only its owner may read. Throws NotFound when it is not there,
/// PermissionDenied unless it is a plain file of this user (or of root) with mode 0600 or stricter,
/// ResourceExhausted above 1 MiB.
std::string read_secret_file(const std::string& path);

/// The tokens of a file: one or two lines of 16 to 4,096 visible characters, the first of which is
/// shown to servers and any of which a server takes; two while they are being exchanged. The file
/// is looked at anew whenever it has changed; a change that cannot be read is logged, and the
/// tokens before it stay. Any thread may call.
class TokenFile {
 public:
  /// Throws as read_secret_file, and InvalidArgument for other contents.
  explicit TokenFile(std::string path);

  std::string shown();
  /// In time that does not depend on where the texts differ.
  bool accepts(std::string_view token);

 private:
  void refresh() TUTTI_REQUIRES(mutex_);

  const std::string path_;
  Mutex mutex_;
  std::string version_ TUTTI_GUARDED_BY(mutex_);
  std::vector<std::string> tokens_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::rpc
