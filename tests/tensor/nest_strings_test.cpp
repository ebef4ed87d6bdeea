// Strings and objects in nests, their specs and how they print.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support/expect.h"
#include "tutti/tensor/static_nest.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti {
namespace {

Nest labelled() {
  return Nest::map(
      {{"text", StringTensor({"a", "b", "c", "d"}, {2, 2})}, {"x", at::zeros({2, 3})}});
}

TEST(NestStrings, HaveTheDtypeStringInASpec) {
  EXPECT_EQ(cat(spec_of(labelled())),
            "{'text': TensorSpec(shape=(2, 2), dtype=string),\n"
            " 'x': TensorSpec(shape=(2, 3), dtype=float32)}");
  EXPECT_EQ(dtype_name(kString), "string");
  EXPECT_EQ(dtype_from_name("string"), kString);
  EXPECT_TRUE((TensorSpec{{-1, 2}, kString}.accepts(TensorSpec::of(labelled()["text"].strings()))));
  EXPECT_FALSE((TensorSpec{{-1, 2}, at::kLong}.accepts(TensorSpec{{1, 2}, kString})));
}

TEST(NestStrings, AreMappedByAFunctionOfTheirOwn) {
  const Nest second = labelled().map_components([](const Tensor& x) { return x[1]; },
                                                [](const StringTensor& s) { return s[1]; });
  EXPECT_EQ(second["text"].strings(), (StringTensor{"c", "d"}));
  EXPECT_EQ(second["x"].leaf().dim(), 1);
  EXPECT_EQ(flatten(labelled()).size(), 1);
  EXPECT_EQ(flatten_strings(labelled()).size(), 1);
}

TEST(NestStrings, AreWhatAStringIsAsAnElement) {
  EXPECT_EQ(to_nest(std::string("ab")).strings(), StringTensor("ab"));
  EXPECT_EQ(from_nest<std::string>(Nest(StringTensor("ab"))), "ab");
  EXPECT_ERROR(from_nest<std::string>(Nest(StringTensor{"a", "b"})), InvalidArgument, "2 strings");
  EXPECT_ERROR(from_nest<std::string>(Nest(at::zeros({1}))), InvalidArgument, "expected strings");
}

TEST(NestText, ShowsEveryComponent) {
  EXPECT_EQ(to_string(Nest(at::scalar_tensor(1, at::kLong))), "Tensor(1, shape=(), dtype=int64)");
  EXPECT_EQ(to_string(Nest::tuple({StringTensor("a")})), "(Tensor(b'a', shape=(), dtype=string),)");
  EXPECT_EQ(to_string(labelled()),
            "{'text': Tensor(\n"
            "         [[b'a' b'b']\n"
            "          [b'c' b'd']], shape=(2, 2), dtype=string),\n"
            " 'x': Tensor(\n"
            "      [[0. 0. 0.]\n"
            "       [0. 0. 0.]], shape=(2, 3), dtype=float32)}");
}

class Thing : public NestObject {
 public:
  std::string nest_text() const override { return "thing"; }
  NestObjectPtr nest_spec() const override { return std::make_shared<Thing>(); }
};

TEST(NestObjects, StandBesideTensors) {
  const Nest nest = Nest::tuple({at::zeros({1}), Nest(NestObjectPtr(std::make_shared<Thing>()))});
  EXPECT_EQ(nest.structure(), "(*, thing)");
  EXPECT_EQ(cat(spec_of(nest)), "(TensorSpec(shape=(1,), dtype=float32), thing)");
  EXPECT_EQ(flatten(nest).size(), 1);
  EXPECT_EQ(nest.map_leaves([](const Tensor& x) { return x + 1; }).structure(), "(*, thing)");
  EXPECT_ERROR(nest[0].object(), InvalidArgument, "expected a dataset");
}

}  // namespace
}  // namespace tutti
