// optimizer_bench: each optimizer's update in Tutti's pass beside the same formula as PyTorch's
// optimizers write it, operation by operation and tensor by tensor, as a markdown table.
// `./dev bench --work optimizers` pins it to the benchmark's cores.
//
// Both begin with the same weights and take the same gradients; their weights must agree before
// anything is timed. With several replicas the gradients are shares: Tutti adds them in its pass,
// the other side adds them first and then works with as many threads. A figure is the median over
// groups of updates; groups of both sides alternate.

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tutti/tutti.h"

namespace tutti::bench {
namespace {

using namespace keras::optimizers;  // NOLINT: a program
using Tensors = std::vector<Tensor>;

/// What a formula is handed for one tensor; `t` counts from 1.
struct Step {
  Tensor& w;
  const Tensor& g;
  Tensors& slots;
  double t;
};

struct Formula {
  const char* name;
  Optimizer (*make)();
  std::vector<double> slots;  ///< what they begin with; NaN: with the weights
  void (*step)(Step s);
};

constexpr double kRate = 0.001;
constexpr double kEpsilon = 1e-7;
constexpr double kLikeWeights = std::numeric_limits<double>::quiet_NaN();

double unbiased(double beta, double t) {
  return 1 - std::pow(static_cast<float>(beta), static_cast<float>(t));
}
/// The two moments of Adam.
void move_moments(Step& s) {
  s.slots[0].lerp_(s.g, 0.1);
  s.slots[1].mul_(0.999).addcmul_(s.g, s.g, 0.001);
}
double momentum_of_nadam(double t) { return 0.9 * (1 - 0.5 * std::pow(0.96, t)); }

void sgd(Step s) { s.w.add_(s.g, -kRate); }
void sgd_momentum(Step s) {
  s.slots[0].mul_(0.9).add_(s.g, -kRate);
  s.w.add_(s.slots[0]);
}
void rmsprop(Step s) {
  s.slots[0].mul_(0.9).addcmul_(s.g, s.g, 0.1);
  s.w.addcdiv_(s.g, s.slots[0].add(kEpsilon).sqrt_(), -kRate);
}
void adam(Step s) {
  move_moments(s);
  const double alpha = kRate * std::sqrt(unbiased(0.999, s.t)) / unbiased(0.9, s.t);
  s.w.addcdiv_(s.slots[0], s.slots[1].sqrt().add_(kEpsilon), -alpha);
}
void adamw(Step s) {
  s.w.mul_(1 - kRate * 0.004);
  adam(s);
}
void adamax(Step s) {
  s.slots[0].lerp_(s.g, 0.1);
  at::maximum_out(s.slots[1], s.slots[1].mul_(0.999), s.g.abs());
  s.w.addcdiv_(s.slots[0], s.slots[1].add(kEpsilon), -kRate / unbiased(0.9, s.t));
}
void nadam(Step s) {
  move_moments(s);
  double product = 1;
  for (double t = 1; t <= s.t && product > 1e-12; ++t) product *= momentum_of_nadam(t);
  const double next = momentum_of_nadam(s.t + 1);
  const Tensor root = (s.slots[1] / unbiased(0.999, s.t)).sqrt_().add_(kEpsilon);
  s.w.addcdiv_(s.g, root, -kRate * (1 - momentum_of_nadam(s.t)) / (1 - product));
  s.w.addcdiv_(s.slots[0], root, -kRate * next / (1 - product * next));
}
void adagrad(Step s) {
  s.slots[0].addcmul_(s.g, s.g, 1);
  s.w.addcdiv_(s.g, s.slots[0].add(kEpsilon).sqrt_(), -kRate);
}
void adadelta(Step s) {
  s.slots[0].mul_(0.95).addcmul_(s.g, s.g, 0.05);
  const Tensor delta =
      s.slots[1].add(kEpsilon).sqrt_().div_(s.slots[0].add(kEpsilon).sqrt_()).mul_(s.g);
  s.slots[1].mul_(0.95).addcmul_(delta, delta, 0.05);
  s.w.add_(delta, -kRate);
}
void ftrl(Step s) {
  const Tensor sum = s.slots[0].addcmul(s.g, s.g, 1);
  const Tensor now = sum.sqrt();
  const Tensor before = s.slots[0].sqrt();
  s.slots[1].add_(s.g).addcmul_(now - before, s.w, -1 / kRate);
  at::div_out(s.w, s.slots[1], now * (-1 / kRate));
  s.slots[0].copy_(sum);
}
void lion(Step s) {
  s.w.add_(s.slots[0].mul(0.9).add_(s.g, 0.1).sign_(), -kRate);
  s.slots[0].mul_(0.99).add_(s.g, 0.01);
}
void lamb(Step s) {
  move_moments(s);
  const Tensor direction = (s.slots[0] / unbiased(0.9, s.t))
                               .div_((s.slots[1] / unbiased(0.999, s.t)).sqrt_().add_(kEpsilon));
  const double ratio = s.w.norm().item<double>() / direction.norm().item<double>();
  s.w.add_(direction, -kRate * ratio);
}
void adafactor(Step s) {
  const double beta = 1 - std::pow(s.t, -0.8);
  const Tensor squares = s.g.square().add_(1e-30);
  if (s.w.dim() >= 2) {  // slots: the second moment, and means over rows and columns
    if (!s.slots[1].defined() || s.slots[1].dim() != s.w.dim() - 1) {
      s.slots[1] = at::zeros_like(squares.mean(-1));
      s.slots[2] = at::zeros_like(squares.mean(-2));
    }
    s.slots[1].mul_(beta).add_(squares.mean(-1), 1 - beta);
    s.slots[2].mul_(beta).add_(squares.mean(-2), 1 - beta);
    at::mul_out(s.slots[0], (s.slots[1] / s.slots[1].mean(-1, true)).unsqueeze(-1),
                s.slots[2].unsqueeze(-2));
  } else {
    s.slots[0].mul_(beta).add_(squares, 1 - beta);
  }
  const Tensor update = s.g / s.slots[0].sqrt();
  const double size = std::sqrt(static_cast<double>(s.w.numel()));
  const double rms = update.norm().item<double>() / size;
  const double alpha =
      std::max(1e-3, s.w.norm().item<double>() / size) * std::min(kRate, 1 / std::sqrt(s.t));
  s.w.add_(update, -alpha / std::max(1.0, rms));
}
void muon(Step s) {
  if (s.w.dim() != 2) {
    s.w.mul_(1 - kRate * 0.004);
    return adam(s);
  }
  s.w.mul_(1 - kRate * 0.004);
  s.slots[0].mul_(0.95).add_(s.g);
  Tensor x = s.g.add(s.slots[0], 0.95);
  x.div_(x.norm() + 1e-7);
  for (int i = 0; i < 5; ++i) {
    const Tensor square = at::mm(x, x.t());
    const Tensor polynomial = at::addmm(square, square, square, -4.7750, 2.0315);
    x = at::addmm(x, polynomial, x, 3.4445, 1);
  }
  s.w.add_(x, -kRate * std::sqrt(static_cast<double>(std::max(s.w.size(0), s.w.size(1)))) * 0.2);
}
void schedule_free(Step s) {
  s.slots[1].mul_(0.999).addcmul_(s.g, s.g, 0.001);
  const Tensor mean = s.w.sub(s.slots[0], 0.1).div_(0.9);
  s.slots[0].addcdiv_(s.g, (s.slots[1] / unbiased(0.999, s.t)).sqrt_().add_(1e-8), -kRate);
  mean.lerp_(s.slots[0], 1 / s.t);
  at::lerp_out(s.w, s.slots[0], mean, 0.9);
}

const Formula kFormulas[] = {
    {"SGD", [] { return Optimizer(SGD({.learning_rate = kRate})); }, {}, sgd},
    {"SGD, momentum",
     [] { return Optimizer(SGD({.learning_rate = kRate, .momentum = 0.9})); },
     {0},
     sgd_momentum},
    {"RMSprop", [] { return Optimizer(RMSprop()); }, {0}, rmsprop},
    {"Adam", [] { return Optimizer(Adam()); }, {0, 0}, adam},
    {"AdamW", [] { return Optimizer(AdamW()); }, {0, 0}, adamw},
    {"Adamax", [] { return Optimizer(Adamax()); }, {0, 0}, adamax},
    {"Nadam", [] { return Optimizer(Nadam()); }, {0, 0}, nadam},
    {"Adagrad", [] { return Optimizer(Adagrad()); }, {0.1}, adagrad},
    {"Adadelta", [] { return Optimizer(Adadelta()); }, {0, 0}, adadelta},
    {"Ftrl", [] { return Optimizer(Ftrl()); }, {0.1, 0}, ftrl},
    {"Lion", [] { return Optimizer(Lion()); }, {0}, lion},
    {"Lamb", [] { return Optimizer(Lamb()); }, {0, 0}, lamb},
    {"Adafactor", [] { return Optimizer(Adafactor()); }, {0, 0, 0}, adafactor},
    {"Muon", [] { return Optimizer(Muon()); }, {0, 0}, muon},
    {"ScheduleFreeAdamW",
     [] { return Optimizer(ScheduleFreeAdamW({.learning_rate = kRate})); },
     {kLikeWeights, 0},
     schedule_free}};

/// Eight square matrices with a vector each, `parameters` entries in all, or nearly.
Tensors start_of(int64_t parameters) {
  const auto width = static_cast<int64_t>(std::sqrt(static_cast<double>(parameters) / 8));
  Tensors tensors;
  for (int layer = 0; layer < 8; ++layer) {
    tensors.push_back(
        at::arange(width * width, at::kFloat).add_(layer).sin_().view({width, width}));
    tensors.push_back(at::arange(width, at::kFloat).add_(layer).cos_());
  }
  return tensors;
}

/// The two sides of one comparison.
class Pair {
 public:
  Pair(const Formula& formula, int64_t parameters, int replicas)
      : formula_(formula), replicas_(replicas), strategy_({.devices = devices(replicas)}) {
    auto scope = strategy_.scope();
    optimizer_ = formula.make();
    for (const Tensor& start : start_of(parameters)) {
      variables_.emplace_back(start, VariableOptions{.name = cat("w", variables_.size())});
      weights_.push_back(start.clone());
      gradients_.push_back(start.mul(3).cos_().div_(replicas));
      Tensors slots;
      for (const double initial : formula.slots)
        slots.push_back(std::isnan(initial) ? start.clone() : at::full_like(start, initial));
      slots_.push_back(std::move(slots));
    }
  }

