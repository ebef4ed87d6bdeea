#include "tutti/tensor/nest.h"

#include "support/expect.h"
#include "tutti/tensor/static_nest.h"

namespace tutti {
namespace {

using Numbers = NestOf<int>;

Numbers example() {
  return Numbers::tuple({1, Numbers::map({{"b", 3}, {"a", 2}}), Numbers::list({4}), Numbers()});
}

TEST(Nest, StructureShowsEveryKind) {
  EXPECT_EQ(example().structure(), "(*, {a: *, b: *}, [*], None)");
  EXPECT_EQ(Numbers::tuple({1}).structure(), "(*,)");
  EXPECT_EQ(Numbers::tuple({}).structure(), "()");
  EXPECT_EQ(Numbers(7).structure(), "*");
  EXPECT_EQ(Numbers().structure(), "None");
}

TEST(Nest, FlattensDepthFirstAndMapsByKey) {
  EXPECT_EQ(flatten(example()), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(flatten(Numbers(7)), (std::vector<int>{7}));
  EXPECT_TRUE(flatten(Numbers()).empty());
}

TEST(Nest, MapLeavesKeepsTheStructure) {
  const auto halves = example().map_leaves([](int leaf) { return leaf / 2.0; });
  EXPECT_TRUE(same_structure(halves, example()));
  EXPECT_EQ(flatten(halves), (std::vector<double>{.5, 1, 1.5, 2}));
}

TEST(Nest, PackAsUndoesFlatten) {
  const auto packed = pack_as(example(), std::vector<std::string>{"p", "q", "r", "s"});
  EXPECT_TRUE(same_structure(packed, example()));
  EXPECT_EQ(packed[1]["b"].leaf(), "r");
  EXPECT_EQ(packed[3].kind(), NestKind::kNone);
}

TEST(Nest, PackAsRefusesAnotherNumberOfLeaves) {
  EXPECT_ERROR(pack_as(example(), std::vector<int>{1, 2, 3}), InvalidArgument,
               "pack_as: 3 leaves, expected more for (*, {a: *, b: *}, [*], None)");
  EXPECT_ERROR(pack_as(example(), std::vector<int>{1, 2, 3, 4, 5}), InvalidArgument,
               "pack_as: 5 leaves, expected 4 for (*");
}

TEST(Nest, SameStructureComparesKindsKeysAndSizes) {
  EXPECT_TRUE(same_structure(example(), example()));
  EXPECT_FALSE(same_structure(Numbers::tuple({1}), Numbers::list({1})));
  EXPECT_FALSE(same_structure(Numbers::tuple({1}), Numbers::tuple({1, 2})));
  EXPECT_FALSE(same_structure(Numbers::map({{"a", 1}}), Numbers::map({{"b", 1}})));
  EXPECT_FALSE(same_structure(Numbers(1), Numbers()));
  EXPECT_FALSE(same_structure(Numbers::tuple({1}), Numbers::tuple({Numbers::tuple({1})})));
}

TEST(Nest, IndexAndKeyLeadToChildren) {
  const Numbers nest = example();
  EXPECT_EQ(nest[0].leaf(), 1);
  EXPECT_EQ(nest[1]["a"].leaf(), 2);
  EXPECT_EQ(nest[1].keys(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(nest[2].size(), 1u);
  EXPECT_EQ(nest[0].size(), 0u);
}

TEST(Nest, WrongAccessNamesWhatIsThere) {
  const Numbers nest = example();
  EXPECT_ERROR(nest[4], OutOfRange, "nest: index 4, expected below 4 in (*, {");
  EXPECT_ERROR(nest[1]["c"], NotFound, "nest: key \"c\", expected one of a, b");
  EXPECT_ERROR(nest.leaf(), InvalidArgument, "nest: found (*, {a: *, b: *}, [*], None)");
  EXPECT_ERROR(Numbers().leaf(), InvalidArgument, "found None, expected a single leaf");
}

TEST(Nest, CopiesAreApart) {
  Numbers copy = example();
  copy.items()[0].leaf() = 9;
  EXPECT_EQ(copy[0].leaf(), 9);
  EXPECT_EQ(example()[0].leaf(), 1);
}

// What to_nest makes of `value` has `structure`, and from_nest gives the same leaves back.
template <class T>
void expect_round_trip(const T& value, const std::string& structure) {
  const Nest nest = to_nest(value);
  EXPECT_EQ(nest.structure(), structure);
  const Nest again = to_nest(from_nest<T>(nest));
  ASSERT_TRUE(same_structure(nest, again));
  const std::vector<Tensor> leaves = flatten(nest), others = flatten(again);
  for (std::size_t i = 0; i < leaves.size(); ++i) EXPECT_TRUE(leaves[i].is_same(others[i]));
}

TEST(StaticNest, RoundTripsThroughEveryKind) {
  const Tensor a = at::ones({1}), b = at::zeros({2}), c = at::full({3}, 2);
  expect_round_trip(a, "*");
  expect_round_trip(std::make_tuple(a, b, c), "(*, *, *)");
  expect_round_trip(std::make_tuple(a), "(*,)");
  expect_round_trip(std::tuple<>(), "()");
  expect_round_trip(std::make_pair(a, b), "(*, *)");
  expect_round_trip(std::vector<Tensor>{a, b}, "[*, *]");
  expect_round_trip(std::vector<Tensor>{}, "[]");
  expect_round_trip(std::map<std::string, Tensor>{{"y", a}, {"x", b}}, "{x: *, y: *}");
  expect_round_trip(Nest::list({a, Nest()}), "[*, None]");
}

TEST(StaticNest, RoundTripsToAnyDepth) {
  const Tensor a = at::ones({1}), b = at::zeros({2});
  using Inputs = std::map<std::string, std::vector<std::tuple<Tensor, Tensor>>>;
  const Inputs inputs{{"left", {{a, b}, {b, a}}}, {"right", {}}};
  expect_round_trip(std::make_tuple(inputs, std::make_pair(a, std::vector<Tensor>{b})),
                    "({left: [(*, *), (*, *)], right: []}, (*, [*]))");
}

TEST(StaticNest, AnotherStructureIsAnErrorThatShowsIt) {
  const Tensor a = at::ones({1});
  const Nest pair = Nest::tuple({a, a});
  using Three = std::tuple<Tensor, Tensor, Tensor>;
  EXPECT_ERROR(from_nest<Three>(pair), InvalidArgument,
               "element: found the structure (*, *), expected a tuple of 3");
  EXPECT_ERROR(from_nest<Three>(Nest::list({a, a, a})), InvalidArgument, "[*, *, *]");
  EXPECT_ERROR((from_nest<std::pair<Tensor, Tensor>>(Nest(a))), InvalidArgument,
               "found the structure *, expected a tuple of 2");
  EXPECT_ERROR(from_nest<std::vector<Tensor>>(pair), InvalidArgument, "expected a list");
  EXPECT_ERROR((from_nest<std::map<std::string, Tensor>>(pair)), InvalidArgument, "expected a map");
  EXPECT_ERROR(from_nest<Tensor>(pair), InvalidArgument, "found (*, *), expected a single leaf");
  EXPECT_ERROR((from_nest<std::tuple<Tensor, std::vector<Tensor>>>(pair)), InvalidArgument,
               "found the structure *, expected a list");
}

TEST(StaticNest, KnowsWhatMayBeAnElement) {
  static_assert(NestLike<Tensor>);
  static_assert(NestLike<std::tuple<Tensor, std::map<std::string, Tensor>>>);
  static_assert(!NestLike<int>);
}

}  // namespace
}  // namespace tutti
