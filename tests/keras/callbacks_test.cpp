#include "tutti/keras/callbacks.h"

#include <cmath>
#include <limits>

#include "keras/callback_script.h"
#include "tutti/distribute/strategies.h"

namespace tutti::keras {
namespace {

namespace fs = std::filesystem;
using callbacks::AnyCallback;
using callbacks::CSVLogger;
using callbacks::EarlyStopping;
using callbacks::LambdaCallback;
using callbacks::ModelCheckpoint;
using callbacks::TerminateOnNaN;
using testing::Folder;
using testing::Script;
using testing::Still;
using testing::text_of;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

using Epochs = std::vector<int64_t>;
const double kNan = std::nan("");

// ---- Logs

TEST(Logs, AMissingNameIsAnErrorThatListsThoseThereAre) {
  Logs logs{{"loss", 1}, {"accuracy", .5}};
  EXPECT_EQ(logs["loss"], 1);
  EXPECT_ERROR(logs["acc"], NotFound, "logs: \"acc\", expected one of accuracy, loss");
  EXPECT_EQ(logs.size(), 2u) << "asking adds nothing";
  EXPECT_ERROR(Logs()["loss"], NotFound, "expected one of none");
}

// ---- EarlyStopping: the runs of real Keras

TEST(EarlyStopping, StopsAfterPatienceEpochsWithoutImprovement) {
  Script script{.values = {1, .9, .95, .92, .8}};
  CaptureStdout();
  const History history =
      script.run(EarlyStopping({.patience = 2, .verbose = 1, .restore_best_weights = true}));
  EXPECT_EQ(GetCapturedStdout(),
            "Epoch 4: early stopping\n"
            "Restoring model weights from the end of the best epoch: 2.\n");
  EXPECT_EQ(history.epoch, (Epochs{0, 1, 2, 3}));
  EXPECT_EQ(script.still.weight(), 1) << "the weights of the end of epoch 1";
}

TEST(EarlyStopping, WithoutPatienceTheFirstWorseEpochStops) {
  Script script{.values = {1, 1.1, .5}};
  EXPECT_EQ(script.run(EarlyStopping()).epoch, (Epochs{0, 1}));
  EXPECT_EQ(script.still.weight(), 1) << "weights are left as they are";
}

TEST(EarlyStopping, AnImprovementBelowMinDeltaIsNone) {
  Script script{.values = {1, .95, .9, .85}};
  EXPECT_EQ(script.run(EarlyStopping({.min_delta = .1, .patience = 1})).epoch, (Epochs{0, 1}));
}

TEST(EarlyStopping, LooksOnlyFromStartFromEpochOn) {
  Script script{.values = {1, 2, 3, 4, 5, 6}};
  EXPECT_EQ(script.run(EarlyStopping({.start_from_epoch = 3})).epoch, (Epochs{0, 1, 2, 3, 4}));
}

TEST(EarlyStopping, NanIsNoImprovement) {
  Script script{.values = {kNan, kNan, 1}};
  EXPECT_EQ(script.run(EarlyStopping()).epoch, (Epochs{0, 1}));
}

TEST(EarlyStopping, AnImprovingEpochNeverStopsEvenAboveTheBaseline) {
  Script script{.values = {1, .9, .8, .7}};
  EXPECT_EQ(script.run(EarlyStopping({.patience = 1, .baseline = .5})).epoch, (Epochs{0, 1, 2, 3}));
}

TEST(EarlyStopping, BestWeightsAreRestoredWhateverEndedTraining) {
  Script script{.values = {1, .5, .9}};
  script.run(EarlyStopping({.patience = 10, .restore_best_weights = true}));
  EXPECT_EQ(script.still.weight(), 1);
}

TEST(EarlyStopping, AccuracyIsToGrow) {
  Script script{.name = "val_accuracy", .values = {.5, .6, .55}};
  EXPECT_EQ(script.run(EarlyStopping({.monitor = "val_accuracy"})).epoch, (Epochs{0, 1, 2}));
}

TEST(EarlyStopping, ModeMinTurnsItRound) {
  Script script{.name = "val_accuracy", .values = {.5, .6, .55}};
  EXPECT_EQ(script.run(EarlyStopping({.monitor = "val_accuracy", .mode = "min"})).epoch,
            (Epochs{0, 1}));
}

TEST(EarlyStopping, AutoAsksTheMetricNotItsName) {
  Script script{.name = "val_score",
                .values = {.5, .6, .55},
                .still = Still({metrics::BinaryAccuracy("score")})};
  EXPECT_EQ(script.run(EarlyStopping({.monitor = "val_score"})).epoch, (Epochs{0, 1, 2}));
}

TEST(EarlyStopping, AMissingNumberIsOneWarningWithThoseThereAre) {
  Script script{.name = "other", .values = {1, 2, 3}};
  CaptureStderr();
  EXPECT_EQ(script.run(EarlyStopping()).epoch, (Epochs{0, 1, 2}));
  const std::string text = GetCapturedStderr();
  const auto first = text.find("EarlyStopping: \"val_loss\" is not among the logs (loss, other)");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("EarlyStopping", first + 1), std::string::npos) << "once: " << text;
}

TEST(EarlyStopping, ASecondFitBeginsAnew) {
  Script script{.values = {1, 2}};
  const AnyCallback stop = EarlyStopping();
  EXPECT_EQ(script.run(stop).epoch, (Epochs{0, 1}));
  script.values = {5, 4, 3};
  EXPECT_EQ(script.run(stop).epoch, (Epochs{0, 1, 2}));
}

TEST(EarlyStopping, WrongArgumentsAreRefused) {
  EXPECT_ERROR(EarlyStopping({.mode = "up"}), InvalidArgument, "\"up\", expected auto, min or max");
  EXPECT_ERROR(EarlyStopping({.patience = -1}), InvalidArgument, "patience");
}

// ---- CSVLogger

TEST(CSVLogger, ColumnsAreFixedAtTheFirstEpoch) {
  const Folder folder;
  const AnyCallback logger = CSVLogger(folder / "log.csv");
  logger->on_train_begin({});
  Logs first{{"loss", 1}, {"acc", .5}};
  Logs second{{"loss", .5}, {"acc", .75}, {"val_loss", 1}};
  logger->on_epoch_end(0, first);
  logger->on_epoch_end(1, second);
  logger->on_train_end({});
  EXPECT_EQ(text_of(folder / "log.csv"),
            "epoch,acc,loss,val_acc,val_loss\n0,0.5,1.0,NA,NA\n1,0.75,0.5,NA,1.0\n");
}

TEST(CSVLogger, NumbersAreWrittenAsPythonDoes) {
  const Folder folder;
  const AnyCallback logger = CSVLogger(folder / "log.csv", {.separator = ";"});
  logger->on_train_begin({});
  Logs logs{{"a", 20},    {"b", 1e-5},           {"c", static_cast<double>(.1f)},
            {"d", -1000}, {"val_e", -kNan},      {"f", std::numeric_limits<double>::infinity()},
            {"g", 1e16},  {"h", 1234567890.125}, {"i", 1. / 3}};
  logger->on_epoch_end(0, logs);
  logger->on_train_end({});
  EXPECT_EQ(text_of(folder / "log.csv"),
            "epoch;a;b;c;d;f;g;h;i;val_e\n"
            "0;20.0;1e-05;0.10000000149011612;-1000.0;inf;1e+16;1234567890.125;"
            "0.3333333333333333;nan\n");
}

TEST(CSVLogger, AppendWritesTheHeaderOnlyIntoAnEmptyFile) {
  const Folder folder;
  Still still;
  for (int run = 0; run < 2; ++run) {
    still.model.fit(at::ones({1, 1}), at::zeros({1, 1}),
                    {.verbose = 0, .callbacks = {CSVLogger(folder / "log.csv", {.append = true})}});
  }
  EXPECT_EQ(text_of(folder / "log.csv"), "epoch,loss,val_loss\n0,1.0,NA\n0,1.0,NA\n");
  still.model.fit(at::ones({1, 1}), at::zeros({1, 1}),
                  {.verbose = 0, .callbacks = {CSVLogger(folder / "log.csv")}});
  EXPECT_EQ(text_of(folder / "log.csv"), "epoch,loss,val_loss\n0,1.0,NA\n") << "a new file";
}

TEST(CSVLogger, AFolderThatIsNotThereIsNamed) {
  const Folder folder;
  const AnyCallback logger = CSVLogger(folder / "no/log.csv");
  EXPECT_ERROR(logger->on_train_begin({}), NotFound, "no/log.csv]: the file cannot be opened");
}

TEST(CSVLogger, AFullDiskIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_FAIL() << "this system has no /dev/full";
  const AnyCallback logger = CSVLogger("/dev/full");
  logger->on_train_begin({});
  Logs logs{{"loss", 1}};
  EXPECT_ERROR(logger->on_epoch_end(0, logs), ResourceExhausted, "/dev/full]: the line of epoch 1");
}

// ---- ModelCheckpoint

TEST(ModelCheckpoint, NamesComeFromEpochAndLogs) {
  const Folder folder;
  Script script{.values = {1, .5}};
  script.run(ModelCheckpoint(folder / "w_{epoch:02d}-{val_loss:.2f}.weights.tutti",
                             {.save_weights_only = true}));
  EXPECT_EQ(folder.files(),
            (std::vector<std::string>{"w_01-1.00.weights.tutti", "w_02-0.50.weights.tutti"}));
}

TEST(ModelCheckpoint, KeepsTheBestAndSaysSo) {
  const Folder folder;
  const std::string path = folder / "best.weights.tutti";
  Script script{.values = {1, .9, .95}};
  CaptureStdout();
  script.run(
      ModelCheckpoint(path, {.verbose = 1, .save_best_only = true, .save_weights_only = true}));
  EXPECT_EQ(GetCapturedStdout(),
            cat("\nEpoch 1: val_loss improved from None to 1.00000, saving model to ", path,
                "\n\nEpoch 1: finished saving model to ", path,
                "\n\nEpoch 2: val_loss improved from 1.00000 to 0.90000, saving model to ", path,
                "\n\nEpoch 2: finished saving model to ", path,
                "\n\nEpoch 3: val_loss did not improve from 0.90000\n"));
  script.still.set(-1);
  script.still.model.load_weights(path);
  EXPECT_EQ(script.still.weight(), 1) << "of epoch 1";
}

TEST(ModelCheckpoint, WithoutSaveBestOnlyEachEpochIsSaved) {
  const Folder folder;
  Script script{.values = {1, 2}};
  CaptureStdout();
  script.run(ModelCheckpoint(folder / "m.tutti", {.verbose = 1}));
  const std::string path = folder / "m.tutti";
  EXPECT_EQ(GetCapturedStdout(),
            cat("\nEpoch 1: saving model to ", path, "\n\nEpoch 1: finished saving model to ", path,
                "\n\nEpoch 2: saving model to ", path, "\n\nEpoch 2: finished saving model to ",
                path, "\n"));
  const auto model = load_model(path);
  EXPECT_EQ(model->get_weights()[0].item<float>(), 1);
  EXPECT_TRUE(model->compiled());
}

TEST(ModelCheckpoint, AThresholdMustBeBeatenFirst) {
  const Folder folder;
  Script script{.values = {1, .4}};
  script.run(ModelCheckpoint(folder / "{epoch}.tutti",
                             {.save_best_only = true, .initial_value_threshold = .5}));
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"2.tutti"}));
}

