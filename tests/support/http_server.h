#pragma once
// A small HTTP server on a port of this machine that says what a test wants it to, well or badly.

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/text.h"

namespace tutti::testing {

/// A certificate for 127.0.0.1 that it has signed itself, made anew.
class Certificate {
 public:
  Certificate() : key_(EVP_EC_gen("P-256")), certificate_(X509_new()) {
    X509_set_version(certificate_, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate_), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate_), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate_), 3600);
    X509_NAME* const name = X509_get_subject_name(certificate_);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("tutti test"), -1, -1, 0);
    X509_set_issuer_name(certificate_, name);
    X509_set_pubkey(certificate_, key_);
    extend(NID_basic_constraints, "critical,CA:TRUE");
    extend(NID_subject_alt_name, "IP:127.0.0.1");
    X509_sign(certificate_, key_, EVP_sha256());
  }
  ~Certificate() {
    X509_free(certificate_);
    EVP_PKEY_free(key_);
  }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;

  X509* certificate() const { return certificate_; }
  EVP_PKEY* key() const { return key_; }
  std::string pem() const {
    return text_of([this](BIO* out) { PEM_write_bio_X509(out, certificate_); });
  }
  std::string key_pem() const {
    return text_of([this](BIO* out) {
      PEM_write_bio_PrivateKey(out, key_, nullptr, nullptr, 0, nullptr, nullptr);
    });
  }

 private:
  void extend(int kind, const char* value) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value);
    X509_add_ext(certificate_, extension, -1);
    X509_EXTENSION_free(extension);
  }
  template <class Write>
  static std::string text_of(Write write) {
    BIO* const out = BIO_new(BIO_s_mem());
    write(out);
    char* data = nullptr;
    const long size = BIO_get_mem_data(out, &data);
    std::string text(data, static_cast<std::size_t>(size));
    BIO_free(out);
    return text;
  }
  EVP_PKEY* key_;
  X509* certificate_;
};

struct HttpReceived {
  std::string method;
  std::string target;
  /// By name in lower case.
  std::map<std::string, std::string> headers;
  std::string body;
};

struct HttpReply {
  int status = 200;
  std::string body = "";
  /// The bytes sent instead of a well-formed answer.
  std::optional<std::string> raw = {};
  /// After what is sent nothing more comes, and the connection stays open.
  bool stalls = false;
};

class HttpServer {
 public:
  using Handler = std::function<HttpReply(const HttpReceived&)>;

  explicit HttpServer(Handler handler) : HttpServer(std::move(handler), nullptr, nullptr) {}
  /// With TLS; with `client` it takes nobody but who shows that certificate.
  HttpServer(Handler handler, const Certificate* certificate, const Certificate* client)
      : handler_(std::move(handler)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    signal(SIGPIPE, SIG_IGN);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        listen(listener_, 16) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      std::abort();
    }
    port_ = ntohs(address.sin_port);
    if (certificate != nullptr) use(*certificate, client);
    thread_ = std::thread([this] { serve(); });
  }
  ~HttpServer() {
    const uint64_t one = 1;
    if (write(stop_, &one, sizeof one) != sizeof one) std::abort();
    thread_.join();
    close(listener_);
    close(stop_);
    SSL_CTX_free(tls_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  std::string url() const {
    return cat(tls_ == nullptr ? "http" : "https", "://127.0.0.1:", port_);
  }
  std::vector<HttpReceived> received() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return received_;
  }

 private:
  /// Bytes over a socket, with or without TLS.
  class Connection {
   public:
    Connection(int socket, SSL_CTX* context) : socket_(socket) {
      if (context == nullptr) return;
      tls_ = SSL_new(context);
      SSL_set_fd(tls_, socket);
      usable_ = SSL_accept(tls_) == 1;
    }
    ~Connection() {
      if (tls_ != nullptr) {
        if (usable_) SSL_shutdown(tls_);
        SSL_free(tls_);
      }
      close(socket_);
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    int socket() const { return socket_; }
    bool usable() const { return usable_; }
    long receive(char* data, std::size_t size) {
      return tls_ != nullptr ? SSL_read(tls_, data, static_cast<int>(size))
                             : recv(socket_, data, size, 0);
    }
    void send_all(const std::string& text) {
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t size = std::min<std::size_t>(text.size() - at, 65536);
        const long sent = tls_ != nullptr
                              ? SSL_write(tls_, text.data() + at, static_cast<int>(size))
                              : send(socket_, text.data() + at, size, MSG_NOSIGNAL);
        if (sent <= 0) return;
        at += static_cast<std::size_t>(sent);
      }
    }

   private:
    int socket_;
    SSL* tls_ = nullptr;
    bool usable_ = true;
  };

  void use(const Certificate& certificate, const Certificate* client) {
    tls_ = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(tls_, certificate.certificate());
    SSL_CTX_use_PrivateKey(tls_, certificate.key());
    if (client == nullptr) return;
    X509_STORE_add_cert(SSL_CTX_get_cert_store(tls_), client->certificate());
    SSL_CTX_set_verify(tls_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }

  void serve() {
    for (;;) {
      pollfd waiting[2] = {{listener_, POLLIN, 0}, {stop_, POLLIN, 0}};
      if (poll(waiting, 2, -1) < 0) continue;
      if (waiting[1].revents != 0) return;
      const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) continue;
      Connection connection(socket, tls_);
      if (connection.usable()) answer(connection);
    }
  }

  void answer(Connection& connection) {
    std::string text;
    std::size_t head = std::string::npos;
    std::size_t wanted = 0;
    while (head == std::string::npos || text.size() < wanted) {
      char buffer[4096];
      const long count = connection.receive(buffer, sizeof buffer);
      if (count <= 0) return;
      text.append(buffer, static_cast<std::size_t>(count));
      head = text.find("\r\n\r\n");
      if (head == std::string::npos) continue;
      const auto headers = parse(text.substr(0, head)).headers;
      const auto length = headers.find("content-length");
      wanted = head + 4 + (length == headers.end() ? 0 : std::stoul(length->second));
    }
    HttpReceived request = parse(text.substr(0, head));
    request.body = text.substr(head + 4);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      received_.push_back(request);
    }
    const HttpReply reply = handler_(request);
    connection.send_all(reply.raw ? *reply.raw
                                  : cat("HTTP/1.1 ", reply.status,
                                        " Said\r\nConnection: close\r\nContent-Length: ",
                                        reply.body.size(), "\r\n\r\n", reply.body));
    if (!reply.stalls) return;
    pollfd waiting[2] = {{connection.socket(), POLLRDHUP, 0}, {stop_, POLLIN, 0}};
    poll(waiting, 2, -1);
  }

  static HttpReceived parse(const std::string& head) {
    HttpReceived request;
    const auto lines = split(head, '\n');
    const auto words = split(lines[0], ' ');
    request.method = words[0];
    if (words.size() > 1) request.target = words[1];
    for (std::size_t i = 1; i < lines.size(); ++i) {
      std::string line = lines[i];
      if (!line.empty() && line.back() == '\r') line.pop_back();
      const std::size_t colon = line.find(": ");
      if (colon != std::string::npos)
        request.headers[to_lower(line.substr(0, colon))] = line.substr(colon + 2);
    }
    return request;
  }

  Handler handler_;
  int listener_;
  int stop_ = eventfd(0, EFD_CLOEXEC);
  int port_ = 0;
  SSL_CTX* tls_ = nullptr;
  mutable std::mutex mutex_;
  std::vector<HttpReceived> received_;
  std::thread thread_;
};

}  // namespace tutti::testing
