// The verbs behind `extended`: updates, destinations, where things are, steps and host data.

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <span>

#include "support/message_checks.h"
#include "support/tensor_checks.h"
#include "tutti/distribute/extended.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using testing::throws_saying;

MirroredStrategyOptions cpus(int count) {
  MirroredStrategyOptions options;
  for (int i = 0; i < count; ++i) options.devices.push_back(cat("cpu:", i));
  return options;
}
Tensor scalar(double value) { return at::scalar_tensor(value, at::kFloat); }
PerReplica<Tensor> ids(Strategy& strategy) {
  return strategy.distribute_values_from_function(
      [](ValueContext context) { return scalar(context.replica_id_in_sync_group); });
}

// ---- update

TEST(StrategyUpdate, Spec15_OneDevicePassesTheVariableAndTheTensorThemselves) {
  OneDeviceStrategy strategy("cpu:0");
  auto scope = strategy.scope();
  const Variable v(at::zeros({}));
  const Tensor t = at::ones({});
  const auto same = strategy.update(
      v,
      [&](const Variable& variable, const Tensor& tensor) {
        return variable.is_same(v) && tensor.is_same(t);
      },
      t);
  ASSERT_EQ(same.size(), 1u);
  EXPECT_TRUE(same[0]);
}

TEST(StrategyUpdate, RunsOnceForEachPhysicalCopyAndGivesEveryReplicaAResult) {
  MirroredStrategy strategy(cpus(4));
  auto scope = strategy.scope();
  Variable v(at::zeros({}));
  int calls = 0;
  const auto add_one = [&](Variable variable) {
    ++calls;
    return variable.assign_add(1.0);
  };
  EXPECT_EQ(strategy.update(v, add_one).size(), 4u);
  EXPECT_EQ(calls, 1) << "CPU components share one copy";
  strategy.run([&] { v.assign(scalar(get_replica_context()->replica_id_in_sync_group())); });
  calls = 0;
  EXPECT_EQ(strategy.update(v, add_one).size(), 4u);
  EXPECT_EQ(calls, 4);
}

TEST(StrategyUpdate, Spec19_ResultsAreMirrored) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const Variable v(at::zeros({}));
  const auto [a, b] = strategy.update(
      v, [](Variable variable) { return std::tuple(variable.value(), std::string("text")); });
  static_assert(std::is_same_v<std::decay_t<decltype(a)>, Mirrored<Tensor>>);
  EXPECT_EQ(b[1], "text");
}

TEST(StrategyUpdate, Spec74_UngroupedResultsAreOneTupleAReplica) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const Variable v(at::zeros({}));
  const Mirrored<Tensor> delta(std::vector<Tensor>{scalar(2), scalar(2)});
  const auto results = strategy.extended().update_ungrouped(
      v, [](Variable variable, const Tensor& d) { return std::tuple(variable.assign_add(d), 7); },
      delta);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(std::get<1>(results[1]), 7);
  EXPECT_TENSOR_EQ(std::get<0>(results[1]), scalar(2));
}

TEST(StrategyUpdate, APerReplicaArgumentIsRefusedAtAnyDepth) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const Variable v(at::zeros({}));
  const auto value = ids(strategy);
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        strategy.update(
            v, [](const Variable&, const Tensor&) {}, value);
      },
      {"update", "PerReplica", "reduce"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        strategy.update(
            v, [](const Variable&, const auto&) {},
            std::map<std::string, std::vector<PerReplica<Tensor>>>{{"a", {value}}});
      },
      {"update", "PerReplica"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] {
        strategy.update_non_slot(
            "cpu:0", [](const Tensor&) {}, value);
      },
      {"update_non_slot", "PerReplica"}));
}

TEST(StrategyUpdate, WantsAVariableOfItsOwnAndCrossReplicaContext) {
  const Variable outside(at::zeros({}));
  MirroredStrategy strategy(cpus(2));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { strategy.update(outside, [](const Variable&) {}); }, {"update", "another strategy"}));
  auto scope = strategy.scope();
  const Variable v(at::zeros({}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [&] { strategy.run([&] { strategy.update(v, [](const Variable&) {}); }); },
      {"update", "get_replica_context()->update"}));
}

TEST(StrategyUpdate, NonSlotUpdatesRunOnEachDevice) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const Variable v(at::zeros({}));
  const std::vector<DeviceName> devices = strategy.non_slot_devices({v});
  std::vector<int> replicas;
  const auto results = strategy.extended().update_non_slot(
      devices,
      [&](const Tensor& value) {
        replicas.push_back(get_update_replica_id().value());
        return value + 1;
      },
      Mirrored<Tensor>(std::vector<Tensor>{scalar(1), scalar(1)}));
  EXPECT_EQ(replicas, (std::vector<int>{0, 1}));
  EXPECT_EQ(results.size(), 2u);
  EXPECT_TENSOR_EQ(results[1], scalar(2));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>([&] { strategy.non_slot_devices({}); }, {"non_slot_devices"}));
}

