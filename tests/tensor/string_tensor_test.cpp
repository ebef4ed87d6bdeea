#include "tutti/tensor/string_tensor.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"

namespace tutti {
namespace {

TEST(StringTensors, RowsAndReshapesShareTheStrings) {
  const StringTensor strings({"a", "b", "c", "d"}, {2, 2});
  EXPECT_EQ(strings[1], (StringTensor{"c", "d"}));
  EXPECT_EQ(strings[-1].values().data(), strings.values().data() + 2);
  EXPECT_EQ(strings.reshape({-1}), (StringTensor{"a", "b", "c", "d"}));
  EXPECT_EQ(strings.narrow(1, 1).sizes(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(strings[0][1].item(), "b");
}

TEST(StringTensors, AreJoinedAlongANewOrTheFirstAxis) {
  const StringTensor rows = StringTensor::stack({StringTensor{"a", "b"}, StringTensor{"c", "d"}});
  EXPECT_EQ(rows, StringTensor({"a", "b", "c", "d"}, {2, 2}));
  EXPECT_EQ(StringTensor::cat({rows, rows.narrow(0, 1)}).sizes(), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(rows.index_select({1, 1, 0})[2], (StringTensor{"a", "b"}));
}

TEST(StringTensors, PrintAsNumPyPrintsBytes) {
  EXPECT_EQ(to_string(StringTensor(std::string("it's\x01\n"))), "b'it\\'s\\x01\\n'");
  EXPECT_EQ(to_string(StringTensor{"a", "b"}), "[b'a' b'b']");
  EXPECT_EQ(to_string(StringTensor({"a", "b"}, {2, 1})), "[[b'a']\n [b'b']]");
}

TEST(StringTensors, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(StringTensor({"a"}, {2}), InvalidArgument);
  EXPECT_THROW(StringTensor({"a"}, {-1}), InvalidArgument);
  EXPECT_THROW((StringTensor{"a", "b"}).item(), InvalidArgument);
  EXPECT_THROW((StringTensor{"a"})[1], OutOfRange);
  EXPECT_THROW(StringTensor("a")[0], InvalidArgument);
  EXPECT_THROW((StringTensor{"a"}).narrow(0, 2), OutOfRange);
  EXPECT_THROW((StringTensor{"a"}).reshape({2}), InvalidArgument);
  EXPECT_THROW(StringTensor::stack({StringTensor{"a"}, StringTensor{"b", "c"}}), InvalidArgument);
  EXPECT_THROW(StringTensor::cat({}), InvalidArgument);
}

}  // namespace
}  // namespace tutti
