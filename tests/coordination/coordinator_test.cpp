// The coordinator with a clock of the test's own: no thread, no network, no waiting.
#include "coordination/coordinator.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/expect_error.h"
#include "tutti/base/text.h"
#include "tutti/version.h"

namespace tutti::coordination {
namespace {

using ::testing::Test;

const Cluster kCluster{{"evaluator", {"h:9"}}, {"worker", {"h:1", "h:2", "h:3"}}};

/// What one task hears and is answered.
struct Ear final : Listener {
  void on_event(const v1::Event& event) override { events.push_back(event); }
  void on_end(const v1::Failure*) override { ended = true; }

  bool admitted() const { return !events.empty() && events.front().has_admission(); }
  std::string failure() const {
    for (const auto& event : events) {
      if (event.has_failure()) return event.failure().message();
    }
    return "";
  }
  std::vector<v1::Event> events;
  bool ended = false;
};

struct Answer {
  bool done = false;
  v1::Reply reply;
};

class CoordinatorTest : public Test {
 protected:
  CoordinatorTest()
      : coordinator_({.cluster = kCluster,
                      .generation = 7,
                      .limits = {.ping_limit = Milliseconds(3000),
                                 .progress_limit = Milliseconds(5000),
                                 .blame_grace = Milliseconds(250)},
                      .recoverable_jobs = {"evaluator"},
                      .now = [this] { return now_; }}) {}

  v1::JoinRequest joining(const std::string& task, uint64_t incarnation) const {
    v1::JoinRequest request;
    request.mutable_caller()->set_cluster_hash(cluster_hash(kCluster));
    request.mutable_caller()->set_task(task);
    request.mutable_caller()->set_incarnation(incarnation);
    request.set_version(TUTTI_VERSION_STRING);
    request.set_process(cat("pid ", incarnation));
    return request;
  }
  std::shared_ptr<Ear> join(const v1::JoinRequest& request) {
    auto ear = std::make_shared<Ear>();
    sessions_[ear.get()] = coordinator_.join(request, ear);
    return ear;
  }
  std::shared_ptr<Ear> join(const std::string& task, uint64_t incarnation = 10) {
    return join(joining(task, incarnation));
  }
  void all_join() {
    for (const char* task : {"worker:0", "worker:1", "worker:2"}) ears_[task] = join(task);
  }
  void disconnect(const std::shared_ptr<Ear>& ear) {
    coordinator_.disconnected(sessions_.at(ear.get()));
  }

  v1::Request from(const std::string& task, uint64_t incarnation = 10) {
    v1::Request request;
    request.mutable_caller()->set_cluster_hash(cluster_hash(kCluster));
    request.mutable_caller()->set_generation(7);
    request.mutable_caller()->set_task(task);
    request.mutable_caller()->set_incarnation(incarnation);
    request.mutable_caller()->set_sequence(++sequence_);
    return request;
  }
  std::shared_ptr<Answer> call(const v1::Request& request) {
    auto answer = std::make_shared<Answer>();
    coordinator_.call(request, [answer](v1::Reply&& reply) {
      EXPECT_FALSE(answer->done) << "answered twice";
      answer->done = true;
      answer->reply = std::move(reply);
    });
    return answer;
  }
  std::string failure_of(const v1::Request& request) {
    return call(request)->reply.failure().message();
  }

