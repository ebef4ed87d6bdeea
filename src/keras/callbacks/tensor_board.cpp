#include <ATen/ATen.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "keras/saving/optimizer_state.h"
#include "keras/saving/shared_files.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/io/events.h"
#include "tutti/keras/callbacks/output.h"
#include "tutti/keras/model.h"

namespace tutti::keras::callbacks {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::max(std::chrono::duration<double>(Clock::now() - begin).count(), 1e-9);
}

/// A weight as a picture, as Keras does it: a bias is a row, a kernel lies on its longer side, each
/// channel of three axes is a picture of its own; others must have 1, 3 or 4 channels.
std::optional<Tensor> picture_of(const Tensor& weight) {
  Tensor image = weight.detach().to(at::kFloat).cpu().squeeze();
  if (image.dim() == 0) image = image.reshape({1});
  if (image.dim() == 1) {
    image = image.reshape({1, 1, image.size(0), 1});
  } else if (image.dim() == 2) {
    if (image.size(0) > image.size(1)) image = image.t();
    image = image.unsqueeze(0).unsqueeze(-1);
  } else if (image.dim() == 3) {
    image = image.permute({2, 0, 1}).unsqueeze(-1);
  }
  if (image.dim() != 4 || image.numel() == 0) return std::nullopt;
  const int64_t channels = image.size(-1);
  if (channels != 1 && channels != 3 && channels != 4) return std::nullopt;
  return image.contiguous();
}

/// Weights and rates of a training as TensorBoard's projector reads them: a table of numbers a
/// layer, and a list of the tables.
void write_embeddings(const Model& model, const std::filesystem::path& folder,
                      const std::map<std::string, std::string>& metadata) {
  std::ostringstream config;
  for (const layers::Layer& layer : model.layers()) {
    if (layer->class_name() != "Embedding" || layer->weights().empty()) continue;
    const Tensor table =
        layer->weights()[0].read_value().detach().to(at::kFloat).cpu().contiguous();
    const std::string name = cat(layer->name(), "_embedding.tsv");
    std::ofstream file(folder / name);
    const float* value = table.const_data_ptr<float>();
    for (int64_t row = 0; row < table.size(0); ++row) {
      for (int64_t column = 0; column < table.size(1); ++column)
        file << (column > 0 ? "\t" : "") << *value++;
      file << "\n";
    }
    if (!file.flush())
      throw ResourceExhausted(cat("TensorBoard [", (folder / name).string(),
                                  "]: the embeddings cannot be written; is the disk full?"));
    config << "embeddings {\n  tensor_name: \"" << layer->name() << "\"\n  tensor_path: \"" << name
           << "\"\n";
    for (const std::string& key : {layer->name(), std::string()}) {
      const auto labels = metadata.find(key);
      if (labels == metadata.end()) continue;
      config << "  metadata_path: \"" << labels->second << "\"\n";
      break;
    }
    config << "}\n";
  }
  std::ofstream(folder / "projector_config.pbtxt") << config.str();
}

class Board : public Callback {
 public:
  Board(const std::string& log_dir, const TensorBoardOptions& options)
      : folder_(log_dir), options_(options) {
    if (options.profile_batch != 0) {
      throw Unimplemented(cat("TensorBoard [profile_batch]: ", options.profile_batch,
                              ", expected 0: there are no XLA traces here; use LibTorch's profiler "
                              "around fit"));
    }
    if (options.histogram_freq < 0 || options.embeddings_freq < 0) {
      throw InvalidArgument(cat("TensorBoard: histogram_freq ", options.histogram_freq,
                                ", embeddings_freq ", options.embeddings_freq,
                                ", expected 0 (never) or a number of epochs"));
    }
  }

