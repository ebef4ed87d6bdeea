// Checkpoints under faults: killed and powerless saves, full and broken disks, damaged files,
// second writers. The rows R14 to R17 of docs/reliability.md.

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

#include "support/expect.h"
#include "support/faulty_files.h"
#include "support/temporary_folder.h"
#include "tutti/base/log.h"
#include "tutti/train/checkpoint.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;
using testing::FaultyFiles;
using testing::in_child;
using testing::KillingFiles;
using testing::UnsyncedFiles;
using testing::was_killed;
using Kept = UnsyncedFiles::Kept;

/// A tensor whose numbers all say which save they are of.
class Value : public Trackable {
 public:
  explicit Value(int64_t size = 2) : value_(at::zeros({size})) {}
  Nest state() const override { return Nest(value_.clone()); }
  void check_state(const Nest& state) const override {
    if (state.kind() != NestKind::kLeaf || state.leaf().sizes() != value_.sizes())
      throw InvalidArgument("value: another state");
  }
  void set_state(const Nest& state) override { value_ = state.leaf(); }
  void set(int64_t number) { value_.fill_(static_cast<double>(number)); }
  /// -1 when the numbers are not one.
  int64_t number() const {
    const auto first = value_[0].item<int64_t>();
    return value_.eq(value_[0]).all().item<bool>() ? first : -1;
  }

 private:
  Tensor value_;
};

/// A run of a program that saves: restores what is there, and may save.
struct Program {
  std::shared_ptr<Value> value;
  Checkpoint checkpoint;
  CheckpointManager manager;
  Program(const std::string& folder,
          std::shared_ptr<io::FileSystem> files = std::make_shared<FaultyFiles>(nullptr),
          int64_t size = 2)
      : value(std::make_shared<Value>(size)),
        checkpoint({{"value", value}}, std::move(files)),
        manager(checkpoint, folder, {.max_to_keep = 2}) {}
  /// The number restored; 0: none.
  int64_t restore() {
    const auto path = manager.restore_or_initialize();
    return path ? value->number() : 0;
  }
  void save(int64_t number) {
    value->set(number);
    manager.save();
  }
};

class CheckpointFaults : public testing::TemporaryFolder {
 protected:
  std::string models() const { return path("models"); }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(models()))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  /// A folder with the checkpoints 1 and 2, of values 1 and 2; of `saves` ones.
  void begin(int64_t saves = 2) {
    fs::remove_all(models());
    Program program(models());
    for (int64_t number = 1; number <= saves; ++number) program.save(number);
  }
  /// What a program does after the fault: it finds `least` or what is newer, and saves. Nothing is
  /// left then but two checkpoints and the folder's file.
  void expect_goes_on(int64_t least, int64_t most) {
    int64_t found = -1;
    {
      Program program(models());
      found = program.restore();
      EXPECT_GE(found, least);
      EXPECT_LE(found, most);
      EXPECT_EQ(program.checkpoint.save_counter(), found);
      program.save(found + 1);
    }
    std::vector<std::string> wanted{"checkpoint"};
    if (found > 0) wanted.push_back(cat("ckpt-", found, ".tutti"));
    wanted.push_back(cat("ckpt-", found + 1, ".tutti"));
    EXPECT_EQ(names(), wanted);
    Program next(models());
    EXPECT_EQ(next.restore(), found + 1);
  }
};

/// What the third save does.
void third_save(const std::string& folder, const std::shared_ptr<io::FileSystem>& files,
                int64_t number = 3) {
  Program program(folder, files);
  program.restore();
  program.save(number);
  ::_exit(0);  // as if it went on: nothing is tidied up
}

int calls_of_third_save(const std::string& folder, int64_t number = 3) {
  const auto counting = std::make_shared<FaultyFiles>(nullptr);
  Program program(folder, counting);
  program.restore();
  program.save(number);
  return static_cast<int>(counting->calls().size());
}

TEST_F(CheckpointFaults, R15_ASaveKilledAtAnySystemCallLeavesTheOldOneOrTheNewOne) {
  for (const int64_t before : {0, 1, 2}) {
    begin(before);
    const int calls = calls_of_third_save(models(), before + 1);
    ASSERT_GT(calls, 12);
    int news = 0;
    for (int at = 1; at <= calls; ++at) {
      SCOPED_TRACE(cat(before, " checkpoints, killed at call ", at, " of ", calls));
      begin(before);
      ASSERT_TRUE(was_killed(
          in_child([&] { third_save(models(), std::make_shared<KillingFiles>(at), before + 1); })));
      if (latest_checkpoint(models()) == models() + cat("/ckpt-", before + 1)) ++news;
      expect_goes_on(before, before + 1);
    }
    EXPECT_GT(news, 0);
    EXPECT_LT(news, calls);
  }
}

