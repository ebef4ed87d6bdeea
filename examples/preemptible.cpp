// A training that is told to end, and goes on where it was: a loop of its own on every worker, the place in the data in the
// checkpoint, and PreemptionCheckpointHandler, which on SIGTERM saves on all workers after the same step and ends with 42.
//   preemptible [STEPS]                                         one worker alone (210 steps)
//   tutti-run --workers 2 --max-restarts 3 -- ./preemptible [STEPS]
// It keeps its state in the folder preemptible_state. Send one worker a SIGTERM: both are started again, go on there and
// print the result of a run that was never told. Prints:
//   step 1, loss: 2.3…
//   step 10, loss: 2.2…, and so on every tenth step
//   done: 210 steps, loss: 0.8…
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <tutti/tutti.h>

namespace distribute = tutti::distribute;
namespace keras = tutti::keras;
namespace layers = tutti::keras::layers;
using tutti::Tensor;

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 210;
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  tutti::set_seed(1);
  distribute::MultiWorkerMirroredStrategy strategy({.communication_options = {.timeout_seconds = 60}});
  const int64_t global_batch_size = 64 * strategy.num_replicas_in_sync();
  const auto fashion = tutti::datasets::fashion_mnist();
  auto dataset = strategy.distribute_dataset(
      tutti::data::from_tensor_slices(fashion.train.images.to(at::kFloat) / 255, fashion.train.labels)
          .shuffle(60000, {.seed = 7})
          .repeat()
          .batch(global_batch_size));

  auto scope = strategy.scope();
  keras::Sequential model({layers::Flatten({.input_shape = {28, 28, 1}}), layers::Dense(64, {.activation = "relu"}),
                           layers::Dropout(0.1), layers::Dense(10)});
  keras::optimizers::SGD optimizer({.learning_rate = 0.05});
  keras::losses::SparseCategoricalCrossentropy loss_object({.from_logits = true, .reduction = keras::losses::Reduction::kNone});
  tutti::Variable last_loss(at::scalar_tensor(0.0, at::kFloat), {.trainable = false, .name = "last_loss"});
  const auto train_step = [&](Tensor images, Tensor labels) {
    tutti::GradientTape tape;
    Tensor loss = tutti::nn::compute_average_loss(loss_object(labels, model(images, /*training=*/true)), global_batch_size);
    optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()), model.trainable_variables());
    return loss;
  };

  // All that the next start needs: the weights, the optimizer's, what Dropout draws next, and the place in the data.
  auto iterator = dataset.iterator();
  tutti::train::Checkpoint checkpoint(
      {{"model", model}, {"optimizer", optimizer}, {"random", strategy}, {"data", iterator}, {"last_loss", last_loss}});
  // Restores the latest checkpoint, where there is one.
  distribute::PreemptionCheckpointHandler handler(strategy.cluster_resolver(), checkpoint, {.checkpoint_dir = "preemptible_state"});
  if (handler.total_run_calls() > 0) std::printf("goes on after step %" PRId64 "\n", handler.total_run_calls());

  while (handler.total_run_calls() < steps) {
    handler.run([&] {  // one step: the batch is taken in it, so that what is saved fits together
      last_loss.assign(strategy.reduce(distribute::ReduceOp::kSum, strategy.run(train_step, iterator.get_next())));
    });
    const int64_t step = handler.total_run_calls();
    if (step == 1 || step % 10 == 0) std::printf("step %" PRId64 ", loss: %.6f\n", step, last_loss.value().item<double>());
  }
  std::printf("done: %" PRId64 " steps, loss: %.6f\n", handler.total_run_calls(), last_loss.value().item<double>());
}
