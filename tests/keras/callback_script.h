#pragma once
// For tests of callbacks: a folder of their own, a model that stands still, and a fit whose epochs
// end with given numbers.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/expect.h"
#include "tutti/keras/callbacks.h"
#include "tutti/keras/layers.h"
#include "tutti/keras/model.h"

namespace tutti::keras::testing {

namespace fs = std::filesystem;

/// A folder that is gone after the test.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "tutti_callbacks_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  fs::path path_;
};

inline std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// y = w x with w = 1, whose loss on (1, 0) is w^2; the optimizer leaves it alone.
struct Still {
  Sequential model{{layers::Dense(1, {.use_bias = false, .input_shape = {1}})}};
  explicit Still(std::vector<MetricSpec> metrics = {}) {
    model.compile({.optimizer = optimizers::SGD({.learning_rate = 0}),
                   .loss = "mse",
                   .metrics = std::move(metrics)});
    set(1);
  }
  void set(double weight) { model.set_weights({at::full({1, 1}, weight)}); }
  double weight() const { return model.get_weights()[0].item<double>(); }
};

/// A fit whose epochs end with these numbers in the logs, and, after epoch e, with the weight e.
struct Script {
  std::string name = "val_loss";
  std::vector<double> values;
  Still still{};
  History run(callbacks::AnyCallback callback, int64_t rows = 2) {
    const auto say = [this](int64_t epoch, Logs& logs) {
      logs.set(name, values.at(static_cast<std::size_t>(epoch)));
      still.set(static_cast<double>(epoch));
    };
    struct Says : callbacks::Callback {
      std::function<void(int64_t, Logs&)> say;
      void on_epoch_end(int64_t epoch, Logs& logs) override { say(epoch, logs); }
    };
    Says says;
    says.say = say;
    return still.model.fit(at::ones({rows, 1}), at::zeros({rows, 1}),
                           {.batch_size = 1,
                            .epochs = static_cast<int64_t>(values.size()),
                            .verbose = 0,
                            .callbacks = {callbacks::make(says), std::move(callback)}});
  }
};

}  // namespace tutti::keras::testing