TEST_F(CheckpointFaults, R15_APowerFailureAtAnySystemCallLeavesTheOldOneOrTheNewOne) {
  for (const Kept kept : {Kept::kNothing, Kept::kNames, Kept::kAll}) {
    for (const int64_t before : {0, 2}) {
      for (int at = 1;; ++at) {
        SCOPED_TRACE(cat("kept ", static_cast<int>(kept), ", ", before, " checkpoints, call ", at));
        begin(before);
        fs::create_directories(models());
        const int status = in_child([&] {
          third_save(models(), std::make_shared<UnsyncedFiles>(path(""), at, kept), before + 1);
        });
        if (!was_killed(status)) {
          EXPECT_GT(at, 12);
          EXPECT_EQ(status, 0);
          break;
        }
        expect_goes_on(before, before + 1);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(CheckpointFaults, R15_WhatSaveHasReturnedFromNoPowerFailureTakesBack) {
  for (const Kept kept : {Kept::kNothing, Kept::kNames, Kept::kAll}) {
    begin();
    EXPECT_EQ(in_child([&] {
                const auto files = std::make_shared<UnsyncedFiles>(path(""), 0, kept);
                Program program(models(), files);
                program.restore();
                program.save(3);
                files->lose_power();
                ::_exit(0);
              }),
              0);
    expect_goes_on(3, 3);
  }
}

TEST_F(CheckpointFaults, R15_AFolderThatWasJustMadeSurvivesWithItsCheckpoint) {
  const std::string deep = path("a/b/c");
  EXPECT_EQ(in_child([&] {
              const auto files = std::make_shared<UnsyncedFiles>(path(""), 0, Kept::kNothing);
              Program program(deep, files);
              program.save(1);
              files->lose_power();
              ::_exit(0);
            }),
            0);
  EXPECT_EQ(Program(deep).restore(), 1);
}

struct DiskFault {
  const char* call;
  int code;
  ErrorCode error;
};

TEST_F(CheckpointFaults, R16_ADiskThatFailsAtAnyCallIsACleanErrorAndTheNextSaveSucceeds) {
  for (const auto& [call, code, error] :
       std::vector<DiskFault>{{"write", ENOSPC, ErrorCode::kResourceExhausted},
                              {"write", EIO, ErrorCode::kUnavailable},
                              {"sync", EIO, ErrorCode::kUnavailable},
                              {"create", EROFS, ErrorCode::kPermissionDenied},
                              {"create", EACCES, ErrorCode::kPermissionDenied},
                              {"lock", EROFS, ErrorCode::kPermissionDenied},
                              {"rename", EIO, ErrorCode::kUnavailable},
                              {"sync_folder", EIO, ErrorCode::kUnavailable}}) {
    for (int nth = 1;; ++nth) {
      SCOPED_TRACE(cat(call, " number ", nth, " gives ", std::strerror(code)));
      begin();
      int seen = 0;
      bool armed = false;
      const auto files = std::make_shared<FaultyFiles>([&](const std::string& made, int) {
        return armed && made == call && ++seen == nth ? code : 0;
      });
      {
        Program program(models(), files);
        EXPECT_EQ(program.restore(), 2);
        armed = true;
        bool failed = false;
        try {
          program.save(3);
        } catch (const Error& thrown) {
          failed = true;
          EXPECT_EQ(thrown.code(), error) << thrown.what();
          EXPECT_NE(std::string(thrown.what()).find(std::strerror(code)), std::string::npos)
              << thrown.what();
        }
        if (!failed) {  // there is no such call any more
          EXPECT_GT(nth, 1);
          break;
        }
        armed = false;
        EXPECT_EQ(program.checkpoint.save_counter(), 2);
        EXPECT_EQ(program.manager.latest_checkpoint(), models() + "/ckpt-2");
        EXPECT_EQ(program.restore(), 2);
        program.save(3);
        EXPECT_EQ(program.restore(), 3);
      }
      EXPECT_EQ(names(), (std::vector<std::string>{"checkpoint", "ckpt-2.tutti", "ckpt-3.tutti"}));
    }
  }
}

TEST_F(CheckpointFaults, R16_AFailedAsynchronousSaveIsSaidAtTheNextCall) {
  begin();
  bool full = true;
  const auto files = std::make_shared<FaultyFiles>(
      [&](const std::string& call, int) { return full && call == "write" ? ENOSPC : 0; });
  Program program(models(), files);
  program.restore();
  program.value->set(3);
  program.manager.save(std::nullopt, true, {.enable_async = true});
  EXPECT_ERROR(program.checkpoint.sync(), ResourceExhausted, "No space left");
  EXPECT_EQ(program.manager.latest_checkpoint(), models() + "/ckpt-2");
  full = false;
  program.save(4);
  EXPECT_EQ(program.restore(), 4);
}

TEST_F(CheckpointFaults, AManagerSavesAsynchronouslyWhatTheValuesWereThen) {
  Program program(models());
  for (int64_t number = 1; number <= 5; ++number) {
    program.value->set(number);
    program.manager.save(std::nullopt, true, {.enable_async = true});
    program.value->set(-7);
  }
  program.checkpoint.sync();
  EXPECT_EQ(program.manager.checkpoints(),
            (std::vector{models() + "/ckpt-4", models() + "/ckpt-5"}));
  EXPECT_EQ(names(), (std::vector<std::string>{"checkpoint", "checkpoint.lock", "ckpt-4.tutti",
                                               "ckpt-5.tutti"}));
  EXPECT_EQ(program.restore(), 5);
}

TEST_F(CheckpointFaults, R14_ADamagedCheckpointIsPassedOverForTheOneBeforeIt) {
  const LogLevel level = log_level();
  set_log_level(LogLevel::kError);  // a warning for each
  begin();
  const std::string newest = models() + "/ckpt-2.tutti";
  const std::string whole = bytes_of(newest);
  int64_t cases = 0;
  for_each_damage(whole, [&](const std::string& damaged, const std::string& what) {
    if (!testing::whole_doses() && ++cases % 7 != 0) return;
    write("models/ckpt-2.tutti", damaged);
    Program program(models());
    EXPECT_EQ(program.restore(), 1) << what;
  });
  set_log_level(level);
}

TEST_F(CheckpointFaults, R14_InALargeCheckpointToo) {
  const LogLevel level = log_level();
  set_log_level(LogLevel::kError);
  constexpr int64_t kNumbers = 16 << 10;  // 64 KB
  {
    Program program(models(), std::make_shared<FaultyFiles>(nullptr), kNumbers);
    program.save(1);
    program.save(2);
  }
  const std::string whole = bytes_of(models() + "/ckpt-2.tutti");
  const auto restored = [&](const std::string& damaged) {
    write("models/ckpt-2.tutti", damaged);
    return Program(models(), std::make_shared<FaultyFiles>(nullptr), kNumbers).restore();
  };
  for (std::size_t sector = 0; sector < whole.size(); sector += 512) {
    std::string damaged = whole;
    for (std::size_t at = sector; at < std::min(sector + 512, whole.size()); ++at) damaged[at] = 0;
    ASSERT_EQ(restored(damaged), damaged == whole ? 2 : 1) << "sector at " << sector;
  }
  const std::size_t stride = testing::whole_doses() ? 1 : 997;
  for (std::size_t at = 0; at < whole.size(); at += stride) {
    ASSERT_EQ(restored(whole.substr(0, at)), 1) << "cut after " << at;
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at / stride % 8)));
    ASSERT_EQ(restored(damaged), 1) << "a bit of byte " << at;
  }
  set_log_level(level);
}

TEST_F(CheckpointFaults, R14_ADamagedFolderFileLosesNoCheckpoint) {
  const LogLevel level = log_level();
  set_log_level(LogLevel::kError);
  begin();
  const std::string whole = bytes_of(models() + "/checkpoint");
  int64_t cases = 0;
  for_each_damage(whole, [&](const std::string& damaged, const std::string& what) {
    if (!testing::whole_doses() && ++cases % 3 != 0) return;
    write("models/checkpoint", damaged);
    Program program(models());
    const int64_t found = program.restore();
    EXPECT_TRUE(found == 1 || found == 2) << what;
    EXPECT_EQ(program.checkpoint.save_counter(), found) << what;
  });
  set_log_level(level);
}

TEST_F(CheckpointFaults, R14_WhereNoCheckpointCanBeReadNothingIsBegunAnew) {
  begin();
  write("models/ckpt-1.tutti", "");
  fs::resize_file(models() + "/ckpt-2.tutti", 100);
  bool initialized = false;
  const auto value = std::make_shared<Value>();
  Checkpoint checkpoint({{"value", value}});
  CheckpointManager manager(checkpoint, models(), {.init_fn = [&] { initialized = true; }});
  EXPECT_ERROR(manager.restore_or_initialize(), DataLoss, "ckpt-1");
  EXPECT_ERROR(manager.restore_or_initialize(), DataLoss, "ckpt-2");
  EXPECT_FALSE(initialized);
}

TEST_F(CheckpointFaults, AStateThatDoesNotFitIsNoDamage) {
  begin();
  Program larger(models(), std::make_shared<FaultyFiles>(nullptr), /*size=*/3);
  EXPECT_ERROR(larger.restore(), InvalidArgument, "another state");
}

/// A process that has saved in the folder and lives until it is told to end.
class OtherWriter {
 public:
  explicit OtherWriter(const std::string& folder) {
    int pipe[2];
    EXPECT_EQ(::pipe(pipe), 0);
    process_ = ::fork();
    if (process_ == 0) {
      try {
        Program program(folder);
        program.restore();
        program.save(100);
        EXPECT_EQ(::write(pipe[1], "x", 1), 1);
        for (;;) ::pause();
      } catch (...) {
      }
      ::_exit(1);
    }
    ::close(pipe[1]);
    char byte = 0;
    has_saved_ = ::read(pipe[0], &byte, 1) == 1;
    ::close(pipe[0]);
  }
  ~OtherWriter() { kill(); }
  void kill() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }
  pid_t process() const { return process_; }
  bool has_saved() const { return has_saved_; }

 private:
  pid_t process_ = 0;
  bool has_saved_ = false;
};