// ---- destinations and options

/// Remembers the options of its last call.
class Recorder : public CrossDeviceOps {
 public:
  explicit Recorder(CommunicationOptions* seen) : seen_(seen) {}
  std::string name() const override { return "Recorder"; }

 protected:
  Mirrored<Tensor> reduce_implementation(ReduceOp op, const PerReplica<Tensor>& value,
                                         const Destinations& destinations,
                                         const CommunicationOptions& options) const override {
    *seen_ = options;
    return CrossDeviceOps::reduce_implementation(op, value, destinations, options);
  }

 private:
  CommunicationOptions* seen_;
};

TEST(StrategyOptions, OptionsOfACallWinFieldByFieldOverTheStrategys) {
  CommunicationOptions seen;
  MirroredStrategy strategy(
      {.devices = {"cpu:0", "cpu:1"},
       .cross_device_ops = Recorder(&seen),
       .communication_options = {.bytes_per_pack = 64, .timeout_seconds = 5}});
  const auto value = ids(strategy);
  strategy.reduce_to("SUM", value, value);
  EXPECT_EQ(seen.bytes_per_pack, 64);
  EXPECT_EQ(seen.timeout_seconds, 5);
  strategy.batch_reduce_to("SUM", {{value, value}}, {.bytes_per_pack = 128});
  EXPECT_EQ(seen.bytes_per_pack, 128);
  EXPECT_EQ(seen.timeout_seconds, 5);
  strategy.reduce("SUM", value);
  EXPECT_EQ(seen.bytes_per_pack, 64);
}

TEST(StrategyDestinations, EmptyOnesAreRefusedAndVariablesAreNotWritten) {
  MirroredStrategy strategy(cpus(2));
  auto scope = strategy.scope();
  const Variable v(scalar(7));
  const auto value = ids(strategy);
  EXPECT_TENSOR_EQ(strategy.reduce_to("SUM", value, v)[0], scalar(1));
  EXPECT_TENSOR_EQ(v.read_value(), scalar(7));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.reduce_to("SUM", value, ""); },
                                             {"destination"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { strategy.reduce_to("SUM", value, PerReplica<Tensor>()); }, {"destinations"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { strategy.reduce_to("SUM", PerReplica<Tensor>(), value); }, {"components"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.broadcast_to(Tensor(), value); },
                                             {"broadcast"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { strategy.reduce_to("SUM", scalar(1), value); },
                                             {"SUM"}));
}

TEST(StrategyDestinations, Spec75_CentralStorageReducesToTheDeviceOfAVariable) {
  CentralStorageStrategy strategy({.compute_devices = {"cpu:0", "cpu:1"}});
  auto scope = strategy.scope();
  const Variable v(scalar(0));
  EXPECT_EQ(cat(join(strategy.parameter_devices(), " ")), "cpu:0");
  EXPECT_EQ(cat(join(strategy.worker_devices(), " ")), "cpu:0 cpu:1");
  const auto reduced = strategy.reduce_to("SUM", ids(strategy), v);
  ASSERT_EQ(reduced.size(), 1u);
  EXPECT_TENSOR_EQ(reduced[0], scalar(1));
}

TEST(StrategyDestinations, Spec76_OneDeviceReducesAndGathersToTheInput) {
  OneDeviceStrategy strategy("cpu:3");
  const Tensor rows = at::ones({2});
  EXPECT_TENSOR_EQ(strategy.reduce("SUM", rows), rows);
  EXPECT_TENSOR_EQ(strategy.gather(rows, 0), rows);
  const auto device = strategy.run([] { return cat(get_replica_context()->devices()[0]); });
  EXPECT_EQ(device[0], "cpu:3");
}

// ---- where things are

TEST(StrategyPlaces, VariablesAreColocatedWithThoseOfTheSameStrategyOnly) {
  const Variable outside(at::zeros({}));
  MirroredStrategy strategy(cpus(2));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [&] { static_cast<void>(strategy.colocate_vars_with(outside)); }, {"scope"}));
  auto scope = strategy.scope();
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { static_cast<void>(strategy.colocate_vars_with(outside)); }, {"another strategy"}));
  const Variable v(at::zeros({}));
  auto here = strategy.colocate_vars_with(v);
  const Variable w(at::zeros({}));
  EXPECT_EQ(w.devices(), v.devices());
  EXPECT_TRUE(strategy.variable_created_in_scope(w));
  EXPECT_FALSE(strategy.variable_created_in_scope(outside));
  EXPECT_TENSOR_EQ(strategy.read_var(w), at::zeros({}));
}

// ---- steps

