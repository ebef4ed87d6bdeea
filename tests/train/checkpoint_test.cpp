#include "tutti/train/checkpoint.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "support/expect.h"
#include "tutti/io/tensor_file.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

/// A value that may come late, as the weights of a model that its first batch builds.
class Value : public Trackable {
 public:
  explicit Value(Nest value, bool built = true) : value_(std::move(value)), built_(built) {}
  Nest state() const override {
    if (!built_) throw FailedPrecondition("value: not built, expected a value; build it");
    return value_;
  }
  void check_state(const Nest& state) const override {
    if (built_ && state.structure() != value_.structure())
      throw InvalidArgument(cat("value: ", state.structure(), ", expected ", value_.structure()));
  }
  void set_state(const Nest& state) override {
    if (built_) {
      value_ = state;
    } else {
      waiting_ = state;
    }
  }
  bool state_taken() const override { return waiting_.kind() == NestKind::kNone; }
  void build() {
    built_ = true;
    if (!state_taken()) value_ = std::exchange(waiting_, Nest());
  }
  const Nest& value() const { return value_; }

 private:
  Nest value_;
  Nest waiting_;
  bool built_;
};

std::shared_ptr<Value> number(float x) { return std::make_shared<Value>(Nest(at::full({2}, x))); }
float number_of(const std::shared_ptr<Value>& value) {
  return value->value().leaf()[0].item<float>();
}

class Checkpoints : public ::testing::Test {
 protected:
  Checkpoints() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / cat("tutti_", test->name(), "_", getpid());
    fs::create_directories(folder_);
  }
  ~Checkpoints() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  /// Without the lock of whoever is saving there.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().filename() != "checkpoint.lock")
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  fs::path folder_;
};

TEST_F(Checkpoints, WrittenAsynchronouslyHaveTheStatesOfTheirCall) {
  const auto a = number(1);
  Checkpoint checkpoint({{"a", a}});
  for (float step = 1; step <= 5; ++step) {
    const Tensor weights = a->value().leaf();
    weights.fill_(step);
    EXPECT_EQ(checkpoint.save(path("c"), {.enable_async = true}),
              path(cat("c-", static_cast<int>(step))));
    weights.fill_(-1);  // what it writes was copied
  }
  checkpoint.sync();
  EXPECT_EQ(latest_checkpoint(folder_.string()), path("c-5"));
  for (int step = 1; step <= 5; ++step) {
    checkpoint.restore(path(cat("c-", step)));
    EXPECT_EQ(number_of(a), static_cast<float>(step));
  }
}

TEST_F(Checkpoints, WrittenAsynchronouslySayAtTheNextCallWhatWentWrong) {
  Checkpoint checkpoint({{"a", number(1)}});
  fs::create_directories(path("c-1.tutti/in the way"));
  checkpoint.save(path("c"), {.enable_async = true});
  EXPECT_ERROR(checkpoint.sync(), Error, "c-1");
  checkpoint.sync();
  EXPECT_EQ(latest_checkpoint(folder_.string()), "") << "what is not there is no latest one";
  checkpoint.save(path("c"), {.enable_async = true});
  checkpoint.restore(path("c-2")).assert_consumed();  // which waits for the write
}

TEST_F(Checkpoints, WrittenAsynchronouslyAreWholeWhenTheirObjectIsGone) {
  const auto a = number(3);
  { Checkpoint({{"a", a}}).write(path("c"), {.enable_async = true}); }
  a->value().leaf().fill_(0);
  Checkpoint({{"a", a}}).restore(path("c"));
  EXPECT_EQ(number_of(a), 3);
  {
    Checkpoint late({{"a", std::make_shared<Value>(Nest(), false)}});
    EXPECT_ERROR(late.write(path("d"), {.enable_async = true}), FailedPrecondition, "not built");
  }
}

TEST_F(Checkpoints, GiveBackNestsOfTensorsAndStrings) {
  const Nest nest =
      Nest::map({{"a", Nest::tuple({Nest(at::arange(6).view({2, 3})), Nest()})},
                 {"b/c", Nest::list({Nest(StringTensor({"x", "", std::string("\0y", 2)}, {3, 1})),
                                     Nest(at::tensor({1, 0}).to(at::kBool))})},
                 {"empty", Nest::list({})},
                 {"scalar", Nest(StringTensor("one"))}});
  Checkpoint({{"value", std::make_shared<Value>(nest)}}).write(path("all"));
  auto back = std::make_shared<Value>(
      nest.map_leaves([](const Tensor& leaf) { return at::zeros_like(leaf); }));
  Checkpoint({{"value", back}}).read(path("all")).assert_consumed();
  EXPECT_EQ(back->value().structure(), nest.structure());
  EXPECT_TENSOR_EQ(back->value()["a"][0].leaf(), at::arange(6).view({2, 3}));
  EXPECT_EQ(back->value()["b/c"][0].strings(), nest["b/c"][0].strings());
  EXPECT_EQ(back->value()["scalar"].strings().item(), "one");
}

