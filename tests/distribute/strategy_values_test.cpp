// Taking nests apart for the replicas and putting results together. Numbers: spec/distribute.md, 7.

#include <gtest/gtest.h>

#include "support/message_checks.h"
#include "support/tensor_checks.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using testing::throws_saying;

template <class T>
std::vector<T> list(std::initializer_list<T> items) {
  return items;
}

TEST(StrategyValues, Spec16_RegroupKeepsTypesAndNesting) {
  using Item = std::tuple<std::vector<int>, std::map<std::string, std::pair<double, std::string>>>;
  const auto grouped =
      regroup(list<Item>({Item({1, 2}, {{"k", {0.5, "a"}}}), Item({3, 4}, {{"k", {1.5, "b"}}})}));
  static_assert(
      std::is_same_v<std::decay_t<decltype(grouped)>,
                     std::tuple<std::vector<PerReplica<int>>,
                                std::map<std::string,
                                         std::pair<PerReplica<double>, PerReplica<std::string>>>>>);
  EXPECT_EQ(std::get<0>(grouped)[1][0], 2);
  EXPECT_EQ(std::get<0>(grouped)[1][1], 4);
  EXPECT_EQ(std::get<1>(grouped).at("k").first[1], 1.5);
  EXPECT_EQ(std::get<1>(grouped).at("k").second[0], "a");
}

TEST(StrategyValues, Spec16_RunTimeNestsAreRegroupedToo) {
  const auto nest = [](float x) {
    return Nest::map(
        {{"a", at::scalar_tensor(x, at::kFloat)}, {"b", Nest::tuple({at::ones({1})})}});
  };
  const auto grouped = regroup(list<Nest>({nest(1), nest(2)}));
  EXPECT_EQ(grouped["a"].leaf()[1].item<float>(), 2);
  EXPECT_EQ(grouped["b"].kind(), NestKind::kTuple);
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        regroup(list<Nest>({nest(1), Nest(at::ones({}))}));
      },
      {"structures", "{a: *, b: (*,)}"}));
}

TEST(StrategyValues, Spec17_WhatIsTheSameOnAllReplicasIsAPerReplicaAllTheSame) {
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  const Tensor captured = at::ones({});
  const auto results = strategy.run([&] { return captured; });
  EXPECT_TRUE(results[0].is_same(captured));
  EXPECT_TRUE(results[1].is_same(captured));
}

TEST(StrategyValues, Spec17_AVariableThatAllReplicasReturnIsTheVariable) {
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  const Variable v(at::ones({})), w(at::ones({}));
  const Variable same = strategy.run([&] { return v; });
  EXPECT_TRUE(same.is_same(v));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        strategy.run(
            [&] { return get_replica_context()->replica_id_in_sync_group() == 0 ? v : w; });
      },
      {"regroup", "variables"}));
}

TEST(StrategyValues, Spec18_ListsAndMapsMustHaveOneShapeOnAllReplicas) {
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] {
        regroup(list<std::vector<int>>({{1}, {1, 2}}));
      },
      {"lists", "1", "2"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] {
        regroup(list<std::vector<int>>({{1}, {}}));
      },
      {"lists"}));
  using Map = std::map<std::string, int>;
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] {
        regroup(list<Map>({{{"a", 1}}, {{"b", 1}}}));
      },
      {"maps", "{a}", "{b}"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { regroup(std::vector<int>()); }, {"no values"}));
}

TEST(StrategyValues, Spec19_LeavesAreWrappedAsAskedFor) {
  const auto grouped = regroup<Mirrored>(list<std::pair<int, double>>({{1, 2.5}, {1, 2.5}}));
  static_assert(
      std::is_same_v<std::decay_t<decltype(grouped)>, std::pair<Mirrored<int>, Mirrored<double>>>);
}

TEST(StrategyValues, Spec20_SelectTakesTheComponentOfEveryDistributedLeaf) {
  const PerReplica<int> p(std::vector<int>{7, 8});
  const Mirrored<int> m(std::vector<int>{5, 6});
  const auto nest =
      std::tuple(p, std::vector{m}, std::string("plain"),
                 std::map<std::string, std::pair<PerReplica<int>, int>>{{"k", {p, 3}}});
  const auto part = select_replica(1, nest);
  EXPECT_EQ(std::get<0>(part), 8);
  EXPECT_EQ(std::get<1>(part)[0], 6);
  EXPECT_EQ(std::get<2>(part), "plain");
  EXPECT_EQ(std::get<3>(part).at("k"), (std::pair(8, 3)));
}

TEST(StrategyValues, Spec21_AMirroredValueIsTheValueInArithmeticAndComparisons) {
  const Mirrored<int> m(std::vector<int>{7, 8});
  EXPECT_EQ(m + 1, 8);
  EXPECT_EQ(1 - m, -6);
  EXPECT_EQ(m * 2, 14);
  EXPECT_EQ(15 / m, 2);
  EXPECT_EQ(m % 4, 3);
  EXPECT_EQ(-m, -7);
  EXPECT_EQ(~m, ~7);
  EXPECT_EQ(m & 3, 3);
  EXPECT_EQ(8 | m, 15);
  EXPECT_EQ(m ^ 1, 6);
  EXPECT_EQ(m << 1, 14);
  EXPECT_EQ(m >> 1, 3);
  EXPECT_TRUE(m == 7);
  EXPECT_TRUE(m != 8);
  EXPECT_TRUE(6 < m);
  EXPECT_TRUE(m <= 7);
  EXPECT_TRUE(m > 6);
  EXPECT_FALSE(m >= 8);
  EXPECT_FALSE(!m);
  EXPECT_EQ(m[1], 8) << "a subscript is a component here";
}

TEST(StrategyValues, Spec21_AMirroredTensorIsTheReplicasOwnInsideRun) {
  const Mirrored<Tensor> m(
      std::vector<Tensor>{at::scalar_tensor(7, at::kInt), at::scalar_tensor(8, at::kInt)});
  EXPECT_EQ((m + 1).item<int>(), 8);
  EXPECT_EQ((1 - m).item<int>(), -6);
  EXPECT_TRUE((m == 7).item<bool>());
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  const auto own = strategy.run([&] { return (m + 1).item<int>(); });
  EXPECT_EQ(own[0], 8);
  EXPECT_EQ(own[1], 9);
}

TEST(StrategyValues, APerReplicaStandsForAValueOnlyWhenThereIsOneReplica) {
  const PerReplica<int> two(std::vector<int>{7, 8});
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { static_cast<void>(static_cast<int>(two)); },
                                             {"2 components", "reduce"}));
  EXPECT_EQ(static_cast<int>(PerReplica<int>(std::vector<int>{7})), 7);
  EXPECT_TRUE(throws_saying<OutOfRange>([&] { two[2]; }, {"component 2"}));
}

TEST(StrategyValues, AllReduceTakesVectorsOfPairs) {
  MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  const auto sums = strategy.run([] {
    const std::vector<std::pair<Tensor, Tensor>> pairs{{at::ones({}), at::ones({2})}};
    return get_replica_context()->all_reduce("SUM", pairs);
  });
  EXPECT_EQ(sums[0].first[1].item<float>(), 2);
  EXPECT_TENSOR_EQ(sums[0].second[0], at::full({2}, 2.f));
}

}  // namespace
}  // namespace tutti::distribute
