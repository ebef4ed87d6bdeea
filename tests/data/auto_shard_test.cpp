// What each of several workers reads, computed in one process. Streams that TensorFlow recorded are
// those of the mwms… entries of distributed_dataset.json, without the empty steps that a worker
// gets at the end while others still have data.

#include <filesystem>
#include <fstream>
#include <functional>

#include "data/elements.h"
#include "tutti/base/log.h"

namespace tutti::data {
namespace {

Rows pieces_of(const Dataset<Tensor>& dataset, const InputWorkers& workers) {
  return rows(Dataset<Tensor>(worker_pieces(dataset.plan(), workers)));
}

Rows worker(const Dataset<Tensor>& dataset, int index, int num_workers, AutoShardPolicy policy) {
  return pieces_of(dataset.with_options({.experimental_distribute = {.auto_shard_policy = policy}}),
                   {.num_workers = num_workers, .replicas_per_worker = 1, .worker = index});
}

using enum AutoShardPolicy;

/// Files 0, 1, …; file i has the lines f<i>l<j> for j below i + 3.
class TextFiles {
 public:
  explicit TextFiles(int count) {
    folder_ = std::filesystem::temp_directory_path() /
              cat("tutti_auto_shard_", ::getpid(), "_", ++s_made);
    std::filesystem::create_directories(folder_);
    for (int i = 0; i < count; ++i) {
      names_.push_back(folder_ / cat("file", i));
      std::ofstream file(names_.back());
      for (int j = 0; j < i + 3; ++j) file << "f" << i << "l" << j << "\n";
    }
  }
  ~TextFiles() { std::filesystem::remove_all(folder_); }
  const std::vector<std::string>& names() const { return names_; }
  /// f<i>l<j> as 10 i + j.
  Dataset<Tensor> numbers() const {
    return text_lines(names_).map([](const std::string& line) {
      return at::scalar_tensor((line[1] - '0') * 10 + (line[3] - '0'), at::kLong);
    });
  }

