#pragma once
// What every way to a parameter server must do. One enters by one line:
//   INSTANTIATE_TEST_SUITE_P(InProcess, ParameterServerContract,
//                            ::testing::Values(ServerMaker{"in_process", make_in_process}));

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "ps/parameter_server.h"
#include "support/expect.h"
#include "tutti/distribute/strategies.h"
#include "tutti/keras/optimizers.h"

namespace tutti::ps {

/// An empty server, and what must live as long as it.
struct ServerWorld {
  std::shared_ptr<void> surroundings;
  std::shared_ptr<ParameterServer> server;
};

struct ServerMaker {
  const char* name;
  std::function<ServerWorld()> make;
};
inline void PrintTo(const ServerMaker& maker, std::ostream* out) { *out << maker.name; }

class ParameterServerContract : public ::testing::TestWithParam<ServerMaker> {
 protected:
  int64_t create(const std::string& name, const Tensor& value, bool trainable = true) {
    return server_.create({name, TensorSpec::of(value), trainable}, value);
  }
  Tensor read(int64_t variable) { return server_.read({variable}).values[0]; }
  Tag next(const std::string& worker = "worker:0") { return {worker, 1, ++sequence_}; }
  int64_t sgd(const std::vector<int64_t>& variables, const std::string& arguments = "") {
    return server_.create_optimizer({.name = "sgd",
                                     .class_name = "SGD",
                                     .config = "{\"learning_rate\": 1.0" + arguments + "}",
                                     .variables = variables});
  }
  static Tensor ids(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }

