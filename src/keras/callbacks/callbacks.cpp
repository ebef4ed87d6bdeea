#include "tutti/keras/callbacks.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <limits>

#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/keras/model.h"

namespace tutti::keras {

double& Logs::operator[](const std::string& name) {
  auto found = find(name);
  if (found != end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [key, unused] : *this) names.push_back(key);
  throw NotFound(
      cat("logs: \"", name, "\", expected one of ", names.empty() ? "none" : join(names, ", ")));
}
double Logs::operator[](const std::string& name) const { return const_cast<Logs&>(*this)[name]; }

namespace callbacks {
namespace {

template <class... Args>
std::string formatted(const char* format, Args... args) {
  char buffer[256];
  std::snprintf(buffer, sizeof(buffer), format, args...);
  return buffer;
}

class Lambda : public Callback {
 public:
  explicit Lambda(LambdaCallbackOptions options) : hooks_(std::move(options)) {}
  void on_epoch_begin(int64_t epoch, const Logs& logs) override {
    if (hooks_.on_epoch_begin) hooks_.on_epoch_begin(epoch, logs);
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    if (hooks_.on_epoch_end) hooks_.on_epoch_end(epoch, logs);
  }
  void on_train_begin(const Logs& logs) override {
    if (hooks_.on_train_begin) hooks_.on_train_begin(logs);
  }
  void on_train_end(const Logs& logs) override {
    if (hooks_.on_train_end) hooks_.on_train_end(logs);
  }
  void on_train_batch_begin(int64_t batch, const Logs& logs) override {
    if (hooks_.on_train_batch_begin) hooks_.on_train_batch_begin(batch, logs);
  }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    if (hooks_.on_train_batch_end) hooks_.on_train_batch_end(batch, logs);
  }
  bool needs_batch_logs() const override { return static_cast<bool>(hooks_.on_train_batch_end); }

 private:
  LambdaCallbackOptions hooks_;
};

/// Whether a number is better than the best so far; strict, and never for NaN.
class Monitor {
 public:
  Monitor(const char* callback, std::string name, const std::string& mode, double min_delta)
      : callback_(callback), name_(std::move(name)), min_delta_(std::abs(min_delta)) {
    if (mode != "auto" && mode != "min" && mode != "max") {
      throw InvalidArgument(cat(callback, " [mode]: \"", mode, "\", expected auto, min or max"));
    }
    up_ = mode == "max" || (mode == "auto" && looks_upward(name_));
  }
  bool better(double value, double best) const {
    return up_ ? value > best + min_delta_ : value < best - min_delta_;
  }
  double worst() const {
    return up_ ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  }
  std::optional<double> read(const Logs& logs) const {
    const auto found = logs.find(name_);
    if (found != logs.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [key, unused] : logs) names.push_back(key);
    log_once(LogLevel::kWarning, cat("monitor/", callback_, "/", name_),
             cat(callback_, ": \"", name_, "\" is not among the logs (", join(names, ", "),
                 "); nothing is done. With validation data there is val_loss"));
    return std::nullopt;
  }
  const std::string& name() const { return name_; }

 private:
  static bool looks_upward(const std::string& name) {
    return name.find("acc") != std::string::npos ||
           (name.size() >= 3 && name.compare(name.size() - 3, 3, "auc") == 0);
  }
  const char* callback_;
  std::string name_;
  double min_delta_;
  bool up_;
};

class Early : public Callback {
 public:
  explicit Early(const EarlyStoppingOptions& options)
      : options_(options),
        monitor_("EarlyStopping", options.monitor, options.mode, options.min_delta) {
    if (options.patience < 0)
      throw InvalidArgument(
          cat("EarlyStopping [patience]: ", options.patience, ", expected 0 or more"));
  }
  void on_train_begin(const Logs& logs) override {
    wait_ = 0;
    stopped_epoch_ = -1;
    best_ = monitor_.worst();
    best_weights_.clear();
    best_epoch_ = 0;
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    const auto current = monitor_.read(logs);
    if (!current || epoch < options_.start_from_epoch) return;
    if (options_.restore_best_weights && best_weights_.empty()) keep(epoch);
    ++wait_;
    if (monitor_.better(*current, best_)) {
      best_ = *current;
      if (options_.restore_best_weights) keep(epoch);
      if (!options_.baseline || monitor_.better(*current, *options_.baseline)) wait_ = 0;
      return;
    }
    if (wait_ >= options_.patience && epoch > 0) {
      stopped_epoch_ = epoch;
      model()->stop_training = true;
    }
  }
  void on_train_end(const Logs& logs) override {
    if (stopped_epoch_ >= 0 && options_.verbose > 0)
      std::cout << "Epoch " << stopped_epoch_ + 1 << ": early stopping\n" << std::flush;
    if (!options_.restore_best_weights || best_weights_.empty()) return;
    if (options_.verbose > 0) {
      std::cout << "Restoring model weights from the end of the best epoch: " << best_epoch_ + 1
                << ".\n"
                << std::flush;
    }
    model()->set_weights(best_weights_);
  }
  bool needs_batch_logs() const override { return false; }

