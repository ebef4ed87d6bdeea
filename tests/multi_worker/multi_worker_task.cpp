// A small training program for the tests of whole jobs: prints the loss of every step, exactly.
//
//   multi_worker_task STEPS [--fit FOLDER] [--replicas N] [--timeout SECONDS] [--times N]
//                     [--file NAME] [--pack BYTES] [FAULT…]
//
// A fault is TASK@STEP=KIND, "worker:1@3=kill": before that step, and in the first start of the job
// only, the task kills itself (kill), stops itself (stop), throws out of main (throw), throws
// inside the step (fail), catches its own exception and returns 3 (catch), hangs (hang), ends main
// early (leave), runs on with another program (wander), or fails inside the step and goes on (try);
// "backward kill", "backward throw" and "backward hang" are at the end of the step's backward.
// "look": after the step the task takes gradients for itself.
// --times: so many strategies one after another. --file: instead of training, counts the rows of
// this text file that this worker gets, by files and then by whatever is chosen for it.
#include <signal.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>

namespace keras = tutti::keras;
namespace layers = tutti::keras::layers;
using tutti::cat;
using tutti::Tensor;
using tutti::distribute::MultiWorkerMirroredStrategy;
using tutti::distribute::ReduceOp;

namespace {

struct Arguments {
  int64_t steps = 0;
  std::string folder;  // empty: a loop of one's own
  int replicas = 1;
  double timeout = 30;
  int times = 1;
  std::string file;
  int64_t bytes_per_pack = 0;
  std::map<int64_t, std::string> faults;  // of this task
};

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  arguments.steps = std::stoll(argv[1]);
  const std::string me = cat(variable("TUTTI_TASK_TYPE"), ":", variable("TUTTI_TASK_INDEX"), "@");
  for (int i = 2; i < argc; ++i) {
    const std::string text = argv[i];
    if (text == "--fit") {
      arguments.folder = argv[++i];
    } else if (text == "--replicas") {
      arguments.replicas = std::stoi(argv[++i]);
    } else if (text == "--times") {
      arguments.times = std::stoi(argv[++i]);
    } else if (text == "--file") {
      arguments.file = argv[++i];
    } else if (text == "--pack") {
      arguments.bytes_per_pack = std::stoll(argv[++i]);
    } else if (text == "--timeout") {
      arguments.timeout = std::stod(argv[++i]);
    } else if (text.rfind(me, 0) == 0 && variable("TUTTI_RESTART_COUNT") == "0") {
      const auto equals = text.find('=');
      arguments.faults[std::stoll(text.substr(me.size(), equals - me.size()))] =
          text.substr(equals + 1);
    }
  }
  return arguments;
}

void print_loss(int64_t step, double loss) {
  std::printf("step %lld loss %a\n", static_cast<long long>(step), loss);
  std::fflush(stdout);
}

/// What is not left to the caller.
void suffer(const std::string& fault) {
  if (fault == "kill") ::raise(SIGKILL);
  if (fault == "stop") ::raise(SIGSTOP);
  if (fault == "throw" || fault == "catch") throw std::runtime_error("the disk is full");
  while (fault == "hang") ::pause();
}

keras::Sequential make_model() {
  return keras::Sequential({
      layers::Dense(8, {.activation = "tanh", .input_shape = {4}}),
      layers::Dense(1),
  });
}

auto make_data() {
  const Tensor x = at::linspace(-1, 1, 64 * 4).view({64, 4});
  const Tensor y = (x * x).sum(1, true);
  return tutti::data::from_tensor_slices(x, y)
      .shuffle(64, {.seed = 5})
      .repeat()
      .batch(16)
      .with_options({.auto_shard_policy = tutti::data::AutoShardPolicy::kData});
}