TEST_F(Checkpoints, AreSavedUnderAGrowingNumberThatARestoreTakesUp) {
  auto value = number(1);
  Checkpoint checkpoint({{"value", value}});
  EXPECT_EQ(latest_checkpoint(folder_.string()), "");
  EXPECT_EQ(checkpoint.save(path("ckpt")), path("ckpt-1"));
  EXPECT_EQ(checkpoint.save(path("ckpt")), path("ckpt-2"));
  EXPECT_EQ(latest_checkpoint(folder_.string()), path("ckpt-2"));
  EXPECT_EQ(files(), (std::vector<std::string>{"checkpoint", "ckpt-1.tutti", "ckpt-2.tutti"}));
  auto other = number(7);
  Checkpoint next({{"value", other}});
  next.restore(latest_checkpoint(folder_.string() + "/")).assert_consumed();
  EXPECT_EQ(number_of(other), 1);
  EXPECT_EQ(next.save(path("ckpt")), path("ckpt-3"));
}

TEST_F(Checkpoints, TheFolderFileReadsAsTensorFlowWritesIt) {
  Checkpoint checkpoint({{"value", number(1)}});
  checkpoint.save(path("ckpt"));
  std::ifstream file(path("checkpoint"));
  std::string first, second;
  std::getline(file, first);
  std::getline(file, second);
  EXPECT_EQ(first, "model_checkpoint_path: \"ckpt-1\"");
  EXPECT_EQ(second, "all_model_checkpoint_paths: \"ckpt-1\"");
}

TEST_F(Checkpoints, AnEmptyPathRestoresNothing) {
  auto value = number(3);
  Checkpoint({{"value", value}}).restore(latest_checkpoint(path("nowhere"))).assert_consumed();
  EXPECT_EQ(number_of(value), 3);
}

TEST_F(Checkpoints, AnObjectThatIsNotBuiltTakesItsStateWhenItIs) {
  Checkpoint({{"model", number(5)}}).write(path("x"));
  auto late = std::make_shared<Value>(Nest(at::zeros({2})), /*built=*/false);
  Checkpoint checkpoint({{"model", late}});
  LoadStatus status = checkpoint.read(path("x"));
  EXPECT_ERROR(status.assert_consumed(), InvalidArgument, "model not built yet");
  late->build();
  status.assert_consumed();
  EXPECT_EQ(number_of(late), 5);
}

TEST_F(Checkpoints, WhatIsLeftOverIsNamed) {
  Checkpoint({{"a", number(1)}, {"b", number(2)}}).write(path("x"));
  auto a = number(0);
  LoadStatus fewer = Checkpoint({{"a", a}}).read(path("x"));
  EXPECT_EQ(number_of(a), 1);
  fewer.assert_existing_objects_matched().expect_partial();
  EXPECT_ERROR(fewer.assert_consumed(), InvalidArgument, "nothing here took b");
  LoadStatus more = Checkpoint({{"a", a}, {"c", number(0)}}).read(path("x"));
  EXPECT_ERROR(more.assert_existing_objects_matched(), InvalidArgument,
               "nothing in the file for c");
}

TEST_F(Checkpoints, OneStateThatDoesNotFitLeavesAllObjectsAlone) {
  Checkpoint({{"a", number(1)}, {"b", number(2)}}).write(path("x"));
  auto a = number(0);
  auto b = std::make_shared<Value>(Nest::tuple({Nest(at::zeros({1}))}));
  EXPECT_ERROR(Checkpoint({{"a", a}, {"b", b}}).read(path("x")), InvalidArgument,
               "nothing was changed");
  EXPECT_EQ(number_of(a), 0);
}

TEST_F(Checkpoints, AnObjectWithoutStateWritesNothing) {
  Checkpoint checkpoint(
      {{"a", number(1)}, {"b", std::make_shared<Value>(Nest(), /*built=*/false)}});
  EXPECT_ERROR(checkpoint.save(path("x")), FailedPrecondition, "not built");
  EXPECT_EQ(checkpoint.save_counter(), 0);
  EXPECT_TRUE(files().empty());
}

