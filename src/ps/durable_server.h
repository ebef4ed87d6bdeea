#pragma once
// A parameter server that comes back as it was: commits, and a log of what came after the last one.

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "ps/asking_server.h"
#include "ps/local_server.h"
#include "tutti/io/tf_record.h"

namespace tutti::ps {

/// A LocalServer whose changes are in a folder before their callers hear of them: one that is made
/// of the folder after this process died has made exactly those that were answered, and perhaps
/// some that were not, which their callers repeat under their tags. The folder has
///
///   state-N.tutti   the N-th commit
///   log-N           the changes since, one record each, in the order in which they were made
///
/// A log's end that a death cut off is left out. What is written is with the operating system: it
/// outlives the process, not the machine.
class DurableServer final : public AskingServer {
 public:
  /// Takes up what is in the folder, which is made when it is not there, and commits. DataLoss when
  /// a commit or a record in the middle of a log is damaged. One server at a time has a folder:
  /// FailedPrecondition when another process has it.
  explicit DurableServer(const std::string& folder);
  ~DurableServer() override;

  /// Writes the next commit, begins its log, and deletes what it replaces. Other calls wait, reads
  /// too. Where the folder cannot be written, that is the error, and every call after it, of
  /// whatever kind, is DataLoss: a new server is made of the folder.
  void commit();
  /// Changes since the last commit.
  int64_t logged();

 private:
  Nest ask(const std::string& method, const Nest& request) override;
  void take_up() TUTTI_REQUIRES(mutex_);
  void replay(const std::string& path) TUTTI_REQUIRES(mutex_);
  /// Throws DataLoss once something could not be written.
  void check_whole() const TUTTI_REQUIRES(mutex_);
  void commit_locked() TUTTI_REQUIRES(mutex_);
  void write_commit() TUTTI_REQUIRES(mutex_);
  std::string path(const char* kind, int64_t number) const;

  const std::string folder_;
  LocalServer local_;
  const std::map<std::string, remote::Method> methods_;
  int lock_file_ = -1;
  Mutex mutex_;  // a change and its record are one, to those who read too
  int64_t number_ TUTTI_GUARDED_BY(mutex_) = 0;
  int64_t logged_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::optional<io::TFRecordWriter> log_ TUTTI_GUARDED_BY(mutex_);
  bool broken_ TUTTI_GUARDED_BY(mutex_) = false;
};

}  // namespace tutti::ps
