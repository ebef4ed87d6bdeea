// What TensorFlow's own tests of distributed datasets pin, by the numbers of the behaviours.

#include <algorithm>
#include <set>
#include <stdexcept>

#include "support/expect.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

std::unique_ptr<MirroredStrategy> mirrored(int replicas) {
  MirroredStrategyOptions options;
  for (int i = 0; i < replicas; ++i) options.devices.push_back(cat("cpu:", i));
  return std::make_unique<MirroredStrategy>(options);
}

using Numbers = std::vector<int64_t>;
using Step = std::vector<Numbers>;  // [replica][row]
using Steps = std::vector<Step>;

Numbers numbers_of(const Tensor& tensor) {
  const Tensor values = tensor.to(at::kLong).contiguous();
  return {values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + values.numel()};
}

Step step_of(const PerReplica<Tensor>& parts) {
  Step step;
  for (const Tensor& part : parts.values()) step.push_back(numbers_of(part));
  return step;
}

Steps steps_of(const DistributedDataset<Tensor>& dataset) {
  Steps steps;
  for (const auto& parts : dataset) steps.push_back(step_of(parts));
  return steps;
}

Numbers rows_of(const DistributedDataset<Tensor>& dataset) {
  Numbers rows;
  for (const Step& step : steps_of(dataset)) {
    for (const Numbers& part : step) rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

TEST(DistributedInput, Spec96_ReplicasDrawConsecutiveElementsOfAFunctionsDataset) {
  auto strategy = mirrored(2);
  EXPECT_EQ(steps_of(strategy->distribute_datasets_from_function(
                [](const InputContext&) { return data::range(10); })),
            (Steps{{{0}, {1}}, {{2}, {3}}, {{4}, {5}}, {{6}, {7}}, {{8}, {9}}}));
  auto pairs = strategy->distribute_datasets_from_function(
      [](const InputContext&) { return data::zip(data::range(4), data::range(10, 14)); });
  const auto [left, right] = pairs.iterator().get_next();
  EXPECT_EQ(step_of(left), (Step{{0}, {1}}));
  EXPECT_EQ(step_of(right), (Step{{10}, {11}}));
  using Inner = std::map<std::string, Tensor>;
  auto nested = strategy->distribute_datasets_from_function([](const InputContext&) {
    return data::range(4).map([](const Tensor& x) {
      return std::map<std::string, Inner>{{"b", Inner{{"c", x + 100}}}};
    });
  });
  EXPECT_EQ(step_of(nested.iterator().get_next().at("b").at("c")), (Step{{100}, {101}}));
}

TEST(DistributedInput, Spec97_AGlobalBatchIsCutInOrder) {
  auto strategy = mirrored(2);
  const Steps steps = steps_of(strategy->distribute_dataset(data::range(100).batch(10)));
  ASSERT_EQ(steps.size(), 10u);
  EXPECT_EQ(steps[3], (Step{{30, 31, 32, 33, 34}, {35, 36, 37, 38, 39}}));
}

TEST(DistributedInput, Spec98_ReplicasWithoutDataGetZeroRowsInTheLastStep) {
  auto strategy = mirrored(2);
  const auto of = [&](bool drop) {
    return steps_of(strategy->distribute_datasets_from_function(
        [&](const InputContext&) { return data::range(9).batch(2, {.drop_remainder = drop}); }));
  };
  EXPECT_EQ(of(false), (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}, {{8}, {}}}));
  EXPECT_EQ(of(true), (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}}));
}

TEST(DistributedInput, Spec101_TheSplitsOfTheDocumentation) {
  EXPECT_EQ(steps_of(mirrored(2)->distribute_dataset(data::range(6).batch(4))),
            (Steps{{{0, 1}, {2, 3}}, {{4}, {5}}}));
  EXPECT_EQ(steps_of(mirrored(5)->distribute_dataset(data::range(4).batch(4))),
            (Steps{{{0}, {1}, {2}, {3}, {}}}));
  EXPECT_EQ(steps_of(mirrored(3)->distribute_dataset(data::range(8).batch(4))),
            (Steps{{{0, 1}, {2, 3}, {}}, {{4, 5}, {6, 7}, {}}}));
}