  void update_in_one_pass(int updates) {
    strategy_.run([&] {
      for (int i = 0; i < updates; ++i) optimizer_.apply_gradients(gradients_, variables_);
    });
  }
  void update_by_operations(int updates) {
    at::NoGradGuard no_grad;
    for (int i = 0; i < updates; ++i) {
      ++t_;
      for (std::size_t k = 0; k < weights_.size(); ++k) {
        Tensor sum = gradients_[k];
        for (int r = 1; r < replicas_; ++r)
          sum = r == 1 ? sum + gradients_[k] : sum.add_(gradients_[k]);
        formula_.step({weights_[k], sum, slots_[k], t_});
      }
    }
  }
  /// The largest difference of two weights, of weights of the size of 1.
  double difference() const {
    double largest = 0;
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      largest =
          std::max(largest, (variables_[k].read_value() - weights_[k]).abs().max().item<double>());
    }
    return largest;
  }

 private:
  static std::vector<std::string> devices(int replicas) {
    std::vector<std::string> names;
    for (int i = 0; i < replicas; ++i) names.push_back(cat("cpu:", i));
    return names;
  }
  const Formula& formula_;
  int replicas_;
  distribute::MirroredStrategy strategy_;
  Optimizer optimizer_;
  std::vector<Variable> variables_;
  Tensors weights_, gradients_;
  std::vector<Tensors> slots_;
  double t_ = 0;
};

template <class Call>
double microseconds(int updates, Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  call(updates);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() * 1e6 /
         updates;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Figures {
  double pass = 0;
  double operations = 0;
  double ratio() const { return operations / pass; }
};

struct Settings {
  int replicas = 1;
  int groups = 11;
  double milliseconds = 20;  ///< of a group
};

Figures compare(const Formula& formula, int64_t parameters, const Settings& settings) {
  constexpr double kLargest = 2e-5;
  Pair pair(formula, parameters, settings.replicas);
  pair.update_in_one_pass(5);
  pair.update_by_operations(5);
  if (!(pair.difference() < kLargest)) {
    throw std::runtime_error(cat(formula.name, " of ", parameters,
                                 ": the two sides' weights differ by ", pair.difference(),
                                 " after five updates"));
  }
  const auto pass = [&](int updates) { pair.update_in_one_pass(updates); };
  const auto operations = [&](int updates) { pair.update_by_operations(updates); };
  const auto updates_of = [&](double once) {
    return std::max(1, static_cast<int>(settings.milliseconds * 1000 / std::max(once, 0.1)));
  };
  const int of_pass = updates_of(microseconds(3, pass));
  const int of_operations = updates_of(microseconds(3, operations));
  std::vector<double> first, second;
  for (int group = 0; group < settings.groups; ++group) {
    first.push_back(microseconds(of_pass, pass));
    second.push_back(microseconds(of_operations, operations));
  }
  return {median(first), median(second)};
}

void print_head(const std::vector<int64_t>& sizes) {
  std::printf("| us an update |");
  for (const int64_t size : sizes)
    std::printf(" one pass, %lld | by operations | ratio |", static_cast<long long>(size));
  std::printf("\n| --- |");
  for (std::size_t i = 0; i < sizes.size(); ++i) std::printf(" ---: | ---: | ---: |");
  std::printf("\n");
}

}  // namespace
}  // namespace tutti::bench

