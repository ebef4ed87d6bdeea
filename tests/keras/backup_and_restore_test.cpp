// BackupAndRestore: a training that is interrupted and begun again ends as one that was not, bit
// for bit.

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <mutex>

#include "keras/callback_script.h"
#include "keras/line_model.h"
#include "support/workers.h"
#include "tutti/distribute/config.h"
#include "tutti/io/tensor_file.h"

namespace tutti::keras {
namespace {

using callbacks::AnyCallback;
using callbacks::BackupAndRestore;
using callbacks::BackupAndRestoreOptions;
using callbacks::LambdaCallback;
using testing::column;
using testing::Folder;
using testing::replicas;

struct Interruption : std::exception {};

struct Job {
  bool lazy = false;
  int64_t epochs = 4;
  bool shuffle = true;
  int64_t steps_per_execution = 1;
  optimizers::Optimizer (*optimizer)() = [] {
    return optimizers::Optimizer(optimizers::Adam({.learning_rate = .05}));
  };
  std::vector<AnyCallback> callbacks = {};
  /// Not null: what is trained on instead of the arrays.
  std::function<data::Dataset<Nest>()> data = {};
  std::optional<int64_t> steps_per_epoch = std::nullopt;
  distribute::Strategy* strategy = nullptr;
  /// Of several workers: the seed was set before, and the weights at first are given.
  bool is_worker = false;
};

Tensor x() { return at::arange(66, at::kFloat).reshape({22, 3}).sin(); }
Tensor y() { return x().sum(1, /*keepdim=*/true).cos(); }

std::unique_ptr<Sequential> net(const Job& job) {
  distribute::Strategy& strategy =
      job.strategy != nullptr ? *job.strategy : distribute::get_strategy();
  const auto scope = strategy.scope();
  layers::DenseOptions first{.activation = "relu"};
  if (!job.lazy) first.input_shape = {3};
  auto model = std::make_unique<Sequential>(
      std::vector<layers::Layer>{layers::Dense(8, first), layers::BatchNormalization(),
                                 layers::Dropout(.25), layers::Dense(1)});
  model->compile({.optimizer = job.optimizer(),
                  .loss = "mse",
                  .metrics = {"mae"},
                  .steps_per_execution = job.steps_per_execution});
  if (!job.is_worker) return model;
  std::vector<Tensor> weights;
  for (const Tensor& weight : model->get_weights())
    weights.push_back(at::arange(weight.numel(), at::kFloat).view(weight.sizes()).cos().abs());
  model->set_weights(weights);
  return model;
}

/// A run of the program: it begins with its seed, makes its model and trains it.
struct Program {
  std::unique_ptr<Sequential> model;
  History history;
  bool interrupted = false;
  // Of several workers, whose models end with their threads.
  std::vector<Tensor> weights = {};
  std::vector<Tensor> optimizer_slots = {};
  std::vector<Tensor> components = {};
};
Program run(const Job& job, std::vector<AnyCallback> more = {}) {
  if (!job.is_worker) set_seed(5);
  Program program{net(job), {}, false};
  FitOptions options{.epochs = job.epochs, .verbose = 0, .callbacks = job.callbacks};
  options.callbacks.insert(options.callbacks.end(), more.begin(), more.end());
  options.shuffle = job.shuffle;
  options.steps_per_epoch = job.steps_per_epoch;
  try {
    if (job.data) {
      program.history = program.model->fit(job.data(), options);
    } else {
      options.batch_size = 4;
      program.history = program.model->fit(x(), y(), options);
    }
  } catch (const Interruption&) {
    program.interrupted = true;
  }
  return program;
}

AnyCallback interrupt_after(int64_t epoch, int64_t batch) {
  const auto now = std::make_shared<int64_t>(-1);
  return LambdaCallback({.on_epoch_begin = [now](int64_t begun, const Logs&) { *now = begun; },
                         .on_train_batch_end =
                             [=](int64_t ended, const Logs&) {
                               if (*now == epoch && ended >= batch) throw Interruption();
                             }});
}
AnyCallback interrupt_before(int64_t epoch) {
  return LambdaCallback({.on_epoch_begin = [=](int64_t begun, const Logs&) {
    if (begun == epoch) throw Interruption();
  }});
}

void expect_equal(const std::vector<Variable>& found, const std::vector<Variable>& expected,
                  const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto own = found[i].components();
    const auto others = expected[i].components();
    ASSERT_EQ(own.size(), others.size());
    for (std::size_t c = 0; c < own.size(); ++c)
      EXPECT_TRUE(at::equal(own[c], others[c]))
          << what << ": " << expected[i].name() << " of " << c;
  }
}
void expect_same_end(const Program& found, const Program& expected, const std::string& what) {
  ASSERT_FALSE(found.interrupted) << what;
  expect_equal(found.model->weights(), expected.model->weights(), what);
  const optimizers::Optimizer& own = found.model->optimizer();
  const optimizers::Optimizer& others = expected.model->optimizer();
  EXPECT_EQ(own.iterations(), others.iterations()) << what;
  EXPECT_EQ(own.gradient_steps(), others.gradient_steps()) << what;
  if (others.class_name() != "MultiOptimizer")
    EXPECT_EQ(own.learning_rate(), others.learning_rate()) << what;
  for (const std::string& slot : others.slot_names())
    expect_equal(own.slots(slot), others.slots(slot), cat(what, ", slot ", slot));
  for (const auto& [name, values] : found.history.history) {
    const auto& all = expected.history.history.at(name);
    ASSERT_LE(values.size(), all.size());
    EXPECT_EQ(values, std::vector<double>(all.end() - static_cast<std::ptrdiff_t>(values.size()),
                                          all.end()))
        << what << ": " << name << " of the epochs since";
  }
}

/// Interrupted once, then run again.
Program interrupted(const Job& job, const AnyCallback& interruption,
                    const BackupAndRestoreOptions& options) {
  const Folder folder;
  const std::string place = folder / "backup";
  EXPECT_TRUE(run(job, {BackupAndRestore(place, options), interruption}).interrupted);
  EXPECT_TRUE(testing::fs::exists(place + "/latest.tutti"));
  Program second = run(job, {BackupAndRestore(place, options)});
  EXPECT_FALSE(testing::fs::exists(place)) << "gone after a training that ended";
  return second;
}

TEST(BackupAndRestore, AnInterruptionBetweenEpochsLeavesNoTrace) {
  for (const bool shuffle : {false, true}) {
    const Job job{.epochs = 10, .shuffle = shuffle};
    const Program second = interrupted(job, interrupt_before(4), {});
    EXPECT_EQ(second.history.epoch, (std::vector<int64_t>{4, 5, 6, 7, 8, 9}));
    expect_same_end(second, run(job), shuffle ? "shuffled" : "in order");
  }
}

TEST(BackupAndRestore, AnInterruptionInsideAnEpochGoesOnFromTheLastSavedBatch) {
  const Job job;
  const Program whole = run(job);
  for (const int64_t frequency : {1, 2, 4}) {
    for (const int64_t batch : {0, 1, 3, 4, 5}) {  // of 6
      const Program second = interrupted(job, interrupt_after(1, batch), {.save_freq = frequency});
      expect_same_end(second, whole, cat("save_freq ", frequency, ", after batch ", batch));
      const int64_t saved = (6 + batch + 1) / frequency * frequency;  // steps, of which 6 an epoch
      EXPECT_EQ(second.history.epoch.front(), saved > 6 ? 1 : 0);
    }
  }
}

TEST(BackupAndRestore, WorksForAModelThatIsNotBuiltYet) {
  const Job job{.lazy = true};
  const Program whole = run(job);
  expect_same_end(interrupted(job, interrupt_before(2), {}), whole, "between epochs");
  expect_same_end(interrupted(job, interrupt_after(1, 3), {.save_freq = 3}), whole, "inside one");
}

TEST(BackupAndRestore, ReplicasThatHaveStatisticsOfTheirOwnGetThemBack) {
  const auto strategy = replicas(2);
  for (const bool lazy : {false, true}) {
    const Job job{.lazy = lazy, .strategy = strategy.get()};
    const Program whole = run(job);
    expect_same_end(interrupted(job, interrupt_before(2), {}), whole, "between epochs");
    expect_same_end(interrupted(job, interrupt_after(1, 3), {.save_freq = 2}), whole, "inside one");
  }
}

TEST(BackupAndRestore, StepsPerExecutionSavesBetweenExecutions) {
  const Job job{.steps_per_execution = 4};
  expect_same_end(interrupted(job, interrupt_after(1, 3), {.save_freq = 4}), run(job), "");
  expect_same_end(interrupted(job, interrupt_after(2, 5), {.save_freq = 3}), run(job), "");
}

TEST(BackupAndRestore, GradientsOfAnUnfinishedUpdateAreKept) {
  const Job job{.optimizer = [] {
    return optimizers::Optimizer(optimizers::Adam(
        {.learning_rate = .05, .use_ema = true, .gradient_accumulation_steps = 4}));
  }};
  const Program whole = run(job);
  for (const int64_t batch : {2, 4})
    expect_same_end(interrupted(job, interrupt_after(1, batch), {.save_freq = 1}), whole,
                    cat("after batch ", batch));
}

TEST(BackupAndRestore, OptimizersWithSchedulesScalesAndPartsGoOn) {
  using optimizers::Optimizer;
  const std::vector<Optimizer (*)()> all{
      [] {
        return Optimizer(optimizers::Adam(
            {.learning_rate = optimizers::schedules::ExponentialDecay(
                 {.initial_learning_rate = .05, .decay_steps = 5, .decay_rate = .5})}));
      },
      [] { return Optimizer(optimizers::LossScaleOptimizer(optimizers::Adam())); },
      [] { return Optimizer(optimizers::ScheduleFreeAdamW()); },
      [] {
        return Optimizer(optimizers::MultiOptimizer(optimizers::OptimizerMap(
            optimizers::Adam(), {{".*bias", optimizers::SGD({.momentum = .9})}})));
      }};
  for (const auto& optimizer : all) {
    Job job;
    job.optimizer = optimizer;
    const Program whole = run(job);
    const std::string name = whole.model->optimizer().class_name();
    job.lazy = name != "MultiOptimizer";
    expect_same_end(interrupted(job, interrupt_before(2), {}), whole, name);
    expect_same_end(interrupted(job, interrupt_after(1, 3), {.save_freq = 3}), whole, name);
  }
}

TEST(BackupAndRestore, TheLearningRateGoesOnWhereACallbackHadBroughtIt) {
  const Job job{.callbacks = {LambdaCallback({})}};
  Job scheduled = job;
  scheduled.callbacks = {callbacks::LearningRateScheduler(
      [](int64_t epoch, double rate) { return epoch == 0 ? rate : rate / 2; })};
  expect_same_end(interrupted(scheduled, interrupt_before(2), {}), run(scheduled), "halved");
}

TEST(BackupAndRestore, TheSameModelMayGoOnInTheSameProcess) {
  const Folder folder;
  const Job job;
  Program first =
      run(job, {BackupAndRestore(folder / "b", {.save_freq = 1}), interrupt_after(2, 2)});
  ASSERT_TRUE(first.interrupted);
  first.interrupted = false;
  first.history = first.model->fit(x(), y(),
                                   {.batch_size = 4,
                                    .epochs = job.epochs,
                                    .verbose = 0,
                                    .callbacks = {BackupAndRestore(folder / "b")}});
  expect_same_end(first, run(job), "");
}

TEST(BackupAndRestore, DatasetsPassOverTheBatchesThatWereSeen) {
  Job job;
  job.data = [] { return data::from_tensor_slices(x(), y()).batch(4); };
  const Program whole = run(job);
  expect_same_end(interrupted(job, interrupt_before(2), {}), whole, "between epochs");
  expect_same_end(interrupted(job, interrupt_after(1, 3), {.save_freq = 2}), whole, "inside one");
}

TEST(BackupAndRestore, DatasetsThatShuffleAnewInEachPassGoOnWithTheirOrders) {
  for (const bool lazy : {false, true}) {
    Job job{.lazy = lazy};
    job.data = [] { return data::from_tensor_slices(x(), y()).shuffle(22, {.seed = 3}).batch(4); };
    const Program whole = run(job);
    expect_same_end(interrupted(job, interrupt_before(2), {}), whole, "between epochs");
    expect_same_end(interrupted(job, interrupt_after(1, 3), {.save_freq = 2}), whole, "inside one");
  }
}

TEST(BackupAndRestore, ADatasetWithoutEndIsNotBegunAnewAtAnEpoch) {
  for (const bool lazy : {false, true}) {
    Job job{.lazy = lazy};
    job.data = [] { return data::from_tensor_slices(x(), y()).batch(4).repeat(); };
    job.steps_per_epoch = 4;  // of 6 batches
    const Program whole = run(job);
    expect_same_end(interrupted(job, interrupt_before(2), {}), whole, "between epochs");
    expect_same_end(interrupted(job, interrupt_after(2, 1), {.save_freq = 1}), whole, "inside one");
  }
}

TEST(BackupAndRestore, KeptBackupsEndALaterFitAtOnce) {
  const Folder folder;
  const Job job;
  const BackupAndRestoreOptions keep{.delete_checkpoint = false};
  const Program whole = run(job, {BackupAndRestore(folder / "b", keep)});
  Job lazy = job;
  lazy.lazy = true;
  const Program again = run(lazy, {BackupAndRestore(folder / "b", keep)});
  EXPECT_TRUE(again.history.epoch.empty());
  expect_same_end(again, whole, "its weights all the same");
}

TEST(BackupAndRestore, ADamagedBackupIsDataLossAndTheOneBeforeItATwin) {
  for (const bool twice : {false, true}) {
    const Folder folder;
    const Job job;
    const BackupAndRestoreOptions options{.double_checkpoint = twice};
    ASSERT_TRUE(
        run(job, {BackupAndRestore(folder / "b", options), interrupt_before(3)}).interrupted);
    testing::fs::resize_file(folder / "b/latest.tutti", 100);
    if (twice) {
      const Program second = run(job, {BackupAndRestore(folder / "b", options)});
      EXPECT_EQ(second.history.epoch, (std::vector<int64_t>{2, 3}));
      expect_same_end(second, run(job), "");
    } else {
      EXPECT_ERROR(run(job, {BackupAndRestore(folder / "b", options)}), DataLoss, "latest.tutti");
    }
  }
}

TEST(BackupAndRestore, ABackupOfAnotherModelIsRefused) {
  const Folder folder;
  ASSERT_TRUE(run({}, {BackupAndRestore(folder / "b"), interrupt_before(1)}).interrupted);
  const auto other = testing::still();
  EXPECT_ERROR(other->fit(column({1}), column({0}),
                          {.verbose = 0, .callbacks = {BackupAndRestore(folder / "b")}}),
               InvalidArgument, "expected the same architecture");
  EXPECT_EQ(testing::weight(*other), 1);
}

TEST(BackupAndRestore, AnotherFileInItsPlaceIsRefused) {
  const Folder folder;
  testing::fs::create_directories(folder / "b");
  const auto model = testing::still();
  model->save(folder / "b/latest.tutti");
  EXPECT_ERROR(model->fit(column({1}), column({0}),
                          {.verbose = 0, .callbacks = {BackupAndRestore(folder / "b")}}),
               InvalidArgument, "a file of kind \"sequential\" and format 1, expected a backup");
}

TEST(BackupAndRestore, OutsideFitItSaysWhatDoesItThere) {
  callbacks::CallbackList list({BackupAndRestore("b")});
  EXPECT_ERROR(list.on_train_begin(), FailedPrecondition, "train::Checkpoint");
  EXPECT_ERROR(BackupAndRestore(""), InvalidArgument, "backup_dir");
}

// keras#20712, #19179, #19389: each fit in a process of its own: a "threadsafe"
// death test runs its statement in a new process, which begins this test from the start.
TEST(UserIssuesDeathTest, Issue67_AProcessThatDiedIsContinuedByTheNext) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr char kPlace[] = "TUTTI_TEST_BACKUP";
  const bool child = std::getenv(kPlace) != nullptr;
  std::optional<Folder> folder;
  if (!child) {
    folder.emplace();
    setenv(kPlace, (*folder / "").c_str(), 1);
  }
  const std::string place = std::getenv(kPlace);
  const Job job{.lazy = true, .epochs = 10, .shuffle = false};
  constexpr int kDied = 9;
  EXPECT_EXIT(
      {
        run(job, {BackupAndRestore(place + "backup"),
                  LambdaCallback({.on_epoch_begin = [](int64_t epoch, const Logs&) {
                    if (epoch == 4) std::_Exit(kDied);
                  }})});
        std::_Exit(1);
      },
      ::testing::ExitedWithCode(kDied), "");
  EXPECT_EXIT(
      {
        const Program second = run(job, {BackupAndRestore(place + "backup")});
        second.model->save(place + "end.tutti");
        std::_Exit(static_cast<int>(second.history.epoch.size()));
      },
      ::testing::ExitedWithCode(6), "");
  const auto end = load_model(place + "end.tutti");
  const Program whole = run(job);
  whole.model->save(place + "whole.tutti");
  const io::TensorFile found = io::read_tensor_file(place + "end.tutti");
  const io::TensorFile expected = io::read_tensor_file(place + "whole.tutti");
  ASSERT_EQ(found.tensors.size(), expected.tensors.size());
  for (std::size_t i = 0; i < found.tensors.size(); ++i) {
    EXPECT_EQ(found.tensors[i].first, expected.tensors[i].first);
    EXPECT_TRUE(at::equal(found.tensors[i].second, expected.tensors[i].second))
        << expected.tensors[i].first << ": weights and Adam's slots";
  }
  EXPECT_EQ(end->optimizer().iterations(), whole.model->optimizer().iterations());
  unsetenv(kPlace);
}

