#include "tutti/compat/v1.h"

#include <gtest/gtest.h>

#include "support/message_checks.h"
#include "support/tensor_checks.h"
#include "support/workers.h"

namespace tutti::compat {
namespace {

namespace v1d = v1::distribute;
using testing::throws_saying;

v1d::MirroredStrategy two() { return v1d::MirroredStrategy({.devices = {"cpu:0", "cpu:1"}}); }
Tensor id() {
  return at::scalar_tensor(v1d::get_replica_context()->replica_id_in_sync_group(), at::kFloat);
}

TEST(V1, AStrategyOfV1IsAStrategyOfToday) {
  v1d::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  EXPECT_TRUE(v1d::has_strategy());
  EXPECT_TRUE(v1d::in_cross_replica_context());
  EXPECT_EQ(&v1d::get_strategy().strategy(), &strategy.strategy());
  EXPECT_EQ(strategy.name(), "MirroredStrategy");
  static_assert(std::derived_from<v1d::OneDeviceStrategy, tutti::distribute::OneDeviceStrategy>);
  static_assert(std::derived_from<v1d::experimental::CentralStorageStrategy,
                                  tutti::distribute::CentralStorageStrategy>);
}

TEST(V1, ReduceNeedsNoAxis) {
  auto strategy = two();
  const auto ids = strategy.run(id);
  EXPECT_EQ(strategy.reduce("SUM", ids).item<float>(), 1);
  EXPECT_EQ(strategy.reduce("SUM", ids, std::nullopt).item<float>(), 1);
  v1d::Strategy view = strategy.strategy();
  EXPECT_EQ(view.reduce("MEAN", ids).item<float>(), 0.5);
  EXPECT_EQ(view.reduce("SUM", strategy.run([] { return at::ones({3}); }), 0).item<float>(), 6);
  EXPECT_EQ(view.run(id).size(), 2u);
  EXPECT_EQ(view.num_replicas_in_sync(), 2);
}

TEST(V1, UnwrapGivesTheComponentsAndGroupTakesAnything) {
  auto strategy = two();
  const auto ids = strategy.run(id);
  EXPECT_EQ(strategy.unwrap(ids).size(), 2u);
  EXPECT_EQ(strategy.experimental_local_results(ids)[1].item<float>(), 1);
  strategy.group(ids, "train_op");
  strategy.group(std::tuple(ids, 3));
}

TEST(V1, ConfigureSetsTheSessionAndTakesOneLocalTask) {
  auto strategy = two();
  v1::ConfigProto config;
  strategy.configure(&config, {{"worker", {"localhost:2222"}}}, "worker", 0);
  EXPECT_TRUE(config.isolate_session_state);
  EXPECT_TRUE(strategy.update_config_proto({}).isolate_session_state);
  EXPECT_FALSE(v1d::OneDeviceStrategy("cpu:0").update_config_proto({}).isolate_session_state);
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        strategy.configure(nullptr, {{"worker", {"localhost:1", "localhost:2"}}});
      },
      {"configure", "2 tasks"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        strategy.configure(nullptr, {{"worker", {"localhost:1"}}}, "chief");
      },
      {"chief"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.configure(nullptr, {}, "worker", 1); },
                                             {"task_id"}));
}

TEST(V1, DatasetIteratorsCanStartAgain) {
  auto strategy = two();
  auto iterator = strategy.make_dataset_iterator(data::range(8).batch(4));
  const auto first = iterator.get_next();
  EXPECT_TENSOR_EQ(first[1], at::arange(2, 4, at::kLong));
  iterator.get_next();
  EXPECT_FALSE(iterator.get_next_as_optional().has_value());
  iterator.initialize();
  EXPECT_TENSOR_EQ(iterator.get_next()[0], at::arange(2, at::kLong));
}

TEST(V1, InputFunctionsArePerWorker) {
  auto strategy = two();
  const auto input_fn = [](const v1d::InputContext& context) {
    return data::range(8).batch(context.get_per_replica_batch_size(4));
  };
  auto iterator = strategy.make_input_fn_iterator(input_fn);
  EXPECT_TENSOR_EQ(iterator.get_next()[1], at::arange(2, 4, at::kLong));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { strategy.make_input_fn_iterator(input_fn, v1d::InputReplicationMode::kPerReplica); },
      {"PER_REPLICA", "PER_WORKER"}));
}

TEST(V1, ExperimentalRunFeedsTheNextStep) {
  auto strategy = two();
  auto iterator = strategy.make_dataset_iterator(data::range(8).batch(4));
  const auto sums = strategy.experimental_run([](Tensor rows) { return rows.sum(); }, iterator);
  EXPECT_EQ(sums[1].item<int64_t>(), 5);
  EXPECT_EQ(strategy.experimental_run(id).size(), 2u);
  auto pairs = strategy.make_dataset_iterator(
      data::from_tensor_slices(at::arange(4), at::arange(4) * 10).batch(4));
  EXPECT_EQ(strategy.experimental_run([](Tensor a, Tensor b) { return (a * b).sum(); }, pairs)[0]
                .item<int64_t>(),
            10);
}

