#include <cstdio>
#include <iostream>

#include "distribute/variable_checkpoint.h"
#include "keras/callbacks/monitor.h"
#include "keras/saving/shared_files.h"
#include "keras/saving/weights_file.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/keras/callbacks/output.h"
#include "tutti/keras/model.h"

namespace tutti::keras::callbacks {
namespace {

template <class... Args>
std::string formatted(const char* format, Args... args) {
  char buffer[256];
  std::snprintf(buffer, sizeof(buffer), format, args...);
  return buffer;
}

/// `02d`, `.2f`, `5.1e` or nothing: what may be handed to printf.
bool is_format(const std::string& spec) {
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < spec.size() && spec[at] >= '0' && spec[at] <= '9') ++at;
    return at - begin;
  };
  if (digits() > 2) return false;
  const bool point = at < spec.size() && spec[at] == '.';
  if (point) {
    ++at;
    const std::size_t places = digits();
    if (places == 0 || places > 2) return false;
  }
  if (at == spec.size()) return !point && at == 0;
  const std::string kinds = point ? "feg" : "dfeg";
  return at + 1 == spec.size() && kinds.find(spec[at]) != std::string::npos;
}

/// The number of a field; epochs and batches count from 1.
struct Field {
  double value;
  bool whole;
};

Field field_of(const std::string& name, int64_t epoch, int64_t batch, const Logs& logs) {
  if (name == "epoch") return {static_cast<double>(epoch + 1), true};
  if (name == "batch" && batch >= 0) return {static_cast<double>(batch + 1), true};
  const auto found = logs.find(name);
  if (found != logs.end()) return {found->second, false};
  std::vector<std::string> names{"epoch"};
  if (batch >= 0) names.emplace_back("batch");
  for (const auto& [key, unused] : logs) names.push_back(key);
  throw NotFound(
      cat("ModelCheckpoint [filepath]: {", name, "}, expected one of ", join(names, ", ")));
}

/// `{name}`, `{name:02d}` and `{name:.2f}` replaced by numbers.
std::string fill_template(const std::string& path, int64_t epoch, int64_t batch, const Logs& logs) {
  std::string filled;
  for (std::size_t at = 0; at < path.size(); ++at) {
    const std::size_t close = path[at] == '{' ? path.find('}', at) : std::string::npos;
    if (close == std::string::npos) {
      filled += path[at];
      continue;
    }
    const std::string text = path.substr(at + 1, close - at - 1);
    const std::size_t colon = text.find(':');
    const std::string spec = colon == std::string::npos ? "" : text.substr(colon + 1);
    if (!is_format(spec))
      throw InvalidArgument(cat("ModelCheckpoint [filepath]: the format \"", spec,
                                "\", expected one like 02d or .2f"));
    const Field field = field_of(text.substr(0, colon), epoch, batch, logs);
    if (spec.empty() ? field.whole : spec.back() == 'd') {
      const std::string width = spec.empty() ? "" : spec.substr(0, spec.size() - 1);
      filled += formatted(cat("%", width, "lld").c_str(), static_cast<long long>(field.value));
    } else {
      filled += formatted(cat("%", spec.empty() ? "g" : spec).c_str(), field.value);
    }
    at = close;
  }
  return filled;
}

class Checkpoint : public Callback {
 public:
  Checkpoint(std::string path, const ModelCheckpointOptions& options)
      : path_(std::move(path)),
        options_(options),
        monitor_("ModelCheckpoint", options.monitor, options.mode, 0) {
    const bool weights = path_.ends_with(".weights.tutti") || path_.ends_with(".safetensors");
    if (options.save_weights_only ? !weights : weights || !path_.ends_with(".tutti")) {
      throw InvalidArgument(
          cat("ModelCheckpoint [filepath]: \"", path_, "\", expected a name that ends in ",
              options.save_weights_only ? "\".weights.tutti\" or \".safetensors\""
                                        : "\".tutti\" (weights alone: save_weights_only)"));
    }
  }
  void on_train_begin(const Logs& logs) override {
    monitor_.begin();
    if (!best_) best_ = options_.initial_value_threshold;
  }
  void on_epoch_begin(int64_t epoch, const Logs& logs) override {
    epoch_ = epoch;
    counter_.begin_epoch(position());
  }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    if (options_.save_freq.each_epoch()) return;
    if (counter_.due(batch, position(), options_.save_freq.batches())) save(epoch_, batch, logs);
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    if (options_.save_freq.each_epoch()) save(epoch, -1, logs);
  }
  bool needs_batch_logs() const override { return !options_.save_freq.each_epoch(); }

 private:
  void save(int64_t epoch, int64_t batch, const Logs& logs) {
    const std::string path = fill_template(path_, epoch, batch, logs);
    if (options_.save_best_only) {
      const auto current = monitor_.read(model(), logs);
      const bool better = current && monitor_.better(*current, best_);
      const std::string best = best_ ? formatted("%.5f", *best_) : "None";
      switch (chiefs_choice(!current ? kNothing : better ? kBetter : kWorse)) {
        case kNothing:
          return;
        case kWorse:
          say(cat("\nEpoch ", epoch + 1, ": ", monitor_.name(), " did not improve from ", best,
                  "\n"));
          return;
        case kBetter:
          break;
      }
      say(cat("\nEpoch ", epoch + 1, ": ", monitor_.name(), " improved from ", best, " to ",
              formatted("%.5f", current.value_or(0)), ", saving model to ", path, "\n"));
      best_ = current;
    } else {
      say(cat("\nEpoch ", epoch + 1, ": saving model to ", path, "\n"));
    }
    if (options_.save_weights_only) {
      save_weights_file(*model(), path, /*make_folder=*/true);
    } else {
      save_model_file(*model(), path, /*make_folder=*/true);
    }
    say(cat("\nEpoch ", epoch + 1, ": finished saving model to ", path, "\n"));
  }
  enum Choice { kNothing, kWorse, kBetter };
  /// Saving is a matter of all workers, and so is not saving.
  Choice chiefs_choice(Choice mine) const {
    const auto peers = tutti::internal::peers_of(model()->strategy());
    if (peers == nullptr) return mine;
    return static_cast<Choice>(peers->of_chief("ModelCheckpoint", cat(static_cast<int>(mine)))[0] -
                               '0');
  }
  void say(const std::string& text) const {
    if (options_.verbose > 0 && is_chief(&model()->strategy())) std::cout << text << std::flush;
  }
  std::string path_;
  ModelCheckpointOptions options_;
  Monitor monitor_;
  std::optional<double> best_;
  int64_t epoch_ = 0;
  BatchCounter counter_;
};

}  // namespace

AnyCallback ModelCheckpoint(const std::string& filepath, const ModelCheckpointOptions& options) {
  return AnyCallback(std::make_shared<Checkpoint>(filepath, options));
}

}  // namespace tutti::keras::callbacks