  std::shared_ptr<Answer> barrier(const std::string& task, const std::string& name,
                                  int timeout_ms = 60'000, int slice_ms = 60'000) {
    v1::Request request = from(task);
    request.mutable_barrier()->set_name(name);
    request.mutable_barrier()->set_round(1);
    request.mutable_barrier()->set_timeout_ms(timeout_ms);
    request.mutable_barrier()->set_slice_ms(slice_ms);
    return call(request);
  }
  void heartbeat(const std::string& task) { call(beating(task)); }
  void heartbeat(const std::string& task, int64_t step, const std::string& phase,
                 bool waiting = false) {
    v1::Request request = beating(task);
    v1::Progress& progress = *request.mutable_heartbeat()->mutable_progress();
    progress.set_watched(true);
    progress.set_step(step);
    progress.set_phase(phase);
    progress.set_waiting(waiting);
    call(request);
  }
  v1::Request beating(const std::string& task) {
    v1::Request request = from(task);
    request.mutable_heartbeat();
    return request;
  }
  v1::Request reporting(const std::string& task, ErrorCode code, const std::string& message) {
    v1::Request request = from(task);
    request.mutable_report_error()->set_code(static_cast<int>(code));
    request.mutable_report_error()->set_message(message);
    return request;
  }
  v1::Request setting(const std::string& task, const std::string& key, const std::string& value,
                      bool overwrite) {
    v1::Request request = from(task);
    request.mutable_set()->set_key(key);
    request.mutable_set()->set_value(value);
    request.mutable_set()->set_overwrite(overwrite);
    return request;
  }