// ---- several workers

/// One run of the program by workers, or by the replicas of one (workers 0).
std::vector<Program> run_by_workers(int workers, int replicas,
                                    const std::function<Program(const Job&)>& body) {
  set_seed(5);
  std::mutex mutex;
  std::map<int, Program> programs;
  const auto one = [&](distribute::Strategy& strategy) {
    Program program = body({.strategy = &strategy, .is_worker = true});
    program.weights = program.model->get_weights();  // which all workers read
    program.optimizer_slots.clear();
    for (const std::string& slot : program.model->optimizer().slot_names()) {
      for (const Variable& variable : program.model->optimizer().slots(slot))
        program.optimizer_slots.push_back(variable.read_value().clone());
    }
    for (const Variable& weight : program.model->weights()) {
      for (const Tensor& component : weight.components())
        program.components.push_back(component.detach().clone());
    }
    program.model.reset();
    std::lock_guard<std::mutex> lock(mutex);
    programs.emplace(strategy.first_replica_id(), std::move(program));
  };
  if (workers == 0) {
    one(*testing::replicas(replicas));
  } else {
    tutti::testing::on_workers(
        workers, replicas,
        [&](const std::shared_ptr<distribute::Strategy>& strategy) { one(*strategy); });
  }
  std::vector<Program> all;
  for (auto& [first, program] : programs) all.push_back(std::move(program));
  return all;
}