  ServerWorld world_ = GetParam().make();
  ParameterServer& server_ = *world_.server;
  uint64_t sequence_ = 0;
};

TEST_P(ParameterServerContract, AVariableIsWhatItWasCreatedWith) {
  const Tensor value = at::arange(6, at::kFloat).reshape({2, 3});
  const int64_t a = create("a", value);
  const int64_t b = create("b", at::tensor({1, 2}, at::kLong), /*trainable=*/false);
  const int64_t scalar = create("scalar", at::scalar_tensor(2.5, at::kDouble));
  const int64_t empty = create("empty", at::empty({0, 3}, at::kFloat));
  EXPECT_TENSOR_EQ(read(a), value);
  const ReadResult all = server_.read({b, scalar, empty, a});
  ASSERT_EQ(all.values.size(), 4u);
  EXPECT_EQ(all.values[0].scalar_type(), at::kLong);
  EXPECT_EQ(all.values[1].item<double>(), 2.5);
  EXPECT_EQ(all.values[2].sizes(), at::IntArrayRef({0, 3}));
  EXPECT_TENSOR_EQ(all.values[3], value);
  EXPECT_TRUE(server_.read({}).values.empty());
  const auto infos = server_.variables();
  ASSERT_EQ(infos.size(), 4u);
  EXPECT_EQ(infos[1].id, b);
  EXPECT_EQ(infos[1].description.name, "b");
  EXPECT_FALSE(infos[1].description.trainable);
  EXPECT_EQ(infos[0].description.spec, TensorSpec::of(value));
}

TEST_P(ParameterServerContract, CreatingAVariableAgainLeavesItAlone) {
  const int64_t a = create("a", at::zeros({2}));
  EXPECT_EQ(create("a", at::ones({2})), a);
  EXPECT_TENSOR_EQ(read(a), at::zeros({2}));
  EXPECT_ERROR(create("a", at::zeros({3})), AlreadyExists, "ps create [a]: there is one of");
  EXPECT_ERROR(create("a", at::zeros({2}), false), AlreadyExists, "another name");
  EXPECT_EQ(server_.variables().size(), 1u);
}

TEST_P(ParameterServerContract, WhatComesBackIsTheCallersOwn) {
  Tensor value = at::zeros({2});
  const int64_t a = create("a", value);
  value.fill_(7);
  read(a).fill_(8);
  server_.gather(a, ids({0})).fill_(9);
  EXPECT_TENSOR_EQ(read(a), at::zeros({2}));
}

TEST_P(ParameterServerContract, WritesChangeSeveralVariablesAtOnce) {
  const int64_t a = create("a", at::zeros({2})), b = create("b", at::ones({3}));
  server_.write(next(), Write::kAssign, {b, a}, {at::full({3}, 5.0), at::full({2}, 4.0)});
  server_.write(next(), Write::kAdd, {a}, {at::ones({2})});
  const Applied last = server_.write(next(), Write::kSub, {b}, {at::ones({3})});
  EXPECT_FALSE(last.repeated);
  EXPECT_EQ(last.version, 3);
  EXPECT_EQ(server_.read({a}).version, 3);
  EXPECT_TENSOR_EQ(read(a), at::full({2}, 5.0));
  EXPECT_TENSOR_EQ(read(b), at::full({3}, 4.0));
}

TEST_P(ParameterServerContract, RowsAreReadAndChangedByTheirIndex) {
  const int64_t a = create("a", at::arange(8, at::kFloat).reshape({4, 2}));
  EXPECT_TENSOR_EQ(server_.gather(a, ids({3, 0, 3})),
                   at::tensor({6., 7., 0., 1., 6., 7.}, at::kFloat).reshape({3, 2}));
  EXPECT_EQ(server_.gather(a, ids({})).sizes(), at::IntArrayRef({0, 2}));
  server_.scatter(next(), Write::kAdd, a, {at::ones({3, 2}), ids({1, 1, 2}), {}});
  server_.scatter(next(), Write::kAssign, a, {at::zeros({1, 2}), ids({3}), {}});
  server_.scatter(next(), Write::kSub, a, {at::ones({1, 2}), ids({0}), {}});
  EXPECT_TENSOR_EQ(read(a),
                   at::tensor({-1., 0., 4., 5., 5., 6., 0., 0.}, at::kFloat).reshape({4, 2}));
  EXPECT_ERROR(server_.gather(a, ids({4})), OutOfRange, "ps gather [a]: the row 4");
  EXPECT_ERROR(server_.gather(a, ids({-1})), OutOfRange, "the row -1");
  EXPECT_ERROR(server_.scatter(next(), Write::kAdd, a, {at::ones({1, 2}), ids({4}), {}}),
               OutOfRange, "expected one in [0, 4)");
}

TEST_P(ParameterServerContract, AChangeThatComesTwiceCountsOnce) {
  const int64_t a = create("a", at::zeros({2, 1}));
  const int64_t optimizer = sgd({a});
  const Tag tag = next();
  for (int repeat = 0; repeat < 3; ++repeat) {
    const Applied applied = server_.push(tag, optimizer, {{a, at::full({2, 1}, -1.0)}});
    EXPECT_EQ(applied.repeated, repeat > 0);
    EXPECT_EQ(applied.version, 1);
  }
  const Tag write = next(), scatter = next();
  for (int repeat = 0; repeat < 3; ++repeat) {
    server_.write(write, Write::kAdd, {a}, {at::ones({2, 1})});
    server_.scatter(scatter, Write::kAdd, a, {at::ones({1, 1}), ids({0}), {}});
  }
  EXPECT_TENSOR_EQ(read(a), at::tensor({3., 2.}, at::kFloat).reshape({2, 1}));
  EXPECT_EQ(server_.iterations(optimizer), 1);
}

TEST_P(ParameterServerContract, TagsCountByWorkerAndMayComeOutOfOrder) {
  const int64_t a = create("a", at::zeros({}));
  const auto add = [&](const Tag& tag) {
    return server_.write(tag, Write::kAdd, {a}, {at::scalar_tensor(1.0)}).repeated;
  };
  EXPECT_FALSE(add({"x", 1, 3}));
  EXPECT_FALSE(add({"x", 1, 1}));
  EXPECT_FALSE(add({"y", 1, 1}));
  EXPECT_TRUE(add({"x", 1, 3}));
  EXPECT_FALSE(add({"x", 1, 2}));
  EXPECT_TRUE(add({"x", 1, 1}));
  // A restarted worker counts from one again, and what it left behind is refused.
  EXPECT_FALSE(add({"x", 2, 1}));
  EXPECT_ERROR(add({"x", 1, 4}), Aborted,
               "ps [x]: a change of incarnation 1, expected the newest, 2");
  EXPECT_ERROR(add({"x", 2, 5000}), ResourceExhausted, "while number 2 is missing");
  EXPECT_ERROR(add({"x", 2, 0}), InvalidArgument, "a sequence from 1 on");
  EXPECT_ERROR(add({"", 2, 2}), InvalidArgument, "a worker's name");
  EXPECT_EQ(read(a).item<float>(), 5);
}

TEST_P(ParameterServerContract, ThePushIsTheOptimizersUpdate) {
  const Tensor start = at::linspace(-1, 1, 12).reshape({4, 3});
  const int64_t a = create("a", start), b = create("b", at::ones({2}));
  const std::string config =
      R"({"learning_rate": 0.1, "beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-6})";
  const int64_t optimizer = server_.create_optimizer(
      {.name = "adam", .class_name = "Adam", .config = config, .variables = {a, b}});
  auto oracle = keras::optimizers::Optimizer::from_config("Adam", config);
  const std::vector<Variable> variables{Variable(start), Variable(at::ones({2}))};
  for (int step = 1; step <= 3; ++step) {
    const Tensor gradient = start.sin() * step, other = at::full({2}, 0.5);
    server_.push(next(), optimizer, {{b, other}, {a, gradient}});
    oracle.apply_gradients({gradient, other}, variables);
  }
  EXPECT_TENSOR_EQ(read(a), variables[0].read_value());
  EXPECT_TENSOR_EQ(read(b), variables[1].read_value());
  EXPECT_EQ(server_.iterations(optimizer), 3);
  server_.set_learning_rate(next(), optimizer, 0.0);
  server_.push(next(), optimizer, {{b, at::ones({2})}});
  EXPECT_TENSOR_EQ(read(b), variables[1].read_value());
}