TEST(V1, ExtendedHasTheOlderVerbsAndTheRoleOfTheOnlyWorker) {
  auto strategy = two();
  v1d::StrategyExtended extended = strategy.extended();
  EXPECT_FALSE(extended.experimental_between_graph());
  EXPECT_FALSE(extended.experimental_require_static_shapes());
  EXPECT_TRUE(extended.experimental_should_init());
  EXPECT_TRUE(extended.should_checkpoint());
  EXPECT_TRUE(extended.should_save_summary());
  EXPECT_EQ(extended.worker_devices().size(), 2u);
  auto dataset = extended.experimental_make_numpy_dataset(std::vector<float>{1, 2, 3, 4});
  auto iterator = strategy.make_dataset_iterator(dataset.batch(4));
  const auto context = extended.experimental_run_steps_on_iterator(
      [&](v1d::MultiStepContext& steps, const PerReplica<Tensor>& inputs) {
        steps.set_last_step_output(
            "sum", strategy.run([](Tensor rows) { return rows.sum(); }, inputs), "SUM");
      },
      iterator);
  EXPECT_EQ(context.last_step_output("sum").item<float>(), 10);
  EXPECT_EQ(strategy.experimental_make_numpy_dataset(std::vector<int>{1}).cardinality(), 1);
}

TEST(V1, TheStrategyOfManyWorkersHasItsV1Name) {
  v1d::experimental::MultiWorkerMirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  EXPECT_EQ(strategy.name(), "MultiWorkerMirroredStrategy");
  EXPECT_EQ(strategy.unwrap(strategy.run(id)).size(), 2u);
  EXPECT_TRUE(strategy.update_config_proto({}).isolate_session_state);
  EXPECT_FALSE(strategy.extended().experimental_between_graph());  // with one worker
  tutti::distribute::Strategy& today = strategy;
  EXPECT_NE(dynamic_cast<tutti::distribute::MultiWorkerMirroredStrategy*>(&today), nullptr);
}

TEST(V1, OfSeveralWorkersTheChiefSavesAndWritesSummaries) {
  testing::on_workers(2, 1, [](std::shared_ptr<tutti::distribute::Strategy> strategy) {
    const v1d::StrategyExtended extended(*strategy);
    const bool chief = strategy->first_replica_id() == 0;
    EXPECT_TRUE(extended.experimental_between_graph());
    EXPECT_TRUE(extended.experimental_should_init());
    EXPECT_EQ(extended.should_checkpoint(), chief);
    EXPECT_EQ(extended.should_save_summary(), chief);
  });
}

TEST(V1, ASeenStrategyHasTheDeprecatedMembersToo) {
  tutti::distribute::OneDeviceStrategy today("cpu:0");
  v1d::Strategy strategy = today;
  EXPECT_EQ(strategy.unwrap(strategy.run(id)).size(), 1u);
  auto scope = strategy.scope();
  const Variable v(at::zeros({}));
  auto here = strategy.colocate_vars_with(v);
  EXPECT_TRUE(strategy.extended().variable_created_in_scope(v));
}

TEST(V1, LossesAreAddedUp) {
  EXPECT_EQ(v1d::get_loss_reduction(), v1d::ReduceOp::kSum);
  auto strategy = two();
  auto scope = strategy.scope();
  EXPECT_EQ(v1d::get_loss_reduction(), v1d::ReduceOp::kSum);
}

TEST(Compat, ExperimentalSpellingsAreTheMembersOfToday) {
  tutti::distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  experimental_set_strategy(&strategy);
  EXPECT_EQ(&tutti::distribute::get_strategy(), &strategy);
  experimental_set_strategy(nullptr);
  EXPECT_FALSE(tutti::distribute::has_strategy());
  const auto values = experimental_distribute_values_from_function(
      strategy,
      [](tutti::distribute::ValueContext context) { return context.replica_id_in_sync_group; });
  EXPECT_EQ(experimental_local_results(strategy, values), (std::vector<int>{0, 1}));
  auto dataset = experimental_distribute_dataset(strategy, data::range(4).batch(4));
  EXPECT_TENSOR_EQ(dataset.iterator().get_next()[1], at::arange(2, 4, at::kLong));
  auto from_function = experimental_distribute_datasets_from_function(
      strategy, [](const tutti::distribute::InputContext&) { return data::range(4).batch(2); });
  EXPECT_TENSOR_EQ(from_function.iterator().get_next()[1], at::arange(2, 4, at::kLong));
}

TEST(Compat, CollectiveHintsAreCommunicationOptions) {
  const tutti::distribute::CommunicationOptions options =
      CollectiveHints{.bytes_per_pack = 5, .timeout_seconds = 2};
  EXPECT_EQ(options.bytes_per_pack, 5);
  EXPECT_EQ(options.timeout_seconds, 2);
  EXPECT_EQ(options.implementation, CollectiveCommunication::kAuto);
  EXPECT_THROW(static_cast<void>(static_cast<tutti::distribute::CommunicationOptions>(
                   CollectiveHints{.bytes_per_pack = -1})),
               InvalidArgument);
}

}  // namespace
}  // namespace tutti::compat