TEST(ModelCheckpoint, NanIsNotTheBest) {
  const Folder folder;
  Script script{.values = {kNan, 3}};
  script.run(ModelCheckpoint(folder / "{epoch}.tutti", {.save_best_only = true}));
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"2.tutti"}));
}

TEST(ModelCheckpoint, SaveFreqCountsBatchesAcrossEpochs) {
  const Folder folder;
  Script script{.values = {1, 1}};
  script.run(ModelCheckpoint(folder / "{epoch}_{batch}.tutti", {.save_freq = 2}), /*rows=*/3);
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"1_2.tutti", "2_1.tutti", "2_3.tutti"}));
}

TEST(ModelCheckpoint, SaveFreqAndSaveBestOnlyGoTogether) {
  const Folder folder;
  Script script{.values = {1}};
  script.run(ModelCheckpoint(folder / "{epoch}_{batch}.tutti",
                             {.monitor = "loss", .save_best_only = true, .save_freq = 1}),
             /*rows=*/3);
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"1_1.tutti"})) << "the loss does not change";
}

TEST(ModelCheckpoint, TheSuffixSaysWhatIsSaved) {
  EXPECT_ERROR(ModelCheckpoint("a.keras"), InvalidArgument, "\".tutti\"");
  EXPECT_ERROR(ModelCheckpoint("a.weights.tutti"), InvalidArgument, "save_weights_only");
  EXPECT_ERROR(ModelCheckpoint("a.tutti", {.save_weights_only = true}), InvalidArgument,
               "\".weights.tutti\"");
  EXPECT_ERROR(ModelCheckpoint("a.safetensors"), InvalidArgument, "save_weights_only");
  EXPECT_ERROR(ModelCheckpoint("a.tutti", {.save_freq = -1}), InvalidArgument, "save_freq");
  EXPECT_ERROR(ModelCheckpoint("a.tutti", {.save_freq = 0}), InvalidArgument, "save_freq");
  EXPECT_ERROR(ModelCheckpoint("a.tutti", {.save_freq = "step"}), InvalidArgument, "\"step\"");
}

