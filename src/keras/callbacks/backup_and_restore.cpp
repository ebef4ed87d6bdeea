#include <filesystem>

#include "distribute/variable_checkpoint.h"
#include "io/file.h"
#include "keras/callbacks/monitor.h"
#include "keras/saving/shared_files.h"
#include "keras/training/train_loop.h"
#include "train/folder_lock.h"
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
    begin(tutti::internal::peers_of(model()->strategy()).get());
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
    lock_.reset();
    if (!options_.delete_checkpoint || !writes_) return;
    std::error_code unused;
    fs::remove(latest_, unused);
    fs::remove(previous_, unused);
    fs::remove(folder_, unused);  // only when nothing else is in it
  }
  bool needs_batch_logs() const override { return false; }

 private:
  static constexpr const char* kOperation = "BackupAndRestore";

  /// The chief says which backups there are, by their paths: everybody reads the same.
  std::vector<std::string> backups(const WorkerPeers* peers) const {
    std::string there;
    std::error_code unused;
    for (const fs::path& path : {latest_, previous_}) {
      if (fs::exists(path, unused))
        there += (peers == nullptr ? path.string() : plain_path(path.string())) + '\0';
    }
    if (peers != nullptr) there = peers->of_chief(kOperation, there);
    std::vector<std::string> paths;
    for (std::size_t begin = 0, end; (end = there.find('\0', begin)) != std::string::npos;
         begin = end + 1)
      paths.push_back(there.substr(begin, end - begin));
    return paths;
  }
  void begin(const WorkerPeers* peers) {
    writes_ = writes_to(peers, kOperation, latest_.string());
    has_backup_ = false;
    std::vector<std::string> reasons;
    for (const std::string& path : backups(peers)) {
      io::TensorFile file;
      std::string why;
      if (!try_read_together(peers, kOperation, path, file, why)) {
        reasons.push_back(why);
        continue;
      }
      for (const std::string& reason : reasons)
        log_warning(reason, "; the backup before it is taken");
      position()->resume_from = std::move(file);
      position()->path = path;
      has_backup_ = true;
      return;
    }
    if (!reasons.empty())
      throw DataLoss(cat(kOperation, " [", folder_.string(), "]: ", join(reasons, "; "),
                         ", expected a backup that can be read; delete the folder to begin anew"));
  }

  void write() {
    const auto peers = tutti::internal::peers_of(model()->strategy());
    const io::TensorFile file = TrainLoop::backup_of(*model(), *position());
    const auto body = [&] {
      if (writes_) write_or_warn(file);
    };
    if (peers == nullptr) {
      body();
    } else {
      peers->together(kOperation, body);
    }
    has_backup_ = true;
  }
  /// With a backup to fall back on, a disk that is full for a while does not end the training.
  void write_or_warn(const io::TensorFile& file) {
    try {
      return write_file(file);
    } catch (const ResourceExhausted& error) {
      if (!has_backup_) throw;
      log_warning(error.what(), "; the training goes on with the backup before it");
    } catch (const Unavailable& error) {
      if (!has_backup_) throw;
      log_warning(error.what(), "; the training goes on with the backup before it");
    }
  }
  void write_file(const io::TensorFile& file) {
    io::make_folders(folder_.string());
    if (lock_ == nullptr)
      lock_ = std::make_unique<train::FolderLock>(kOperation, folder_.string(), io::posix_files());
    lock_->hold();
    std::error_code problem;
    if (options_.double_checkpoint && fs::exists(latest_, problem)) fs::rename(latest_, previous_);
    io::write_tensor_file(latest_.string(), file);
  }

  fs::path folder_;
  fs::path latest_;
  fs::path previous_;
  BackupAndRestoreOptions options_;
  BatchCounter counter_;
  std::unique_ptr<train::FolderLock> lock_;  ///< from the first backup to the end of the training
  bool writes_ = true;
  bool has_backup_ = false;
};

}  // namespace

AnyCallback BackupAndRestore(const std::string& backup_dir,
                             const BackupAndRestoreOptions& options) {
  return AnyCallback(std::make_shared<Backup>(backup_dir, options));
}

}  // namespace tutti::keras::callbacks
