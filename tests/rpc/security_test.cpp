#include "rpc/security.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "rpc/address.h"
#include "support/certificates.h"
#include "support/expect_error.h"

namespace tutti::rpc {
namespace {

const testing::Certificates& files() {
  static const testing::Certificates made;
  return made;
}

TEST(Address, ReadsHostsNamesAndBothKindsOfNumbers) {
  EXPECT_EQ(parse_address("host.example:80").host, "host.example");
  EXPECT_EQ(parse_address("127.0.0.1:0").port, 0);
  EXPECT_EQ(parse_address("[::1]:65535").host, "::1");
  EXPECT_EQ(to_string(parse_address("[::1]:65535")), "[::1]:65535");
}

TEST(Address, RefusesWhatIsNoAddress) {
  for (const char* text :
       {"", "host", "host:", ":80", "host:65536", "host:-1", "host:80x", "host: 80", "::1:80",
        "http://host:80", "ho st:80", "[]:80", "[::1:80"}) {
    EXPECT_ERROR(parse_address(text), InvalidArgument, "expected host:port");
  }
}

TEST(CheckSecurity, LoopbackNeedsNothing) {
  for (const char* address : {"127.0.0.1:0", "localhost:1", "[::1]:1"})
    check_security("listen", address, {});
}

TEST(CheckSecurity, OffLoopbackBothTlsAndATokenAreRequired) {
  for (const char* address : {"0.0.0.0:1", "[::]:1", "host:1", "10.0.0.1:1", "127.0.0.2:1"}) {
    EXPECT_ERROR(check_security("listen", address, {}), FailedPrecondition,
                 "without TLS and a token");
    Security security = files().security();
    check_security("listen", address, security);
    security.token_file = "";
    EXPECT_ERROR(check_security("listen", address, security), FailedPrecondition,
                 "without a token");
    EXPECT_ERROR(check_security("listen", address, {.token_file = files().path("token")}),
                 FailedPrecondition, "without TLS");
  }
}

TEST(CheckSecurity, HalfOfTlsIsAMistakeAlsoOnLoopback) {
  Security security = files().security();
  security.key_file = "";
  EXPECT_ERROR(check_security("listen", "127.0.0.1:1", security), InvalidArgument,
               "all three files of TLS or none");
}

TEST(SecretFile, IsReadOnlyWhenNoOneElseMay) {
  const std::string path = files().token("mine", "0123456789abcdef\n");
  EXPECT_EQ(read_secret_file(path), "0123456789abcdef\n");
  for (const mode_t mode : {0640, 0604, 0620, 0644, 0666}) {
    ::chmod(path.c_str(), mode);
    EXPECT_ERROR(read_secret_file(path), PermissionDenied, "expected 0600");
  }
  EXPECT_ERROR(read_secret_file(files().path("")), PermissionDenied, "not a plain file");
  EXPECT_ERROR(read_secret_file(files().path("nowhere")), NotFound, "No such file");
}

TEST(TokenFile, ShowsTheFirstAndTakesBoth) {
  TokenFile file(files().token("two", "the-new-token-0123\n\nthe-old-token-0123\n"));
  EXPECT_EQ(file.shown(), "the-new-token-0123");
  EXPECT_TRUE(file.accepts("the-new-token-0123"));
  EXPECT_TRUE(file.accepts("the-old-token-0123"));
  for (const char* token : {"", "the-new-token-012", "the-new-token-01234", "the-new-token-0124",
                            "the-new-token-0123the-new-token-0123"}) {
    EXPECT_FALSE(file.accepts(token)) << token;
  }
}

TEST(TokenFile, RefusesContentsThatAreNoTokensAndDoesNotShowThem) {
  EXPECT_ERROR(TokenFile(files().token("bad", "")), InvalidArgument, "0 tokens");
  EXPECT_ERROR(TokenFile(files().token("bad", "short-one\n")), InvalidArgument,
               "line 1 has 9 characters, expected 16 to 4096");
  EXPECT_ERROR(TokenFile(files().token("bad", "a token with spaces\n")), InvalidArgument,
               "not visible ASCII");
  EXPECT_ERROR(
      TokenFile(files().token("bad", "0123456789abcdef\n0123456789abcdeg\n0123456789abcdeh\n")),
      InvalidArgument, "3 tokens, expected 1, or 2");
  try {
    TokenFile(files().token("bad", "secret-sec\n"));
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("secret-sec"), std::string::npos) << error.what();
  }
}

TEST(TokenFile, IsReadAnewWhenItChangesAndKeepsTheOldWhenItCannotBe) {
  const std::string path = files().token("rotating", "the-old-token-0123\n");
  TokenFile file(path);
  files().token("rotating", "the-new-token-01234\nthe-old-token-0123\n");
  EXPECT_TRUE(file.accepts("the-new-token-01234"));
  EXPECT_TRUE(file.accepts("the-old-token-0123"));
  files().token("rotating", "the-new-token-01234\n");
  EXPECT_FALSE(file.accepts("the-old-token-0123"));
  ::chmod(path.c_str(), 0644);
  EXPECT_TRUE(file.accepts("the-new-token-01234"));
  std::filesystem::remove(path);
  EXPECT_EQ(file.shown(), "the-new-token-01234");
}

}  // namespace
}  // namespace tutti::rpc
