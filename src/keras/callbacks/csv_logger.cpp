#include <fstream>

#include "keras/saving/shared_files.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/keras/callbacks/output.h"
#include "tutti/keras/model.h"
#include "tutti/tensor/printing.h"

namespace tutti::keras::callbacks {
namespace {

class Csv : public Callback {
 public:
  Csv(std::string filename, const CSVLoggerOptions& options)
      : filename_(std::move(filename)), options_(options) {}
  void on_train_begin(const Logs& logs) override {
    writes_ = is_chief(model() == nullptr ? nullptr : &model()->strategy());
    if (!writes_) return;
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
    if (!writes_) return;
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
  bool writes_ = true;
  bool header_due_ = true;
  std::vector<std::string> columns_;
};

}  // namespace

AnyCallback CSVLogger(const std::string& filename, const CSVLoggerOptions& options) {
  return AnyCallback(std::make_shared<Csv>(filename, options));
}

}  // namespace tutti::keras::callbacks