 private:
  static inline int s_made = 0;
  std::filesystem::path folder_;
  std::vector<std::string> names_;
};

TEST(AutoShardOff, Spec99_EveryWorkerCutsAllRowsByTheSizesOfItsReplicas) {
  for (int w : {0, 1}) {
    EXPECT_EQ(worker(range(12).batch(8), w, 2, kOff),
              (Rows{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}}));
    EXPECT_EQ(worker(range(8).batch(4), w, 2, kOff), (Rows{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
    EXPECT_EQ(worker(range(10).batch(4), w, 2, kOff),
              (Rows{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}}));
  }
  EXPECT_EQ(worker(range(8).batch(3), 0, 2, kOff), (Rows{{0, 1}, {2}, {3, 4}, {5}, {6, 7}}));
  EXPECT_EQ(worker(range(8).batch(3), 1, 2, kOff), (Rows{{0}, {1, 2}, {3}, {4, 5}, {6}, {7}}));
}

TEST(AutoShardOff, SizesOfThreeWorkersTurnByTheWorkersNumber) {
  EXPECT_EQ(worker(range(8).batch(4), 0, 3, kOff), (Rows{{0, 1}, {2}, {3}, {4, 5}, {6}, {7}}));
  EXPECT_EQ(worker(range(8).batch(4), 1, 3, kOff), (Rows{{0}, {1}, {2, 3}, {4}, {5}, {6, 7}}));
  EXPECT_EQ(worker(range(8).batch(4), 2, 3, kOff), (Rows{{0}, {1, 2}, {3}, {4}, {5, 6}, {7}}));
  EXPECT_EQ(worker(range(12).batch(8), 0, 3, kOff),
            (Rows{{0, 1, 2}, {3, 4, 5}, {6, 7}, {8, 9, 10}, {11}}));
  EXPECT_EQ(worker(range(12).batch(8), 1, 3, kOff),
            (Rows{{0, 1, 2}, {3, 4}, {5, 6, 7}, {8, 9, 10}, {11}}));
  EXPECT_EQ(worker(range(12).batch(8), 2, 3, kOff),
            (Rows{{0, 1}, {2, 3, 4}, {5, 6, 7}, {8, 9}, {10, 11}}));
}

TEST(AutoShardData, Spec100_EveryBatchIsCutAndItsPiecesAreDealtToTheWorkers) {
  for (AutoShardPolicy policy : {kData, kAuto}) {
    EXPECT_EQ(worker(range(8).batch(3), 0, 2, policy), (Rows{{0, 1}, {3, 4}, {6}}));
    EXPECT_EQ(worker(range(8).batch(3), 1, 2, policy), (Rows{{2}, {5}, {7}}));
    EXPECT_EQ(worker(range(8).batch(4), 0, 2, policy), (Rows{{0, 1}, {4, 5}}));
    EXPECT_EQ(worker(range(8).batch(4), 1, 2, policy), (Rows{{2, 3}, {6, 7}}));
    EXPECT_EQ(worker(range(10).batch(4), 0, 2, policy), (Rows{{0, 1}, {4, 5}, {8}}));
    EXPECT_EQ(worker(range(10).batch(4), 1, 2, policy), (Rows{{2, 3}, {6, 7}, {9}}));
    EXPECT_EQ(worker(range(12).batch(8), 0, 2, policy), (Rows{{0, 1, 2, 3}, {8, 9}}));
    EXPECT_EQ(worker(range(12).batch(8), 1, 2, policy), (Rows{{4, 5, 6, 7}, {10, 11}}));
  }
}

TEST(AutoShardData, ThirdsOfABatchMayBeEmpty) {
  EXPECT_EQ(worker(range(8).batch(4), 2, 3, kAuto), (Rows{{}, {}}));
  EXPECT_EQ(worker(range(10).batch(4), 0, 3, kData), (Rows{{0, 1}, {4, 5}, {8}}));
  EXPECT_EQ(worker(range(10).batch(4), 1, 3, kData), (Rows{{2, 3}, {6, 7}, {9}}));
  EXPECT_EQ(worker(range(10).batch(4), 2, 3, kData), (Rows{{}, {}, {}}));
  EXPECT_EQ(worker(range(8).batch(3), 0, 3, kData), (Rows{{0}, {3}, {6}}));
  EXPECT_EQ(worker(range(8).batch(3), 2, 3, kData), (Rows{{2}, {5}, {}}));
}

TEST(AutoShardData, OfATupleTakesTheRowsOfEveryComponent) {
  const auto dataset = from_tensor_slices((at::arange(14) * 0.25).reshape({7, 2}), at::arange(7));
  Dataset<std::tuple<Tensor, Tensor>> second(worker_pieces(dataset.batch(4).plan(), {2, 1, 1}));
  auto pass = second.iterator();
  pass.get_next();
  const auto [x, y] = pass.get_next();
  EXPECT_TENSOR_EQ(x, at::tensor({3.0, 3.25}).reshape({1, 2}));
  EXPECT_TENSOR_EQ(y, at::tensor({6}));
}

TEST(AutoShardData, OfAnEndlessDatasetIsEndless) {
  const auto endless = range(5).repeat().batch(4);
  EXPECT_EQ(rows(Dataset<Tensor>(worker_pieces(endless.plan(), {2, 1, 0})).take(4)),
            (Rows{{0, 1}, {4, 0}, {3, 4}, {2, 3}}));
  EXPECT_EQ(rows(Dataset<Tensor>(worker_pieces(endless.plan(), {2, 1, 1})).take(4)),
            (Rows{{2, 3}, {1, 2}, {0, 1}, {4, 0}}));
  EXPECT_EQ(worker_pieces(endless.plan(), {2, 1, 1})->cardinality(), kInfinite);
}

TEST(AutoShardData, ReplicasOfAWorkerDrawItsPiecesInTurn) {
  const auto dataset =
      range(4).batch(4).with_options({.experimental_distribute = {.auto_shard_policy = kData}});
  EXPECT_EQ(pieces_of(dataset, {2, 2, 0}), (Rows{{0}, {2}}));
  EXPECT_EQ(pieces_of(dataset, {2, 2, 1}), (Rows{{1}, {3}}));
}

TEST(AutoShardData, Spec102_ShardsElementsWhereOffGivesAllToEveryone) {
  EXPECT_EQ(numbers(Dataset<Tensor>(auto_shard(range(4).plan(), kAuto, 2, 0))), (Numbers{0, 2}));
  EXPECT_EQ(numbers(Dataset<Tensor>(auto_shard(range(4).plan(), kData, 2, 1))), (Numbers{1, 3}));
  for (int w : {0, 1})
    EXPECT_EQ(numbers(Dataset<Tensor>(auto_shard(range(4).plan(), kOff, 2, w))),
              (Numbers{0, 1, 2, 3}));
}

TEST(AutoShard, UserIssue29_WorkersReadDisjointRowsThatMakeUpTheDataset) {
  for (int num_workers : {1, 2, 3, 4}) {
    for (int replicas : {1, 2, 3}) {
      Numbers seen;
      for (int w = 0; w < num_workers; ++w) {
        for (const Numbers& piece : pieces_of(range(101).batch(12), {num_workers, replicas, w}))
          seen.insert(seen.end(), piece.begin(), piece.end());
      }
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(seen, numbers(range(101))) << num_workers << " workers with " << replicas;
    }
  }
}

TEST(AutoShard, UserIssue29_SaysWhichShardOfHowManyItTakes) {
  const LogLevel before = log_level();
  set_log_level(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  auto_shard(range(4).plan(), kAuto, 7, 5);
  const std::string said = ::testing::internal::GetCapturedStderr();
  set_log_level(before);
  EXPECT_NE(said.find("worker 5 of 7"), std::string::npos) << said;
  EXPECT_NE(said.find("DATA"), std::string::npos) << said;
}

TEST(AutoShard, UserIssue31_SaysNothingForOneWorker) {
  const TextFiles files(1);
  ::testing::internal::CaptureStderr();
  for (AutoShardPolicy policy : {kOff, kAuto, kData, kFile, kHint})
    worker(range(8).batch(4), 0, 1, policy);
  worker(files.numbers().batch(2), 0, 1, kAuto);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(AutoShardFile, Spec103_WorkersReadDisjointFiles) {
  const TextFiles files(2);
  for (AutoShardPolicy policy : {kFile, kAuto}) {
    EXPECT_EQ(worker(files.numbers().batch(4), 0, 2, policy), (Rows{{0, 1}, {2}}));
    EXPECT_EQ(worker(files.numbers().batch(4), 1, 2, policy), (Rows{{10, 11}, {12, 13}}));
  }
  EXPECT_EQ(worker(files.numbers().batch(4), 1, 2, kData), (Rows{{2, 10}, {13}}));
  EXPECT_EQ(worker(files.numbers().batch(4), 1, 2, kOff), (Rows{{0, 1}, {2, 10}, {11, 12}, {13}}));
}

TEST(AutoShardFile, EveryNumWorkersThFileIsTheWorkers) {
  const TextFiles files(4);
  EXPECT_EQ(worker(files.numbers().batch(2), 0, 2, kFile),
            (Rows{{0}, {1}, {2}, {20}, {21}, {22}, {23}, {24}}));
  EXPECT_EQ(worker(files.numbers().batch(2), 1, 2, kAuto),
            (Rows{{10}, {11}, {12}, {13}, {30}, {31}, {32}, {33}, {34}, {35}}));
  EXPECT_EQ(worker(files.numbers().batch(2), 0, 3, kFile),
            (Rows{{0}, {1}, {}, {2}, {30}, {}, {31}, {32}, {}, {33}, {34}, {}, {35}}));
  EXPECT_EQ(worker(files.numbers().batch(2), 1, 3, kFile), (Rows{{10}, {}, {11}, {12}, {}, {13}}));
  EXPECT_EQ(worker(files.numbers().batch(2), 2, 3, kFile),
            (Rows{{}, {20}, {21}, {}, {22}, {23}, {}, {24}}));
}

TEST(AutoShardFile, UserIssue62_FewerFilesThanWorkersIsTheSameErrorOnEveryWorker) {
  const TextFiles files(2);
  for (int w : {0, 1, 2}) {
    EXPECT_ERROR(worker(files.numbers().batch(4), w, 3, kFile), InvalidArgument,
                 "2 files for 3 workers");
    EXPECT_ERROR(worker(files.numbers().batch(4), w, 3, kFile), InvalidArgument, "kData");
  }
}

TEST(AutoShardFile, UserIssue62_ByAutoFewerFilesFallBackToDataWithAWarning) {
  const TextFiles one(1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(worker(one.numbers().batch(4), 0, 2, kAuto), (Rows{{0, 1}}));
  EXPECT_EQ(worker(one.numbers().batch(4), 1, 2, kAuto), (Rows{{2}}));
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("1 files for 2 workers"),
            std::string::npos);
}

TEST(AutoShardFile, UserIssue4_OneFileForTwoWorkersSharesOutElementsAndSaysItOnce) {
  const TextFiles one(1);
  const auto shard = [&](int w) {
    return numbers(Dataset<Tensor>(auto_shard(one.numbers().plan(), kAuto, 2, w)));
  };
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(shard(0), (Numbers{0, 2}));
  EXPECT_EQ(shard(0), (Numbers{0, 2}));
  EXPECT_EQ(worker(one.numbers().batch(4), 0, 2, kAuto), (Rows{{0, 1}}));
  const std::string said = ::testing::internal::GetCapturedStderr();
  const auto first = said.find("worker 0 of 2]: AUTO found a reader of 1 files for 2 workers");
  EXPECT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("AUTO", first + 20), std::string::npos) << "once: " << said;
  EXPECT_EQ(shard(1), (Numbers{1}));
}

TEST(AutoShardFile, OfASourceThatReadsNoFilesIsNotFound) {
  for (int w : {0, 1})
    EXPECT_ERROR(worker(range(8).batch(4), w, 2, kFile), NotFound, "range reads no files");
  const TextFiles files(2);
  EXPECT_ERROR(auto_shard(zip(files.numbers(), range(9)).plan(), kFile, 2, 0), NotFound, "range");
  EXPECT_EQ(worker(range(8).batch(4), 0, 1, kFile), (Rows{{0, 1, 2, 3}, {4, 5, 6, 7}}))
      << "one worker has nothing to share out";
}

TEST(AutoShardFile, ReachesTheReaderThroughEveryTransformation) {
  const TextFiles files(2);
  const auto lines = files.numbers();
  const auto whole = lines.filter([](const Tensor& x) { return x.item<int64_t>() != 11; })
                         .skip(1)
                         .take(2)
                         .repeat(2)
                         .cache()
                         .prefetch(1)
                         .enumerate()
                         .map([](const Tensor& i, const Tensor& x) { return i * 100 + x; })
                         .shard(2, 0)
                         .concatenate(lines.take(1))
                         .batch(2)
                         .unbatch()
                         .padded_batch(3);
  const auto on_second = auto_shard(whole.plan(), kFile, 2, 1);
  EXPECT_EQ(rows(Dataset<Tensor>(on_second)), (Rows{{12, 212, 10}}));
  EXPECT_EQ(rows(whole), (Rows{{1, 201, 0}})) << "the dataset itself is as it was";
  const auto both = auto_shard(zip(lines, lines).plan(), kFile, 2, 1);
  EXPECT_EQ(both->iterator()->next()->items()[1].leaf().item<int64_t>(), 10);
  EXPECT_EQ(both->inputs()[0], both->inputs()[1]) << "a plan that stands in two places stays one";
}

TEST(AutoShardFile, ReachesTheReaderThroughWhatMakesDatasetsOfElements) {
  const TextFiles files(2);
  const auto first = [](const Tensor& x) { return from_tensors(x); };
  const auto with_number = [](const Tensor& sum, const Tensor& x) { return std::pair(sum + 1, x); };
  const auto all = [](const auto&...) { return true; };
  const auto lines =
      files.numbers()
          .map([](const Tensor& x) { return x; }, {.num_parallel_calls = 2})
          .flat_map(first)
          .interleave(first)
          .interleave(first, {.num_parallel_calls = 2})
          .scan(at::scalar_tensor(0, at::kLong), with_number)
          .take_while(all)
          .unique()
          .ignore_errors()
          .window(2)
          .flat_map([](const Dataset<Tensor>& window) { return window; })
          .batch(3)
          .rebatch(2)
          .unbatch()
          .group_by_window([](const Tensor&) { return 0; },
                           [](int64_t, const Dataset<Tensor>& group) { return group; }, 2);
  const auto chosen = choose_from_datasets<Tensor>(
      {sample_from_datasets<Tensor>({lines, lines}, {.seed = 1}), lines},
      files.numbers().map([](const Tensor&) { return at::scalar_tensor(0, at::kLong); }));
  const auto whole = chosen.rejection_resample([](const Tensor&) { return 0; }, {1.0})
                         .map([](const Tensor&, const Tensor& x) { return x; })
                         .assert_cardinality(4)
                         .ragged_batch(8);
  const auto on_second = auto_shard(whole.plan(), kFile, 2, 1);
  const auto list = Dataset<std::vector<Tensor>>(on_second).iterator().get_next();
  ASSERT_EQ(list.size(), 4);
  for (const Tensor& x : list) EXPECT_EQ(x.item<int64_t>() / 10, 1) << "of the second file";
}

TEST(AutoShardFile, AShuffleGoesOnWithItsSeeds) {
  const TextFiles files(2);
  const auto shuffled = [&] { return files.numbers().shuffle(10, {.seed = 5}); };
  const auto passes_of = [](const PlanPtr& plan) {
    Dataset<Tensor> dataset(plan);
    return std::vector<Numbers>{numbers(dataset), numbers(dataset), numbers(dataset)};
  };
  const auto twice = passes_of(auto_shard(shuffled().plan(), kFile, 2, 1));
  EXPECT_EQ(passes_of(auto_shard(shuffled().plan(), kFile, 2, 1)), twice);
  EXPECT_TRUE(twice[0] != twice[1] || twice[1] != twice[2]);
}

TEST(AutoShardFile, SharesOutTheNamesThatAFunctionReads) {
  const TextFiles files(4);
  const auto names = from_tensor_slices(files.names());
  const auto read = [](const std::string& name) { return text_lines(name); };
  const auto number = [](const std::string& line) {
    return at::scalar_tensor((line[1] - '0') * 10 + (line[3] - '0'), at::kLong);
  };
  const auto one_by_one = names.flat_map(read).map(number);
  const auto in_turn = names.interleave(read, {.cycle_length = 2}).map(number);
  for (AutoShardPolicy policy : {kFile, kAuto}) {
    EXPECT_EQ(numbers(Dataset<Tensor>(auto_shard(one_by_one.plan(), policy, 2, 1))),
              (Numbers{10, 11, 12, 13, 30, 31, 32, 33, 34, 35}));
    EXPECT_EQ(numbers(Dataset<Tensor>(auto_shard(in_turn.plan(), policy, 2, 0))),
              (Numbers{0, 20, 1, 21, 2, 22, 23, 24}));
  }
  EXPECT_EQ(numbers(Dataset<Tensor>(auto_shard(in_turn.plan(), kData, 2, 0))),
            (Numbers{0, 1, 2, 13, 21, 22, 23, 24, 34}))
      << "every second element: the order is f0l0 f1l0 f0l1 f1l1 …";
}

TEST(AutoShardFile, OfFewerNamesThanWorkersIsTheSameErrorOnEveryWorker) {
  const TextFiles files(2);
  const auto lines = from_tensor_slices(files.names()).flat_map([](const std::string& name) {
    return text_lines(name);
  });
  for (int w : {0, 1, 2})
    EXPECT_ERROR(auto_shard(lines.plan(), kFile, 3, w), InvalidArgument, "2 files for 3 workers");
  EXPECT_ERROR(
      auto_shard(range(4).flat_map([](const Tensor&) { return range(2); }).plan(), kFile, 2, 0),
      NotFound, "range reads no files");
}

TEST(AutoShardHint, StandsInFrontOfTheFunctionThatReads) {
  const TextFiles files(4);
  const auto lines = from_tensor_slices(files.names())
                         .shard(kShardHint, kShardHint)
                         .flat_map([](const std::string& name) { return text_lines(name); })
                         .batch(4);
  EXPECT_EQ(cat(lines.element_spec()), "TensorSpec(shape=(None,), dtype=string)");
  const Dataset<StringTensor> second(auto_shard(lines.plan(), kHint, 2, 1));
  EXPECT_EQ(second.iterator().get_next(), (StringTensor{"f1l0", "f1l1", "f1l2", "f1l3"}));
}

TEST(AutoShard, OfStringsCutsBatchesOfStrings) {
  const auto strings = from_tensor_slices(std::vector<std::string>{"a", "b", "c", "d", "e"});
  auto pass = Dataset<StringTensor>(worker_pieces(strings.batch(4).plan(), {1, 2, 0})).iterator();
  EXPECT_EQ(pass.get_next(), (StringTensor{"a", "b"}));
  EXPECT_EQ(pass.get_next(), (StringTensor{"c", "d"}));
  EXPECT_EQ(pass.get_next(), (StringTensor{"e"}));
  EXPECT_EQ(pass.get_next().sizes(), (std::vector<int64_t>{0}));
  EXPECT_FALSE(pass.next());
}

TEST(AutoShardHint, TheHintBecomesTheWorkersShard) {
  const auto dataset =
      range(8).shard(kShardHint, kShardHint).map([](const Tensor& x) { return x * 10; });
  EXPECT_EQ(numbers(Dataset<Tensor>(auto_shard(dataset.plan(), kHint, 3, 1))),
            (Numbers{10, 40, 70}));
  EXPECT_EQ(worker(dataset.batch(4), 1, 2, kHint), (Rows{{10, 30}, {50, 70}}));
  EXPECT_EQ(worker(dataset.batch(4), 0, 1, kHint), (Rows{{0, 10, 20, 30}, {40, 50, 60, 70}}));
  EXPECT_EQ(worker(range(4).batch(2), 1, 2, kHint), (Rows{{0}, {1}, {2}, {3}}))
      << "without a hint every worker sees all the data";
}

TEST(AutoShardHint, APassOverAHintIsAnErrorThatNamesThePolicy) {
  const auto dataset = range(8).shard(kShardHint, kShardHint);
  EXPECT_ERROR(numbers(dataset), FailedPrecondition, "kHint");
  EXPECT_EQ(dataset.cardinality(), kUnknown);
  EXPECT_EQ(cat(dataset.batch(2).element_spec()), "TensorSpec(shape=(None,), dtype=int64)");
  EXPECT_ERROR(range(8).shard(kShardHint, 0), InvalidArgument, "shard");
}

std::string said_by(const std::function<void()>& work) {
  ::testing::internal::CaptureStderr();
  work();
  return ::testing::internal::GetCapturedStderr();
}
bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(AutoShard, UserIssue10_ShardsWithoutElementsAreNamedToEveryWorkerWhenTheyAreMade) {
  for (int w : {0, 1, 2}) {
    const std::string said = said_by([&] { auto_shard(range(1).plan(), kData, 3, w); });
    EXPECT_TRUE(says(said, cat("worker ", w, " of 3]: 1 elements for 3 workers"))) << said;
    EXPECT_TRUE(says(said, "workers 1 to 2 have none")) << said;
    const std::string empty = said_by([&] { auto_shard(range(4).take(0).plan(), kData, 3, w); });
    EXPECT_TRUE(says(empty, "has no elements")) << empty;
  }
  const auto hinted = range(1).shard(kShardHint, kShardHint);
  EXPECT_TRUE(says(said_by([&] { auto_shard(hinted.plan(), kHint, 2, 1); }),
                   "worker 1 of 2]: the shard of this worker has no elements"));
  EXPECT_EQ(said_by([&] { auto_shard(range(3).plan(), kData, 3, 2); }), "");
}

TEST(WorkerPieces, UserIssue10_AWorkerThatNeverGetsRowsIsToldWhenItsPiecesAreMade) {
  // 17 workers, of which no other test has as many: a text is said once in a process.
  const auto pieces = [](int64_t batch, int w, AutoShardPolicy policy) {
    return said_by([&] {
      worker_pieces(range(2 * batch)
                        .batch(batch)
                        .with_options({.experimental_distribute = {.auto_shard_policy = policy}})
                        .plan(),
                    {17, 1, w});
    });
  };
  const std::string idle = pieces(18, 9, kData);
  EXPECT_TRUE(says(idle,
                   "distribute_dataset [worker 9 of 17]: a global batch of 18 gives rows to "
                   "9 of 17 replicas, in pieces of 2, and to this worker none"))
      << idle;
  EXPECT_EQ(pieces(18, 9, kData), "") << "said once";
  const std::string busy = pieces(18, 8, kData);
  EXPECT_TRUE(says(busy, "9 of 17 replicas, in pieces of 2; the others idle")) << busy;
  EXPECT_EQ(pieces(18, 9, kOff), "") << "the workers turn with 2 and 1 rows";
  EXPECT_TRUE(says(pieces(16, 1, kOff), "a global batch of 16 gives rows to 16 of 17 replicas"));
  EXPECT_EQ(pieces(34, 9, kData), "");
  const std::string none = said_by([] {
    worker_pieces(range(3).batch(4, {.drop_remainder = true}).plan(), {2, 1, 0});
  });
  EXPECT_TRUE(says(none, "distribute_dataset [worker 0 of 2]: the dataset has no elements"))
      << none;
  EXPECT_TRUE(says(none, "drop_remainder")) << none;
}

TEST(AutoShard, OptionsOfADistributionAloneAreThoseOfItInTheWhole) {
  const auto batches = range(8).batch(2);
  const auto whole =
      batches.with_options({.experimental_distribute = {.auto_shard_policy = kData}});
  const auto alone = batches.with_options({.auto_shard_policy = kData});
  EXPECT_EQ(to_string(alone), to_string(whole));
  EXPECT_NE(to_string(alone), to_string(batches.with_options({})));
}

TEST(WorkerPieces, UserIssue23_CuttingIsTheLastStageOverTheUsersOwn) {
  const auto batches = range(8).batch(4).map([](const Tensor& x) { return x.reshape({4}) * 10; });
  const PlanPtr by_batch = worker_pieces(batches.plan(), {1, 2, 0});
  EXPECT_EQ(by_batch->name(), "legacy_rebatch");
  EXPECT_EQ(by_batch->inputs()[0], batches.plan());
  const PlanPtr by_rows = worker_pieces(
      batches.with_options({.experimental_distribute = {.auto_shard_policy = kOff}}).plan(),
      {2, 1, 1});
  EXPECT_EQ(by_rows->name(), "static_rebatch");
  EXPECT_EQ(rows(Dataset<Tensor>(by_rows)), (Rows{{0, 10}, {20, 30}, {40, 50}, {60, 70}}));
}

TEST(AutoShard, RefusesWorkersAndPoliciesThatDoNotExist) {
  EXPECT_ERROR(auto_shard(range(4).plan(), kData, 2, 2), InvalidArgument, "worker 2 of 2");
  EXPECT_ERROR(auto_shard(range(4).plan(), kData, 0, 0), InvalidArgument, "worker 0 of 0");
  EXPECT_ERROR(auto_shard(range(4).plan(), kData, 2, -1), InvalidArgument, "worker -1");
  EXPECT_ERROR(auto_shard(range(4).plan(), static_cast<AutoShardPolicy>(7), 2, 0), InvalidArgument,
               "policy 7");
  EXPECT_ERROR(worker_pieces(range(4).batch(2).plan(), {2, 0, 0}), InvalidArgument, "0 replicas");
}

TEST(WorkerPieces, OfADatasetWithoutBatchesAskForThemAtOnce) {
  EXPECT_ERROR(worker_pieces(range(4).plan(), {1, 2, 0}), InvalidArgument, "batch()");
  EXPECT_EQ(numbers(Dataset<Tensor>(worker_pieces(range(3).plan(), {1, 1, 0}))), (Numbers{0, 1, 2}))
      << "one replica has nothing to cut";
}

TEST(WorkerPieces, OneReplicaGetsBatchesAsTheyAre) {
  EXPECT_EQ(worker(range(5).batch(4).repeat(2), 0, 1, kOff),
            (Rows{{0, 1, 2, 3}, {4}, {0, 1, 2, 3}, {4}}));
}

TEST(WorkerPieces, WithAnUnknownBatchSizeAreCutBatchByBatch) {
  const auto dataset =
      zip(range(5).batch(3), range(5).batch(3)).map([](const Tensor& x, const Tensor&) {
        return x;
      });
  EXPECT_EQ(worker(dataset, 1, 2, kOff), (Rows{{0, 1}, {2}, {3}, {4}}));
}

TEST(WorkerPieces, ByRowsCountTheirPieces) {
  for (int64_t count : {0, 1, 5, 6, 7, 12, 13}) {
    for (int64_t batch : {1, 3, 4}) {
      for (int replicas : {2, 3, 4}) {
        for (bool drop : {false, true}) {
          const auto dataset =
              range(count)
                  .batch(batch, {.drop_remainder = drop})
                  .prefetch(1)
                  .with_options({.experimental_distribute = {.auto_shard_policy = kOff}});
          const auto pieces = worker_pieces(dataset.plan(), {1, replicas, 0});
          EXPECT_EQ(pieces->cardinality(),
                    static_cast<int64_t>(rows(Dataset<Tensor>(pieces)).size()))
              << count << " rows by " << batch << " for " << replicas;
        }
      }
    }
  }
}

TEST(WorkerPieces, UserIssue25_PiecesOfAStepAddUpToTheGlobalBatch) {
  for (AutoShardPolicy policy : {kOff, kData}) {
    for (int64_t batch : {1, 4, 7, 10}) {
      for (int replicas : {2, 3, 4}) {
        const auto pieces =
            pieces_of(range(3 * batch).batch(batch).with_options(
                          {.experimental_distribute = {.auto_shard_policy = policy}}),
                      {1, replicas, 0});
        for (std::size_t step = 0; step < 3; ++step) {
          std::size_t size = 0;
          for (std::size_t r = 0; r < static_cast<std::size_t>(replicas); ++r) {
            const std::size_t piece = step * static_cast<std::size_t>(replicas) + r;
            if (piece < pieces.size()) size += pieces[piece].size();
          }
          EXPECT_EQ(size, static_cast<std::size_t>(batch)) << replicas << " replicas";
        }
      }
    }
  }
}

TEST(WorkerPieces, Spec114_SparseBatchesStaySparse) {
  const auto dataset = range(7).map([](const Tensor& i) {
    return at::zeros({4}, at::kLong).index_fill_(0, i.remainder(4).reshape({1}), i + 1).to_sparse();
  });
  const auto total = [](const PlanPtr& plan) {
    int64_t sum = 0;
    for (const Tensor& piece : Dataset<Tensor>(plan)) {
      EXPECT_TRUE(piece.is_sparse());
      sum += piece.to_dense().sum().item<int64_t>();
    }
    return sum;
  };
  for (AutoShardPolicy policy : {kOff, kData}) {
    const Options options{.experimental_distribute = {.auto_shard_policy = policy}};
    EXPECT_EQ(total(worker_pieces(dataset.batch(3).with_options(options).plan(), {1, 2, 0})), 28);
    EXPECT_EQ(
        total(worker_pieces(dataset.batch(3, {.drop_remainder = true}).with_options(options).plan(),
                            {1, 2, 0})),
        21);
  }
}

TEST(MapSpec, DoesNotTakeTheRowsOfTheFirstBatchForThoseOfAll) {
  const auto tenfold = [](const Tensor& x) { return x * 10; };
  EXPECT_EQ(cat(range(10).batch(4).map(tenfold).element_spec()),
            "TensorSpec(shape=(None,), dtype=int64)");
  EXPECT_EQ(cat(range(10).batch(4, {.drop_remainder = true}).map(tenfold).element_spec()),
            "TensorSpec(shape=(4,), dtype=int64)");
}

}  // namespace
}  // namespace tutti::data