  void on_train_begin(const Logs& logs) override {
    train_.reset();
    validation_.reset();
    step_ = 0;
    model_written_ = false;
  }
  void on_train_end(const Logs& logs) override {
    for (auto* writer : {&train_, &validation_}) {
      if (*writer) (*writer)->close();
      writer->reset();
    }
  }
  void on_epoch_begin(int64_t epoch, const Logs& logs) override {
    epoch_begin_ = Clock::now();
    epoch_begin_step_ = steps_so_far();
  }
  void on_train_batch_begin(int64_t batch, const Logs& logs) override {
    batch_ = batch;
    if (options_.write_steps_per_second) batch_begin_ = Clock::now();
    before_batch_ = steps_so_far();
  }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    step_ = std::max(before_batch_ + 1, steps_so_far());
    if (!writes()) return;
    if (options_.write_steps_per_second) {
      train().scalar("batch_steps_per_second",
                     static_cast<double>(step_ - before_batch_) / seconds_since(batch_begin_),
                     step_);
    }
    if (!writes_batch()) return;
    for (const auto& [name, value] : logs) train().scalar(cat("batch_", name), value, step_);
  }
  bool needs_batch_logs() const override { return writes_batch(); }

  void on_epoch_end(int64_t epoch, Logs& logs) override {
    if (writes()) {
      write_logs(epoch, logs);
      if (options_.write_graph && !model_written_) write_model();
    }
    if (options_.histogram_freq > 0 && epoch % options_.histogram_freq == 0) write_weights(epoch);
    if (!writes()) return;
    if (options_.embeddings_freq > 0 && epoch % options_.embeddings_freq == 0) {
      train();  // makes the folder
      write_embeddings(*model(), folder_ / "train", options_.embeddings_metadata);
    }
    train().flush();
    if (validation_) validation_->flush();
  }
  void on_test_end(const Logs& logs) override {
    if (model() == nullptr || !model()->compiled() || !writes()) return;
    const int64_t iterations = model()->optimizer().iterations();
    for (const auto& [name, value] : logs)
      validation().scalar(cat("evaluation_", name, "_vs_iterations"), value, iterations);
    validation().flush();
  }

 private:
  io::EventFileWriter& train() { return writer(train_, "train"); }
  io::EventFileWriter& validation() { return writer(validation_, "validation"); }
  io::EventFileWriter& writer(std::optional<io::EventFileWriter>& writer, const char* name) {
    if (!writer) writer.emplace((folder_ / name).string());
    return *writer;
  }
  /// Of several workers the chief alone; what all must read together, all read.
  bool writes() const { return is_chief(model() == nullptr ? nullptr : &model()->strategy()); }
  bool writes_batch() const {
    return !options_.update_freq.each_epoch() && batch_ % options_.update_freq.batches() == 0;
  }
  /// The optimizer's count goes on where a training is resumed; without one, own counting.
  int64_t steps_so_far() const {
    const bool counted = model() != nullptr && model()->compiled();
    return std::max(step_, counted ? model()->optimizer().gradient_steps() : 0);
  }

  void write_logs(int64_t epoch, const Logs& logs) {
    Logs own;
    for (const auto& [name, value] : logs) {
      if (name.starts_with("val_")) {
        validation().scalar(cat("epoch_", name.substr(4)), value, epoch);
      } else {
        own.set(name, value);
      }
    }
    if (model() != nullptr && model()->compiled()) {
      if (const auto rate = learning_rate_of(model()->optimizer())) own.set("learning_rate", *rate);
    }
    if (options_.write_steps_per_second) {
      own.set("steps_per_second", static_cast<double>(steps_so_far() - epoch_begin_step_) /
                                      seconds_since(epoch_begin_));
    }
    for (const auto& [name, value] : own) train().scalar(cat("epoch_", name), value, epoch);
  }
  void write_model() {
    model_written_ = true;
    if (model() == nullptr || !model()->built()) return;
    std::ostringstream summary;
    model()->summary(summary);
    train().text("keras", cat("```\n", summary.str(), "```\n"), 0);
  }
  void write_weights(int64_t epoch) {
    for (const Variable& weight : model()->weights()) {
      const Tensor value = weight.read_value().detach().cpu();
      if (!writes()) continue;
      train().histogram(cat(weight.name(), "/histogram"), value, epoch);
      if (!options_.write_images) continue;
      if (const auto picture = picture_of(value))
        train().image(cat(weight.name(), "/image"), *picture, epoch);
    }
  }

  std::filesystem::path folder_;
  TensorBoardOptions options_;
  std::optional<io::EventFileWriter> train_;
  std::optional<io::EventFileWriter> validation_;
  int64_t step_ = 0;
  int64_t batch_ = 0;
  int64_t before_batch_ = 0;
  int64_t epoch_begin_step_ = 0;
  Clock::time_point batch_begin_;
  Clock::time_point epoch_begin_;
  bool model_written_ = false;
};

}  // namespace

AnyCallback TensorBoard(const std::string& log_dir, const TensorBoardOptions& options) {
  return AnyCallback(std::make_shared<Board>(log_dir, options));
}

}  // namespace tutti::keras::callbacks
