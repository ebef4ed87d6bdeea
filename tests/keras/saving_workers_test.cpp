// Saving and loading by several workers: the chief writes, everybody loads the same, and what fails
// on one fails on all.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "keras/line_model.h"
#include "support/expect.h"
#include "support/message_checks.h"
#include "support/temporary_folder.h"
#include "support/workers.h"
#include "tutti/io/tensor_file.h"
#include "tutti/keras/callbacks.h"

namespace tutti::keras {
namespace {

namespace fs = std::filesystem;
using distribute::Strategy;
using tutti::testing::on_workers;
using tutti::testing::throws_saying;
using Made = std::shared_ptr<Strategy>;

int worker_of(const Strategy& strategy) {
  return strategy.first_replica_id() / strategy.num_local_replicas();
}

class SavingWorkers : public tutti::testing::TemporaryFolder {
 protected:
  std::vector<std::string> names(const std::string& below = "") const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_ / below))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
};
using Names = std::vector<std::string>;

/// With a variable of each kind: kernels, and statistics that each replica has its own of.
std::unique_ptr<Sequential> net() {
  auto made = std::make_unique<Sequential>(
      std::vector<layers::Layer>{layers::Dense(4, {.activation = "tanh", .input_shape = {3}}),
                                 layers::BatchNormalization(), layers::Dense(1)});
  std::vector<Tensor> weights;
  for (const Tensor& weight : made->get_weights())
    weights.push_back(at::arange(weight.numel(), at::kFloat).view(weight.sizes()) / 10 - 0.3);
  made->set_weights(weights);
  made->compile(
      {.optimizer = optimizers::Adam({.learning_rate = .05}), .loss = "mse", .metrics = {"mae"}});
  return made;
}
Tensor x() { return at::arange(24, at::kFloat).view({8, 3}).sin(); }
Tensor y() { return x().sum(1, /*keepdim=*/true); }

std::unique_ptr<Sequential> trained() {
  auto model = net();
  model->fit(x(), y(), {.batch_size = 4, .epochs = 2, .verbose = 0});
  return model;
}

void expect_equal(const std::vector<Tensor>& found, const std::vector<Tensor>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TENSOR_EQ(found[i], wanted[i]);
}

TEST_F(SavingWorkers, Issue45_TheChiefAloneWritesAModelAndAllLoadIt) {
  for (const int replicas : {1, 2}) {
    on_workers(2, replicas, [&](const Made& strategy) {
      auto scope = strategy->scope();
      auto model = trained();
      model->save(path("model.tutti"));
      model->save_weights(path("model.weights.tutti"));
      const auto loaded = load_model(path("model.tutti"));
      EXPECT_EQ(loaded->optimizer().iterations(), 4);
      auto other = net();
      other->load_weights(path("model.weights.tutti"));
      expect_equal(other->get_weights(), loaded->get_weights());
      EXPECT_TENSOR_EQ(other->predict(x(), {.verbose = 0}), loaded->predict(x(), {.verbose = 0}));
    });
    EXPECT_EQ(names(), (Names{"model.tutti", "model.weights.tutti"}));
    EXPECT_EQ(load_model(path("model.tutti"))->optimizer().iterations(), 4) << "or one alone";
  }
}

TEST_F(SavingWorkers, Spec134_AWorkerWithAFolderOfItsOwnWritesThereWhatTheChiefWrites) {
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    auto model = trained();
    const bool chief = worker_of(*strategy) == 0;
    const std::string own = path("workertemp_1");
    if (!chief) fs::create_directories(own);
    model->save(chief ? path("model.tutti") : own + "/model.tutti");
    if (!chief) {
      // Workers are threads here, and number the names of layers on.
      const io::TensorFile copy = io::read_tensor_file(own + "/model.tutti");
      const io::TensorFile chiefs = io::read_tensor_file(path("model.tutti"));
      ASSERT_EQ(copy.tensors.size(), chiefs.tensors.size());
      for (std::size_t i = 0; i < copy.tensors.size(); ++i)
        EXPECT_TENSOR_EQ(copy.tensors[i].second, chiefs.tensors[i].second);
      fs::remove_all(own);  // as the tutorial says
    }
    load_model(path("model.tutti"));
  });
  EXPECT_EQ(names(), (Names{"model.tutti"}));
}

TEST_F(SavingWorkers, WhatTheChiefCannotWriteFailsOnAll) {
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    auto model = trained();
    const auto save = [&] { model->save(path("no/such/folder")); };
    if (worker_of(*strategy) == 0) {
      EXPECT_TRUE(throws_saying<NotFound>(save, {"no/such/folder"}));
    } else {
      EXPECT_TRUE(throws_saying<Aborted>(save, {"worker 0 failed", "no/such/folder"}));
    }
    model->save(path("model.tutti"));  // and they go on
  });
}

TEST_F(SavingWorkers, AFileThatOneWorkerDoesNotSeeFailsOnAllAndNamesIt) {
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    auto model = trained();
    model->save(path("model.tutti"));
    const bool sees = worker_of(*strategy) == 0;
    const std::string file = sees ? path("model.tutti") : path("elsewhere.tutti");
    for (const std::function<void()>& load : std::vector<std::function<void()>>{
             [&] { load_model(file); }, [&] { model->load_weights(file); }}) {
      if (sees) {
        EXPECT_TRUE(throws_saying<Aborted>(load, {"worker 1 failed", "elsewhere.tutti"}));
      } else {
        EXPECT_TRUE(throws_saying<NotFound>(load, {"elsewhere.tutti"}));
      }
    }
    EXPECT_EQ(load_model(path("model.tutti"))->optimizer().iterations(), 4);
  });
}