int own_loop(const Arguments& arguments, tutti::distribute::Strategy& strategy) {
  auto scope = strategy.scope();
  keras::Sequential model = make_model();
  keras::optimizers::Adam optimizer({.learning_rate = 0.01});
  auto data = strategy.distribute_dataset(make_data());
  int64_t step = 0;
  std::string fault;
  auto train_step = [&](Tensor x, Tensor y) {
    if (fault == "fail" || fault == "try") throw std::runtime_error("a batch is damaged");
    tutti::GradientTape tape;
    Tensor loss = tutti::nn::compute_average_loss((model(x, true) - y).square().mean(1), 16);
    auto variables = model.trainable_variables();
    if (fault.rfind("backward ", 0) == 0) {  // when backward is at its end
      variables[0].value().register_hook([&](Tensor gradient) {
        suffer(fault.substr(std::string("backward ").size()));
        return gradient;
      });
    }
    optimizer.apply_gradients(tape.gradient(loss, variables), variables);
    return loss;
  };
  auto look = [&](Tensor x, Tensor y) {
    tutti::GradientTape tape;
    return tape.gradient((model(x, true) - y).square().sum(), model.trainable_variables())[0]
        .norm();
  };
  for (auto [x, y] : data) {
    if (step == arguments.steps) break;
    const auto found = arguments.faults.find(step);
    fault = found == arguments.faults.end() ? "" : found->second;
    suffer(fault);
    if (fault == "leave") return 0;
    if (fault == "wander") {
      strategy.reduce(ReduceOp::kSum, at::ones({3}));
      continue;
    }
    if (fault == "try") {
      try {
        strategy.run(train_step, x, y);
      } catch (const std::exception& error) {
        std::cout << "went on after: " << error.what() << std::endl;
      }
      fault.clear();
    }
    const auto losses = strategy.run(train_step, x, y);
    print_loss(step++, strategy.reduce(ReduceOp::kSum, losses).item<double>());
    if (fault == "look") strategy.run(look, x, y);
  }
  return 0;
}

int by_fit(const Arguments& arguments, tutti::distribute::Strategy& strategy) {
  auto scope = strategy.scope();
  keras::Sequential model = make_model();
  model.compile({.optimizer = keras::optimizers::Adam({.learning_rate = 0.01}), .loss = "mse"});
  // An epoch is a step of two batches.
  const auto print = keras::callbacks::LambdaCallback({
      .on_epoch_begin =
          [&](int64_t epoch, const keras::Logs&) {
            const auto found = arguments.faults.find(epoch);
            if (found != arguments.faults.end()) suffer(found->second);
          },
      .on_epoch_end = [&](int64_t epoch,
                          const keras::Logs& logs) { print_loss(epoch, logs.at("loss")); },
  });
  model.fit(make_data(),
            {.epochs = arguments.steps,
             .verbose = 0,
             .callbacks = {print, keras::callbacks::BackupAndRestore(arguments.folder)},
             .steps_per_epoch = 2});
  return 0;
}

int count_rows(const Arguments& arguments, tutti::distribute::Strategy& strategy) {
  using tutti::data::AutoShardPolicy;
  const auto lines = tutti::data::text_lines({arguments.file})
                         .map([](const std::string& line) {
                           return at::scalar_tensor(static_cast<int64_t>(line.size()), at::kLong);
                         })
                         .batch(4);
  try {
    strategy.distribute_dataset(lines.with_options({.auto_shard_policy = AutoShardPolicy::kFile}));
  } catch (const tutti::InvalidArgument& error) {
    std::cout << "refused: " << error.what() << std::endl;
  }
  int64_t rows = 0;
  for (const auto& step : strategy.distribute_dataset(lines)) {
    for (const Tensor& batch : strategy.local_results(step)) rows += batch.size(0);
  }
  std::cout << "rows " << rows << std::endl;
  return 0;
}

int run(const Arguments& arguments) {
  std::vector<std::string> devices;
  for (int i = 0; i < arguments.replicas; ++i) devices.push_back(cat("cpu:", i));
  MultiWorkerMirroredStrategy strategy(
      {.communication_options = {.bytes_per_pack = arguments.bytes_per_pack,
                                 .timeout_seconds = arguments.timeout},
       .devices = devices});
  if (!arguments.file.empty()) return count_rows(arguments, strategy);
  return arguments.folder.empty() ? own_loop(arguments, strategy) : by_fit(arguments, strategy);
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  tutti::set_seed(3);
  const bool catches = std::any_of(arguments.faults.begin(), arguments.faults.end(),
                                   [](const auto& fault) { return fault.second == "catch"; });
  for (int i = 1; i < arguments.times; ++i) run(arguments);
  if (!catches) return run(arguments);
  try {
    return run(arguments);
  } catch (const std::exception& error) {
    std::cerr << "caught: " << error.what() << std::endl;
    return 3;
  }
}
