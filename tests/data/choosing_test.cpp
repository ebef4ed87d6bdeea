// sample_from_datasets, choose_from_datasets, rejection_resample.

#include "data/elements.h"
#include "tutti/base/seed.h"

namespace tutti::data {
namespace {

int64_t parity(const Tensor& x) { return x.item<int64_t>() % 2; }
Dataset<Tensor> of(const Numbers& values) { return from_tensor_slices(at::tensor(values)); }

TEST(SampleFromDatasets, GivesEveryElementInTheOrderOfItsDataset) {
  const auto mixed = sample_from_datasets<Tensor>({range(50), range(100, 150)}, {.seed = 4});
  EXPECT_EQ(mixed.cardinality(), 100);
  Numbers small, large;
  for (int64_t x : numbers(mixed)) (x < 100 ? small : large).push_back(x);
  EXPECT_EQ(small, numbers(range(50)));
  EXPECT_EQ(large, numbers(range(100, 150)));
}

TEST(SampleFromDatasets, DrawsAsTheWeightsSay) {
  const auto mixed = sample_from_datasets<Tensor>(
      {from_tensors(at::scalar_tensor(0)).repeat(), from_tensors(at::scalar_tensor(1)).repeat()},
      {.weights = {3, 1}, .seed = 4});
  EXPECT_EQ(mixed.cardinality(), kInfinite);
  int64_t ones = 0;
  for (int64_t x : numbers(mixed.take(4000))) ones += x;
  EXPECT_NEAR(static_cast<double>(ones), 1000, 120);  // 4.4 standard deviations
}

TEST(SampleFromDatasets, RepeatsItsOrderUnlessToldOtherwise) {
  const auto sampled = [](bool rerandomize) {
    return sample_from_datasets<Tensor>({range(30), range(100, 130)},
                                        {.seed = 4, .rerandomize_each_iteration = rerandomize});
  };
  const auto fixed = sampled(false);
  const auto fresh = sampled(true);
  EXPECT_EQ(numbers(fixed), numbers(fixed));
  const Numbers first = numbers(fresh);
  EXPECT_NE(numbers(fresh), first);
  EXPECT_EQ(numbers(sampled(true)), first) << "a new run of the program repeats both";
}

TEST(SampleFromDatasets, StopsAtTheFirstEndWhenAsked) {
  const auto stopping = sample_from_datasets<Tensor>({range(3), range(100, 1000)},
                                                     {.seed = 4, .stop_on_empty_dataset = true});
  EXPECT_EQ(stopping.cardinality(), kUnknown);
  const Numbers all = numbers(stopping);
  EXPECT_LT(all.size(), 100);
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](int64_t x) { return x < 3; }), 3);
}

TEST(SampleFromDatasets, LeavesOutWhatHasNoWeight) {
  const auto one = sample_from_datasets<Tensor>({range(3), range(10, 13)}, {.weights = {1, 0}});
  EXPECT_EQ(numbers(one), (Numbers{0, 1, 2}));
  EXPECT_EQ(one.cardinality(), 3);
}

TEST(SampleFromDatasets, RefusesWeightsAndDatasetsThatDoNotFit) {
  const std::vector<Dataset<Tensor>> two{range(3), range(3)};
  EXPECT_ERROR(sample_from_datasets(two, {.weights = {1}}), InvalidArgument, "1 weights for 2");
  EXPECT_ERROR(sample_from_datasets(two, {.weights = {1, -1}}), InvalidArgument, "below 0");
  EXPECT_ERROR(sample_from_datasets(two, {.weights = {0, 0}}), InvalidArgument, "one above");
  EXPECT_ERROR(sample_from_datasets(std::vector<Dataset<Tensor>>{}), InvalidArgument,
               "no datasets");
  const std::vector<Dataset<Tensor>> other{range(3), from_tensor_slices(at::rand({2}))};
  EXPECT_ERROR(sample_from_datasets(other), InvalidArgument, "the same dtypes");
}

TEST(SampleFromDatasets, RelaxesTheShapesOfItsSpec) {
  const auto mixed = sample_from_datasets<Tensor>(
      {from_tensors(at::zeros({2})), from_tensors(at::zeros({3}))}, {.seed = 1});
  EXPECT_EQ(cat(mixed.element_spec()), "TensorSpec(shape=(None,), dtype=float32)");
}