int main(int argc, char** argv) {
  using namespace tutti::bench;  // NOLINT: a program
  CLI::App app("Each optimizer's update beside PyTorch's operations");
  std::vector<int64_t> sizes = {1000000, 10000};
  Settings settings;
  app.add_option("--sizes", sizes, "numbers of parameters")->check(CLI::Range(8, 100000000));
  app.add_option("--replicas", settings.replicas, "and threads of the other side")
      ->check(CLI::Range(1, 64));
  app.add_option("--groups", settings.groups, "of updates")->check(CLI::PositiveNumber);
  app.add_option("--milliseconds", settings.milliseconds, "of a group")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(settings.replicas);
  try {
    nlohmann::json line{{"contender", "tutti_optimizers"},
                        {"workload", "optimizers"},
                        {"replicas", settings.replicas},
                        {"sizes", sizes}};
    print_head(sizes);
    for (const Formula& formula : kFormulas) {
      std::printf("| %s |", formula.name);
      for (const int64_t size : sizes) {
        const Figures figures = compare(formula, size, settings);
        std::printf(" %.1f | %.1f | %.2f |", figures.pass, figures.operations, figures.ratio());
        line["ratio"][formula.name].push_back(figures.ratio());
        line["us"][formula.name].push_back(figures.pass);
      }
      std::printf("\n");
      std::fflush(stdout);
    }
    std::cout << line.dump() << "\n";  // for benchmarks/run.py
  } catch (const std::exception& error) {
    std::cerr << "optimizer_bench: " << error.what() << "\n";
    return 1;
  }
}