TEST(ModelCheckpoint, WeightsMayBeSafetensorsFilesInAFolderThatIsMade) {
  const Folder folder;
  Script script{.values = {1}};
  script.run(ModelCheckpoint(folder / "run/1/w.safetensors", {.save_weights_only = true}));
  script.still.set(-1);
  script.still.model.load_weights(folder / "run/1/w.safetensors");
  EXPECT_EQ(script.still.weight(), 0) << "of the end of epoch 0";
}

// keras#16734, tensorflow#33163.
TEST(ModelCheckpoint, BatchesHaveNoValidationNumbersWhichIsOneWarning) {
  const Folder folder;
  Script script{.values = {1, 1}};
  CaptureStderr();
  script.run(ModelCheckpoint(folder / "{epoch}.tutti", {.save_best_only = true, .save_freq = 1}),
             /*rows=*/3);
  const std::string text = GetCapturedStderr();
  const auto first = text.find("ModelCheckpoint: \"val_loss\" is not among the logs (loss)");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("ModelCheckpoint", first + 1), std::string::npos) << text;
  EXPECT_TRUE(folder.files().empty());
}

// keras PR 17632.
TEST(ModelCheckpoint, SaveFreqCountsBatchesNotExecutions) {
  const Folder folder;
  Still still;
  still.model.compile({.optimizer = optimizers::SGD({.learning_rate = 0}),
                       .loss = "mse",
                       .steps_per_execution = 2});
  still.model.fit(
      at::ones({5, 1}), at::zeros({5, 1}),
      {.batch_size = 1,
       .epochs = 2,
       .verbose = 0,
       .callbacks = {ModelCheckpoint(folder / "{epoch}_{batch}.tutti", {.save_freq = 4})}});
  EXPECT_EQ(folder.files(), (std::vector<std::string>{"1_4.tutti", "2_4.tutti"}))
      << "steps 4 and 8 or, at an execution's end, 5 + 4";
}

