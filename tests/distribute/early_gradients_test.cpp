// Buckets of gradients that workers exchange while backward goes on: the numbers are those of the
// update that exchanges all of them at its end, whatever a program does.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "support/message_checks.h"
#include "support/sparse_rules.h"
#include "support/tensor_checks.h"
#include "support/workers.h"
#include "tutti/distribute/fused_update.h"
#include "tutti/distribute/gradient_tape.h"
#include "tutti/distribute/nn.h"
#include "tutti/distribute/strategies.h"

namespace tutti::distribute {
namespace {

using testing::on_workers;
using testing::throws_saying;
using Made = std::shared_ptr<Strategy>;
using Tensors = std::vector<Tensor>;

constexpr int64_t kWidth = 48;
constexpr int64_t kDepth = 6;

/// A chain of matrices; the last comes first in backward.
struct Chain {
  explicit Chain(bool last_first = false) {
    for (int64_t i = 0; i < kDepth; ++i) {
      Tensor values = (at::arange(kWidth * kWidth, at::kFloat) * (0.37 + i)).sin() * 0.2;
      weights.push_back(Variable(values.view({kWidth, kWidth})));
    }
    if (last_first) std::reverse(weights.begin(), weights.end());
  }
  std::vector<Variable> weights;
};

int worker() { return get_replica_context()->replica_id_in_sync_group(); }

Tensor loss_of(const std::vector<Variable>& weights, int64_t step) {
  Tensor x = (at::arange(4 * kWidth, at::kFloat).view({4, kWidth}) * (worker() + 1 + step)).cos();
  for (const Variable& weight : weights) x = at::tanh(at::matmul(x, weight.value()));
  return x.square().mean();
}

/// One step of worker() in the replica's context.
using Step = std::function<void(FusedUpdate&, const std::vector<Variable>&, int64_t)>;

void plain_step(FusedUpdate& update, const std::vector<Variable>& weights, int64_t step) {
  GradientTape tape;
  update.apply(tape.gradient(loss_of(weights, step), weights));
}

struct Setting {
  int workers = 2;
  int replicas = 1;
  int64_t steps = 5;
  int64_t bytes_per_pack = 3 * kWidth * kWidth * 2;  // a matrix and a half
  GradientClipping clipping;
  bool last_first = false;
  bool throws = false;  // steps that throw are left out
  const char* backend = "gloo";
};

struct Outcome {
  std::vector<Tensors> weights;  // by worker
  std::vector<int64_t> early;    // by worker: buckets that went early in all steps
  std::vector<int64_t> last;     // and in the last one
  std::vector<char> off;
};

Outcome train(bool overlaps, const Setting& setting, const Step& step) {
  Outcome outcome;
  const auto count = static_cast<std::size_t>(setting.workers);
  outcome.weights.resize(count);
  outcome.early.resize(count);
  outcome.last.resize(count);
  outcome.off.resize(count);
  MultiWorkerMirroredStrategyOptions options;
  options.communication_options.bytes_per_pack = setting.bytes_per_pack;
  on_workers(
      setting.workers, setting.replicas,
      [&](const Made& strategy) {
        WorkerGroup& group = *strategy->workers();
        group.set_overlaps(overlaps);
        auto scope = strategy->scope();
        const Chain chain(setting.last_first);
        FusedUpdate update(chain.weights, std::make_shared<testing::PlainRule>(), setting.clipping,
                           {});
        int64_t before = 0;
        for (int64_t s = 0; s < setting.steps; ++s) {
          before = group.early().num_reduced();
          try {
            strategy->run([&] { step(update, chain.weights, s); });
          } catch (const std::exception&) {
            if (!setting.throws) throw;
          }
        }
        const auto at = static_cast<std::size_t>(group.worker());
        for (const Variable& weight : chain.weights)
          outcome.weights[at].push_back(weight.components()[0].clone());
        outcome.early[at] = group.early().num_reduced();
        outcome.last[at] = outcome.early[at] - before;
        outcome.off[at] = group.early().is_off() ? 1 : 0;
        try {  // all are through with the last step before one goes
          group.barrier(group.options());
        } catch (const Aborted&) {
        }
      },
      options, setting.backend);
  return outcome;
}

void expect_equal(const Outcome& got, const Outcome& wanted) {
  ASSERT_EQ(got.weights.size(), wanted.weights.size());
  for (std::size_t w = 0; w < got.weights.size(); ++w) {
    for (std::size_t i = 0; i < got.weights[w].size(); ++i) {
      EXPECT_TENSOR_EQ(got.weights[w][i], wanted.weights[w][i]);
      EXPECT_TENSOR_EQ(got.weights[w][i], got.weights[0][i]);
    }
  }
}

Outcome expect_same_bits(const Setting& setting, const Step& step) {
  const Outcome late = train(false, setting, step);
  for (const int64_t early : late.early) EXPECT_EQ(early, 0);
  Outcome early = train(true, setting, step);
  expect_equal(early, late);
  return early;
}

// 6 matrices and the last number in packs of a matrix and a half: 5 packs, of which 4 may be early.
constexpr int64_t kEarlyPacks = 4;

TEST(EarlyGradients, Issue6_AnUpdateIsBitForBitTheOneThatExchangesAllAtItsEnd) {
  for (const int workers : {2, 3}) {
    const Outcome early = expect_same_bits({.workers = workers}, plain_step);
    for (const int64_t last : early.last) EXPECT_EQ(last, kEarlyPacks);
    for (const int64_t all : early.early)
      EXPECT_EQ(all, 4 * kEarlyPacks) << "not in the first step";
  }
}

TEST(EarlyGradients, Issue6_SoItIsOverSharedMemoryAndFromHostToHost) {
  for (const char* backend : {"shm", "hierarchical", "in_process"}) {
    const Outcome early = expect_same_bits({.backend = backend}, plain_step);
    for (const int64_t last : early.last) EXPECT_EQ(last, kEarlyPacks) << backend;
  }
}

TEST(EarlyGradients, Issue6_ClippingSeesTheSums) {
  expect_same_bits({.clipping = {.global_clipnorm = 0.01}}, plain_step);
  expect_same_bits({.clipping = {.clipnorm = 0.01}}, plain_step);
  expect_same_bits({.clipping = {.clipvalue = 1e-4}}, plain_step);
}

TEST(EarlyGradients, Issue6_BucketsFollowTheOrderInWhichBackwardComesToTheVariables) {
  const auto step = [](FusedUpdate& update, const std::vector<Variable>& weights, int64_t s) {
    std::vector<Variable> used(weights.rbegin(), weights.rend());
    GradientTape tape;
    const Tensor loss = loss_of(used, s);
    update.apply(tape.gradient(loss, weights));
  };
  const Outcome early = expect_same_bits({.last_first = true}, step);
  for (const int64_t last : early.last) EXPECT_EQ(last, kEarlyPacks);
}

TEST(EarlyGradients, Issue6_GradientsChangedBehindAutogradAreTheOnesThatCount) {
  const auto step = [](FusedUpdate& update, const std::vector<Variable>& weights, int64_t s) {
    GradientTape tape;
    Tensors gradients = tape.gradient(loss_of(weights, s), weights);
    if (s == 3 && worker() == 1) gradients[kDepth - 1].data().mul_(0.5);
    update.apply(gradients);
  };
  const Outcome early = expect_same_bits({}, step);
  for (const int64_t last : early.last) EXPECT_EQ(last, 0) << "it does not guess again";
}

TEST(EarlyGradients, Issue6_GradientsAddedUpByHandAreTheOnesThatCount) {
  const auto step = [](FusedUpdate& update, const std::vector<Variable>& weights, int64_t s) {
    GradientTape first, second;
    Tensors sum = first.gradient(loss_of(weights, s), weights);
    const Tensors more = second.gradient(loss_of(weights, s + 7), weights);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + more[i];
    update.apply(sum);
  };
  expect_same_bits({}, step);
}

TEST(EarlyGradients, Issue6_GradientsThatOneWorkerLooksAtAloneDoNoHarm) {
  const auto step = [](FusedUpdate& update, const std::vector<Variable>& weights, int64_t s) {
    if (s == 2 && worker() == 0) {
      GradientTape tape;
      tape.gradient(loss_of(weights, 50), weights);
    }
    plain_step(update, weights, s);
  };
  expect_same_bits({}, step);
  expect_same_bits({.workers = 3}, step);
}

TEST(EarlyGradients, Issue6_WhereWorkersComeToOtherCallsFirstTheOtherCallsAreMade) {
  // Worker 1 has no gradient of the last matrix, so that its first bucket is not full in backward.
  const auto step = [](FusedUpdate& update, const std::vector<Variable>& weights, int64_t s) {
    std::vector<Variable> used = weights;
    if (s == 3 && worker() == 1) used.pop_back();
    GradientTape tape;
    const Tensor loss = loss_of(used, s);
    const Tensors gradients = tape.gradient(loss, weights);
    const Tensor sum = get_replica_context()->all_reduce("SUM", loss.detach());
    EXPECT_GT(sum.item<float>(), loss.item<float>());
    update.apply(gradients);
  };
  const Outcome early = expect_same_bits({}, step);
  for (const char off : early.off) EXPECT_EQ(off, 1) << "on every worker";
  expect_same_bits({.workers = 3}, step);
}

TEST(EarlyGradients, Issue6_CollectivesInsideBackwardComeBetweenTheBuckets) {
  const auto step = [](FusedUpdate& update, const std::vector<Variable>& weights, int64_t s) {
    GradientTape tape;
    const std::vector<Variable> front(weights.begin(), weights.begin() + 3);
    const std::vector<Variable> back(weights.begin() + 3, weights.end());
    const Tensor middle = get_replica_context()->all_reduce("MEAN", loss_of(front, s));
    update.apply(tape.gradient(loss_of(back, s) * (1 + middle), weights));
  };
  const Outcome early = expect_same_bits({}, step);
  for (const char off : early.off) EXPECT_EQ(off, 0);
  for (const int64_t last : early.last) EXPECT_EQ(last, kEarlyPacks);
}

TEST(EarlyGradients, Issue6_TwoOptimizersTakeTheirGradientsBeforeEitherIsApplied) {
  for (const bool crossed : {false, true}) {
    std::vector<Tensors> results[2];
    for (const bool overlaps : {false, true}) {
      std::vector<Tensors>& result = results[overlaps ? 1 : 0];
      result.resize(2);
      MultiWorkerMirroredStrategyOptions options;
      options.communication_options.bytes_per_pack = 3 * kWidth * kWidth * 2;
      on_workers(
          2, 1,
          [&](const Made& strategy) {
            strategy->workers()->set_overlaps(overlaps);
            auto scope = strategy->scope();
            const Chain one, two;
            FusedUpdate first(one.weights, std::make_shared<testing::PlainRule>(), {}, {});
            FusedUpdate second(two.weights, std::make_shared<testing::PlainRule>(), {}, {});
            for (int64_t s = 0; s < 5; ++s) {
              strategy->run([&] {
                GradientTape tape, other;
                Tensors a, b;
                // Crossed: the workers go through their graphs in another order.
                if (!crossed || worker() == 0)
                  a = tape.gradient(loss_of(one.weights, s), one.weights);
                b = other.gradient(loss_of(two.weights, s + 3), two.weights);
                if (!a.size()) a = tape.gradient(loss_of(one.weights, s), one.weights);
                first.apply(a);
                second.apply(b);
              });
            }
            Tensors& mine = result[static_cast<std::size_t>(strategy->workers()->worker())];
            for (const Chain* chain : {&one, &two}) {
              for (const Variable& weight : chain->weights)
                mine.push_back(weight.components()[0].clone());
            }
          },
          options, "gloo");
    }
    for (std::size_t w = 0; w < 2; ++w) {
      ASSERT_EQ(results[1][w].size(), 2u * kDepth);
      for (std::size_t i = 0; i < results[1][w].size(); ++i)
        EXPECT_TENSOR_EQ(results[1][w][i], results[0][w][i]);
    }
  }
}

TEST(EarlyGradients, Issue6_RowsAndDenseGradientsTogether) {
  std::vector<Tensors> results[2];
  for (const bool overlaps : {false, true}) {
    std::vector<Tensors>& result = results[overlaps ? 1 : 0];
    result.resize(2);
    MultiWorkerMirroredStrategyOptions options;
    options.communication_options.bytes_per_pack = 3 * kWidth * kWidth * 2;
    on_workers(
        2, 1,
        [&](const Made& strategy) {
          strategy->workers()->set_overlaps(overlaps);
          auto scope = strategy->scope();
          Variable table(at::arange(10 * kWidth, at::kFloat).view({10, kWidth}) / 1000);
          Chain chain;
          std::vector<Variable> all = chain.weights;
          all.insert(all.begin() + 2, table);
          FusedUpdate update(all, std::make_shared<testing::PlainRule>(), {}, {});
          for (int64_t s = 0; s < 4; ++s) {
            strategy->run([&] {
              GradientTape tape;
              const Tensor rows = nn::embedding_lookup(
                  table, at::tensor({s, s + 1, int64_t{2 + worker()}}, at::kLong));
              update.apply(tape.gradient(loss_of(chain.weights, s) + rows.square().sum(), all));
            });
          }
          EXPECT_EQ(strategy->workers()->early().num_reduced() > 0, overlaps);
          for (const Variable& weight : all)
            result[static_cast<std::size_t>(strategy->workers()->worker())].push_back(
                weight.components()[0].clone());
        },
        options, "gloo");
  }
  for (std::size_t w = 0; w < 2; ++w) {
    for (std::size_t i = 0; i < results[0][w].size(); ++i)
      EXPECT_TENSOR_EQ(results[1][w][i], results[0][w][i]);
  }
}

/// Throws when backward comes to the first matrix, on worker `who` in step 2.
Step failing_in_backward(int who, std::atomic<int>* heard) {
  return [=](FusedUpdate& update, const std::vector<Variable>& weights, int64_t s) {
    try {
      GradientTape tape;
      Tensor x = at::matmul(at::ones({4, kWidth}), weights[0].value());
      if (s == 2 && worker() == who)
        x.register_hook([](Tensor) -> Tensor { throw OutOfRange("the disk is full"); });
      const std::vector<Variable> rest(weights.begin() + 1, weights.end());
      for (const Variable& weight : rest) x = at::tanh(at::matmul(x, weight.value()));
      const Tensor loss = (x * (worker() + 1)).square().mean();
      update.apply(tape.gradient(loss, weights));
    } catch (const std::exception& error) {
      if (std::string(error.what()).find("the disk is full") != std::string::npos) ++*heard;
      throw;
    }
  };
}

TEST(EarlyGradients, Issue6_AnErrorInBackwardAfterBucketsHaveGoneIsHeardByAllWhoThenGoOn) {
  for (const int workers : {2, 3}) {
    for (int who = 0; who < 2; ++who) {
      std::atomic<int> heard{0};
      expect_same_bits({.workers = workers, .throws = true}, failing_in_backward(who, &heard));
      EXPECT_EQ(heard, 2 * workers);
    }
  }
}

TEST(EarlyGradients, Issue6_AnErrorAfterBackwardIsHeardByAllWhoThenGoOn) {
  std::atomic<int> heard{0};
  const auto step = [&](FusedUpdate& update, const std::vector<Variable>& weights, int64_t s) {
    try {
      GradientTape tape;
      const Tensors gradients = tape.gradient(loss_of(weights, s), weights);
      if (s == 2 && worker() == 1) throw OutOfRange("the disk is full");
      update.apply(gradients);
    } catch (const std::exception& error) {
      if (std::string(error.what()).find("the disk is full") != std::string::npos) ++heard;
      throw;
    }
  };
  expect_same_bits({.throws = true}, step);
  EXPECT_EQ(heard, 4);
}

TEST(EarlyGradients, Issue6_AWorkerThatLeavesWithBucketsUnderWayEndsTheOthersCalls) {
  MultiWorkerMirroredStrategyOptions options;
  options.communication_options.bytes_per_pack = 3 * kWidth * kWidth * 2;
  std::atomic<int> failed{0};
  on_workers(
      2, 1,
      [&](const Made& strategy) {
        strategy->workers()->set_overlaps(true);
        auto scope = strategy->scope();
        const Chain chain;
        FusedUpdate update(chain.weights, std::make_shared<testing::PlainRule>(), {}, {});
        const bool leaves = !strategy->workers()->is_chief();
        for (int64_t s = 0; s < 2; ++s)
          strategy->run([&] { plain_step(update, chain.weights, s); });
        const auto look = [&] {
          strategy->run([&] {
            GradientTape tape;
            tape.gradient(loss_of(chain.weights, 9), chain.weights);
          });
        };
        if (leaves) return look();
        try {
          for (int64_t s = 0; s < 2; ++s)
            strategy->run([&] { plain_step(update, chain.weights, s); });
        } catch (const std::exception&) {
          ++failed;
        }
      },
      options, "gloo");
  EXPECT_EQ(failed, 1);
}

TEST(EarlyGradients, Issue6_WorkersOfSeveralReplicasExchangeAtTheEnd) {
  const Outcome early = expect_same_bits({.replicas = 2}, plain_step);
  for (const int64_t all : early.early) EXPECT_EQ(all, 0);
}

TEST(EarlyGradients, Issue6_OneBucketIsNotWorthAThread) {
  const Outcome early = expect_same_bits({.bytes_per_pack = 0}, plain_step);
  for (const int64_t all : early.early) EXPECT_EQ(all, 0);
}

TEST(EarlyGradients, Issue6_TheFiniteTestEndsARoundAndTheUpdateIsAnother) {
  const auto step = [](FusedUpdate& update, const std::vector<Variable>& weights, int64_t s) {
    GradientTape tape;
    const Tensor loss = loss_of(weights, s) * (s == 2 ? INFINITY : 1.0F);
    const Tensors gradients = tape.gradient(loss, weights);
    if (update.all_finite(gradients)) update.apply(gradients);
  };
  const Outcome early = expect_same_bits({}, step);
  for (const int64_t last : early.last) EXPECT_EQ(last, kEarlyPacks);
}

TEST(EarlyGradients, Issue6_GradientsAddedUpByTheProgramDoNotStopTheOthers) {
  const auto step = [](FusedUpdate& update, const std::vector<Variable>& weights, int64_t s) {
    GradientTape tape;
    Tensors gradients = tape.gradient(loss_of(weights, s), weights);
    update.apply(get_replica_context()->all_reduce("SUM", gradients), /*sum_replicas=*/false);
  };
  expect_same_bits({}, step);
}

TEST(EarlyGradients, Issue6_TheyAreTheDefaultBetweenHostsAndTheEnvironmentSaysOtherwise) {
  const auto overlaps = [](const char* backend) {
    auto group = collectives::find_backend(backend).make_local_group(1);
    return WorkerGroup(std::move(group[0])).overlaps();
  };
  EXPECT_TRUE(overlaps("gloo"));
  EXPECT_TRUE(overlaps("hierarchical"));
  EXPECT_FALSE(overlaps("shm"));
  EXPECT_FALSE(overlaps("in_process"));
  setenv("TUTTI_OVERLAP", "0", 1);
  EXPECT_FALSE(overlaps("gloo"));
  setenv("TUTTI_OVERLAP", "1", 1);
  EXPECT_TRUE(overlaps("shm"));
  unsetenv("TUTTI_OVERLAP");
}

}  // namespace
}  // namespace tutti::distribute
