// What a pipeline prints.

#include "data/elements.h"
#include "tutti/base/log.h"

namespace tutti::data {
namespace {

Tensor same(const Tensor& x) { return x; }

TEST(PlanText, IsATreeOfOperationsWithTheirArguments) {
  const auto dataset = range(10)
                           .map(same)
                           .filter([](const Tensor&) { return true; })
                           .shuffle(100, {.seed = 3, .reshuffle_each_iteration = false})
                           .repeat()
                           .batch(4, {.drop_remainder = true})
                           .prefetch(kAutotune);
  EXPECT_EQ(to_string(dataset),
            "prefetch(-1)\n"
            "  batch(4, drop_remainder=true)\n"
            "    repeat(-1)\n"
            "      shuffle(100, seed=3, reshuffle_each_iteration=false)\n"
            "        filter(function)\n"
            "          map(function)\n"
            "            range(0, 10)");
  EXPECT_EQ(cat(dataset), to_string(*dataset.plan()));
}

TEST(PlanText, HasABranchForEachInput) {
  EXPECT_EQ(to_string(zip(range(2), range(0, 9, 3).take(1).skip(2))
                          .concatenate(zip(range(1), range(1)).cache())
                          .enumerate(5)
                          .shard(2, 1)),
            "shard(2, 1)\n"
            "  enumerate(start=5)\n"
            "    concatenate()\n"
            "      zip()\n"
            "        range(0, 2)\n"
            "        skip(2)\n"
            "          take(1)\n"
            "            range(0, 9, 3)\n"
            "      cache()\n"
            "        zip()\n"
            "          range(0, 1)\n"
            "          range(0, 1)");
}

TEST(PlanText, NamesWhatWasAsked) {
  const auto slices = from_tensor_slices(at::arange(4));
  EXPECT_EQ(to_string(slices), "from_tensor_slices(TensorSpec(shape=(4,), dtype=int64))");
  EXPECT_EQ(to_string(slices.padded_batch(2, {.padded_shapes = ShapeNest(Numbers{})})),
            "padded_batch(2, padded_shapes=())\n  " + to_string(slices));
  EXPECT_EQ(to_string(range(4).window(3, {.shift = 1})), "window(3, shift=1)\n  range(0, 4)");
  EXPECT_EQ(to_string(range(4).batch(2).rebatch({1, 2})),
            "rebatch([1, 2])\n  batch(2)\n    range(0, 4)");
  EXPECT_EQ(to_string(range(4).with_options(
                {.experimental_distribute = {.auto_shard_policy = AutoShardPolicy::kOff}})),
            "with_options(auto_shard_policy=OFF)\n  range(0, 4)");
  EXPECT_EQ(to_string(sample_from_datasets<Tensor>({range(1), range(2)}, {.weights = {1, 2}})),
            "sample_from_datasets(weights=[1, 2])\n  range(0, 1)\n  range(0, 2)");
  EXPECT_EQ(to_string(text_lines({"a", "b", "c", "d"})), "text_lines(a, b, c, … (4 files))");
}

TEST(PlanText, IsToldByThePlansToo) {
  const PlanPtr plan = range(4).batch(2).plan();
  EXPECT_EQ(plan->name(), "batch");
  EXPECT_EQ(plan->arguments(), "2");
  EXPECT_EQ(plan->inputs()[0]->name(), "range");
}

}  // namespace
}  // namespace tutti::data
