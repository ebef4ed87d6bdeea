#include "cluster/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <thread>

#include "tutti/base/text.h"

namespace tutti::cluster {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstPause{50};
constexpr int kDeepestAnswer = 64;

struct HandleDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct ListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

void initialize_once() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

/// What came of one attempt.
struct Attempt {
  CURLcode result = CURLE_OK;
  std::string detail;
  long status = 0;
  bool too_big = false;
  std::string body;
};

struct Sink {
  std::string* body;
  std::size_t most_bytes;
  bool* too_big;
};

std::size_t receive(char* data, std::size_t size, std::size_t count, void* sink_pointer) {
  auto& sink = *static_cast<Sink*>(sink_pointer);
  if (sink.body->size() + size * count > sink.most_bytes) {
    *sink.too_big = true;
    return 0;  // ends the transfer
  }
  sink.body->append(data, size * count);
  return size * count;
}

/// [scheme://]host[:port]/…
std::string host_of(const std::string& url) {
  const std::size_t scheme = url.find("://");
  const std::string rest = scheme == std::string::npos ? url : url.substr(scheme + 3);
  const std::string authority = rest.substr(0, rest.find_first_of("/?#"));
  if (!authority.empty() && authority[0] == '[')
    return authority.substr(0, authority.find(']') + 1);
  return authority.substr(0, authority.find(':'));
}

bool is_private_channel(const std::string& url) {
  if (url.rfind("https://", 0) == 0) return true;
  const std::string host = host_of(url);
  return host == "localhost" || host == "[::1]" || host == "127.0.0.1";
}

void check(const std::string& operation, const HttpRequest& request) {
  const bool known = request.url.rfind("http://", 0) == 0 || request.url.rfind("https://", 0) == 0;
  const bool printable = std::all_of(request.url.begin(), request.url.end(),
                                     [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!known || !printable || host_of(request.url).find('@') != std::string::npos) {
    refuse(operation, "URL",
           {shown(request.url), "http:// or https://, a host and a path", "correct the address"});
  }
  if (request.token.empty()) return;
  const bool plain = std::all_of(request.token.begin(), request.token.end(),
                                 [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!plain) {
    refuse(operation, "token",
           {"a token with blanks or control characters", "printable ones", "correct the token"});
  }
  if (!is_private_channel(request.url)) {
    throw PermissionDenied(cat(operation, " [", request.url,
                               "]: a token for an address that is "
                               "not encrypted, expected https; use https, or no credentials"));
  }
}

class Transfer {
 public:
  explicit Transfer(const HttpRequest& request) : handle_(curl_easy_init()), request_(request) {
    if (handle_ == nullptr)
      throw ResourceExhausted("HTTP [curl]: no handle, expected one; free memory");
  }

  Attempt run(std::chrono::milliseconds left) {
    Attempt attempt;
    Sink sink{&attempt.body, request_.most_bytes, &attempt.too_big};
    char detail[CURL_ERROR_SIZE] = "";
    CURL* const h = handle_.get();
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, detail);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, &sink);
    curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, static_cast<long>(left.count()));
    set_address();
    set_tls();
    attempt.result = curl_easy_perform(h);
    attempt.detail = detail[0] != '\0' ? detail : curl_easy_strerror(attempt.result);
    curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &attempt.status);
    return attempt;
  }

 private:
  void set_address() {
    CURL* const h = handle_.get();
    curl_easy_setopt(h, CURLOPT_URL, request_.url.c_str());
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_USERAGENT, "tutti");
    if (!request_.use_proxy) curl_easy_setopt(h, CURLOPT_PROXY, "");
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, request_.method.c_str());
    if (!request_.body.empty()) {
      curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE, static_cast<long>(request_.body.size()));
      curl_easy_setopt(h, CURLOPT_POSTFIELDS, request_.body.c_str());
    }
    curl_slist* list = nullptr;
    for (const std::string& header : request_.headers)
      list = curl_slist_append(list, header.c_str());
    if (!request_.token.empty())
      list = curl_slist_append(list, ("Authorization: Bearer " + request_.token).c_str());
    headers_.reset(list);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, list);
  }

  void set_tls() {
    const TlsSettings& tls = request_.tls;
    CURL* const h = handle_.get();
    curl_easy_setopt(h, CURLOPT_SSL_VERIFYPEER, tls.verify ? 1L : 0L);
    curl_easy_setopt(h, CURLOPT_SSL_VERIFYHOST, tls.verify ? 2L : 0L);
    set_blob(CURLOPT_CAINFO_BLOB, tls.authority);
    set_blob(CURLOPT_SSLCERT_BLOB, tls.certificate);
    set_blob(CURLOPT_SSLKEY_BLOB, tls.key);
  }

  void set_blob(CURLoption option, const std::string& text) {
    if (text.empty()) return;
    curl_blob blob{const_cast<char*>(text.data()), text.size(), CURL_BLOB_NOCOPY};
    curl_easy_setopt(handle_.get(), option, &blob);
  }

  std::unique_ptr<CURL, HandleDeleter> handle_;
  std::unique_ptr<curl_slist, ListDeleter> headers_;
  const HttpRequest& request_;
};

