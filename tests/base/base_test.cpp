#include <gtest/gtest.h>

#include <cstdlib>

#include "base/environment.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

TEST(Error, EachCodeThrowsItsOwnSubclass) {
  EXPECT_THROW(throw_error(ErrorCode::kInvalidArgument, "x"), InvalidArgument);
  EXPECT_THROW(throw_error(ErrorCode::kFailedPrecondition, "x"), FailedPrecondition);
  EXPECT_THROW(throw_error(ErrorCode::kOutOfRange, "x"), OutOfRange);
  EXPECT_THROW(throw_error(ErrorCode::kUnimplemented, "x"), Unimplemented);
  EXPECT_THROW(throw_error(ErrorCode::kNotFound, "x"), NotFound);
  EXPECT_THROW(throw_error(ErrorCode::kAlreadyExists, "x"), AlreadyExists);
  EXPECT_THROW(throw_error(ErrorCode::kPermissionDenied, "x"), PermissionDenied);
  EXPECT_THROW(throw_error(ErrorCode::kUnauthenticated, "x"), Unauthenticated);
  EXPECT_THROW(throw_error(ErrorCode::kResourceExhausted, "x"), ResourceExhausted);
  EXPECT_THROW(throw_error(ErrorCode::kUnavailable, "x"), Unavailable);
  EXPECT_THROW(throw_error(ErrorCode::kDeadlineExceeded, "x"), DeadlineExceeded);
  EXPECT_THROW(throw_error(ErrorCode::kAborted, "x"), Aborted);
  EXPECT_THROW(throw_error(ErrorCode::kCancelled, "x"), Cancelled);
  EXPECT_THROW(throw_error(ErrorCode::kDataLoss, "x"), DataLoss);
  EXPECT_THROW(throw_error(ErrorCode::kInternal, "x"), Internal);
}

TEST(Error, KeepsCodeAndMessageThroughTheBaseClass) {
  try {
    throw NotFound("open [a.txt]: no such file, expected one; create it");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_STREQ(error.what(), "open [a.txt]: no such file, expected one; create it");
    EXPECT_EQ(to_string(error.code()), "NOT_FOUND");
  }
}

TEST(Text, CatPrintsEveryArgument) { EXPECT_EQ(cat("a ", 1, ' ', 2.5), "a 1 2.5"); }

TEST(Text, ShapesLookLikePythonTuples) {
  EXPECT_EQ(shape_text(std::vector<int>{}), "()");
  EXPECT_EQ(shape_text(std::vector<int>{3}), "(3,)");
  EXPECT_EQ(shape_text(std::vector<int>{-1, 2}), "(None, 2)");
}

TEST(Text, SplitKeepsEmptyPieces) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (std::vector<std::string>{""}));
}

TEST(Text, JoinPutsTheSeparatorBetween) {
  EXPECT_EQ(join(std::vector<int>{1, 2, 3}, ", "), "1, 2, 3");
}

TEST(Environment, UnsetAndEmptyAreNothing) {
  unsetenv("TUTTI_TEST_VALUE");
  EXPECT_FALSE(environment("TUTTI_TEST_VALUE").has_value());
  setenv("TUTTI_TEST_VALUE", "", 1);
  EXPECT_FALSE(environment("TUTTI_TEST_VALUE").has_value());
}

TEST(Environment, NumbersAreCheckedWholeAndInRange) {
  setenv("TUTTI_TEST_VALUE", "7", 1);
  EXPECT_EQ(environment_int("TUTTI_TEST_VALUE", 1, 0, 10), 7);
  for (const char* bad : {"7x", "-1", "11", "1.5", "99999999999999999999"}) {
    setenv("TUTTI_TEST_VALUE", bad, 1);
    EXPECT_THROW(environment_int("TUTTI_TEST_VALUE", 1, 0, 10), InvalidArgument) << bad;
  }
  unsetenv("TUTTI_TEST_VALUE");
  EXPECT_EQ(environment_int("TUTTI_TEST_VALUE", 3, 0, 10), 3);
}

TEST(Environment, FlagsTakeTheUsualWordsAndRefuseOthers) {
  for (const char* yes : {"1", "true", "ON", "Yes"}) {
    setenv("TUTTI_TEST_VALUE", yes, 1);
    EXPECT_TRUE(environment_flag("TUTTI_TEST_VALUE")) << yes;
  }
  setenv("TUTTI_TEST_VALUE", "0", 1);
  EXPECT_FALSE(environment_flag("TUTTI_TEST_VALUE"));
  setenv("TUTTI_TEST_VALUE", "maybe", 1);
  EXPECT_THROW(environment_flag("TUTTI_TEST_VALUE"), InvalidArgument);
  unsetenv("TUTTI_TEST_VALUE");
}

TEST(Log, LinesBelowTheLevelAreDropped) {
  const LogLevel before = log_level();
  set_log_level(LogLevel::kError);
  testing::internal::CaptureStderr();
  log_warning("quiet");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  set_log_level(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  log_warning("loud ", 1);
  log_once(LogLevel::kWarning, "key", "once");
  log_once(LogLevel::kWarning, "key", "once");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[tutti warning] loud 1\n[tutti warning] once\n");
  set_log_level(before);
}

}  // namespace
}  // namespace tutti