TEST(DistributedInput, UserIssue24_ABatchThatDoesNotDivideIsSplitAsEvenlyAsPossible) {
  for (int replicas : {2, 3, 4}) {
    auto strategy = mirrored(replicas);
    for (int64_t batch : {1, 5, 7}) {
      const auto off = data::range(2 * batch).batch(batch).with_options(
          {.experimental_distribute = {.auto_shard_policy = data::AutoShardPolicy::kOff}});
      for (const Step& step : steps_of(strategy->distribute_dataset(off))) {
        const auto [least, most] = std::minmax_element(
            step.begin(), step.end(),
            [](const Numbers& a, const Numbers& b) { return a.size() < b.size(); });
        EXPECT_LE(most->size() - least->size(), 1u);
      }
    }
  }
}

TEST(DistributedInput, UserIssue25_PartsOfAStepAddUpToTheGlobalBatch) {
  for (int replicas : {1, 2, 3, 4}) {
    auto strategy = mirrored(replicas);
    for (int64_t batch : {1, 4, 6, 7}) {
      for (auto parts : strategy->distribute_dataset(data::range(3 * batch).batch(batch))) {
        auto rows =
            strategy->run([](const Tensor& part) { return at::tensor(part.size(0)); }, parts);
        EXPECT_EQ(strategy->reduce(ReduceOp::kSum, rows).item<int64_t>(), batch);
      }
    }
  }
}

TEST(DistributedInput, Spec104_AStepIsTakenOutsideReplicas) {
  auto strategy = mirrored(2);
  auto dataset = strategy->distribute_dataset(data::range(8).batch(4));
  auto iterator = dataset.iterator();
  EXPECT_ERROR(strategy->run([&] { iterator.get_next(); }), InvalidArgument, "before");
  EXPECT_ERROR(strategy->run([&] { iterator.get_next_as_optional(); }), InvalidArgument, "run");
  auto sums = strategy->run([](const Tensor& x) { return x.sum(); }, iterator.get_next());
  EXPECT_EQ(step_of(sums), (Step{{1}, {5}}));
}

TEST(DistributedInput, Spec105_ACachedDatasetIsTheSameInTheSecondPass) {
  auto strategy = mirrored(2);
  int made = 0;
  auto cached = strategy->distribute_dataset(data::range(6)
                                                 .map([&](const Tensor& x) {
                                                   ++made;
                                                   return x * 10;
                                                 })
                                                 .cache()
                                                 .batch(4));
  const Steps first = steps_of(cached);
  EXPECT_EQ(steps_of(cached), first);
  EXPECT_EQ(made, 6);
}

TEST(DistributedInput, Spec105_UserIssue28_AShuffleHasAnotherOrderInEveryPassUnlessToldNotTo) {
  auto strategy = mirrored(2);
  const auto shuffled = [&](bool reshuffle) {
    return strategy->distribute_dataset(
        data::range(32).shuffle(32, {.seed = 4, .reshuffle_each_iteration = reshuffle}).batch(8));
  };
  auto changing = shuffled(true);
  Numbers first = rows_of(changing);
  Numbers second = rows_of(changing);
  EXPECT_NE(first, second);
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
  auto fixed = shuffled(false);
  EXPECT_EQ(rows_of(fixed), rows_of(fixed));
}

TEST(DistributedInput, Spec106_TheBatchDimensionIsKnownOnlyWhenRestsAreDroppedAndItDivides) {
  auto strategy = mirrored(2);
  const auto spec = [&](int64_t batch, bool drop) {
    return flatten(strategy
                       ->distribute_dataset(data::from_tensor_slices(at::zeros({12, 3}))
                                                .batch(batch, {.drop_remainder = drop}))
                       .element_spec()
                       .replica_spec())[0]
        .shape;
  };
  EXPECT_EQ(spec(4, true), (Numbers{2, 3}));
  EXPECT_EQ(spec(4, false), (Numbers{-1, 3}));
  EXPECT_EQ(spec(3, true), (Numbers{-1, 3}));
}