TEST_F(Checkpoints, NamesAreChecked) {
  EXPECT_ERROR(Checkpoint({{"a/b", number(1)}}), InvalidArgument, "without slash");
  EXPECT_ERROR(Checkpoint({{"save_counter", number(1)}}), InvalidArgument, "save_counter");
}

TEST_F(Checkpoints, OtherFilesAndDamagedOnesAreRefused) {
  std::ofstream(path("text.tutti")) << "not a checkpoint at all";
  Checkpoint checkpoint({{"a", number(1)}});
  EXPECT_ERROR(checkpoint.read(path("text")), InvalidArgument, "no safetensors");
  EXPECT_ERROR(checkpoint.read(path("none")), NotFound, "none.tutti");
  checkpoint.write(path("x"));
  fs::resize_file(path("x.tutti"), fs::file_size(path("x.tutti")) - 1);
  EXPECT_THROW(checkpoint.read(path("x")), DataLoss);
  std::ofstream(path("checkpoint")) << "model_checkpoint_path: x-1\n";
  EXPECT_ERROR(latest_checkpoint(folder_.string()), DataLoss, "in quotes");
}

TEST_F(Checkpoints, AManagerKeepsTheLastOnesAndTheNextOneTakesThemUp) {
  auto value = number(0);
  Checkpoint checkpoint({{"value", value}});
  {
    CheckpointManager manager(checkpoint, folder_.string(), {.max_to_keep = 2});
    for (int i = 0; i < 3; ++i) manager.save();
    EXPECT_EQ(manager.checkpoints(), (std::vector{path("ckpt-2"), path("ckpt-3")}));
    EXPECT_EQ(files(), (std::vector<std::string>{"checkpoint", "ckpt-2.tutti", "ckpt-3.tutti"}));
  }
  Checkpoint fresh({{"value", value}});
  CheckpointManager next(fresh, folder_.string() + "/", {.max_to_keep = 2});
  EXPECT_EQ(next.latest_checkpoint(), path("ckpt-3"));
  EXPECT_EQ(next.restore_or_initialize(), path("ckpt-3"));
  EXPECT_EQ(next.save(), path("ckpt-4"));
  EXPECT_EQ(next.checkpoints(), (std::vector{path("ckpt-3"), path("ckpt-4")}));
  EXPECT_EQ(next.save(42), path("ckpt-42"));
}

TEST_F(Checkpoints, AManagerKeepsOneOfEverySoManyHoursForEver) {
  Checkpoint checkpoint({{"value", number(0)}});
  CheckpointManager manager(checkpoint, folder_.string(),
                            {.max_to_keep = 1, .keep_checkpoint_every_n_hours = 0.0});
  for (int i = 0; i < 3; ++i) manager.save();
  EXPECT_EQ(manager.checkpoints(), (std::vector{path("ckpt-3")}));
  EXPECT_EQ(files().size(), 4u);  // the folder's file and all three
}

TEST_F(Checkpoints, AManagerSavesOnlyEverySoManySteps) {
  int64_t step = 0;
  Checkpoint checkpoint({{"value", number(0)}});
  CheckpointManager manager(checkpoint, folder_.string(),
                            {.step_counter = [&] { return step; }, .checkpoint_interval = 10});
  EXPECT_TRUE(manager.save());
  step = 9;
  EXPECT_FALSE(manager.save());
  EXPECT_TRUE(manager.save(std::nullopt, /*check_interval=*/false));
  step = 19;
  EXPECT_TRUE(manager.save());
  EXPECT_ERROR(CheckpointManager(checkpoint, folder_.string(), {.checkpoint_interval = 1}),
               InvalidArgument, "step_counter");
  EXPECT_ERROR(CheckpointManager(checkpoint, folder_.string(), {.max_to_keep = 0}), InvalidArgument,
               "max_to_keep");
}

TEST_F(Checkpoints, NothingToRestoreCallsTheInitializer) {
  bool called = false;
  Checkpoint checkpoint({{"value", number(0)}});
  CheckpointManager manager(checkpoint, path("new"), {.init_fn = [&] { called = true; }});
  EXPECT_FALSE(manager.restore_or_initialize());
  EXPECT_TRUE(called);
}

TEST_F(Checkpoints, AnIteratorWaitsForNewOnes) {
  Checkpoint checkpoint({{"value", number(0)}});
  checkpoint.save(path("ckpt"));
  CheckpointsIterator iterator(folder_.string(), {.timeout = 5.0});
  EXPECT_EQ(iterator.next(), path("ckpt-1"));
  std::jthread writer([&] { checkpoint.save(path("ckpt")); });
  EXPECT_EQ(iterator.next(), path("ckpt-2"));
  int asked = 0;
  CheckpointsIterator ends(path("empty"),
                           {.timeout = 0.0, .timeout_fn = [&] { return ++asked == 2; }});
  EXPECT_EQ(ends.next(), std::nullopt);
  EXPECT_EQ(asked, 2);
}

