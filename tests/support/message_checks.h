#pragma once
// Expectations on exceptions and what they say.

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <typeinfo>

namespace tutti::testing {

/// What `function` throws is an ErrorType (and not another class), and its message has all `parts`.
template <class ErrorType, class Function>
::testing::AssertionResult throws_saying(Function&& function,
                                         std::initializer_list<const char*> parts) {
  std::string message;
  try {
    function();
    return ::testing::AssertionFailure() << "nothing was thrown";
  } catch (const ErrorType& error) {
    message = error.what();
  } catch (const std::exception& error) {
    return ::testing::AssertionFailure()
           << "threw " << typeid(error).name() << ": " << error.what();
  }
  for (const char* part : parts) {
    if (message.find(part) == std::string::npos) {
      return ::testing::AssertionFailure() << "\"" << message << "\" lacks \"" << part << "\"";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace tutti::testing