TEST(DistributedInput, Spec107_TheIteratorHasTheSpecOfTheDataset) {
  auto two = mirrored(2)->distribute_dataset(data::range(8).batch(4));
  EXPECT_EQ(two.iterator().element_spec().to_string(), two.element_spec().to_string());
  EXPECT_EQ(two.element_spec().to_string(),
            "PerReplicaSpec(TensorSpec(shape=(None,), dtype=int64),\n"
            "               TensorSpec(shape=(None,), dtype=int64))");
  auto one = mirrored(1)->distribute_dataset(data::range(8).batch(4));
  EXPECT_EQ(one.iterator().element_spec().to_string(), "TensorSpec(shape=(None,), dtype=int64)");
}

TEST(DistributedInput, Spec108_TheOptionalIsEmptyAtTheEndAndStaysSo) {
  auto strategy = mirrored(2);
  auto iterator = strategy->distribute_dataset(data::range(2).batch(2)).iterator();
  EXPECT_EQ(step_of(*iterator.get_next_as_optional()), (Step{{0}, {1}}));
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(iterator.get_next_as_optional().has_value());
  EXPECT_ERROR(iterator.get_next(), OutOfRange, "end of the distributed dataset");
}

TEST(DistributedInput, Spec109_ALoopThatAddsSquaresIntoASumVariableGives285) {
  auto strategy = mirrored(2);
  auto scope = strategy->scope();
  Variable total(at::scalar_tensor(0.0), {.name = "total",
                                          .synchronization = VariableSynchronization::kOnRead,
                                          .aggregation = VariableAggregation::kSum});
  for (const auto& x : strategy->distribute_datasets_from_function(
           [](const InputContext&) { return data::range(10); })) {
    strategy->run([&](const Tensor& i) { total.assign_add((i * i).to(at::kFloat)); }, x);
  }
  EXPECT_EQ(total.read_value().item<double>(), 285);
}

TEST(DistributedInput, Spec110_EveryLoopStartsAgainAndStepsHaveTheirMeans) {
  auto strategy = mirrored(2);
  auto dataset = strategy->distribute_datasets_from_function([](const InputContext&) {
    return data::from_tensor_slices(at::tensor({5.0f, 6.0f, 7.0f, 8.0f})).batch(1);
  });
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<double> means;
    for (const auto& x : dataset)
      means.push_back(strategy->reduce(ReduceOp::kMean, x, std::vector<int64_t>{0}).item<double>());
    EXPECT_EQ(means, (std::vector<double>{5.5, 7.5}));
  }
}

TEST(DistributedInput, MeanOverAnAxisCountsTheRowsThatThereAre) {
  auto strategy = mirrored(4);
  for (const auto& x : strategy->distribute_dataset(data::range(1, 4).batch(4)))
    EXPECT_EQ(strategy->reduce(ReduceOp::kMean, x, std::vector<int64_t>{0}).item<double>(), 2);
}

TEST(DistributedInput, Spec113_AnEndlessDatasetGoesOnWithItsStaticShapes) {
  auto strategy = mirrored(2);
  auto dataset =
      strategy->distribute_dataset(data::range(5).repeat().batch(4, {.drop_remainder = true}));
  EXPECT_EQ(dataset.cardinality(), data::kInfinite);
  EXPECT_EQ(flatten(dataset.element_spec().replica_spec())[0].shape, (Numbers{2}));
  auto iterator = dataset.iterator();
  for (int step = 0; step < 50; ++step) EXPECT_EQ(step_of(iterator.get_next())[1].size(), 2u);
}

TEST(DistributedInput, Spec116_TheIteratorOutlivesAnErrorInsideAReplica) {
  auto strategy = mirrored(2);
  auto iterator = strategy->distribute_dataset(data::range(8).batch(4)).iterator();
  const auto refuse_three = [](const Tensor& x) {
    if ((x == 3).any().item<bool>()) throw InvalidArgument("step: found 3, expected no 3");
  };
  EXPECT_ERROR(strategy->run(refuse_three, iterator.get_next()), InvalidArgument, "found 3");
  auto step = iterator.get_next();
  strategy->run(refuse_three, step);
  EXPECT_EQ(step_of(step), (Step{{4, 5}, {6, 7}}));
}

