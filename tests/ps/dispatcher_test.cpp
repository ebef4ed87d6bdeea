// Functions on workers: TensorFlow's cluster_coordinator_test and its fault tolerance, on workers
// in this process that die when they are told.

#include "ps/dispatcher.h"

#include <atomic>
#include <future>
#include <set>

#include "support/comes_true.h"
#include "support/expect.h"

namespace tutti::ps {
namespace {

using testing::comes_true;

/// Blocks functions until the test opens it, or they are cancelled.
class Gate {
 public:
  void open() { is_open_ = true; }
  void close() { is_open_ = false; }
  void pass(const WorkerContext& context) {
    ++inside_;
    while (!is_open_ && !context.is_cancelled()) std::this_thread::yield();
    --inside_;
  }
  int inside() const { return inside_; }

 private:
  std::atomic<bool> is_open_{false};
  std::atomic<int> inside_{0};
};

class DispatcherTest : public ::testing::Test {
 protected:
  DispatcherTest() {
    table_->functions["add"] = [this](const WorkerContext&, const FunctionTable::Call& call) {
      ++runs_;
      sum_ += call.arguments.empty() ? 1 : call.arguments[0].value.leaf().item<int64_t>();
      return Nest();
    };
    table_->functions["double"] = [](const WorkerContext&, const FunctionTable::Call& call) {
      return Nest(call.arguments[0].value.leaf() * 2);
    };
    table_->functions["fail"] = [](const WorkerContext&, const FunctionTable::Call&) -> Nest {
      throw InvalidArgument("a bad batch");
    };
    table_->functions["wait"] = [this](const WorkerContext& context, const FunctionTable::Call&) {
      gate_.pass(context);
      ++runs_;
      return Nest(at::scalar_tensor(context.worker, at::kLong));
    };
    table_->functions["next"] = [](const WorkerContext&, const FunctionTable::Call& call) {
      return call.resource(call.arguments[0].resource)();
    };
    // Worker i's numbers: i, i + 1, …
    table_->makers["numbers"] = [this](const WorkerContext& context) -> Resource {
      ++made_;
      return [next = context.worker]() mutable {
        if (next > 1000) throw OutOfRange("end of sequence");
        return Nest(at::scalar_tensor(next++, at::kLong));
      };
    };
    table_->makers["broken"] = [](const WorkerContext&) -> Resource {
      throw FailedPrecondition("no such file");
    };
  }
  void start(int workers, const DispatcherOptions& options = {}) {
    std::vector<std::shared_ptr<WorkerLink>> links;
    for (int i = 0; i < workers; ++i) {
      workers_.push_back(std::make_shared<InProcessWorker>(i, table_));
      links.push_back(workers_.back());
    }
    dispatcher_ = std::make_unique<Dispatcher>(links, options);
  }
  static Argument number(int64_t value) { return Nest(at::scalar_tensor(value, at::kLong)); }
  static int64_t number_of(const ValuePtr& value) { return value->get().leaf().item<int64_t>(); }

