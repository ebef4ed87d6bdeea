#include "tutti/io/example.h"

#include <algorithm>

#include "support/expect.h"
#include "support/hex.h"
#include "support/temporary_folder.h"
#include "tutti/io/parsing.h"

namespace tutti::train {
namespace {

using testing::from_hex;
using testing::to_hex;

Example small_example() {
  return Example(
      {{"a", Int64List{{1, 2, 300}}}, {"b", FloatList{{1.5F}}}, {"c", BytesList{{"xy"}}}});
}

TEST(Examples, AreTensorFlowsBytes) {
  EXPECT_EQ(
      to_hex(small_example().serialize()),
      "0a2b0a0d0a016112081a060a040102ac020a0d0a0162120812060a040000c03f0a0b0a016312060a040a027879");
  EXPECT_EQ(to_hex(Example({{"n", Int64List{{-1}}}}).serialize()),
            "0a150a130a016e120e1a0c0a0affffffffffffffffff01");
  EXPECT_EQ(Example::parse(small_example().serialize()), small_example());
}

TEST(Examples, AreReadInAnyOrderAndUnpacked) {
  // {"b": int64 [1, 2], one by one}, then {"a": float [1.5], unpacked}.
  const Example example =
      Example::parse(from_hex("0a1d"
                              "0a0b"
                              "0a0162"
                              "12061a0408010802"
                              "0a0e"
                              "0a0161"
                              "1209"
                              "1207"
                              "0d0000c03f"
                              "2801"));
  EXPECT_EQ(example.features.feature.at("b"), Feature(Int64List{{1, 2}}));
  EXPECT_EQ(example.features.feature.at("a"), Feature(FloatList{{1.5F}}));
}

TEST(Examples, KeepTheLastOfTwoFeaturesOfOneName) {
  const std::string first = Example({{"k", Int64List{{1}}}}).serialize();
  const std::string second = Example({{"k", BytesList{{"x"}}}}).serialize();
  EXPECT_EQ(Example::parse(first + second), Example({{"k", BytesList{{"x"}}}}));
}

TEST(Examples, MayHaveFeaturesWithoutAListAndEmptyLists) {
  const Example example({{"empty", Int64List{}}, {"none", Feature()}});
  const Example read = Example::parse(example.serialize());
  EXPECT_EQ(read, example);
  EXPECT_TRUE(read.features.feature.at("empty").has_int64_list());
  EXPECT_FALSE(read.features.feature.at("none").has_int64_list());
}

TEST(Examples, OfAnotherKindThanAskedForAreRefused) {
  EXPECT_ERROR(Feature(Int64List{{1}}).float_list(), InvalidArgument,
               "a int64 list, expected a float list");
  EXPECT_ERROR(Example::parse("\x0a\x7f"), InvalidArgument, "no such message");
}

TEST(Examples, WithPartsAreSequenceExamples) {
  SequenceExample example;
  example.context.feature.emplace("id", Int64List{{7}});
  example.feature_lists.feature_list.emplace(
      "words", FeatureList{{BytesList{{"a"}}, BytesList{{"b", "c"}}, BytesList{}}});
  EXPECT_EQ(to_hex(example.serialize()),
            "0a0d0a0b0a02696412051a030a0107"
            "12200a1e0a05776f72647312150a050a030a01610a080a060a01620a01630a020a00");
  EXPECT_EQ(SequenceExample::parse(example.serialize()), example);
}

// --- as tensors ------------------------------------------------------------------------------

using namespace tutti::io;  // NOLINT: what parses is the subject

Example record(int64_t id, std::vector<int64_t> tags) {
  return Example({{"id", Int64List{{id}}},
                  {"name", BytesList{{cat("n", id)}}},
                  {"x", FloatList{{0.5F * static_cast<float>(id), -1}}},
                  {"tags", Int64List{std::move(tags)}}});
}

const FeatureConfigs kConfigs{{"id", FixedLenFeature{{}, at::kLong}},
                              {"name", FixedLenFeature{{}, kString}},
                              {"x", FixedLenFeature{{2}, at::kFloat}},
                              {"tags", VarLenFeature{at::kLong}}};

TEST(ParseSingleExample, GivesATensorOfEachFeature) {
  const Nest parsed = parse_single_example(record(3, {4, 5}).serialize(), kConfigs);
  EXPECT_EQ(parsed["id"].leaf().item<int64_t>(), 3);
  EXPECT_EQ(parsed["id"].leaf().dim(), 0);
  EXPECT_EQ(parsed["name"].strings().item(), "n3");
  EXPECT_TENSOR_EQ(parsed["x"].leaf(), at::tensor({1.5F, -1.0F}));
  EXPECT_TENSOR_EQ(parsed["tags"].leaf(), at::tensor({4, 5}));
  EXPECT_EQ(parsed["tags"].leaf().scalar_type(), at::kLong);
}

TEST(ParseExample, StacksRecordsAndKeepsListsRagged) {
  const Nest parsed = parse_example(
      {record(1, {7}).serialize(), record(2, {}).serialize(), record(3, {8, 9}).serialize()},
      kConfigs);
  EXPECT_TENSOR_EQ(parsed["id"].leaf(), at::tensor({1, 2, 3}));
  EXPECT_EQ(parsed["name"].strings(), (StringTensor{"n1", "n2", "n3"}));
  EXPECT_TENSOR_EQ(parsed["x"].leaf(),
                   at::tensor({0.5F, -1.0F, 1.0F, -1.0F, 1.5F, -1.0F}).reshape({3, 2}));
  EXPECT_TENSOR_EQ(parsed["tags"]["values"].leaf(), at::tensor({7, 8, 9}));
  EXPECT_TENSOR_EQ(parsed["tags"]["row_splits"].leaf(), at::tensor({0, 1, 1, 3}));
  EXPECT_TENSOR_EQ(ragged_to_dense(parsed["tags"]).leaf(),
                   at::tensor({7, 0, 0, 0, 8, 9}).reshape({3, 2}));
  EXPECT_TENSOR_EQ(ragged_to_dense(parsed["tags"], at::tensor(-1, at::kLong)).leaf(),
                   at::tensor({7, -1, -1, -1, 8, 9}).reshape({3, 2}));
}

TEST(ParseExample, FillsInDefaults) {
  const std::string empty = Example().serialize();
  const Nest parsed = parse_example(
      {empty, empty}, {{"n", FixedLenFeature{{2}, at::kLong, at::tensor({-1, -2})}},
                       {"s", FixedLenFeature{{}, kString, StringTensor(std::string("none"))}},
                       {"list", FixedLenSequenceFeature{{}, at::kFloat, /*allow_missing=*/true}},
                       {"var", VarLenFeature{kString}}});
  EXPECT_TENSOR_EQ(parsed["n"].leaf(), at::tensor({-1, -2, -1, -2}).reshape({2, 2}));
  EXPECT_EQ(parsed["s"].strings(), (StringTensor{"none", "none"}));
  EXPECT_EQ(parsed["list"].leaf().sizes().vec(), (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(parsed["var"]["values"].strings().numel(), 0);
}

TEST(ParseExample, FillsUpSequences) {
  const std::string two = Example({{"v", FloatList{{1, 2, 3, 4}}}}).serialize();
  const std::string one = Example({{"v", FloatList{{5, 6}}}}).serialize();
  const FixedLenSequenceFeature pairs{{2}, at::kFloat, true, at::tensor(-1.0F)};
  const Nest parsed = parse_example({two, one}, {{"v", pairs}});
  EXPECT_TENSOR_EQ(
      parsed["v"].leaf(),
      at::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F, -1.0F, -1.0F}).reshape({2, 2, 2}));
  EXPECT_TENSOR_EQ(parse_single_example(one, {{"v", pairs}})["v"].leaf(),
                   at::tensor({5.0F, 6.0F}).reshape({1, 2}));
}

TEST(ParseExample, ReadsARaggedFeatureByItsValueKey) {
  const Nest parsed =
      parse_example({record(1, {7, 8}).serialize()}, {{"t", RaggedFeature{at::kLong, "tags"}}});
  EXPECT_TENSOR_EQ(parsed["t"]["values"].leaf(), at::tensor({7, 8}));
}

TEST(ParseExample, NamesTheFeatureThatIsWrong) {
  const std::string good = record(1, {}).serialize();
  const auto parse = [&](const FeatureConfigs& configs) { parse_example({good}, configs); };
  EXPECT_ERROR(parse({{"nope", FixedLenFeature{{}, at::kLong}}}), InvalidArgument,
               "parse_example [record 0, feature \"nope\"]: it is required but could not be found");
  EXPECT_ERROR(parse({{"id", FixedLenFeature{{}, at::kFloat}}}), InvalidArgument,
               "feature \"id\"]: data types do not match: int64 values, expected float32");
  EXPECT_ERROR(parse({{"x", FixedLenFeature{{3}, at::kFloat}}}), InvalidArgument,
               "feature \"x\"]: the number of float32 values is 2, expected 3");
  EXPECT_ERROR(parse({{"id", FixedLenFeature{{}, at::kInt}}}), InvalidArgument,
               "[feature \"id\"]: dtype int32, expected float32, int64 or string");
  EXPECT_ERROR(parse({{"id", FixedLenFeature{{2}, at::kLong, at::tensor({1})}}}), InvalidArgument,
               "a default_value of 1 values, expected 2");
  EXPECT_ERROR(parse({{"id", FixedLenFeature{{-1}, at::kLong}}}), InvalidArgument,
               "expected sizes that are known");
  EXPECT_ERROR(parse({{"x", FixedLenSequenceFeature{{3}, at::kFloat, true}}}), InvalidArgument,
               "a multiple of 3");
  EXPECT_ERROR(parse({{"no", FixedLenSequenceFeature{{}, at::kFloat}}}), InvalidArgument,
               "allow_missing");
  EXPECT_ERROR(parse_example({good, "\xff"}, {}), InvalidArgument, "[record 1]: 1 bytes");
  EXPECT_ERROR(parse_example(StringTensor(good), {}), InvalidArgument, "expected a vector");
}

TEST(ParseSingleSequenceExample, GivesContextAndParts) {
  SequenceExample example;
  example.context.feature.emplace("id", Int64List{{7}});
  auto& lists = example.feature_lists.feature_list;
  lists["point"] = {{FloatList{{1, 2}}, FloatList{{3, 4}}, FloatList{{5, 6}}}};
  lists["words"] = {{BytesList{{"a"}}, BytesList{}, BytesList{{"b", "c"}}}};
  const auto [context, parts] =
      parse_single_sequence_example(example.serialize(), {{"id", FixedLenFeature{{}, at::kLong}}},
                                    {{"point", FixedLenSequenceFeature{{2}, at::kFloat}},
                                     {"words", VarLenFeature{kString}},
                                     {"missing", FixedLenSequenceFeature{{}, at::kLong, true}}});
  EXPECT_EQ(context["id"].leaf().item<int64_t>(), 7);
  EXPECT_TENSOR_EQ(parts["point"].leaf(),
                   at::tensor({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}).reshape({3, 2}));
  EXPECT_EQ(parts["words"]["values"].strings(), (StringTensor{"a", "b", "c"}));
  EXPECT_TENSOR_EQ(parts["words"]["row_splits"].leaf(), at::tensor({0, 1, 1, 3}));
  EXPECT_EQ(parts["missing"].leaf().sizes().vec(), (std::vector<int64_t>{0}));
  EXPECT_ERROR(parse_single_sequence_example(example.serialize(), {},
                                             {{"no", FixedLenSequenceFeature{{}, at::kLong}}}),
               InvalidArgument, "feature \"no\"]: it is required");
  EXPECT_ERROR(parse_single_sequence_example(example.serialize(), {},
                                             {{"point", FixedLenSequenceFeature{{3}, at::kFloat}}}),
               InvalidArgument, "feature \"point\"]: the number of float32 values is 2");
}

class DamagedExamples : public testing::TemporaryFolder {};

TEST_F(DamagedExamples, AreParsedOrRefusedButNothingElse) {
  const std::string whole = record(3, {4, -5}).serialize();
  int refused = 0;
  for_each_damage(whole, [&](const std::string& damaged, const std::string& what) {
    SCOPED_TRACE(what);
    try {
      const Example example = Example::parse(damaged);
      const std::string bytes = example.serialize();  // which may hold NaNs
      EXPECT_EQ(Example::parse(bytes).serialize(), bytes);
    } catch (const InvalidArgument&) {
      ++refused;
    }
    try {
      const Nest parsed = parse_example({damaged, whole}, kConfigs);
      EXPECT_EQ(parsed["id"].leaf().numel(), 2);
      EXPECT_EQ(parsed["x"].leaf().numel(), 4);
    } catch (const InvalidArgument&) {
      ++refused;
    }
  });
  EXPECT_GT(refused, static_cast<int>(whole.size()));
}

TEST_F(DamagedExamples, OfSequencesAreParsedOrRefusedButNothingElse) {
  SequenceExample example;
  example.context.feature.emplace("id", Int64List{{7}});
  example.feature_lists.feature_list["v"] = {{FloatList{{1}}, FloatList{{2}}}};
  int refused = 0;
  for_each_damage(example.serialize(), [&](const std::string& damaged, const std::string& what) {
    SCOPED_TRACE(what);
    try {
      const SequenceExample read = SequenceExample::parse(damaged);
      const std::string bytes = read.serialize();
      EXPECT_EQ(SequenceExample::parse(bytes).serialize(), bytes);
      parse_single_sequence_example(damaged, {{"id", FixedLenFeature{{}, at::kLong}}},
                                    {{"v", FixedLenSequenceFeature{{}, at::kFloat}}});
    } catch (const InvalidArgument&) {
      ++refused;
    }
  });
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace tutti::train