 private:
  void keep(int64_t epoch) {
    best_weights_ = model()->get_weights();
    best_epoch_ = epoch;
  }
  EarlyStoppingOptions options_;
  Monitor monitor_;
  int64_t wait_ = 0;
  int64_t stopped_epoch_ = -1;
  double best_ = 0;
  std::vector<Tensor> best_weights_;
  int64_t best_epoch_ = 0;
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// `{name}`, `{name:02d}` and `{name:.2f}` replaced by numbers.
std::string fill_template(const std::string& path, int64_t epoch, const Logs& logs) {
  std::string filled;
  for (std::size_t at = 0; at < path.size(); ++at) {
    const std::size_t close = path[at] == '{' ? path.find('}', at) : std::string::npos;
    if (close == std::string::npos) {
      filled += path[at];
      continue;
    }
    const std::string field = path.substr(at + 1, close - at - 1);
    const std::size_t colon = field.find(':');
    const std::string name = field.substr(0, colon);
    const std::string spec = colon == std::string::npos ? "" : field.substr(colon + 1);
    const bool whole = !spec.empty() && spec.back() == 'd';
    const bool valid =
        spec.find_first_not_of("0123456789.dfe") == std::string::npos && spec.size() < 8;
    if (!valid)
      throw InvalidArgument(cat("ModelCheckpoint [filepath]: the format \"", spec,
                                "\", expected one like 02d or .2f"));
    const double value = name == "epoch" ? static_cast<double>(epoch + 1) : logs[name];
    if (whole || (spec.empty() && name == "epoch")) {
      filled += formatted(cat("%", whole ? spec.substr(0, spec.size() - 1) : "", "lld").c_str(),
                          static_cast<long long>(value));
    } else {
      filled += formatted(cat("%", spec.empty() ? "g" : spec).c_str(), value);
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
    const bool weights = ends_with(path_, ".weights.tutti");
    if (options.save_weights_only ? !weights : weights || !ends_with(path_, ".tutti")) {
      throw InvalidArgument(
          cat("ModelCheckpoint [filepath]: \"", path_, "\", expected a name that ends in ",
              options.save_weights_only ? "\".weights.tutti\""
                                        : "\".tutti\" (weights alone: save_weights_only)"));
    }
    if (options.save_freq < 0)
      throw InvalidArgument(cat("ModelCheckpoint [save_freq]: ", options.save_freq,
                                ", expected 0 (each epoch) or a number of batches"));
  }
  void on_train_begin(const Logs& logs) override {
    if (!best_) best_ = options_.initial_value_threshold;
  }
  void on_epoch_begin(int64_t epoch, const Logs& logs) override { epoch_ = epoch; }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    if (options_.save_freq == 0) return;
    seen_ += batch - last_batch_ > 0 ? batch - last_batch_ : batch + 1;
    last_batch_ = batch;
    if (seen_ < options_.save_freq) return;
    seen_ = 0;
    save(epoch_, logs);
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    last_batch_ = -1;
    if (options_.save_freq == 0) save(epoch, logs);
  }
  bool needs_batch_logs() const override { return options_.save_freq > 0; }

 private:
  void save(int64_t epoch, const Logs& logs) {
    const std::string path = fill_template(path_, epoch, logs);
    if (options_.save_best_only) {
      const auto current = monitor_.read(logs);
      if (!current) return;
      const double best = best_.value_or(monitor_.worst());
      if (!monitor_.better(*current, best)) {
        say(formatted("\nEpoch %lld: %s did not improve from %.5f\n",
                      static_cast<long long>(epoch + 1), monitor_.name().c_str(), best));
        return;
      }
      say(cat("\nEpoch ", epoch + 1, ": ", monitor_.name(), " improved from ",
              best_ ? formatted("%.5f", best) : "None", " to ", formatted("%.5f", *current),
              ", saving model to ", path, "\n"));
      best_ = current;
    } else {
      say(cat("\nEpoch ", epoch + 1, ": saving model to ", path, "\n"));
    }
    if (options_.save_weights_only) {
      model()->save_weights(path);
    } else {
      model()->save(path);
    }
    say(cat("\nEpoch ", epoch + 1, ": finished saving model to ", path, "\n"));
  }
  void say(const std::string& text) const {
    if (options_.verbose > 0) std::cout << text << std::flush;
  }
  std::string path_;
  ModelCheckpointOptions options_;
  Monitor monitor_;
  std::optional<double> best_;
  int64_t epoch_ = 0;
  int64_t seen_ = 0;
  int64_t last_batch_ = -1;
};

/// Numbers as Python's csv module writes floats: the fewest digits that give the number back.
std::string csv_number(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = formatted("%.17g", value);
  for (int digits = 1; digits < 17; ++digits) {
    const std::string shorter = formatted("%.*g", digits, value);
    if (std::strtod(shorter.c_str(), nullptr) == value) {
      text = shorter;
      break;
    }
  }
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

class Csv : public Callback {
 public:
  Csv(std::string filename, const CSVLoggerOptions& options)
      : filename_(std::move(filename)), options_(options) {}
  void on_train_begin(const Logs& logs) override {
    bool empty = true;
    if (options_.append)
      empty = std::ifstream(filename_).peek() == std::ifstream::traits_type::eof();
    file_.open(filename_, options_.append ? std::ios::app : std::ios::trunc);
    if (!file_)
      throw NotFound(cat("CSVLogger [", filename_,
                         "]: the file cannot be opened for writing; does its folder exist?"));
    header_due_ = empty;
    columns_.clear();
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    if (columns_.empty()) {
      bool has_validation = false;
      for (const auto& [name, unused] : logs) {
        columns_.push_back(name);
        has_validation = has_validation || name.rfind("val_", 0) == 0;
      }
      const std::size_t plain = columns_.size();
      for (std::size_t i = 0; !has_validation && i < plain; ++i)
        columns_.push_back(cat("val_", columns_[i]));
      if (header_due_)
        file_ << "epoch" << options_.separator << join(columns_, options_.separator) << "\n";
    }
    file_ << epoch;
    for (const std::string& column : columns_) {
      const auto found = logs.find(column);
      file_ << options_.separator << (found == logs.end() ? "NA" : csv_number(found->second));
    }
    file_ << "\n" << std::flush;
  }
  void on_train_end(const Logs& logs) override { file_.close(); }
  bool needs_batch_logs() const override { return false; }

 private:
  std::string filename_;
  CSVLoggerOptions options_;
  std::ofstream file_;
  bool header_due_ = true;
  std::vector<std::string> columns_;
};

class NanStop : public Callback {
 public:
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    const auto loss = logs.find("loss");
    if (loss == logs.end() || std::isfinite(loss->second)) return;
    std::cout << "Batch " << batch << ": Invalid loss, terminating training\n" << std::flush;
    model()->stop_training = true;
  }
};

}  // namespace

AnyCallback LambdaCallback(LambdaCallbackOptions options) {
  return AnyCallback(std::make_shared<Lambda>(std::move(options)));
}
AnyCallback EarlyStopping(const EarlyStoppingOptions& options) {
  return AnyCallback(std::make_shared<Early>(options));
}
AnyCallback ModelCheckpoint(const std::string& filepath, const ModelCheckpointOptions& options) {
  return AnyCallback(std::make_shared<Checkpoint>(filepath, options));
}
AnyCallback CSVLogger(const std::string& filename, const CSVLoggerOptions& options) {
  return AnyCallback(std::make_shared<Csv>(filename, options));
}
AnyCallback TerminateOnNaN() { return AnyCallback(std::make_shared<NanStop>()); }

}  // namespace callbacks
}  // namespace tutti::keras