TEST_P(ParameterServerContract, APushOfRowsIsThatOfTheDenseGradient) {
  const Tensor start = at::linspace(-1, 1, 12).reshape({4, 3});
  const int64_t dense = create("dense", start), rows = create("rows", start);
  const int64_t other = create("other", at::ones({2}));
  const int64_t optimizer = sgd({dense, rows, other}, ", \"momentum\": 0.5");
  const IndexedSlices slices{at::linspace(0, 1, 9).reshape({3, 3}), ids({2, 0, 2}), {4, 3}};
  for (int step = 0; step < 3; ++step) {
    server_.push(next(), optimizer,
                 {{rows, slices.values, slices.indices}, {dense, slices.to_dense()}});
  }
  EXPECT_TENSOR_EQ(read(rows), read(dense));
  EXPECT_TENSOR_EQ(read(other), at::ones({2}));  // no gradient: stays
}

TEST_P(ParameterServerContract, WeightDecayLeavesOutWhatItIsTold) {
  const int64_t a = create("a", at::ones({2})), b = create("b", at::ones({2}));
  const int64_t optimizer =
      server_.create_optimizer({.name = "decaying",
                                .class_name = "SGD",
                                .config = R"({"learning_rate": 0.5, "weight_decay": 0.5})",
                                .variables = {a, b},
                                .without_decay = {b}});
  server_.push(next(), optimizer, {{a, at::zeros({2})}, {b, at::zeros({2})}});
  EXPECT_TENSOR_EQ(read(a), at::full({2}, 0.75));
  EXPECT_TENSOR_EQ(read(b), at::ones({2}));
}

TEST_P(ParameterServerContract, ACallThatThrowsHasChangedNothing) {
  const int64_t a = create("a", at::ones({2})), b = create("b", at::ones({2, 2}));
  const int64_t frozen = create("frozen", at::ones({1}), false);
  const int64_t optimizer = sgd({a, b});
  const Tag tag = next();
  const auto push = [&](const std::vector<Gradient>& gradients) {
    return server_.push(tag, optimizer, gradients);
  };
  EXPECT_ERROR(push({{a, at::ones({2})}, {b, at::ones({3, 2})}}), InvalidArgument,
               "ps push [b]: found TensorSpec(shape=(3, 2)");
  EXPECT_ERROR(push({{a, at::ones({2}, at::kDouble)}}), InvalidArgument, "float64");
  EXPECT_ERROR(push({{a, at::ones({2})}, {b, at::ones({1, 2}), ids({2})}}), OutOfRange,
               "the row 2");
  EXPECT_ERROR(push({{a, at::ones({2})}, {b, at::ones({1, 3}), ids({1})}}), InvalidArgument, "b");
  EXPECT_ERROR(push({{a, at::ones({2})}, {b, at::ones({2, 2}), ids({1})}}), InvalidArgument,
               "one for each of the values");
  EXPECT_ERROR(push({{a, at::ones({2})}, {a, at::ones({2})}}), InvalidArgument, "a variable twice");
  EXPECT_ERROR(push({{a, at::ones({2})}, {frozen, at::ones({1})}}), InvalidArgument,
               "one of the optimizer's");
  EXPECT_ERROR(push({}), InvalidArgument, "no gradients");
  EXPECT_ERROR(server_.push(tag, 7, {{a, at::ones({2})}}), NotFound, "no optimizer 7");
  EXPECT_ERROR(server_.write(tag, Write::kAssign, {a, b}, {at::zeros({2}), at::zeros({2})}),
               InvalidArgument, "ps write [b]");
  EXPECT_ERROR(server_.write(tag, Write::kAssign, {a, 99}, {at::zeros({2}), at::zeros({2})}),
               NotFound, "no variable 99");
  EXPECT_ERROR(server_.write(tag, Write::kAssign, {a}, {}), InvalidArgument, "0 values for 1");
  EXPECT_ERROR(server_.read({a, -1}), NotFound, "no variable -1");
  EXPECT_ERROR(sgd({}), InvalidArgument, "no variables");
  EXPECT_ERROR(server_.create_optimizer(
                   {.name = "x", .class_name = "SGD", .config = "{}", .variables = {a, frozen}}),
               InvalidArgument, "expected a trainable one");
  EXPECT_ERROR(server_.create_optimizer(
                   {.name = "x", .class_name = "Nothing", .config = "{}", .variables = {a}}),
               InvalidArgument, "Nothing");
  EXPECT_ERROR(sgd({a}), AlreadyExists, "ps create_optimizer [sgd]");
  EXPECT_TENSOR_EQ(read(a), at::ones({2}));
  EXPECT_TENSOR_EQ(read(b), at::ones({2, 2}));
  EXPECT_EQ(server_.iterations(optimizer), 0);
  EXPECT_FALSE(push({{a, at::ones({2})}}).repeated);  // the tag is still unused
}