void expect_same_bits(const std::vector<Tensor>& found, const std::vector<Tensor>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TENSOR_EQ(found[i], wanted[i]);
}

void expect_same_programs(const std::vector<Program>& found, const std::vector<Program>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t worker = 0; worker < wanted.size(); ++worker) {
    ASSERT_FALSE(found[worker].interrupted);
    expect_same_bits(found[worker].weights, wanted[worker].weights);
    expect_same_bits(found[worker].optimizer_slots, wanted[worker].optimizer_slots);
    expect_same_bits(found[worker].components, wanted[worker].components);
    for (const auto& [name, values] : found[worker].history.history) {
      const auto& all = wanted[worker].history.history.at(name);
      EXPECT_EQ(values, std::vector<double>(all.end() - static_cast<std::ptrdiff_t>(values.size()),
                                            all.end()))
          << name;
    }
  }
}

TEST(BackupAndRestore, OfSeveralWorkersByEpochsAndBySteps) {
  for (const auto& [workers, replicas] : std::vector<std::pair<int, int>>{{2, 1}, {2, 2}}) {
    const auto whole = run_by_workers(workers, replicas, [](const Job& job) { return run(job); });
    for (const bool by_steps : {false, true}) {
      SCOPED_TRACE(cat(workers, " workers of ", replicas, by_steps ? ", by steps" : ""));
      const Folder folder;
      const std::string place = folder / "backup";
      BackupAndRestoreOptions options;
      if (by_steps) options.save_freq = 2;
      for (const Program& first : run_by_workers(workers, replicas, [&](const Job& job) {
             return run(job, {BackupAndRestore(place, options), interrupt_after(2, 3)});
           }))
        EXPECT_TRUE(first.interrupted);
      EXPECT_TRUE(testing::fs::exists(place + "/latest.tutti"));
      const auto second = run_by_workers(workers, replicas, [&](const Job& job) {
        return run(job, {BackupAndRestore(place, options)});
      });
      EXPECT_EQ(second[0].history.epoch, (std::vector<int64_t>{2, 3}));
      expect_same_programs(second, whole);
      EXPECT_EQ(folder.files(), std::vector<std::string>()) << "the chief has removed it";
    }
  }
}