TEST_F(SavingWorkers, Issue44_FilesThatAreNotTheSameAreRefusedOnAll) {
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    auto model = trained();
    model->save_weights(path("a.weights.tutti"));
    model->fit(x(), y(), {.verbose = 0});
    model->save_weights(path("b.weights.tutti"));
    const auto before = model->get_weights();
    const std::string own = path(worker_of(*strategy) == 0 ? "a.weights.tutti" : "b.weights.tutti");
    EXPECT_TRUE(throws_saying<InvalidArgument>([&] { model->load_weights(own); },
                                               {"worker 1", "another one than the chief's"}));
    expect_equal(model->get_weights(), before);
  });
}

TEST_F(SavingWorkers, Issue47_SavingOnTheChiefAloneIsAnErrorOnAllAndNoHang) {
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    auto model = trained();
    Variable other(at::zeros({2}));
    const auto alone = [&] {
      if (worker_of(*strategy) == 0) {
        model->save(path("model.tutti"));
      } else {
        strategy->run([&] {
          distribute::get_replica_context()->all_reduce(distribute::ReduceOp::kSum, at::ones({2}));
        });
      }
    };
    EXPECT_TRUE(throws_saying<InvalidArgument>(alone, {"workers make different calls"}));
    EXPECT_FALSE(fs::exists(path("model.tutti")));
  });
}

TEST_F(SavingWorkers, Issue47_OneThatSavesWhileAnotherLoadsIsToldSo) {
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    auto model = trained();
    model->save_weights(path("a.weights.tutti"));
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] {
          if (worker_of(*strategy) == 0) {
            model->save_weights(path("a.weights.tutti"));
          } else {
            model->load_weights(path("a.weights.tutti"));
          }
        },
        {"save_weights", "load_weights", "the same call on every worker"}));
  });
}

TEST_F(SavingWorkers, Issue43_CallbacksThatWriteRunEverywhereAndWriteOnce) {
  ::testing::internal::CaptureStdout();
  on_workers(2, 2, [&](const Made& strategy) {
    auto scope = strategy->scope();
    net()->fit(
        x(), y(),
        {.batch_size = 4,
         .epochs = 3,
         .verbose = 0,
         .callbacks = {
             callbacks::ModelCheckpoint(path("models/{epoch:02d}.tutti"), {.verbose = 1}),
             callbacks::ModelCheckpoint(
                 path("best/best.weights.tutti"),
                 {.monitor = "loss", .save_best_only = true, .save_weights_only = true}),
             callbacks::CSVLogger(path("log.csv")),
             callbacks::TensorBoard(path("board"), {.histogram_freq = 1, .update_freq = 1})}});
  });
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(said.find("Epoch 3: finished saving"), std::string::npos);
  EXPECT_EQ(said.find("Epoch 3: finished saving"), said.rfind("Epoch 3: finished saving"));
  EXPECT_EQ(names(), (Names{"best", "board", "log.csv", "models"}));
  EXPECT_EQ(names("models"), (Names{"01.tutti", "02.tutti", "03.tutti"}));
  EXPECT_EQ(names("best"), (Names{"best.weights.tutti"}));
  EXPECT_EQ(names("board/train").size(), 1u);
  const std::string lines = bytes_of(path("log.csv"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4);
}

TEST_F(SavingWorkers, Issue48_TheChiefDecidesWhetherAModelIsTheBest) {
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    const bool chief = worker_of(*strategy) == 0;
    // The workers see other numbers: to the chief every epoch is better, to the other one none is.
    const auto skewed = callbacks::LambdaCallback({.on_epoch_end = [=](int64_t, const Logs&) {}});
    callbacks::CallbackList list(
        {callbacks::ModelCheckpoint(
             path("{epoch}.weights.tutti"),
             {.monitor = "loss", .save_best_only = true, .save_weights_only = true, .mode = "min"}),
         skewed});
    auto model = net();
    list.set_model(model.get());
    list.on_train_begin();
    for (int64_t epoch = 0; epoch < 3; ++epoch)
      list.on_epoch_end(epoch, Logs{{"loss", chief ? 3. - static_cast<double>(epoch)
                                                   : 3. + static_cast<double>(epoch)}});
  });
  EXPECT_EQ(names(), (Names{"1.weights.tutti", "2.weights.tutti", "3.weights.tutti"}));
}

TEST_F(SavingWorkers, ACheckpointCallbackThatFailsEndsAllWorkers) {
  write("file", "no folder");
  on_workers(2, 1, [&](const Made& strategy) {
    auto scope = strategy->scope();
    const auto fit = [&] {
      net()->fit(x(), y(),
                 {.epochs = 2,
                  .verbose = 0,
                  .callbacks = {callbacks::ModelCheckpoint(path("file/model.tutti"))}});
    };
    if (worker_of(*strategy) == 0) {
      EXPECT_THROW(fit(), Error);
    } else {
      EXPECT_TRUE(throws_saying<Aborted>(fit, {"worker 0 failed", "file"}));
    }
  });
}

}  // namespace
}  // namespace tutti::keras