TEST(ChooseFromDatasets, FollowsTheChoices) {
  const std::vector<Dataset<Tensor>> two{range(3), range(10, 13)};
  EXPECT_EQ(numbers(choose_from_datasets(two, of({0, 1, 1, 0, 1, 0}))),
            (Numbers{0, 10, 11, 1, 12, 2}));
  EXPECT_EQ(choose_from_datasets(two, of({0, 1})).cardinality(), kUnknown);
}

TEST(ChooseFromDatasets, StopsAtAnEndUnlessToldOtherwise) {
  const std::vector<Dataset<Tensor>> two{range(2), range(10, 14)};
  const auto choices = of({0, 0, 0, 1, 1});
  EXPECT_EQ(numbers(choose_from_datasets(two, choices)), (Numbers{0, 1}));
  EXPECT_EQ(numbers(choose_from_datasets(two, choices, {.stop_on_empty_dataset = false})),
            (Numbers{0, 1, 10, 11}));
}

TEST(ChooseFromDatasets, OfEndlessDatasetsIsAsLongAsItsChoices) {
  const std::vector<Dataset<Tensor>> two{range(2).repeat(), range(10, 14).repeat()};
  EXPECT_EQ(choose_from_datasets(two, range(2).repeat(3)).cardinality(), 6);
  EXPECT_EQ(choose_from_datasets(two, range(2).repeat()).cardinality(), kInfinite);
}

TEST(ChooseFromDatasets, RefusesChoicesThatAreNoDatasets) {
  const std::vector<Dataset<Tensor>> two{range(3), range(3)};
  auto pass = choose_from_datasets(two, of({2, 0})).iterator();
  EXPECT_ERROR(pass.next(), InvalidArgument, "dataset 2 of 2");
  EXPECT_EQ(pass.get_next().item<int64_t>(), 0) << "the pass goes on";
  EXPECT_ERROR(choose_from_datasets(two, range(2).batch(1)), InvalidArgument, "int64 scalars");
}

TEST(RejectionResample, MakesClassesAsFrequentAsTheTarget) {
  // One in ten is odd.
  const auto skewed = range(20000).map([](const Tensor& x) { return (x % 10 == 0).to(at::kLong); });
  const auto share_of_ones = [&](const ResampleOptions& options) {
    int64_t ones = 0, count = 0;
    for (const auto& [label, x] : skewed.rejection_resample(parity, {0.5, 0.5}, options)) {
      EXPECT_EQ(label.item<int64_t>(), x.item<int64_t>());
      ones += label.item<int64_t>();
      ++count;
    }
    EXPECT_GT(count, 3000);
    return static_cast<double>(ones) / static_cast<double>(count);
  };
  EXPECT_NEAR(share_of_ones({.initial_dist = std::vector<double>{0.9, 0.1}, .seed = 3}), 0.5, 0.04);
  EXPECT_NEAR(share_of_ones({.seed = 3}), 0.5, 0.04) << "counted during the pass";
}

TEST(RejectionResample, DropsAClassThatIsNotWanted) {
  for (const auto& [label, x] :
       range(100).rejection_resample(parity, {1, 0}, {.initial_dist = std::vector<double>{1, 1}}))
    EXPECT_EQ(label.item<int64_t>(), 0);
}

TEST(RejectionResample, KeepsAllThatHasTheTargetsDistribution) {
  const auto all = range(100).rejection_resample(parity, {0.5, 0.5},
                                                 {.initial_dist = std::vector<double>{0.5, 0.5}});
  EXPECT_EQ(all.reduce(0, [](int count, const auto&...) { return count + 1; }), 100);
  EXPECT_EQ(cat(all.element_spec()),
            "(TensorSpec(shape=(), dtype=int64), TensorSpec(shape=(), dtype=int64))");
}

TEST(RejectionResample, RefusesDistributionsAndClassesThatDoNotFit) {
  EXPECT_ERROR(range(4).rejection_resample(parity, {0, 0}), InvalidArgument, "target_dist");
  EXPECT_ERROR(
      range(4).rejection_resample(parity, {1, 1}, {.initial_dist = std::vector<double>{1}}),
      InvalidArgument, "initial_dist of 1");
  const std::vector<double> without_ones{1, 0};
  EXPECT_ERROR(range(4).rejection_resample(parity, {1, 1}, {.initial_dist = without_ones}),
               InvalidArgument, "class 1");
  EXPECT_ERROR(
      range(4).rejection_resample([](const Tensor&) { return 5; }, {1, 1}).iterator().next(),
      InvalidArgument, "class 5 of 2");
}

}  // namespace
}  // namespace tutti::data