TEST(BackupAndRestore, Issue51_WhenOneWorkerDiesInMidEpochAllResumeWithTheBitsOfAnUndisturbedRun) {
  const auto whole = run_by_workers(2, 1, [](const Job& job) { return run(job); });
  const Folder folder;
  const std::string place = folder / "backup";
  set_seed(5);
  tutti::testing::on_workers(2, 1, [&](const std::shared_ptr<distribute::Strategy>& strategy) {
    const Job job{.strategy = strategy.get(), .is_worker = true};
    const bool dies = strategy->first_replica_id() == 1;
    // The same callbacks everywhere: one that sees the logs of batches has all workers read them.
    const std::vector<AnyCallback> callbacks{BackupAndRestore(place, {.save_freq = 1}),
                                             interrupt_after(dies ? 1 : 100, 2)};
    if (dies) {
      EXPECT_TRUE(run(job, callbacks).interrupted);
    } else {
      EXPECT_THROW(run(job, callbacks), Aborted);
    }
  });
  EXPECT_TRUE(testing::fs::exists(place + "/latest.tutti"));
  const auto second = run_by_workers(
      2, 1, [&](const Job& job) { return run(job, {BackupAndRestore(place, {.save_freq = 1})}); });
  expect_same_programs(second, whole);
}

TEST(BackupAndRestore, OfTwoWorkersGoesOnInTwoReplicasOfOneWithTheBitsOfEach) {
  const Folder folder;
  const BackupAndRestoreOptions options{.save_freq = 1};
  const auto first = run_by_workers(2, 1, [&](const Job& job) {
    return run(job, {BackupAndRestore(folder / "b", options), interrupt_after(1, 3)});
  });
  const auto second = run_by_workers(0, 2, [&](const Job& job) {
    return run(job, {BackupAndRestore(folder / "b", options), interrupt_before(1)});
  });
  expect_same_bits(second[0].optimizer_slots, first[0].optimizer_slots);
  const std::vector<Tensor>& replicas = second[0].components;
  ASSERT_EQ(replicas.size(), 2 * first[0].components.size());
  for (std::size_t i = 0; i < replicas.size(); ++i)
    EXPECT_TENSOR_EQ(replicas[i], first[i % 2].components[i / 2]);
  const auto rest = run_by_workers(
      0, 2, [&](const Job& job) { return run(job, {BackupAndRestore(folder / "b", options)}); });
  EXPECT_EQ(rest[0].history.epoch, (std::vector<int64_t>{1, 2, 3}));
}

