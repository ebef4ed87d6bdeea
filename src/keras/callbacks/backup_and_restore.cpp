#include <filesystem>

#include "keras/callbacks/monitor.h"
#include "keras/training/train_loop.h"
#include "tutti/keras/callbacks/output.h"

namespace tutti::keras::callbacks {
namespace {

namespace fs = std::filesystem;

class Backup : public Callback {
 public:
  Backup(const std::string& folder, const BackupAndRestoreOptions& options)
      : folder_(folder),
        latest_(folder_ / "latest.tutti"),
        previous_(folder_ / "previous.tutti"),
        options_(options) {
    if (folder.empty())
      throw InvalidArgument("BackupAndRestore [backup_dir]: an empty name, expected a folder");
  }

  void on_train_begin(const Logs& logs) override {
    if (position() == nullptr) {
      throw FailedPrecondition(
          cat("BackupAndRestore [", folder_.string(),
              "]: called outside fit, whose place in the data it keeps, expected in fit; in a loop "
              "of your own use train::Checkpoint"));
    }
    if (!read(latest_)) read(previous_);
  }
  void on_epoch_begin(int64_t epoch, const Logs& logs) override {
    counter_.begin_epoch(position());
  }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    if (options_.save_freq.each_epoch()) return;
    if (counter_.due(batch, position(), options_.save_freq.batches())) write();
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    if (options_.save_freq.each_epoch()) write();
  }
  void on_train_end(const Logs& logs) override {
    if (!options_.delete_checkpoint) return;
    std::error_code unused;
    fs::remove(latest_, unused);
    fs::remove(previous_, unused);
    fs::remove(folder_, unused);  // only when nothing else is in it
  }
  bool needs_batch_logs() const override { return false; }

 private:
  /// False when there is no file, or, with another to take, none that can be read.
  bool read(const fs::path& path) {
    std::error_code unused;
    if (!fs::exists(path, unused)) return false;
    try {
      position()->resume_from = io::read_tensor_file(path.string());
    } catch (const DataLoss& error) {
      if (path == previous_ || !fs::exists(previous_, unused)) throw;
      log_warning(error.what(), "; the backup before it is taken");
      return false;
    }
    position()->path = path.string();
    return true;
  }
  void write() {
    const io::TensorFile file = TrainLoop::backup_of(*model(), *position());
    std::error_code problem;
    fs::create_directories(folder_, problem);
    if (options_.double_checkpoint && fs::exists(latest_, problem)) fs::rename(latest_, previous_);
    io::write_tensor_file(latest_.string(), file);
  }
  fs::path folder_;
  fs::path latest_;
  fs::path previous_;
  BackupAndRestoreOptions options_;
  BatchCounter counter_;
};

}  // namespace

AnyCallback BackupAndRestore(const std::string& backup_dir,
                             const BackupAndRestoreOptions& options) {
  return AnyCallback(std::make_shared<Backup>(backup_dir, options));
}

}  // namespace tutti::keras::callbacks
