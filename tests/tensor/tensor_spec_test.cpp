#include "tutti/tensor/tensor_spec.h"

#include "support/expect.h"

namespace tutti {
namespace {

using TextNest = NestOf<std::string>;

TEST(TensorSpec, PrintsAsTensorFlowDoes) {
  EXPECT_EQ(cat(TensorSpec{{-1, 28}, at::kFloat}), "TensorSpec(shape=(None, 28), dtype=float32)");
  EXPECT_EQ(TensorSpec::of(at::zeros({2}, at::kLong)).to_string(),
            "TensorSpec(shape=(2,), dtype=int64)");
  EXPECT_EQ(TensorSpec::of(at::scalar_tensor(1)).to_string(),
            "TensorSpec(shape=(), dtype=float32)");
  EXPECT_EQ((TensorSpec{{}, at::kInt, true}).to_string(),
            "TensorSpec(shape=<unknown>, dtype=int32)");
}

TEST(TensorSpec, OfAnUndefinedTensorIsAnError) {
  EXPECT_ERROR(TensorSpec::of(Tensor()), InvalidArgument, "TensorSpec::of: an undefined tensor");
}

TEST(TensorSpec, AcceptsWhatIsAsNarrowOrNarrower) {
  const TensorSpec wide{{-1, 3}, at::kFloat};
  const TensorSpec narrow{{2, 3}, at::kFloat};
  const TensorSpec any{{}, at::kFloat, true};
  EXPECT_TRUE(wide.accepts(narrow));
  EXPECT_TRUE(wide.accepts(wide));
  EXPECT_TRUE(any.accepts(wide));
  EXPECT_TRUE(any.accepts(any));
  EXPECT_FALSE(narrow.accepts(wide));
  EXPECT_FALSE(wide.accepts(any));
  EXPECT_FALSE(wide.accepts({{2, 4}, at::kFloat}));
  EXPECT_FALSE(wide.accepts({{3}, at::kFloat}));
  EXPECT_FALSE(wide.accepts({{2, 3}, at::kDouble}));
}

TEST(TensorSpec, RelaxedAcceptsBothAndNoMore) {
  const TensorSpec a{{2, 3}, at::kFloat};
  const TensorSpec b{{4, 3}, at::kFloat};
  EXPECT_EQ(a.relaxed_with(b), (TensorSpec{{-1, 3}, at::kFloat}));
  EXPECT_EQ(a.relaxed_with(a), a);
  EXPECT_EQ((TensorSpec{{-1, 3}, at::kFloat}).relaxed_with(a), (TensorSpec{{-1, 3}, at::kFloat}));
  const TensorSpec other_rank = a.relaxed_with({{3}, at::kFloat});
  EXPECT_TRUE(other_rank.unknown_rank);
  EXPECT_TRUE(other_rank.accepts(a));
}

TEST(TensorSpec, DtypesCannotBeRelaxed) {
  EXPECT_ERROR((TensorSpec{{2}, at::kFloat}).relaxed_with({{2}, at::kInt}), InvalidArgument,
               "TensorSpec: dtypes float32 and int32, expected one");
}

TEST(TensorSpec, IsStaticWhenEveryDimensionIsKnown) {
  EXPECT_TRUE((TensorSpec{{2, 0}, at::kFloat}).is_static());
  EXPECT_TRUE((TensorSpec{}).is_static());
  EXPECT_FALSE((TensorSpec{{2, -1}, at::kFloat}).is_static());
  EXPECT_FALSE((TensorSpec{{}, at::kFloat, true}).is_static());
}

TEST(DtypeName, IsTensorFlowsAndComesBack) {
  EXPECT_EQ(dtype_name(at::kFloat), "float32");
  EXPECT_EQ(dtype_name(at::kBFloat16), "bfloat16");
  for (at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,
                               at::kChar, at::kShort, at::kInt, at::kLong, at::kUInt16, at::kUInt32,
                               at::kUInt64, at::kBool, at::kComplexFloat, at::kComplexDouble}) {
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype) << dtype_name(dtype);
  }
}

TEST(DtypeName, UnknownNamesAreAnErrorThatListsTheKnown) {
  EXPECT_ERROR(dtype_from_name("float"), InvalidArgument, "dtype: \"float\", expected one of");
  EXPECT_ERROR(dtype_from_name("float"), InvalidArgument, "float32, float64");
}

TEST(SpecNest, PrintsOnOneLineUpTo80Columns) {
  const Nest element = Nest::map({{"x", at::zeros({2, 1})}, {"y", at::zeros({}, at::kLong)}});
  EXPECT_EQ(cat(spec_of(element)),
            "{'x': TensorSpec(shape=(2, 1), dtype=float32),\n"
            " 'y': TensorSpec(shape=(), dtype=int64)}");
  EXPECT_EQ(cat(spec_of(Nest::tuple({at::zeros({2})}))),
            "(TensorSpec(shape=(2,), dtype=float32),)");
  EXPECT_EQ(cat(SpecNest()), "None");
}

TEST(LayoutNestText, IsPythonsOnOneLine) {
  const auto text = [](const TextNest& nest) { return layout_nest_text(nest); };
  EXPECT_EQ(text(TextNest("a")), "a");
  EXPECT_EQ(text(TextNest::tuple({TextNest("a")})), "(a,)");
  EXPECT_EQ(text(TextNest::tuple({})), "()");
  EXPECT_EQ(text(TextNest::list({})), "[]");
  EXPECT_EQ(text(TextNest::map({})), "{}");
  EXPECT_EQ(text(TextNest::tuple({TextNest("a"), TextNest::list({TextNest("b"), TextNest()}),
                                  TextNest::map({{"k", TextNest("c")}})})),
            "(a, [b, None], {'k': c})");
}

TEST(LayoutNestText, AlignsComponentsBehindTheBracketAtEveryDepth) {
  const TextNest inner = TextNest::tuple({TextNest("bbbb"), TextNest("cccc")});
  const TextNest nest = TextNest::tuple({TextNest("aa"), TextNest::map({{"k", inner}})});
  EXPECT_EQ(layout_nest_text(nest, 24), "(aa,\n {'k': (bbbb, cccc)})");
  EXPECT_EQ(layout_nest_text(nest, 25), "(aa, {'k': (bbbb, cccc)})");
  EXPECT_EQ(layout_nest_text(nest, 15), "(aa,\n {'k': (bbbb,\n        cccc)})");
}

TEST(LayoutNestText, CountsWhatFollowsAComponent) {
  const TextNest pair = TextNest::tuple({TextNest("aaa"), TextNest("bbb")});
  const TextNest nest = TextNest::list({pair, pair});
  // "(aaa, bbb)" has 10 columns, with the bracket before and the comma or bracket behind it 12.
  EXPECT_EQ(layout_nest_text(nest, 12), "[(aaa, bbb),\n (aaa, bbb)]");
  EXPECT_EQ(layout_nest_text(nest, 11), "[(aaa,\n  bbb),\n (aaa,\n  bbb)]");
}

TEST(LayoutNestText, MovesLeavesOfSeveralLinesAsAWhole) {
  const TextNest leaf("P(a,\n  b)");
  EXPECT_EQ(layout_nest_text(leaf), "P(a,\n  b)");
  EXPECT_EQ(layout_nest_text(TextNest::tuple({leaf, leaf})), "(P(a,\n   b),\n P(a,\n   b))");
  EXPECT_EQ(layout_nest_text(TextNest::map({{"k", leaf}})), "{'k': P(a,\n        b)}");
}

}  // namespace
}  // namespace tutti