TEST_F(CheckpointFaults, R17_ASecondWriterIsRefusedWithBothNamedWhileTheFirstOneLives) {
  for (int time = 0; time < 20; ++time) {
    begin();
    OtherWriter other(models());
    ASSERT_TRUE(other.has_saved());
    Program program(models());
    EXPECT_EQ(program.restore(), 100) << "who reads may";
    EXPECT_ERROR(program.save(4), FailedPrecondition, cat("process ", other.process(), " of host"));
    EXPECT_ERROR(program.save(4), FailedPrecondition, cat("this is process ", ::getpid()));
    Checkpoint plain({{"value", program.value}});
    EXPECT_ERROR(plain.save(models() + "/ckpt"), FailedPrecondition, "one writer a folder");
    EXPECT_EQ(Program(models()).restore(), 100) << "and nothing was changed";
    other.kill();
    program.save(101);
    EXPECT_EQ(Program(models()).restore(), 101);
  }
}

TEST_F(CheckpointFaults, R17_AWriterThatWasReplacedMeanwhileIsRefused) {
  Program old(models());
  old.save(1);
  // On a file system whose locks do not reach the other host, the new one takes the folder all the
  // same.
  write("models/checkpoint.lock", "owner: process 1 of host elsewhere (other, start 1)\n");
  EXPECT_ERROR(old.save(2), FailedPrecondition, "host elsewhere");
  EXPECT_ERROR(old.save(2), FailedPrecondition, "has taken the folder");
  EXPECT_EQ(Program(models()).restore(), 1);
}

