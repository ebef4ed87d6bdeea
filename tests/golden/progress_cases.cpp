// formats.json, progress/…: the texts that fit, evaluate and predict write, and bars on a clock
// that is moved by hand. Of a bar whose redraws depend on the time only the last of each epoch
// counts (RULES.md, 5).

#include <iostream>
#include <regex>
#include <sstream>

#include "golden/golden_file.h"
#include "keras/training/progress_bar.h"
#include "tutti/tutti.h"

namespace tutti::golden {
namespace {

/// What is written to std::cout while it lives.
class Capture {
 public:
  Capture() : before_(std::cout.rdbuf(text_.rdbuf())) {}
  ~Capture() { std::cout.rdbuf(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::streambuf* before_;
};

/// Bars of a terminal, while it lives.
class TerminalBars {
 public:
  TerminalBars() { keras::config::set_progress_bar({.dynamic = true}); }
  ~TerminalBars() { keras::config::set_progress_bar(before_); }

 private:
  keras::config::ProgressBarConfig before_ = keras::config::progress_bar();
};

/// The last drawing of each line, times replaced as in the file, blanks at its end dropped.
std::string last_drawings(const std::string& text) {
  std::string all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(line.rfind('\r') + 1);
    line = std::regex_replace(line, std::regex("[0-9]+(s|ms|us)/step"), "<ST>/step");
    line = std::regex_replace(line, std::regex("\x1b\\[1m[0-9:]+s?\x1b\\[0m <ST>"),
                              "\x1b[1m<T>\x1b[0m <ST>");
    line = std::regex_replace(line, std::regex("- [0-9]+s - <ST>"), "- <T> - <ST>");
    line.erase(line.find_last_not_of(' ') + 1);
    all += line + "\n";
  }
  return all;
}

struct Call {
  std::string name;  // fit, evaluate or predict
  int verbose = 1;
  int64_t epochs = 1;
  bool validation = false;
};

/// `fit_verbose1_2epochs_val`
Call call_of(const std::string& name) {
  std::smatch parts;
  if (!std::regex_match(
          name, parts,
          std::regex("progress/(fit|evaluate|predict)_verbose([012])(_([0-9]+)epochs?)?(_val)?"))) {
    throw Unknown{"progress case"};
  }
  return {parts[1], std::stoi(parts[2]), parts[4].matched ? std::stoi(parts[4]) : 1,
          parts[5].matched};
}

std::string written_by(const GoldenFile& file, const Json& inputs, const Call& call) {
  const at::Tensor x = file.tensor(inputs.at("x"));
  const at::Tensor y = file.tensor(inputs.at("y"));
  keras::Sequential model({keras::layers::Dense(8, {.activation = "relu", .input_shape = {4}}),
                           keras::layers::Dense(3, {.activation = "softmax"})});
  model.compile({.optimizer = keras::optimizers::SGD({.learning_rate = .01}),
                 .loss = keras::losses::SparseCategoricalCrossentropy(),
                 .metrics = {"accuracy"}});
  model.set_weights(file.tensors(file.resolve(inputs.at("initial_weights"))));
  const int64_t batch = inputs.at("batch_size");
  const Capture capture;
  if (call.name == "evaluate") {
    model.evaluate(x, y, {.batch_size = batch, .verbose = call.verbose});
  } else if (call.name == "predict") {
    model.predict(x, {.batch_size = batch, .verbose = call.verbose});
  } else {
    keras::FitOptions options{.batch_size = batch, .epochs = call.epochs, .verbose = call.verbose};
    if (call.validation) options.validation_data = std::pair(x.narrow(0, 0, 6), y.narrow(0, 0, 6));
    options.shuffle = false;
    model.fit(x, y, options);
  }
  return capture.text();
}

/// The same steps on a clock of whole sums; Keras' averages of the values are formed here, as the
/// bar shows what it is given. The recording never ended its line.
std::string bar_text(const Json& inputs) {
  const int64_t target = inputs.at("target");
  const double seconds = inputs.at("seconds_per_step");
  std::ostringstream text;
  double now = 1000;
  keras::ProgressBarOptions options;
  options.clock = [&] { return now; };
  options.out = &text;
  keras::ProgressBar bar(target, options);
  double loss = 0;
  double accuracy = 0;
  for (int64_t step = 1; step <= target; ++step) {
    now += seconds;
    loss += 1. / static_cast<double>(step);
    accuracy += static_cast<double>(step) / (2. * static_cast<double>(target));
    bar.update(step,
               {{"loss", loss / static_cast<double>(step)},
                {"accuracy", accuracy / static_cast<double>(step)}},
               /*finalize=*/false);
  }
  return text.str();
}

}  // namespace

void run_progress_case(const GoldenFile& file, const Json& entry, Verdict& verdict) {
  const Json& inputs = entry.at("inputs");
  const std::string name = entry.at("name");
  if (name.rfind("progress/", 0) != 0) throw Unknown{"no progress case"};
  const std::string expected = entry.at("expected").at("text");
  std::string found, wanted;
  if (inputs.contains("target")) {
    found = bar_text(inputs);
    wanted = expected;
  } else {
    const TerminalBars bars;
    found = last_drawings(written_by(file, inputs, call_of(name)));
    wanted = last_drawings(expected);
  }
  if (found != wanted)
    verdict.fail(cat("the text ", Json(found).dump(), ", expected ", Json(wanted).dump()));
}

}  // namespace tutti::golden