TEST(BackupAndRestore, ADamagedOneIsPassedOverByAllWorkers) {
  const Folder folder;
  const std::string place = folder / "backup";
  const BackupAndRestoreOptions options{.double_checkpoint = true};
  run_by_workers(2, 1, [&](const Job& job) {
    return run(job, {BackupAndRestore(place, options), interrupt_before(3)});
  });
  testing::fs::resize_file(place + "/latest.tutti", 100);
  const auto second = run_by_workers(
      2, 1, [&](const Job& job) { return run(job, {BackupAndRestore(place, options)}); });
  EXPECT_EQ(second[0].history.epoch, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(second[1].history.epoch, (std::vector<int64_t>{2, 3}));
}

/// Another process's lock, as it looks from here.
class Holder {
 public:
  explicit Holder(const std::string& path) : file_(::open(path.c_str(), O_RDWR | O_CREAT, 0666)) {
    const std::string text = "owner: process 1 of host elsewhere\n";
    EXPECT_EQ(::flock(file_, LOCK_EX | LOCK_NB), 0);
    EXPECT_EQ(::write(file_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  ~Holder() { ::close(file_); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

 private:
  int file_;
};

TEST(BackupAndRestore, R17_AnotherProcessThatTrainsInTheFolderIsNamed) {
  const Folder folder;
  testing::fs::create_directories(folder / "b");
  const Holder other(folder / "b/checkpoint.lock");
  EXPECT_ERROR(run({}, {BackupAndRestore(folder / "b")}), FailedPrecondition,
               "process 1 of host elsewhere writes here");
}

}  // namespace
}  // namespace tutti::keras
