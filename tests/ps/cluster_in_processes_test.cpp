// A coordinator, two workers and a parameter server, each a process, that are killed in the middle.

#include "ps/dispatcher.h"
#include "ps/dying_process.h"
#include "ps/folder.h"
#include "ps/remote_server.h"
#include "ps/remote_worker.h"
#include "support/expect.h"

namespace tutti::ps {
namespace {

using testing::DyingProcess;

class ClusterInProcesses : public ::testing::Test {
 protected:
  ClusterInProcesses() {
    for (int i = 0; i < 2; ++i) {
      workers_.push_back(
          std::make_unique<DyingProcess>(std::vector<std::string>{"worker", std::to_string(i)},
                                         std::vector<std::string>{server_.address()}));
    }
    client_ = make_remote_server({.address = server_.address()});
    const int64_t a = client_->create({"a", {{8}, at::kFloat}}, at::zeros({8}));
    client_->create_optimizer({.name = "sgd",
                               .class_name = "SGD",
                               .config = R"({"learning_rate": 1.0})",
                               .variables = {a}});
    std::vector<std::shared_ptr<WorkerLink>> links;
    for (const auto& worker : workers_)
      links.push_back(make_remote_worker({.address = worker->address()}));
    dispatcher_ = std::make_unique<Dispatcher>(links, DispatcherOptions{});
  }
  ValuePtr add(int64_t number) {
    return dispatcher_->schedule("add", {Argument(Nest(at::scalar_tensor(number, at::kLong)))});
  }
  void expect_added(int64_t count) {
    EXPECT_TENSOR_EQ(client_->read({0}).values[0], at::full({8}, static_cast<double>(count)));
    EXPECT_EQ(client_->iterations(0), count);
  }

  testing::Folder folder_;
  DyingProcess server_{{}, {folder_.path("ps")}};
  std::vector<std::unique_ptr<DyingProcess>> workers_;
  std::unique_ptr<ParameterServer> client_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

TEST_F(ClusterInProcesses, CountsEachFunctionOnceThoughWorkersAndTheServerAreKilled) {
  constexpr int64_t kFunctions = 200;
  std::vector<ValuePtr> values;
  for (int64_t i = 1; i <= kFunctions; ++i) values.push_back(add(i));
  values[20]->get();
  workers_[0]->kill_and_restart();
  values[60]->get();
  server_.kill_and_restart();
  values[100]->get();
  workers_[1]->kill();
  values[140]->get();
  workers_[1]->restart();
  dispatcher_->join();
  for (int64_t i = 1; i <= kFunctions; ++i)
    EXPECT_EQ(values[static_cast<std::size_t>(i - 1)]->get().leaf().item<int64_t>(), i);
  expect_added(kFunctions);
}

TEST_F(ClusterInProcesses, AFunctionsErrorComesBackWithItsCodeAndTheRestIsCancelled) {
  const ValuePtr waiting = dispatcher_->schedule("wait");
  const ValuePtr failed = dispatcher_->schedule("fail");
  EXPECT_ERROR(failed->get(), Aborted, "a function's own error");
  EXPECT_ERROR(dispatcher_->join(), Aborted, "a function's own error");
  EXPECT_ERROR(waiting->get(), Cancelled, "wait");
  EXPECT_ERROR(dispatcher_->schedule("nowhere")->get(), NotFound, "no function \"nowhere\"");
  EXPECT_ERROR(dispatcher_->join(), NotFound, "nowhere");
  for (int64_t i = 1; i <= 10; ++i) add(i);
  dispatcher_->join();
  expect_added(10);
}

TEST_F(ClusterInProcesses, IteratorsOfAKilledWorkerBeginAgain) {
  workers_[1]->kill();
  const OfEachWorker numbers = dispatcher_->add_resource("numbers");
  const auto next = [&] { return dispatcher_->schedule("next", {numbers})->get().leaf(); };
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(next().item<int64_t>(), i);
  workers_[0]->kill();
  const ValuePtr value = dispatcher_->schedule("next", {numbers});
  workers_[0]->restart();
  EXPECT_EQ(value->get().leaf().item<int64_t>(), 0);
}

TEST_F(ClusterInProcesses, AWorkerThatIsNotThereAtTheEndHoldsNobodyUp) {
  workers_[0]->kill();
  workers_[1]->kill();
  const ValuePtr value = add(1);
  dispatcher_.reset();
  EXPECT_ERROR(value->get(), Cancelled, "add");
}

}  // namespace
}  // namespace tutti::ps