  void advance(int milliseconds) {
    now_ += Milliseconds(milliseconds);
    coordinator_.tick();
  }
  std::string root() {
    const auto root = coordinator_.root_cause();
    return root ? root->message() : "";
  }
  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  TimePoint now_{std::chrono::hours(1)};
  uint64_t sequence_ = 0;
  std::map<Ear*, uint64_t> sessions_;
  std::map<std::string, std::shared_ptr<Ear>> ears_;
  Coordinator coordinator_;
};

#define EXPECT_SAYS(text, part) EXPECT_PRED2(contains, std::string(text), std::string(part))

// --- who is let in -----------------------------------------------------------------------------

TEST_F(CoordinatorTest, LetsATaskInAndTellsTheGeneration) {
  const auto ear = join("worker:1");
  ASSERT_TRUE(ear->admitted());
  EXPECT_EQ(ear->events.front().admission().generation(), 7u);
}

TEST_F(CoordinatorTest, RefusesAnotherClusterAndNamesBoth) {
  v1::JoinRequest request = joining("worker:1", 10);
  request.mutable_caller()->set_cluster_hash(0xabc);
  request.set_cluster("worker 9");
  const auto ear = join(request);
  EXPECT_FALSE(ear->admitted());
  EXPECT_TRUE(ear->ended);
  EXPECT_SAYS(ear->failure(), "cluster abc");
  EXPECT_SAYS(ear->failure(), "evaluator 1, worker 3");
  EXPECT_SAYS(ear->failure(), "worker 9");
}

TEST_F(CoordinatorTest, RefusesATaskThatTheClusterLacks) {
  EXPECT_SAYS(join("worker:3")->failure(), "no task of this cluster");
}

TEST_F(CoordinatorTest, RefusesAnotherVersionAndNamesBoth) {
  v1::JoinRequest request = joining("worker:1", 10);
  request.set_version("9.9.9");
  EXPECT_SAYS(join(request)->failure(), cat("Tutti 9.9.9, the leader with ", TUTTI_VERSION_STRING));
}

TEST_F(CoordinatorTest, RefusesASecondLiveHolderAndKeepsTheFirst) {
  const auto first = join("worker:1", 10);
  EXPECT_SAYS(join("worker:1", 11)->failure(), "held by incarnation 10 (pid 10), which is alive");
  heartbeat("worker:1");
  EXPECT_FALSE(first->ended);
  EXPECT_EQ(root(), "");
}

TEST_F(CoordinatorTest, RefusesAnOlderIncarnationThatReturns) {
  disconnect(join("evaluator:0", 10));
  EXPECT_TRUE(join("evaluator:0", 11)->admitted());
  EXPECT_SAYS(join("evaluator:0", 10)->failure(), "incarnation 10 is older than incarnation 11");
  EXPECT_SAYS(failure_of([&] {
                v1::Request request = beating("evaluator:0");
                request.mutable_caller()->set_incarnation(10);
                return request;
              }()),
              "incarnation 10 does not hold the task, incarnation 11 (pid 11) does");
}

TEST_F(CoordinatorTest, ANewIncarnationTakesTheTaskOfOneThatLeft) {
  const auto first = join("worker:1", 10);
  v1::Request request = from("worker:1");
  request.mutable_leave();
  EXPECT_TRUE(call(request)->done);
  EXPECT_TRUE(first->ended);
  EXPECT_SAYS(join("worker:1", 10)->failure(), "has left before");
  EXPECT_TRUE(join("worker:1", 11)->admitted());
  EXPECT_EQ(root(), "");
}

TEST_F(CoordinatorTest, TheSameIncarnationMayConnectAgainAndItsOldConnectionEndsNothing) {
  const auto first = join("worker:1", 10);
  const auto second = join("worker:1", 10);
  EXPECT_TRUE(second->admitted());
  disconnect(first);
  EXPECT_EQ(root(), "");
  disconnect(second);
  EXPECT_SAYS(root(), "worker:1");
}

TEST_F(CoordinatorTest, RefusesAnotherGenerationInAJoinAndInACall) {
  v1::JoinRequest older = joining("worker:1", 10);
  older.mutable_caller()->set_generation(6);
  EXPECT_SAYS(join(older)->failure(), "of generation 6, the service is generation 7");
  all_join();
  v1::Request request = setting("worker:1", "k", "v", true);
  request.mutable_caller()->set_generation(6);
  EXPECT_SAYS(failure_of(request), "of generation 6, the service is generation 7");
  v1::Request get = from("worker:0");
  get.mutable_get()->set_key("k");
  EXPECT_SAYS(failure_of(get), "no value");
}

TEST_F(CoordinatorTest, RefusesCallsOfWhoNeverJoined) {
  EXPECT_SAYS(failure_of(setting("worker:2", "k", "v", true)), "does not hold the task");
}

// --- who is alive ------------------------------------------------------------------------------

TEST_F(CoordinatorTest, AClosedConnectionEndsTheJobForAll) {
  all_join();
  heartbeat("worker:1", 12, "train");
  const auto waiting = barrier("worker:0", "b");
  disconnect(ears_["worker:1"]);
  const std::string text =
      "worker:1 failed first: worker:1 (step 12, phase \"train\"), pid 10: its connection closed";
  EXPECT_SAYS(root(), text);
  EXPECT_SAYS(ears_["worker:0"]->failure(), text);
  EXPECT_SAYS(ears_["worker:2"]->failure(), text);
  EXPECT_TRUE(waiting->done);
  EXPECT_SAYS(waiting->reply.failure().message(), text);
  EXPECT_SAYS(failure_of(beating("worker:2")), text);
  EXPECT_SAYS(join("evaluator:0")->failure(), text);
}

TEST_F(CoordinatorTest, ATaskIsFrozenAfterThePingLimitAndNotBefore) {
  all_join();
  advance(2900);
  heartbeat("worker:0");
  heartbeat("worker:2");
  EXPECT_EQ(root(), "");
  advance(100);
  EXPECT_SAYS(root(), "worker:1 failed first");
  EXPECT_SAYS(root(), "frozen: no heartbeat for 3000 ms, limit 3000");
  EXPECT_SAYS(ears_["worker:1"]->failure(), "frozen");
}

TEST_F(CoordinatorTest, AnyCallIsASignOfLife) {
  all_join();
  for (int i = 0; i < 5; ++i) {
    advance(2000);
    for (const char* task : {"worker:0", "worker:1"}) heartbeat(task);
    call(setting("worker:2", "k", "v", true));
  }
  EXPECT_EQ(root(), "");
}

TEST_F(CoordinatorTest, ATaskThatWorksAndDoesNotMoveIsStuck) {
  all_join();
  for (int i = 0; i < 5; ++i) {
    heartbeat("worker:0", 10, "all_reduce", true);
    heartbeat("worker:1", 9, "read input");
    heartbeat("worker:2", 10, "all_reduce", true);
    EXPECT_EQ(root(), "") << "after " << i << " s";
    advance(1000);
  }
  EXPECT_SAYS(root(), "worker:1 failed first: worker:1 (step 9, phase \"read input\")");
  EXPECT_SAYS(root(), "stuck: heartbeats, but no progress for 5000 ms, limit 5000");
}

TEST_F(CoordinatorTest, AMovingTaskIsNotStuckAtWhateverSpeed) {
  all_join();
  for (int step = 0; step < 20; ++step) {
    for (const char* task : {"worker:0", "worker:1", "worker:2"})
      heartbeat(task, step / 4, step % 2 ? "a" : "b");
    advance(1000);
  }
  EXPECT_EQ(root(), "");
}

TEST_F(CoordinatorTest, WhenAllWaitForOthersTheOneFurthestBehindIsNamed) {
  all_join();
  for (int i = 0; i < 6; ++i) {
    heartbeat("worker:0", 10, "all_reduce", true);
    heartbeat("worker:1", 9, "all_gather", true);
    heartbeat("worker:2", 10, "all_reduce", true);
    advance(1000);
  }
  EXPECT_SAYS(root(), "worker:1 failed first");
  EXPECT_SAYS(root(),
              "every task waits for another: worker:0 (step 10, phase \"all_reduce\", waiting)");
}

TEST_F(CoordinatorTest, WhileAllWorkNobodyIsStuckAndThenTheWaitOfTheOthersCounts) {
  all_join();
  for (int i = 0; i < 20; ++i) {
    for (const char* task : {"worker:0", "worker:1", "worker:2"}) heartbeat(task, 1, "own work");
    advance(1000);
  }
  EXPECT_EQ(root(), "") << "who loads its data for long keeps nobody waiting";
  for (int i = 0; i < 5; ++i) {
    for (const char* task : {"worker:0", "worker:2"}) heartbeat(task, 2, "all_reduce", true);
    heartbeat("worker:1", 1, "own work");
    EXPECT_EQ(root(), "") << "after " << i << " s";
    advance(1000);
  }
  EXPECT_SAYS(root(), "worker:1 failed first: worker:1 (step 1, phase \"own work\")");
}

TEST_F(CoordinatorTest, ACallThatAllAreInIsUnderWayHoweverLongItTakes) {
  all_join();
  for (int i = 0; i < 20; ++i) {
    for (const char* task : {"worker:0", "worker:1", "worker:2"})
      heartbeat(task, 10, "all_reduce", true);
    advance(1000);
  }
  EXPECT_EQ(root(), "");
}

TEST_F(CoordinatorTest, ATaskThatReportsNoProgressIsNotJudgedByIt) {
  all_join();
  for (int i = 0; i < 20; ++i) {
    for (const char* task : {"worker:0", "worker:1", "worker:2"}) heartbeat(task);
    advance(1000);
  }
  EXPECT_EQ(root(), "");
}

TEST_F(CoordinatorTest, ALostTaskOfARecoverableJobEndsNothingAndMayJoinAnew) {
  all_join();
  disconnect(join("evaluator:0", 10));
  EXPECT_EQ(root(), "");
  EXPECT_TRUE(join("evaluator:0", 11)->admitted());
  v1::Request request = from("worker:0");
  request.mutable_task_states();
  const auto states = call(request)->reply;
  ASSERT_EQ(states.tasks_size(), 4);
  EXPECT_EQ(states.tasks(0).task(), "evaluator:0");
  EXPECT_EQ(states.tasks(0).state(), static_cast<int>(TaskState::kJoined));
}

// --- barriers ----------------------------------------------------------------------------------

TEST_F(CoordinatorTest, ABarrierOpensWhenTheLastArrives) {
  all_join();
  const auto zero = barrier("worker:0", "b");
  const auto one = barrier("worker:1", "b");
  EXPECT_FALSE(zero->done || one->done);
  const auto two = barrier("worker:2", "b");
  for (const auto& answer : {zero, one, two}) {
    EXPECT_TRUE(answer->done);
    EXPECT_FALSE(answer->reply.has_failure());
  }
}

TEST_F(CoordinatorTest, ABarrierOverItsDeadlineNamesTheMissingToAll) {
  join("worker:0");
  join("worker:1");
  heartbeat("worker:1", 4, "eval");
  const auto zero = barrier("worker:0", "b", 1000);
  advance(999);
  EXPECT_FALSE(zero->done);
  advance(1);
  ASSERT_TRUE(zero->done);
  EXPECT_EQ(zero->reply.failure().code(), static_cast<int>(ErrorCode::kDeadlineExceeded));
  EXPECT_SAYS(zero->reply.failure().message(),
              "barrier \"b\": 1 of 3 tasks in time, missing worker:1 (step 4, phase \"eval\"), "
              "worker:2 (never joined)");
  const auto late = barrier("worker:1", "b");
  EXPECT_TRUE(late->done);
  EXPECT_SAYS(late->reply.failure().message(), "1 of 3 tasks in time");
  EXPECT_EQ(root(), "") << "the job goes on";
}

TEST_F(CoordinatorTest, TheEndOfASliceNamesTheMissingAndKeepsTheArrival) {
  all_join();
  const auto zero = barrier("worker:0", "b", 60'000, 500);
  advance(500);
  ASSERT_TRUE(zero->done);
  EXPECT_TRUE(zero->reply.pending());
  ASSERT_EQ(zero->reply.missing_size(), 2);
  EXPECT_EQ(zero->reply.missing(0), "worker:1 (joined)");
  barrier("worker:1", "b");
  EXPECT_TRUE(barrier("worker:2", "b")->done);
  const auto again = barrier("worker:0", "b");
  EXPECT_TRUE(again->done);
  EXPECT_FALSE(again->reply.pending());
}

TEST_F(CoordinatorTest, ABarrierForOtherTasksUnderTheSameNameIsRefused) {
  all_join();
  barrier("worker:0", "b");
  v1::Request request = from("worker:1");
  request.mutable_barrier()->set_name("b");
  request.mutable_barrier()->set_round(1);
  request.mutable_barrier()->add_tasks("worker:1");
  request.mutable_barrier()->add_tasks("worker:0");
  EXPECT_SAYS(failure_of(request), "while others entered it for worker:0, worker:1, worker:2");
}

TEST_F(CoordinatorTest, ABarrierFailsAtOnceWhenATaskLeavesThatShouldCome) {
  all_join();
  const auto zero = barrier("worker:0", "b");
  v1::Request request = from("worker:2");
  request.mutable_leave();
  call(request);
  ASSERT_TRUE(zero->done);
  EXPECT_SAYS(zero->reply.failure().message(), "worker:2 left before");
}

TEST_F(CoordinatorTest, WhoLeftInOrderIsNotWaitedForAtTheEnd) {
  all_join();
  const auto leaving = [&](const std::string& task) {
    v1::Request request = from(task);
    request.mutable_barrier()->set_name("end");
    request.mutable_barrier()->set_round(1);
    request.mutable_barrier()->set_timeout_ms(1000);
    request.mutable_barrier()->set_slice_ms(1000);
    request.mutable_barrier()->set_departed_count(true);
    return call(request);
  };
  const auto zero = leaving("worker:0");
  v1::Request request = from("worker:2");
  request.mutable_leave();
  call(request);
  EXPECT_FALSE(zero->done);
  EXPECT_TRUE(leaving("worker:1")->done);
  EXPECT_TRUE(zero->done);
}

// --- errors ------------------------------------------------------------------------------------

TEST_F(CoordinatorTest, TheFirstErrorInTimeIsWhatAllHear) {
  all_join();
  call(reporting("worker:2", ErrorCode::kInvalidArgument, "a bad label"));
  call(reporting("worker:1", ErrorCode::kInternal, "later"));
  for (auto& [task, ear] : ears_)
    EXPECT_SAYS(ear->failure(), "worker:2 failed first: worker:2 (joined): a bad label");
}

TEST_F(CoordinatorTest, AnErrorThatAnotherMayHaveCausedWaitsForThatOne) {
  all_join();
  const auto consequence =
      call(reporting("worker:0", ErrorCode::kUnavailable, "all_reduce: closed by peer"));
  EXPECT_FALSE(consequence->done);
  advance(100);
  EXPECT_EQ(root(), "");
  disconnect(ears_["worker:1"]);
  ASSERT_TRUE(consequence->done);
  EXPECT_SAYS(consequence->reply.failure().message(), "worker:1 failed first");
}

TEST_F(CoordinatorTest, AnErrorThatNoOtherCausedStandsAfterAMoment) {
  all_join();
  const auto report =
      call(reporting("worker:0", ErrorCode::kUnavailable, "all_reduce: closed by peer"));
  advance(250);
  ASSERT_TRUE(report->done);
  EXPECT_SAYS(root(), "worker:0 failed first: worker:0 (joined): all_reduce: closed by peer");
}

// --- calls that change something ---------------------------------------------------------------

TEST_F(CoordinatorTest, ARepeatedCallChangesNothing) {
  all_join();
  const v1::Request first = setting("worker:0", "k", "v", false);
  EXPECT_EQ(failure_of(first), "");
  EXPECT_EQ(failure_of(first), "") << "the same call, sent twice";
  EXPECT_SAYS(failure_of(setting("worker:0", "k", "v", false)), "has a value already");
  v1::Request erase = from("worker:0");
  erase.mutable_erase()->set_key("k");
  EXPECT_EQ(call(erase)->reply.count(), 1);
  EXPECT_EQ(call(erase)->reply.count(), 1);
  erase.mutable_caller()->set_sequence(999);
  EXPECT_EQ(call(erase)->reply.count(), 0);
}

TEST_F(CoordinatorTest, AnEmptyRequestIsAnErrorAndNothingMore) {
  all_join();
  EXPECT_SAYS(failure_of(from("worker:0")),
              "a verb that this version of the service does not know");
  EXPECT_SAYS(failure_of({}), "has cluster 0");
  EXPECT_EQ(root(), "");
}

TEST_F(CoordinatorTest, StoppingTellsThoseThatHaveNotLeft) {
  all_join();
  const auto waiting = barrier("worker:0", "b");
  coordinator_.stop("maintenance");
  EXPECT_SAYS(ears_["worker:1"]->failure(),
              "worker:0 failed first: the leader's service stopped: maintenance");
  EXPECT_TRUE(ears_["worker:1"]->ended);
  EXPECT_TRUE(waiting->done);
  EXPECT_TRUE(call(beating("worker:1"))->reply.has_failure());
}

TEST(KeyValueStore, RefusesWhatIsTooLarge) {
  KeyValueStore store;
  EXPECT_ERROR(store.set("", "v", true), InvalidArgument, "a key of 0 bytes");
  EXPECT_ERROR(store.set(std::string(kMostKeyBytes + 1, 'k'), "v", true), InvalidArgument,
               "expected 1 to 1024");
  EXPECT_ERROR(store.set("k", std::string(kMostValueBytes + 1, 'v'), true), ResourceExhausted,
               "expected at most 16777216");
  const std::string value(kMostValueBytes - 1, 'v');
  for (std::size_t i = 0; i < kMostStoreBytes / kMostValueBytes; ++i)
    store.set(std::string(1, static_cast<char>('a' + i)), value, true);
  EXPECT_ERROR(store.set("one more", value, true), ResourceExhausted, "the store would hold");
  EXPECT_ERROR(store.list(""), ResourceExhausted, "a longer prefix");
  store.set("a", "small", true);
  store.set("one more", "small", true);
}

TEST(KeyValueStore, ACounterTakesRoomOnceAndGoesWithItsPrefix) {
  KeyValueStore store;
  for (std::size_t i = 0; i < kMostKeys; ++i) EXPECT_EQ(store.add(cat("n/", i), 1), 1);
  EXPECT_EQ(store.add("n/0", 5), 6);
  EXPECT_ERROR(store.add("one more", 1), ResourceExhausted, "one more");
  EXPECT_ERROR(store.set("one more", "v", true), ResourceExhausted, "one more");
  EXPECT_EQ(store.erase("n/", true), static_cast<int64_t>(kMostKeys));
  store.set("one more", "v", true);
}

TEST(Limits, AreWhatTheEnvironmentSays) {
  const auto set = [](const char* heartbeat, const char* ping, const char* progress) {
    setenv("TUTTI_HEARTBEAT_MS", heartbeat, 1);
    setenv("TUTTI_PING_LIMIT_MS", ping, 1);
    setenv("TUTTI_PROGRESS_LIMIT_MS", progress, 1);
  };
  set("", "", "");
  EXPECT_EQ(Limits::from_environment().progress_limit, Limits().progress_limit);
  EXPECT_EQ(Limits::from_environment().heartbeat_interval, Limits().heartbeat_interval);
  set("100", "3000", "4000");
  const Limits limits = Limits::from_environment();
  EXPECT_EQ(limits.heartbeat_interval, Milliseconds(100));
  EXPECT_EQ(limits.ping_limit, Milliseconds(3000));
  EXPECT_EQ(limits.progress_limit, Milliseconds(4000));
  set("", "1000", "");
  EXPECT_EQ(Limits::from_environment().heartbeat_interval, Milliseconds(200))
      << "a shorter limit wants more heartbeats";
  set("800", "1000", "");
  EXPECT_ERROR(Limits::from_environment(), InvalidArgument, "at least twice as long");
  set("", "soon", "");
  EXPECT_ERROR(Limits::from_environment(), InvalidArgument, "TUTTI_PING_LIMIT_MS");
  for (const char* name : {"TUTTI_HEARTBEAT_MS", "TUTTI_PING_LIMIT_MS", "TUTTI_PROGRESS_LIMIT_MS"})
    unsetenv(name);
}

TEST(KeyValueStore, ListsAndErasesByPrefixInOrder) {
  KeyValueStore store;
  for (const char* key : {"a/2", "a/1", "b", "a"}) store.set(key, key, true);
  const auto entries = store.list("a/");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].first, "a/1");
  EXPECT_EQ(store.erase("a/", true), 2);
  EXPECT_EQ(store.erase("a", false), 1);
  EXPECT_EQ(store.list("").size(), 1u);
}

TEST(ClusterNames, TheLeaderIsTheChiefElseTheFirstWorker) {
  EXPECT_EQ(leader_of({{"chief", {"a:1"}}, {"worker", {"b:1"}}}), "chief:0");
  EXPECT_EQ(leader_of({{"ps", {"a:1"}}, {"worker", {"b:1"}}}), "worker:0");
  EXPECT_EQ(leader_of({{"local", {"a:1"}}}), "local:0");
  EXPECT_ERROR(leader_of({}), InvalidArgument, "no tasks");
}

TEST(ClusterNames, TheHashSeesEveryChangeOfTheCluster) {
  const Cluster cluster{{"ps", {"c:1"}}, {"worker", {"a:1", "b:1"}}};
  const std::vector<Cluster> others{{{"ps", {"c:1"}}, {"worker", {"a:1", "b:2"}}},
                                    {{"ps", {"c:1"}}, {"worker", {"b:1", "a:1"}}},
                                    {{"ps", {"c:1", "a:1"}}, {"worker", {"b:1"}}},
                                    {{"worker", {"a:1", "b:1"}}},
                                    {{"ps", {"c:1"}}, {"worker", {"a:1b:1"}}}};
  for (const Cluster& other : others) EXPECT_NE(cluster_hash(other), cluster_hash(cluster));
  EXPECT_EQ(cluster_hash(Cluster(cluster)), cluster_hash(cluster));
}

}  // namespace
}  // namespace tutti::coordination