TEST(StrategySteps, FnRunsOnceAnIterationInCrossReplicaContextAndTheLastOutputsStay) {
  MirroredStrategy strategy(cpus(2));
  auto iterator = strategy.distribute_dataset(data::range(12).batch(4)).iterator();
  int calls = 0;
  const MultiStepContext context = strategy.run_steps_on_iterator(
      [&](MultiStepContext& steps, const PerReplica<Tensor>& inputs) {
        ++calls;
        EXPECT_TRUE(in_cross_replica_context());
        EXPECT_EQ(&get_strategy(), &strategy);
        const auto sums = strategy.run(
            [&](Tensor rows) {
              const Tensor sum = rows.sum();
              steps.set_last_step_output("in replica", sum, "SUM");
              steps.set_non_tensor_output("ids", get_replica_context()->replica_id_in_sync_group());
              return sum;
            },
            inputs);
        steps.set_last_step_output("reduced", sums, "MEAN");
        steps.set_last_step_output("apart", sums);
        steps.set_last_step_output("plain", at::scalar_tensor(calls));
        steps.set_non_tensor_output("text", std::string("step"));
      },
      iterator, 2);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(context.last_step_output("in replica").item<int64_t>(), 4 + 5 + 6 + 7);
  EXPECT_EQ(context.last_step_output("reduced").item<double>(), 11);
  EXPECT_EQ(context.last_step_output("plain").item<int>(), 2);
  EXPECT_EQ(std::get<PerReplica<Tensor>>(context.last_step_outputs().at("apart"))[1].item<int>(),
            13);
  EXPECT_EQ(std::any_cast<std::vector<int>>(context.non_tensor_outputs().at("ids")),
            (std::vector<int>{0, 1}));
  EXPECT_EQ(std::any_cast<std::string>(context.non_tensor_outputs().at("text")), "step");
  EXPECT_TRUE(
      throws_saying<InvalidArgument>([&] { context.last_step_output("apart"); }, {"PerReplica"}));
  EXPECT_TRUE(
      throws_saying<NotFound>([&] { context.last_step_output("none"); }, {"none", "reduced"}));
}

TEST(StrategySteps, WithoutIterationsTheInitialOutputsComeBack) {
  MirroredStrategy strategy(cpus(2));
  auto iterator = strategy.distribute_dataset(data::range(4).batch(4)).iterator();
  const auto nothing = [](MultiStepContext&, const PerReplica<Tensor>&) {};
  const auto context =
      strategy.extended().run_steps_on_iterator(nothing, iterator, 0, {{"loss", scalar(3)}});
  EXPECT_TENSOR_EQ(context.last_step_output("loss"), scalar(3));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { strategy.run_steps_on_iterator(nothing, iterator, -1); }, {"-1"}));
  EXPECT_TRUE(throws_saying<OutOfRange>(
      [&] { strategy.run_steps_on_iterator(nothing, iterator, 2); }, {"end"}));
}

TEST(StrategySteps, AnOutputOfAReplicaNeedsAReduction) {
  MirroredStrategy strategy(cpus(2));
  MultiStepContext context;
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { strategy.run([&] { context.set_last_step_output("loss", scalar(1)); }); },
      {"loss", "SUM or MEAN"}));
}

// ---- host data

TEST(StrategyHostData, ArraysBecomeADatasetOfTheirSlices) {
  MirroredStrategy strategy(cpus(2));
  std::vector<float> x{1, 2, 3};
  const std::array<int64_t, 3> y{4, 5, 6};
  const std::vector<bool> flags{true, false, true};
  auto dataset = strategy.make_numpy_dataset(
      std::span<const float>(x), y, std::map<std::string, std::vector<bool>>{{"f", flags}});
  x[0] = 100;  // the arrays were copied
  auto iterator = dataset.iterator();
  const auto [a, b, c] = iterator.get_next();
  EXPECT_TENSOR_EQ(a, scalar(1));
  EXPECT_EQ(b.item<int64_t>(), 4);
  EXPECT_TRUE(c.at("f").item<bool>());
  EXPECT_EQ(dataset.cardinality(), 3);
  Tensor rows = at::ones({4, 2});
  auto matrix = strategy.extended().make_numpy_dataset(rows);
  rows.zero_();
  auto distributed = strategy.distribute_dataset(matrix.batch(4));
  for (const auto& step : distributed) EXPECT_TENSOR_EQ(step[1], at::ones({2, 2}));
}

TEST(StrategyHostData, ArraysOfDifferentLengthsAndScalarsAreRefused) {
  MirroredStrategy strategy(cpus(1));
  EXPECT_THROW(strategy.make_numpy_dataset(std::vector<int>{1, 2}, std::vector<int>{1}),
               InvalidArgument);
  EXPECT_THROW(strategy.make_numpy_dataset(Tensor()), InvalidArgument);
}

}  // namespace
}  // namespace tutti::distribute
