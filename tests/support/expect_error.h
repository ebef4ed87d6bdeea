#pragma once
// Expectations on errors; no LibTorch.

#include <gtest/gtest.h>

#include <string>

#include "tutti/base/error.h"

/// `statement` throws `Class`, and its message contains `part`.
#define EXPECT_ERROR(statement, Class, part)                             \
  do {                                                                   \
    try {                                                                \
      statement;                                                         \
      ADD_FAILURE() << #statement " threw nothing";                      \
    } catch (const Class& error) {                                       \
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) \
          << "the message is " << error.what();                          \
    }                                                                    \
  } while (false)