TEST_P(ParameterServerContract, AServerThatTakesTheStateGoesOnAsTheOneThatGaveIt) {
  const int64_t a = create("a", at::ones({3})), b = create("b", at::ones({2, 2}), true);
  create("count", at::zeros({}, at::kLong), false);
  const int64_t optimizer = sgd({a, b}, ", \"momentum\": 0.9");
  server_.push(next(), optimizer, {{a, at::ones({3})}, {b, at::ones({2, 2})}});
  const Tag last = next();
  server_.push(last, optimizer, {{a, at::ones({3})}});
  const Nest state = server_.state();

  ServerWorld other = GetParam().make();
  other.server->create({"gone", {{1}, at::kFloat}}, at::ones({1}));
  other.server->set_state(state);
  EXPECT_EQ(other.server->variables().size(), 3u);
  EXPECT_EQ(other.server->create({"a", {{3}, at::kFloat}}, at::zeros({3})), a);
  EXPECT_TRUE(other.server->push(last, optimizer, {{a, at::ones({3})}}).repeated);
  EXPECT_EQ(other.server->iterations(optimizer), 2);
  const Tag more = next();
  for (ParameterServer* server : {&server_, other.server.get()})
    EXPECT_EQ(server->push(more, optimizer, {{a, at::ones({3})}, {b, at::ones({2, 2})}}).version,
              3);
  EXPECT_TENSOR_EQ(other.server->read({a}).values[0], read(a));
  EXPECT_TENSOR_EQ(other.server->read({b}).values[0], read(b));
}

TEST_P(ParameterServerContract, WhatIsNoStateIsRefusedAndChangesNothing) {
  const int64_t a = create("a", at::ones({3}));
  const Nest state = server_.state();
  for (const Nest& wrong : {Nest(), Nest(at::ones({1})), Nest::map({{"variables", Nest()}})})
    EXPECT_ERROR(server_.set_state(wrong), InvalidArgument, "ps set_state");
  Nest damaged = state;
  damaged.items()[1] = Nest::list({Nest::tuple({Nest(StringTensor("a"))})});
  EXPECT_ERROR(server_.set_state(damaged), InvalidArgument, "ps set_state");
  EXPECT_TENSOR_EQ(read(a), at::ones({3}));
}

TEST_P(ParameterServerContract, PushesOfSeveralWorkersAtOnceAllCount) {
  constexpr int kWorkers = 4, kPushes = 50;
  const int64_t a = create("a", at::zeros({16}));
  const int64_t optimizer = sgd({a});
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      for (uint64_t sequence = 1; sequence <= kPushes; ++sequence) {
        const Tag tag{cat("worker:", worker), 1, sequence};
        server_.push(tag, optimizer, {{a, at::full({16}, -1.0)}});
        if (sequence % 3 == 0) server_.push(tag, optimizer, {{a, at::full({16}, -1.0)}});
        // A read sees whole updates only.
        const Tensor seen = read(a);
        EXPECT_TENSOR_EQ(seen, seen[0].expand({16}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TENSOR_EQ(read(a), at::full({16}, double{kWorkers * kPushes}));
  EXPECT_EQ(server_.iterations(optimizer), kWorkers * kPushes);
}

TEST_P(ParameterServerContract, TheScopeOfAStrategyIsNotTheServers) {
  distribute::MirroredStrategy strategy({.devices = {"cpu:0", "cpu:1"}});
  const auto scope = strategy.scope();
  const int64_t a = create("a", at::ones({2}));
  const int64_t optimizer = sgd({a});
  server_.push(next(), optimizer, {{a, at::ones({2})}});
  EXPECT_TENSOR_EQ(read(a), at::zeros({2}));
}

inline std::string name_of(const ::testing::TestParamInfo<ServerMaker>& info) {
  return info.param.name;
}

}  // namespace tutti::ps