/// A checkpoint of right checksums whose structure another made.
void write_structure(const std::string& path, const std::string& structure,
                     const std::string& counter = "1") {
  io::write_tensor_file(path, {cat(R"({"format":1,"kind":"state","about":")", counter,
                                   R"(","structure":)", structure, "}"),
                               {{"a", at::zeros({2})},
                                {"a.bytes", at::zeros({4}, at::kByte)},
                                {"a.lengths", at::full({2}, 2, at::kLong)}}});
}

TEST_F(Checkpoints, StructuresThatCannotBeAreDataLoss) {
  Checkpoint checkpoint({{"a", number(1)}});
  write_structure(path("x.tutti"), R"({"map":{"a":{"tensor":0}}})");
  checkpoint.read(path("x")).assert_consumed();
  const std::string strings = R"({"strings":1,"sizes":)";
  for (const std::string& structure : std::vector<std::string>{
           R"({"map":{"a":{"tensor":3}}})", R"({"map":{"a":{"tensor":-1}}})",
           R"({"map":{"a":{"tensor":0},"b":{"tensor":0}}})",
           cat(R"({"map":{"a":)", strings, "[2]},\"b\":", strings, "[2]}}}"),
           cat(R"({"map":{"a":)", strings, "[18446744073709551615]}}}"),
           cat(R"({"map":{"a":)", strings, "[-2]}}}"), cat(R"({"map":{"a":)", strings, "[[2]]}}}"),
           R"({"map":{"a":{"strings":2,"sizes":[2]}}})",
           R"({"map":{"a":{"strings":18446744073709551615,"sizes":[2]}}})", R"({"map":[]})",
           R"({"list":{}})", "[]", "7", "{}",
           std::string(300'000, '[') + std::string(300'000, ']')}) {
    write_structure(path("x.tutti"), structure);
    SCOPED_TRACE(structure.substr(0, 80));
    EXPECT_ERROR(checkpoint.read(path("x")), DataLoss, "damaged");
  }
}

TEST_F(Checkpoints, ACounterThatCannotGoOnIsDataLossAndChangesNothing) {
  auto value = number(1);
  Checkpoint checkpoint({{"a", value}});
  for (const char* counter : {"9223372036854775807", "-1"}) {
    write_structure(path("x.tutti"), R"({"map":{"a":{"tensor":0}}})", counter);
    EXPECT_ERROR(checkpoint.read(path("x")), DataLoss, "save counter");
    EXPECT_EQ(number_of(value), 1);
  }
}

TEST_F(Checkpoints, AManagerRemovesNothingOutsideItsFolder) {
  const std::string inside = path("models"), other = path("other.tutti");
  fs::create_directories(inside + "/more");
  for (const std::string& file : {other, inside + "/old.tutti", inside + "/more/older.tutti"})
    std::ofstream(file) << "a file";
  std::ofstream(inside + "/checkpoint")
      << "model_checkpoint_path: \"old\"\n"
      << "all_model_checkpoint_paths: \"" << path("other") << "\"\n"
      << "all_model_checkpoint_paths: \"../other\"\n"
      << "all_model_checkpoint_paths: \"more/../../other\"\n"
      << "all_model_checkpoint_paths: \"more/older\"\n"
      << "all_model_checkpoint_paths: \"old\"\n";
  Checkpoint checkpoint({{"value", number(0)}});
  CheckpointManager manager(checkpoint, inside, {.max_to_keep = 1});
  EXPECT_EQ(manager.checkpoints().size(), 5u);
  manager.save();
  EXPECT_TRUE(fs::exists(other)) << "named by the folder's file, in another folder";
  EXPECT_FALSE(fs::exists(inside + "/old.tutti"));
  EXPECT_FALSE(fs::exists(inside + "/more/older.tutti"));
  EXPECT_EQ(manager.checkpoints(), (std::vector{inside + "/ckpt-1"}));
}

TEST_F(Checkpoints, TimesInTheFolderFileAreNumbersOrDataLoss) {
  for (const char* time : {"inf", "nan", "1.5x", "", "1e999"}) {
    std::ofstream(path("checkpoint")) << "all_model_checkpoint_timestamps: " << time << "\n";
    SCOPED_TRACE(time);
    EXPECT_ERROR(latest_checkpoint(folder_.string()), DataLoss, "expected a time");
  }
}

}  // namespace
}  // namespace tutti::train
