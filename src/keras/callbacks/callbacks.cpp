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
#include "tutti/tensor/printing.h"

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

/// Whether a number is better than the best so far; strict, and never for NaN. Mode "auto" asks the
/// metric, and where that does not know, the name.
class Monitor {
 public:
  Monitor(const char* callback, std::string name, const std::string& mode, double min_delta)
      : callback_(callback), name_(std::move(name)), min_delta_(std::abs(min_delta)) {
    if (mode != "auto" && mode != "min" && mode != "max") {
      throw InvalidArgument(cat(callback, " [mode]: \"", mode, "\", expected auto, min or max"));
    }
    if (mode != "auto") up_ = mode == "max";
  }
  /// Before training.
  void begin() { warned_ = false; }
  /// The monitored number; nothing, with one warning a training, when it is missing.
  std::optional<double> read(const Model& model, const Logs& logs) {
    const auto found = logs.find(name_);
    if (found != logs.end()) {
      if (!up_) up_ = goes_up(model);
      return found->second;
    }
    std::vector<std::string> names;
    for (const auto& [key, unused] : logs) names.push_back(key);
    if (!warned_)
      log_warning(callback_, ": \"", name_, "\" is not among the logs (", join(names, ", "),
                  "); nothing is done. With validation data there is val_loss");
    warned_ = true;
    return std::nullopt;
  }
  /// After read(). Without a best so far, against the worst there is.
  bool better(double value, const std::optional<double>& best) const {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double bar = best.value_or(*up_ ? -kInfinity : kInfinity);
    return *up_ ? value > bar + min_delta_ : value < bar - min_delta_;
  }
  const std::string& name() const { return name_; }

 private:
  bool goes_up(const Model& model) const {
    const std::string plain = name_.rfind("val_", 0) == 0 ? name_.substr(4) : name_;
    for (const metrics::Metric& metric : model.metrics()) {
      if (metric.name() == plain && metric.direction() != metrics::Direction::kUnknown)
        return metric.direction() == metrics::Direction::kUp;
    }
    return plain.find("acc") != std::string::npos || plain.rfind("fmeasure", 0) == 0 ||
           (plain.size() >= 3 && plain.compare(plain.size() - 3, 3, "auc") == 0);
  }
  const char* callback_;
  std::string name_;
  double min_delta_;
  std::optional<bool> up_;
  bool warned_ = false;
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
    monitor_.begin();
    best_.reset();
    best_weights_.clear();
    best_epoch_ = 0;
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    const auto current = monitor_.read(*model(), logs);
    if (!current || epoch < options_.start_from_epoch) return;
    if (options_.restore_best_weights && best_weights_.empty()) keep(epoch);
    ++wait_;
    if (monitor_.better(*current, best_)) {
      best_ = *current;
      if (options_.restore_best_weights) keep(epoch);
      if (!options_.baseline || monitor_.better(*current, options_.baseline)) wait_ = 0;
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
  std::optional<double> best_;
  std::vector<Tensor> best_weights_;
  int64_t best_epoch_ = 0;
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
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
    monitor_.begin();
    if (!best_) best_ = options_.initial_value_threshold;
  }
  void on_epoch_begin(int64_t epoch, const Logs& logs) override { epoch_ = epoch; }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    if (options_.save_freq == 0) return;
    seen_ += batch - last_batch_ > 0 ? batch - last_batch_ : batch + 1;
    last_batch_ = batch;
    if (seen_ < options_.save_freq) return;
    seen_ = 0;
    save(epoch_, batch, logs);
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    last_batch_ = -1;
    if (options_.save_freq == 0) save(epoch, -1, logs);
  }
  bool needs_batch_logs() const override { return options_.save_freq > 0; }

 private:
  void save(int64_t epoch, int64_t batch, const Logs& logs) {
    const std::string path = fill_template(path_, epoch, batch, logs);
    if (options_.save_best_only) {
      const auto current = monitor_.read(*model(), logs);
      if (!current) return;
      const std::string best = best_ ? formatted("%.5f", *best_) : "None";
      if (!monitor_.better(*current, best_)) {
        say(cat("\nEpoch ", epoch + 1, ": ", monitor_.name(), " did not improve from ", best,
                "\n"));
        return;
      }
      say(cat("\nEpoch ", epoch + 1, ": ", monitor_.name(), " improved from ", best, " to ",
              formatted("%.5f", *current), ", saving model to ", path, "\n"));
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
      file_ << options_.separator
            << (found == logs.end() ? "NA"
                                    : number_to_string(found->second, /*single_precision=*/false));
    }
    file_ << "\n" << std::flush;
    if (!file_)
      throw ResourceExhausted(cat("CSVLogger [", filename_, "]: the line of epoch ", epoch + 1,
                                  " cannot be written; is the disk full?"));
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

std::shared_ptr<Callback> AnyCallback::checked(std::shared_ptr<Callback> callback) {
  if (callback == nullptr) throw InvalidArgument("callback: an empty pointer, expected a callback");
  return callback;
}

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