TEST(DistributedInput, IteratorsOfOneDatasetAreIndependent) {
  auto strategy = mirrored(2);
  auto dataset = strategy->distribute_dataset(data::range(8).batch(4));
  auto a = dataset.iterator();
  auto b = dataset.iterator();
  a.get_next();
  EXPECT_EQ(step_of(a.get_next()), (Step{{4, 5}, {6, 7}}));
  EXPECT_EQ(step_of(b.get_next()), (Step{{0, 1}, {2, 3}}));
}

TEST(DistributedInput, AnIteratorOutlivesItsDatasetAndStrategy) {
  auto strategy = mirrored(2);
  auto iterator = strategy->distribute_dataset(data::range(8).batch(4)).iterator();
  strategy.reset();
  EXPECT_EQ(step_of(iterator.get_next()), (Step{{0, 1}, {2, 3}}));
}

TEST(DistributedInput, AnErrorOfTheDatasetTakesNoOtherElementWithIt) {
  auto strategy = mirrored(2);
  auto dataset = strategy->distribute_datasets_from_function([](const InputContext&) {
    return data::range(6).map([](const Tensor& x) {
      if (x.item<int64_t>() == 1) throw std::runtime_error("no one");
      return x;
    });
  });
  auto iterator = dataset.iterator();
  EXPECT_THROW(iterator.get_next(), std::runtime_error);
  EXPECT_EQ(step_of(iterator.get_next()), (Step{{0}, {2}}));
  EXPECT_EQ(step_of(iterator.get_next()), (Step{{3}, {4}}));
}

TEST(DistributedInput, ElementsWithoutABatchAxisThatDoNotFillAStepAreDroppedWithOneWarning) {
  auto strategy = mirrored(4);
  auto dataset = strategy->distribute_datasets_from_function(
      [](const InputContext&) { return data::range(6); });
  EXPECT_EQ(dataset.cardinality(), 1);
  ::testing::internal::CaptureStderr();
  for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(steps_of(dataset), (Steps{{{0}, {1}, {2}, {3}}}));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("last 2 are dropped"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST(DistributedInput, CardinalityIsTheNumberOfSteps) {
  for (int replicas : {1, 2, 3, 4}) {
    auto strategy = mirrored(replicas);
    for (int64_t count : {0, 5, 8, 12}) {
      const auto off = data::range(count).batch(3).with_options(
          {.experimental_distribute = {.auto_shard_policy = data::AutoShardPolicy::kOff}});
      for (const auto& dataset :
           {strategy->distribute_dataset(data::range(count).batch(3)),
            strategy->distribute_dataset(off),
            strategy->distribute_datasets_from_function(
                [&](const InputContext&) { return data::range(count).batch(3); })}) {
        EXPECT_EQ(dataset.cardinality(), static_cast<int64_t>(steps_of(dataset).size()));
      }
    }
    EXPECT_EQ(
        strategy
            ->distribute_dataset(data::range(9).batch(3).filter([](const Tensor&) { return true; }))
            .cardinality(),
        data::kUnknown);
  }
}

TEST(DistributedInput, UserIssue30_UnderOneProcessOffAndDataReadAllRowsAndDifferInTheLastPieces) {
  auto strategy = mirrored(2);
  const auto by = [&](data::AutoShardPolicy policy) {
    return steps_of(strategy->distribute_dataset(data::range(6).batch(4).with_options(
        {.experimental_distribute = {.auto_shard_policy = policy}})));
  };
  EXPECT_EQ(by(data::AutoShardPolicy::kData), (Steps{{{0, 1}, {2, 3}}, {{4}, {5}}}));
  EXPECT_EQ(by(data::AutoShardPolicy::kOff), (Steps{{{0, 1}, {2, 3}}, {{4, 5}, {}}}));
}

TEST(DistributedInput, UserIssue31_OneWorkerReadsWithoutAWarning) {
  auto strategy = mirrored(2);
  ::testing::internal::CaptureStderr();
  steps_of(strategy->distribute_dataset(data::range(7).batch(4)));
  steps_of(strategy->distribute_dataset(data::range(7).batch(4).shuffle(2)));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tutti::distribute
