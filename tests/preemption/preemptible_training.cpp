// A training for tests that end it: preemptible_training FOLDER STEPS MILLISECONDS GRACE.
//
// Prints "resumed N", "step N" behind each step, "saved N" at each save and at its end "done N"
// with the bits of the weight. With two workers a step adds up what both bring; TF_CONFIG says who
// is who.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <thread>

#include "tutti/distribute/strategies.h"
#include "tutti/preemption/preemption.h"

namespace {

using namespace tutti;  // NOLINT: a program

void run(const std::string& folder, int64_t steps, int64_t milliseconds, double grace) {
  distribute::MultiWorkerMirroredStrategy strategy(
      {.communication_options = {.timeout_seconds = 30}, .devices = {"cpu:0"}});
  auto scope = strategy.scope();
  Variable weight(at::full({4}, 0.5F), {.name = "weight"});
  train::Checkpoint checkpoint({{"weight", weight}});
  train::CheckpointManager manager(checkpoint, folder, {.max_to_keep = 2});
  distribute::TerminationConfig config{.grace_period = grace};
  config.save_fn = [&](const distribute::PreemptionSaveArguments& arguments) {
    manager.save(arguments.checkpoint_number, arguments.check_interval);
    std::cout << "saved" << std::endl;
  };
  distribute::PreemptionCheckpointHandler handler(strategy.cluster_resolver(), manager,
                                                  {.termination_config = config});
  std::cout << "resumed " << handler.total_run_calls() << std::endl;
  while (handler.total_run_calls() < steps) {
    const auto step = static_cast<float>(handler.total_run_calls());
    handler.run([&] {
      const PerReplica<Tensor> brought = strategy.run([&] {
        const auto id =
            static_cast<float>(distribute::get_replica_context()->replica_id_in_sync_group());
        return at::full({4}, 0.01F * step + 0.1F * id);
      });
      const Tensor sum = strategy.reduce(distribute::ReduceOp::kSum, brought);
      weight.assign(weight.value() * 0.9F + sum);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    std::cout << "step " << handler.total_run_calls() << std::endl;
  }
  char bits[64];
  std::snprintf(bits, sizeof bits, "%a", static_cast<double>(weight.value()[0].item<float>()));
  std::cout << "done " << handler.total_run_calls() << " " << bits << std::endl;
}

}  // namespace

int main(int, char** arguments) {
  try {
    run(arguments[1], std::stoll(arguments[2]), std::stoll(arguments[3]), std::stod(arguments[4]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
  return 0;
}