TEST_F(CheckpointFaults, AFolderThatTheProgramDeletesAfterEachSaveIsMadeAnew) {
  Program program(models());
  for (int value = 1; value <= 4; ++value) {
    program.save(value);
    EXPECT_EQ(Program(models()).restore(), value);
    fs::remove_all(models());
  }
}

TEST_F(CheckpointFaults, ObjectsOfOneProcessShareAFolder) {
  Program first(models()), second(models());
  first.save(1);
  second.save(2);
  first.save(3);
  EXPECT_TRUE(fs::exists(models() + "/checkpoint.lock"));
}

TEST_F(CheckpointFaults, WhoEndsInOrderLeavesTheFolderWithoutALock) {
  begin();
  EXPECT_EQ(names(), (std::vector<std::string>{"checkpoint", "ckpt-1.tutti", "ckpt-2.tutti"}));
}

TEST_F(CheckpointFaults, ALockFileThatAnotherWroteRemovesNothingOutsideTheFolderOrKept) {
  begin();
  write("precious.tutti", "x");
  for (const char* name : {"ckpt-1", "../precious", "ckpt-77"}) {
    write("models/checkpoint.lock", cat("owner: a dead one\nname: ", name, "\nname: ckpt-2"));
    Program program(models());
    program.save(2);
    EXPECT_TRUE(fs::exists(path("precious.tutti")));
    EXPECT_TRUE(fs::exists(models() + "/ckpt-2.tutti"));
  }
}

}  // namespace
}  // namespace tutti::train