bool may_pass(const Attempt& attempt) {
  switch (attempt.result) {
    case CURLE_OK:
      return attempt.status == 429 || attempt.status == 502 || attempt.status == 503 ||
             attempt.status == 504;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
      return true;
    default:
      return false;
  }
}

ErrorCode code_of_result(CURLcode result) {
  switch (result) {
    case CURLE_OPERATION_TIMEDOUT:
      return ErrorCode::kDeadlineExceeded;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
      return ErrorCode::kUnauthenticated;
    case CURLE_URL_MALFORMAT:
    case CURLE_SSL_CACERT_BADFILE:
      return ErrorCode::kInvalidArgument;
    default:
      return ErrorCode::kUnavailable;
  }
}

ErrorCode code_of_status(long status) {
  switch (status) {
    case 401:
      return ErrorCode::kUnauthenticated;
    case 403:
      return ErrorCode::kPermissionDenied;
    case 404:
      return ErrorCode::kNotFound;
    case 429:
      return ErrorCode::kUnavailable;
    default:
      return status >= 500 ? ErrorCode::kUnavailable : ErrorCode::kFailedPrecondition;
  }
}

[[noreturn]] void fail(const std::string& operation, const HttpRequest& request,
                       const Attempt& attempt) {
  const std::string start = cat(operation, " [", request.method, " ", request.url, "]: ");
  if (attempt.too_big) {
    throw ResourceExhausted(cat(start, "an answer of more than ", request.most_bytes,
                                " bytes, expected less; ask for less at a time"));
  }
  if (attempt.result == CURLE_OPERATION_TIMEDOUT) {
    throw DeadlineExceeded(cat(start, "no whole answer, expected one within ",
                               request.deadline.count(),
                               " ms; see that the service is there and not overloaded"));
  }
  if (attempt.result != CURLE_OK) {
    throw_error(code_of_result(attempt.result),
                cat(start, attempt.detail,
                    ", expected an answer; see that the service is there "
                    "and that its address and certificate are right"));
  }
  throw_error(code_of_status(attempt.status),
              cat(start, "status ", attempt.status, " ", shown(attempt.body),
                  ", expected 200; see to the name and to the rights of this process"));
}

}  // namespace

std::string fetch(const std::string& operation, const HttpRequest& request) {
  check(operation, request);
  initialize_once();
  const auto end = Clock::now() + request.deadline;
  auto pause = kFirstPause;
  for (int attempts = 1;; ++attempts) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    Attempt attempt = Transfer(request).run(std::max(left, std::chrono::milliseconds(1)));
    if (attempt.result == CURLE_OK && attempt.status == 200) return std::move(attempt.body);
    const bool again = attempts < request.attempts && may_pass(attempt) && !attempt.too_big &&
                       Clock::now() + pause < end;
    if (!again) fail(operation, request, attempt);
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
}

JsonDocument fetch_json(const std::string& operation, const HttpRequest& request) {
  return JsonDocument(fetch(operation, request), cat(operation, " ", request.url),
                      {request.most_bytes, kDeepestAnswer, ErrorCode::kUnavailable});
}

std::string percent_encoded(std::string_view text) {
  static const char* const kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && (std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.' || c == '~')) {
      encoded += c;
    } else {
      encoded += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return encoded;
}

}  // namespace tutti::cluster
