#include "cluster/http_client.h"

#include <gtest/gtest.h>

#include <chrono>

#include "support/http_server.h"
#include "support/message_checks.h"
#include "tutti/base/text.h"

namespace tutti::cluster {
namespace {

using std::chrono::milliseconds;
using testing::Certificate;
using testing::HttpReceived;
using testing::HttpReply;
using testing::HttpServer;
using testing::throws_saying;

/// A server that always says `reply`.
HttpServer::Handler always(HttpReply reply) {
  return [reply](const HttpReceived&) { return reply; };
}

HttpRequest to(const HttpServer& server, const std::string& path = "/x") {
  HttpRequest request;
  request.url = server.url() + path;
  return request;
}

TEST(HttpClient, GivesTheBodyAndSendsWhatItWasTold) {
  HttpServer server(always({.body = "hello"}));
  HttpRequest request = to(server, "/a?b=c");
  request.method = "POST";
  request.headers = {"X-Own: yes"};
  request.body = "data";
  request.token = "secret";
  EXPECT_EQ(fetch("Test", request), "hello");
  const HttpReceived received = server.received().at(0);
  EXPECT_EQ(received.method, "POST");
  EXPECT_EQ(received.target, "/a?b=c");
  EXPECT_EQ(received.headers.at("x-own"), "yes");
  EXPECT_EQ(received.headers.at("authorization"), "Bearer secret");
  EXPECT_EQ(received.body, "data");
}

TEST(HttpClient, StatusesAreErrorsOfTheirKind) {
  const auto said = [](int status) {
    return [status] {
      HttpServer server(always({.status = status, .body = "because\n"}));
      HttpRequest request = to(server);
      request.attempts = 1;
      fetch("Test", request);
    };
  };
  EXPECT_TRUE(throws_saying<NotFound>(
      said(404), {"Test [GET http://127.0.0.1:", "/x]", "status 404 \"because\\x0a\"", "200"}));
  EXPECT_TRUE(throws_saying<Unauthenticated>(said(401), {"status 401"}));
  EXPECT_TRUE(throws_saying<PermissionDenied>(said(403), {"status 403"}));
  EXPECT_TRUE(throws_saying<Unavailable>(said(500), {"status 500"}));
  EXPECT_TRUE(throws_saying<Unavailable>(said(429), {"status 429"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(said(400), {"status 400"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(said(204), {"status 204"}));
}

TEST(HttpClient, RedirectsAreNotFollowed) {
  HttpServer other(always({.body = "other"}));
  HttpServer server(always({.raw = cat("HTTP/1.1 302 Found\r\nLocation: ", other.url(),
                                       "/\r\nContent-Length: 0\r\n\r\n")}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { fetch("Test", to(server)); }, {"302"}));
  EXPECT_TRUE(other.received().empty());
}

TEST(HttpClient, ASlowAnswerEndsAtTheDeadline) {
  for (const char* begun :
       {"", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"}) {
    HttpServer server(always({.raw = begun, .stalls = true}));
    HttpRequest request = to(server);
    request.deadline = milliseconds(100);
    EXPECT_TRUE(throws_saying<DeadlineExceeded>([&] { fetch("Test", request); },
                                                {"no whole answer", "within 100 ms"}));
    EXPECT_EQ(server.received().size(), 1U);
  }
}

TEST(HttpClient, ATruncatedAnswerIsUnavailable) {
  for (const char* raw : {"", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf"}) {
    HttpServer server(always({.raw = raw}));
    EXPECT_TRUE(throws_saying<Unavailable>([&] { fetch("Test", to(server)); }, {"Test [GET"}))
        << raw;
    EXPECT_EQ(server.received().size(), 3U) << raw;
  }
}

TEST(HttpClient, GarbageIsUnavailable) {
  HttpServer server(always({.raw = "SSH-2.0-OpenSSH_9.2\r\n"}));
  EXPECT_TRUE(throws_saying<Unavailable>([&] { fetch("Test", to(server)); }, {"Test [GET"}));
}

TEST(HttpClient, AHugeAnswerIsCutOff) {
  for (const bool says_length : {true, false}) {
    const std::string body(100000, 'a');
    HttpServer server(
        always({.raw = cat("HTTP/1.1 200 OK\r\nConnection: close\r\n",
                           says_length ? cat("Content-Length: ", body.size(), "\r\n") : "", "\r\n",
                           body)}));
    HttpRequest request = to(server);
    request.most_bytes = 99999;
    EXPECT_TRUE(throws_saying<ResourceExhausted>([&] { fetch("Test", request); },
                                                 {"more than 99999 bytes"}));
    EXPECT_EQ(server.received().size(), 1U);
    request.most_bytes = 100000;
    EXPECT_EQ(fetch("Test", request), body);
  }
}

TEST(HttpClient, WhatPassesIsAskedAgain) {
  int asked = 0;
  HttpServer server([&](const HttpReceived&) -> HttpReply {
    ++asked;
    if (asked == 1) return {.status = 503};
    if (asked == 2) return {.raw = ""};
    return {.body = "at last"};
  });
  EXPECT_EQ(fetch("Test", to(server)), "at last");
  EXPECT_EQ(server.received().size(), 3U);
}

TEST(HttpClient, AfterThreeAttemptsItEnds) {
  HttpServer server(always({.status = 503}));
  EXPECT_TRUE(throws_saying<Unavailable>([&] { fetch("Test", to(server)); }, {"503"}));
  EXPECT_EQ(server.received().size(), 3U);
}

TEST(HttpClient, WhatDoesNotPassIsNotAskedAgain) {
  HttpServer server(always({.status = 404}));
  EXPECT_TRUE(throws_saying<NotFound>([&] { fetch("Test", to(server)); }, {"404"}));
  EXPECT_EQ(server.received().size(), 1U);
}

TEST(HttpClient, NobodyThereIsUnavailable) {
  int port = 0;
  {
    HttpServer server(always({}));
    port = server.port();
  }
  HttpRequest request;
  request.url = cat("http://127.0.0.1:", port, "/");
  EXPECT_TRUE(throws_saying<Unavailable>([&] { fetch("Test", request); },
                                         {"Test [GET http://127.0.0.1:", "expected an answer"}));
}

TEST(HttpClient, AddressesAreHttpAndPrintable) {
  for (const char* bad :
       {"", "127.0.0.1/", "ftp://127.0.0.1/", "file:///etc/passwd", "http://127.0.0.1/a b",
        "http://127.0.0.1/a\r\nX: y", "http://user@127.0.0.1/"}) {
    HttpRequest request;
    request.url = bad;
    EXPECT_TRUE(throws_saying<InvalidArgument>([&] { fetch("Test", request); }, {"Test [URL]"}))
        << bad;
  }
}

TEST(HttpClient, ATokenLeavesThisMachineEncryptedOnly) {
  HttpRequest request;
  request.url = "http://metadata.invalid/";
  request.token = "secret-token";
  try {
    fetch("Test", request);
    FAIL() << "it was sent";
  } catch (const PermissionDenied& error) {
    EXPECT_EQ(std::string(error.what()).find("secret-token"), std::string::npos);
  }
  request.url = "http://127.0.0.1.invalid/";
  EXPECT_THROW(fetch("Test", request), PermissionDenied);
}

TEST(HttpClient, ATokenIsOneWord) {
  HttpServer server(always({}));
  HttpRequest request = to(server);
  request.token = "a\r\nX-Evil: b";
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { fetch("Test", request); }, {"Test [token]"}));
  EXPECT_TRUE(server.received().empty());
}

TEST(HttpClient, TheAuthorityGivenIsTrustedAndNoOther) {
  const Certificate certificate;
  HttpServer server(always({.body = "encrypted"}), &certificate, nullptr);
  HttpRequest request = to(server);
  EXPECT_TRUE(throws_saying<Unauthenticated>([&] { fetch("Test", request); }, {"certificate"}));
  request.tls.authority = Certificate().pem();
  EXPECT_TRUE(throws_saying<Unauthenticated>([&] { fetch("Test", request); }, {"certificate"}));
  EXPECT_TRUE(server.received().empty());
  request.tls.authority = certificate.pem();
  EXPECT_EQ(fetch("Test", request), "encrypted");
  request.tls = {.verify = false};
  EXPECT_EQ(fetch("Test", request), "encrypted");
}

TEST(HttpClient, ShowsItsOwnCertificate) {
  const Certificate certificate;
  const Certificate own;
  HttpServer server(always({.body = "known"}), &certificate, &own);
  HttpRequest request = to(server);
  request.attempts = 1;
  request.tls.authority = certificate.pem();
  EXPECT_THROW(fetch("Test", request), Error);
  request.tls.certificate = own.pem();
  request.tls.key = own.key_pem();
  EXPECT_EQ(fetch("Test", request), "known");
}

TEST(HttpClient, AnAnswerThatIsNoJsonIsUnavailable) {
  HttpServer server(always({.body = "<html>"}));
  EXPECT_TRUE(throws_saying<Unavailable>([&] { fetch_json("Test", to(server)); },
                                         {"Test http://127.0.0.1:", "[$]", "no JSON at byte 1"}));
}

TEST(HttpClient, AnAnswerThatIsTooDeepIsUnavailable) {
  HttpServer server(always({.body = std::string(1000000, '[')}));
  EXPECT_TRUE(throws_saying<Unavailable>([&] { fetch_json("Test", to(server)); }, {"64 levels"}));
}

TEST(HttpClient, WordsAreEncoded) {
  EXPECT_EQ(percent_encoded("job-name=a b/c?&\xc3\xa4~_."), "job-name%3Da%20b%2Fc%3F%26%C3%A4~_.");
}

}  // namespace
}  // namespace tutti::cluster