  std::shared_ptr<FunctionTable> table_ = std::make_shared<FunctionTable>();
  std::atomic<int64_t> sum_{0};
  std::atomic<int> runs_{0}, made_{0};
  Gate gate_;
  std::vector<std::shared_ptr<InProcessWorker>> workers_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

TEST_F(DispatcherTest, EveryFunctionRunsAndJoinWaitsForAll) {
  start(3);
  dispatcher_->join();  // nothing is there: at once
  for (int round = 1; round <= 2; ++round) {
    for (int i = 0; i < 5; ++i) dispatcher_->schedule("add", {number(2)});
    dispatcher_->join();
    dispatcher_->join();
    EXPECT_TRUE(dispatcher_->done());
    EXPECT_EQ(sum_, 10 * round);
  }
}

TEST_F(DispatcherTest, WorkersRunFunctionsAtTheSameTimeOneEach) {
  start(3);
  for (int i = 0; i < 6; ++i) dispatcher_->schedule("wait");
  EXPECT_TRUE(comes_true([&] { return gate_.inside() == 3; }));
  EXPECT_FALSE(dispatcher_->done());
  EXPECT_EQ(gate_.inside(), 3);
  gate_.open();
  dispatcher_->join();
  EXPECT_EQ(runs_, 6);
}

TEST_F(DispatcherTest, ValuesArriveAndStandAsArgumentsOfLaterFunctions) {
  start(2);
  ValuePtr value = dispatcher_->schedule("double", {number(1)});
  for (int i = 0; i < 10; ++i) value = dispatcher_->schedule("double", {value});
  EXPECT_EQ(number_of(value), 2048);
  EXPECT_TRUE(value->is_ready());
}

TEST_F(DispatcherTest, AFunctionWhoseArgumentFailedIsCancelled) {
  start(1);
  const ValuePtr failed = dispatcher_->schedule("fail");
  EXPECT_ERROR(failed->get(), InvalidArgument, "a bad batch");
  EXPECT_ERROR(dispatcher_->join(), InvalidArgument, "a bad batch");
  const ValuePtr after = dispatcher_->schedule("double", {failed});
  EXPECT_ERROR(after->get(), Cancelled, "a function whose result it takes has none");
  dispatcher_->join();
}

TEST_F(DispatcherTest, TheFirstErrorIsThrownOnceAndTheRestIsCancelled) {
  start(2);
  const ValuePtr under_way = dispatcher_->schedule("wait");
  EXPECT_TRUE(comes_true([&] { return gate_.inside() == 1; }));
  const ValuePtr failed = dispatcher_->schedule("fail");
  EXPECT_ERROR(failed->get(), InvalidArgument, "a bad batch");
  EXPECT_ERROR(dispatcher_->schedule("add"), InvalidArgument, "a bad batch");
  EXPECT_ERROR(under_way->get(), Cancelled, "cancelled");
  EXPECT_TRUE(dispatcher_->done());
  // As new.
  dispatcher_->schedule("add");
  dispatcher_->join();
  EXPECT_EQ(sum_, 1);
  EXPECT_ERROR(failed->get(), InvalidArgument, "a bad batch");  // it keeps its own
}

TEST_F(DispatcherTest, FunctionsThatWaitWhenOneFailsAreCancelled) {
  start(1);
  dispatcher_->schedule("wait");
  EXPECT_TRUE(comes_true([&] { return gate_.inside() == 1; }));
  dispatcher_->schedule("fail");
  const ValuePtr waiting = dispatcher_->schedule("add");
  gate_.open();
  EXPECT_ERROR(dispatcher_->join(), InvalidArgument, "a bad batch");
  EXPECT_ERROR(waiting->get(), Cancelled, "an earlier function failed: a bad batch");
  EXPECT_EQ(sum_, 0);
}

TEST_F(DispatcherTest, DoneThrowsAPendingErrorToo) {
  start(1);
  EXPECT_ERROR(dispatcher_->schedule("fail")->get(), InvalidArgument, "a bad batch");
  EXPECT_TRUE(comes_true([&] {
    try {
      dispatcher_->done();
      return false;
    } catch (const InvalidArgument&) {
      return true;
    }
  }));
  EXPECT_TRUE(dispatcher_->done());
}

TEST_F(DispatcherTest, AFullQueueBlocksWhoSchedulesAndNobodyElse) {
  start(1, {.queue = {.size = 2}});
  dispatcher_->schedule("wait");
  EXPECT_TRUE(comes_true([&] { return gate_.inside() == 1; }));
  dispatcher_->schedule("add");
  dispatcher_->schedule("add");
  auto fourth = std::async(std::launch::async, [&] { dispatcher_->schedule("add"); });
  EXPECT_EQ(fourth.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  gate_.open();
  fourth.get();
  for (int i = 0; i < 100; ++i) dispatcher_->schedule("add");
  dispatcher_->join();
  EXPECT_EQ(sum_, 103);
}

TEST_F(DispatcherTest, ALostWorkersFunctionRunsElsewhere) {
  start(2);
  const ValuePtr value = dispatcher_->schedule("wait");
  EXPECT_TRUE(comes_true([&] { return gate_.inside() == 1; }));
  const ValuePtr other = dispatcher_->schedule("wait");
  EXPECT_TRUE(comes_true([&] { return gate_.inside() == 2; }));
  workers_[0]->die();
  gate_.open();
  EXPECT_EQ(number_of(value), 1);
  EXPECT_EQ(number_of(other), 1);
  for (int i = 0; i < 20; ++i) dispatcher_->schedule("add");
  dispatcher_->join();
  EXPECT_EQ(sum_, 20);
  workers_[0]->come_back();
  gate_.close();
  for (int i = 0; i < 2; ++i) dispatcher_->schedule("wait");
  EXPECT_TRUE(comes_true([&] { return gate_.inside() == 2; }));  // both work again
  gate_.open();
  dispatcher_->join();
}

TEST_F(DispatcherTest, FunctionsWaitWhileNoWorkerIsThere) {
  start(1);
  workers_[0]->die();
  const ValuePtr value = dispatcher_->schedule("double", {number(21)});
  EXPECT_FALSE(dispatcher_->done());
  workers_[0]->come_back();
  EXPECT_EQ(number_of(value), 42);
}

TEST_F(DispatcherTest, EachWorkerHasAPieceOfItsOwnMadeWhenItIsFirstUsed) {
  start(3);
  const OfEachWorker numbers = dispatcher_->add_resource("numbers");
  EXPECT_EQ(made_, 0);
  int64_t sum = 0, count[3] = {};
  std::vector<ValuePtr> values;
  for (int i = 0; i < 60; ++i) values.push_back(dispatcher_->schedule("next", {numbers}));
  dispatcher_->join();
  for (const ValuePtr& value : values) sum += number_of(value);
  EXPECT_LE(made_, 3);
  // Whoever ran how many: each gave its numbers in order from its own start, without a hole.
  std::multiset<int64_t> seen;
  for (const ValuePtr& value : values) seen.insert(number_of(value));
  for (int64_t worker = 0; worker < 3; ++worker) {
    for (int64_t next = worker; seen.contains(next); ++next) {
      seen.erase(seen.find(next));
      ++count[worker];
    }
  }
  EXPECT_TRUE(seen.empty()) << sum;
  EXPECT_EQ(count[0] + count[1] + count[2], 60);
}

TEST_F(DispatcherTest, AWorkerThatCameBackBeginsItsPieceAgain) {
  start(1);
  const OfEachWorker numbers = dispatcher_->add_resource("numbers");
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(number_of(dispatcher_->schedule("next", {numbers})), i);
  workers_[0]->die();
  const ValuePtr value = dispatcher_->schedule("next", {numbers});
  workers_[0]->come_back();
  EXPECT_EQ(number_of(value), 0);
  EXPECT_EQ(made_, 2);
}

TEST_F(DispatcherTest, APieceThatCannotBeMadeIsTheFunctionsError) {
  start(1);
  const OfEachWorker broken = dispatcher_->add_resource("broken");
  const ValuePtr value = dispatcher_->schedule("next", {broken});
  EXPECT_ERROR(value->get(), FailedPrecondition, "no such file");
  EXPECT_ERROR(dispatcher_->join(), FailedPrecondition, "no such file");
  EXPECT_ERROR(dispatcher_->schedule("next", {OfEachWorker{7}})->get(), InvalidArgument,
               "the per-worker value 7");
  EXPECT_ERROR(dispatcher_->join(), InvalidArgument, "7");
}

TEST_F(DispatcherTest, TroubleWithAServerPassesUntilItIsReportedTooOften) {
  std::atomic<int> fails{2};
  table_->functions["push"] = [&](const WorkerContext&, const FunctionTable::Call&) -> Nest {
    if (fails-- > 0) throw ServerLost(1, "ps:1 does not answer");
    ++runs_;
    return {};
  };
  start(1);
  for (int round = 0; round < 3; ++round) {  // a server that answers again starts from zero
    fails = 2;
    dispatcher_->schedule("push");
    dispatcher_->join();
  }
  EXPECT_EQ(runs_, 3);
  fails = 3;
  dispatcher_->schedule("push");
  EXPECT_ERROR(dispatcher_->join(), Unavailable, "ps:1 does not answer");
  dispatcher_->schedule("push");
  dispatcher_->join();
}

TEST_F(DispatcherTest, AnErrorThatIsNoneOfOursIsInternal) {
  table_->functions["shapes"] = [](const WorkerContext&, const FunctionTable::Call&) {
    return Nest(at::ones({2}) + at::ones({3}));
  };
  start(1);
  dispatcher_->schedule("shapes");
  EXPECT_ERROR(dispatcher_->join(), Internal, "function \"shapes\": ");
  dispatcher_->schedule("nowhere");
  EXPECT_ERROR(dispatcher_->join(), NotFound, "no function \"nowhere\"");
}

TEST_F(DispatcherTest, ItsEndEndsItsThreadsAndCancelsTheRest) {
  start(2);
  std::vector<ValuePtr> values;
  for (int i = 0; i < 5; ++i) values.push_back(dispatcher_->schedule("wait"));
  EXPECT_TRUE(comes_true([&] { return gate_.inside() == 2; }));
  dispatcher_.reset();
  for (const ValuePtr& value : values) EXPECT_ERROR(value->get(), Cancelled, "wait");
  EXPECT_EQ(gate_.inside(), 0);
}

TEST_F(DispatcherTest, ItsEndDoesNotWaitForAWorkerThatIsGone) {
  start(1);
  workers_[0]->die();
  const ValuePtr value = dispatcher_->schedule("add");
  dispatcher_.reset();
  EXPECT_ERROR(value->get(), Cancelled, "the coordinator has ended");
}

TEST_F(DispatcherTest, EveryFunctionRunsThoughWorkersDieAllTheTime) {
  start(3);
  std::atomic<bool> over{false};
  std::thread reaper([&] {
    for (std::size_t i = 0; !over; ++i) {
      workers_[i % 3]->die();
      std::this_thread::yield();
      workers_[i % 3]->come_back();
    }
  });
  std::vector<ValuePtr> values;
  for (int64_t i = 0; i < 500; ++i) values.push_back(dispatcher_->schedule("double", {number(i)}));
  dispatcher_->join();
  over = true;
  reaper.join();
  for (int64_t i = 0; i < 500; ++i)
    EXPECT_EQ(number_of(values[static_cast<std::size_t>(i)]), 2 * i);
}

TEST_F(DispatcherTest, WithoutWorkersIsRefused) {
  EXPECT_ERROR(Dispatcher({}, {}), InvalidArgument, "no workers, expected at least 1");
}

}  // namespace
}  // namespace tutti::ps