TEST(ModelCheckpoint, AnUnknownNameIsAnErrorThatListsThoseThereAre) {
  Script script{.values = {1}};
  EXPECT_ERROR(script.run(ModelCheckpoint("{val_acc:.2f}.tutti")), NotFound,
               "ModelCheckpoint [filepath]: {val_acc}, expected one of epoch, loss, val_loss");
}

TEST(ModelCheckpoint, OnlyNumberFormatsReachPrintf) {
  for (const char* format :
       {"s", "n", "dd", "0d2d", "d.2f", ".f", "2", "999d", ".2d", "*d", "ld"}) {
    Script script{.values = {1}};
    EXPECT_ERROR(script.run(ModelCheckpoint(cat("{epoch:", format, "}.tutti"))), InvalidArgument,
                 cat("the format \"", format, "\""));
  }
}

// ---- TerminateOnNaN, LambdaCallback, AnyCallback

TEST(TerminateOnNaN, StopsAtTheBatchWhoseLossIsNotFinite) {
  Still still;
  Tensor x = at::ones({4, 1});
  x[2] = kNan;
  std::vector<int64_t> batches;
  CaptureStdout();
  const History history = still.model.fit(
      x, at::zeros({4, 1}),
      {.batch_size = 1,
       .epochs = 2,
       .verbose = 0,
       .callbacks = {TerminateOnNaN(), LambdaCallback({.on_train_batch_end =
                                                           [&](int64_t batch, const Logs&) {
                                                             batches.push_back(batch);
                                                           }})},
       .shuffle = false});
  EXPECT_EQ(GetCapturedStdout(), "Batch 2: Invalid loss, terminating training\n");
  EXPECT_EQ(batches, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(history.epoch, (Epochs{0}));
  EXPECT_TRUE(std::isnan(history.history.at("loss")[0]));
}

TEST(TerminateOnNaN, RaisesAnErrorWhenItIsTold) {
  Still still;
  EXPECT_ERROR(
      still.model.fit(at::full({1, 1}, std::numeric_limits<float>::infinity()), at::zeros({1, 1}),
                      {.verbose = 0, .callbacks = {TerminateOnNaN({.raise_error = true})}}),
      FailedPrecondition, "TerminateOnNaN [batch 0]: the loss is infinite");
}

TEST(Callbacks, OnesOwnByValueKnowsModelAndParams) {
  struct Own : callbacks::Callback {
    std::vector<std::string>* seen;
    void on_train_begin(const Logs&) override {
      seen->push_back(
          cat(model()->name(), " ", params().verbose, " ", params().epochs, " ", params().steps));
    }
  };
  std::vector<std::string> seen;
  Own own;
  own.seen = &seen;
  Still still;
  still.model.fit(
      at::ones({5, 1}), at::zeros({5, 1}),
      {.batch_size = 2, .epochs = 3, .verbose = 0, .callbacks = {callbacks::make(own)}});
  EXPECT_EQ(seen, (std::vector<std::string>{cat(still.model.name(), " 0 3 3")}));
}

TEST(Callbacks, WhatOneAddsToTheEpochsLogsLaterOnesAndTheHistorySee) {
  Script script{.name = "learning_rate", .values = {.5, .25}};
  std::vector<double> seen;
  const History history = script.run(LambdaCallback(
      {.on_epoch_end = [&](int64_t, const Logs& logs) { seen.push_back(logs["learning_rate"]); }}));
  EXPECT_EQ(seen, (std::vector<double>{.5, .25}));
  EXPECT_EQ(history.history.at("learning_rate"), seen);
}

TEST(Callbacks, AnEmptyOneIsRefused) {
  EXPECT_ERROR(AnyCallback(std::shared_ptr<callbacks::Callback>()), InvalidArgument, "callback");
}

}  // namespace
}  // namespace tutti::keras
