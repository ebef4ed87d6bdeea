// A table of pipelines: saved behind every number of elements and restored on a new iterator of an
// equal pipeline, each gives exactly the rest, rounds to come included.

#include <functional>

#include "data/elements.h"
#include "tutti/base/seed.h"
#include "tutti/data/element_random.h"
#include "tutti/tensor/printing.h"

namespace tutti::data {
namespace {

using Make = std::function<Dataset<Nest>()>;

std::string text_of(const Nest& element) {
  std::string text;
  if (element.kind() == NestKind::kObject) {
    for (const Nest& item : from_nest<Dataset<Nest>>(element)) text += text_of(item) + ",";
  } else if (element.items().empty()) {
    text = to_string(element);
  }
  for (const Nest& item : element.items()) text += text_of(item) + ";";
  return "<" + text + ">";
}

/// The next element, an error or the end.
std::string step(DatasetIterator<Nest>& pass) {
  try {
    auto element = pass.next();
    return element ? text_of(*element) : "end";
  } catch (const std::exception& error) {
    return error.what();
  }
}

std::vector<std::string> rest_of(DatasetIterator<Nest>& pass, std::size_t most) {
  std::vector<std::string> all;
  while (all.size() < most && (all.empty() || all.back() != "end")) all.push_back(step(pass));
  return all;
}

/// Each dataset is made anew, as by another program.
void expect_exact(const char* name, const Make& make, std::size_t most = 60) {
  SCOPED_TRACE(name);
  auto whole = make().iterator();
  const std::vector<std::string> all = rest_of(whole, most);
  for (std::size_t at = 0; at < all.size(); ++at) {
    Nest state;
    {
      auto pass = make().iterator();
      for (std::size_t i = 0; i < at; ++i) step(pass);
      state = pass.save();
      EXPECT_EQ(step(pass), all[at]) << "the pass that was saved at " << at;
    }
    const auto dataset = make();
    auto other = dataset.iterator();
    other.restore(state);
    const std::vector<std::string> rest(all.begin() + static_cast<std::ptrdiff_t>(at), all.end());
    ASSERT_EQ(rest_of(other, rest.size()), rest) << "behind " << at << " elements of\n" << dataset;
  }
}

Dataset<Tensor> tens(const Tensor& i) {
  const int64_t from = 10 * i.item<int64_t>();
  return range(from, from + 1 + i.item<int64_t>() % 3);
}
Tensor noisy(const Tensor& x) { return x + at::rand({2}, element_random()); }
Tensor odd_ones_fail(const Tensor& x) {
  if (x.item<int64_t>() % 3 == 1) throw InvalidArgument(cat("no ", x.item<int64_t>()));
  return x * 2;
}

TEST(SavedPasses, OfEveryTransformationGoOnExactly) {
  expect_exact("batch", [] { return range(11).batch(3); });
  expect_exact("batch of rows", [] { return table_of(11).batch(3, {.drop_remainder = true}); });
  expect_exact("padded_batch", [] {
    return range(7)
        .map([](const Tensor& x) { return at::ones({x.item<int64_t>()}); })
        .padded_batch(2);
  });
  expect_exact("unbatch", [] { return range(11).batch(4).unbatch(); });
  expect_exact("rebatch", [] { return range(11).batch(4).rebatch({2, 1, 3}); });
  expect_exact("filter",
               [] { return range(9).filter([](const Tensor& x) { return x % 2 == 0; }); });
  expect_exact("take", [] { return range(9).take(5); });
  expect_exact("skip", [] { return range(9).skip(5); });
  expect_exact("skip of rows", [] { return table_of(9).skip(5).batch(2); });
  expect_exact("shard", [] { return range(11).shard(3, 1); });
  expect_exact("shard of rows", [] { return table_of(11).shard(3, 2).batch(2); });
  expect_exact("enumerate", [] { return range(5).enumerate(7); });
  expect_exact("zip", [] { return zip(range(5), table_of(7)); });
  expect_exact("concatenate", [] { return range(4).concatenate(range(20, 23)); });
  expect_exact("concatenate of rows", [] {
    return table_of(4).concatenate(table_of(3)).shuffle(5, {.seed = 1}).batch(2);
  });
  expect_exact("repeat", [] { return range(4).repeat(3); });
  expect_exact(
      "repeat without end", [] { return table_of(4).repeat().batch(3); }, 12);
  expect_exact("repeat of none", [] { return range(4).repeat(0); });
  expect_exact("map with errors", [] { return range(8).map(odd_ones_fail); });
}

TEST(SavedPasses, KeepTheContentsOfShufflesAndTheOrdersToCome) {
  expect_exact("shuffle", [] { return range(12).shuffle(5, {.seed = 3}); });
  expect_exact("shuffle of rows", [] { return table_of(12).shuffle(5, {.seed = 3}).batch(2); });
  expect_exact("rounds of shuffles", [] { return range(6).shuffle(4, {.seed = 3}).repeat(4); });
  expect_exact("a shuffle of rounds", [] { return range(6).repeat(3).shuffle(7, {.seed = 3}); });
  expect_exact("the same order", [] {
    return range(5).shuffle(5, {.seed = 3, .reshuffle_each_iteration = false}).repeat(3);
  });
  // The second dataset is drawn from in the second round too, and not open when the first is.
  expect_exact("a shuffle behind", [] {
    return range(3).concatenate(range(10, 16).shuffle(6, {.seed = 4})).repeat(3);
  });
}

TEST(SavedPasses, WithTheGlobalSeedHaveTheOrdersToCome) {
  expect_exact("seeded", [] {
    tutti::internal::set_global_seed(11);
    return range(6).shuffle(6).repeat(3).map(noisy, {.num_parallel_calls = 2});
  });
}

TEST(SavedPasses, OfCachesKeepWhatIsCached) {
  expect_exact("cache", [] { return range(7).cache(); });
  expect_exact("rounds of a cache", [] {
    return range(5).map([](const Tensor& x) { return x + 1; }).cache().repeat(3).batch(2);
  });
  expect_exact("a shuffle of a cache",
               [] { return table_of(6).cache().shuffle(4, {.seed = 2}).repeat(3).batch(4); });
  expect_exact("a cache of a shuffle",
               [] { return range(6).shuffle(6, {.seed = 2}).cache().repeat(3); });
  expect_exact("a cache of several shapes", [] {
    return range(4)
        .map([](const Tensor& x) { return at::ones({x.item<int64_t>()}); })
        .cache()
        .repeat(2);
  });
  // Random numbers are drawn once; the rounds repeat them.
  expect_exact("a cache of noise", [] {
    tutti::internal::set_global_seed(5);
    return range(4).map(noisy).cache().repeat(3);
  });
}

TEST(SavedPasses, OfWhatMakesElementsAheadKeepThem) {
  expect_exact("prefetch", [] { return range(9).prefetch(3); });
  expect_exact("prefetch by itself", [] { return range(9).batch(2).prefetch(kAutotune); });
  expect_exact("prefetch of errors", [] { return range(8).map(odd_ones_fail).prefetch(4); });
  expect_exact("prefetch of rounds",
               [] { return range(4).shuffle(4, {.seed = 3}).repeat(3).prefetch(5).batch(2); });
  expect_exact("parallel map", [] {
    return range(12).map([](const Tensor& x) { return x * 2; }, {.num_parallel_calls = 3});
  });
  expect_exact("parallel map with errors",
               [] { return range(9).map(odd_ones_fail, {.num_parallel_calls = 2}).batch(2); });
  for (int64_t cycle : {1, 3}) {
    expect_exact("parallel interleave", [cycle] {
      return range(6).interleave(
          tens, {.cycle_length = cycle, .block_length = 2, .num_parallel_calls = 2});
    });
  }
  expect_exact("two at once", [] {
    return range(8)
        .interleave(tens, {.cycle_length = 2, .num_parallel_calls = 2})
        .map([](const Tensor& x) { return x + 1; }, {.num_parallel_calls = 2})
        .prefetch(2);
  });
}

TEST(SavedPasses, OfDatasetsMadeForElementsGoOn) {
  expect_exact("flat_map of shuffles", [] {
    tutti::internal::set_global_seed(3);
    return range(4).flat_map([](const Tensor&) { return range(4).shuffle(4).repeat(2); });
  });
  expect_exact("windows", [] {
    return range(9).window(3, {.shift = 2}).flat_map([](const Dataset<Tensor>& window) {
      return window.batch(2);
    });
  });
  expect_exact("groups", [] {
    return range(9)
        .shuffle(4, {.seed = 1})
        .group_by_window([](const Tensor& x) { return x % 2; },
                         [](int64_t, const Dataset<Tensor>& group) { return group.batch(2); }, 3);
  });
}

/// A random chain of transformations; the same one for the same number.
Dataset<Nest> composed(uint64_t number) {
  tutti::internal::set_global_seed(static_cast<int64_t>(number));
  RandomBits random(number);
  Dataset<Tensor> dataset = random.below(2) == 0 ? range(7) : table_of(8);
  bool batched = false;
  for (int i = 0; i < 5; ++i) {
    const auto size = static_cast<int64_t>(1 + random.below(4));
    switch (random.below(11)) {
      case 0:
        dataset = dataset.shuffle(size + 1);
        break;
      case 1:
        dataset = dataset.repeat(2);
        break;
      case 2:
        dataset = dataset.cache();
        break;
      case 3:
        dataset = dataset.prefetch(size);
        break;
      case 4:
        dataset = dataset.map([](const Tensor& x) { return x + 1; }, {.num_parallel_calls = size});
        break;
      case 5:
        dataset = dataset.skip(1).take(10 * size);
        break;
      case 6:
        if (!batched) dataset = dataset.batch(size);
        batched = true;
        break;
      case 7:
        if (batched) dataset = dataset.unbatch();
        batched = false;
        break;
      case 8:
        dataset = dataset.concatenate(dataset.shard(2, 1));
        break;
      case 9:
        if (!batched)
          dataset = dataset.interleave(tens, {.cycle_length = size, .num_parallel_calls = 2});
        break;
      default:
        dataset = dataset.map([](const Tensor& x) {
          return x + at::randint(0, 100, {}, element_random(), at::kLong);
        });
    }
  }
  return dataset;
}

TEST(SavedPasses, OfRandomCompositionsGoOnExactly) {
  for (uint64_t number = 0; number < 40; ++number)
    expect_exact(
        cat("composition ", number).c_str(), [number] { return composed(number); }, 40);
}

TEST(SavedPasses, OutOfOrderLoseNothing) {
  const auto make = [] {
    return range(20).map([](const Tensor& x) { return x; },
                         {.num_parallel_calls = 3, .deterministic = false});
  };
  auto pass = make().iterator();
  Numbers got;
  for (int i = 0; i < 8; ++i) got.push_back(pass.get_next().item<int64_t>());
  const Nest state = pass.save();
  auto other = make().iterator();
  other.restore(state);
  while (auto element = other.next()) got.push_back(element->item<int64_t>());
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got, numbers(range(20)));
}

TEST(SavedPasses, KeepTheirStateWhenElementsAreWrittenInto) {
  auto pass = range(4).shuffle(4, {.seed = 1}).iterator();
  pass.next();
  const Nest state = pass.save();
  const auto rest = [&] {
    auto other = range(4).shuffle(4, {.seed = 1}).iterator();
    other.restore(state);
    Numbers all;
    while (auto element = other.next()) {
      all.push_back(element->item<int64_t>());
      element->fill_(-1);
    }
    return all;
  };
  const Numbers first = rest();
  EXPECT_EQ(rest(), first);
}

TEST(SavedPasses, WithFunctionsFollowTheExternalStatePolicy) {
  const auto saved = [](ExternalStatePolicy policy) {
    return range(3)
        .map([](const Tensor& x) { return x; })
        .prefetch(1)
        .with_options({.experimental_external_state_policy = policy})
        .iterator()
        .save();
  };
  EXPECT_ERROR(saved(ExternalStatePolicy::kFail), FailedPrecondition, "policy FAIL");
  saved(ExternalStatePolicy::kIgnore);
  saved(ExternalStatePolicy::kWarn);
  range(3)
      .with_options({.experimental_external_state_policy = ExternalStatePolicy::kFail})
      .iterator()
      .save();
}

}  // namespace
}  // namespace tutti::data
