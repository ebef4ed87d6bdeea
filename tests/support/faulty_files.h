#pragma once
// File systems that fail, end the process, or lose what was not flushed, at a chosen system call.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/file_system.h"

namespace tutti::testing {

/// Whether the sweeps are to be whole: ./dev test --full says so.
inline bool whole_doses() {
  const char* dose = std::getenv("TUTTI_TEST_DOSE");
  return dose != nullptr && std::string(dose) == "full";
}

/// Runs `body` in a fork; the status that waitpid gives. What it throws is exit code 3.
inline int in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}
inline bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

/// Asks `decide(call, number)` in front of each call; numbers count from 1. 0 lets it through, an
/// errno is what it gives instead of being made. Nothing is flushed, which takes the disk's time
/// and which only a power failure would show.
class FaultyFiles : public io::FileSystem {
 public:
  using Decide = std::function<int(const std::string& call, int number)>;
  explicit FaultyFiles(Decide decide) : decide_(std::move(decide)) {}
  const std::vector<std::string>& calls() const { return calls_; }

  int create(const std::string& path, int& file) override {
    if (const int code = ask("create")) return code;
    return FileSystem::create(path, file);
  }
  /// A call that ends the process ends it half way.
  int write(int file, const void* data, std::size_t size) override {
    half_way_ = [=, this] { FileSystem::write(file, data, size / 2); };
    const int code = ask("write");
    half_way_ = nullptr;
    return code != 0 ? code : FileSystem::write(file, data, size);
  }
  int sync(int file) override { return ask("sync"); }
  int close(int file) override {
    if (const int code = ask("close")) return code;
    return FileSystem::close(file);
  }
  int rename(const std::string& from, const std::string& to) override {
    if (const int code = ask("rename")) return code;
    return FileSystem::rename(from, to);
  }
  int remove(const std::string& path) override {
    if (const int code = ask("remove")) return code;
    return FileSystem::remove(path);
  }
  int make_folder(const std::string& path) override {
    if (const int code = ask("make_folder")) return code;
    return FileSystem::make_folder(path);
  }
  int sync_folder(const std::string& path) override { return ask("sync_folder"); }
  int lock(const std::string& path, int& file) override {
    if (const int code = ask("lock")) return code;
    return FileSystem::lock(path, file);
  }
  int truncate(int file) override {
    if (const int code = ask("truncate")) return code;
    return FileSystem::truncate(file);
  }
  int remove_leftover(const std::string& path) override {
    if (const int code = ask("remove_leftover")) return code;
    return FileSystem::remove_leftover(path);
  }

 protected:
  /// For decisions that end the process in a write.
  void stop_half_way() const {
    if (half_way_) half_way_();
  }

 private:
  int ask(const std::string& call) {
    calls_.push_back(call);
    return decide_ ? decide_(call, static_cast<int>(calls_.size())) : 0;
  }
  Decide decide_;
  std::vector<std::string> calls_;
  std::function<void()> half_way_;
};

/// The process is killed at call `at`, a write half way.
class KillingFiles : public FaultyFiles {
 public:
  explicit KillingFiles(int at)
      : FaultyFiles([this, at](const std::string&, int number) {
          if (number == at) {
            stop_half_way();
            ::kill(::getpid(), SIGKILL);
          }
          return 0;
        }) {}
};

/// Keeps account of what a power failure would leave of a folder: files by what was flushed of
/// them, names by what was flushed of their folders. lose_power() makes the folder so.
class UnsyncedFiles : public io::FileSystem {
 public:
  /// What the disk has besides what was flushed: nothing, the names (whose files are as they were
  /// flushed, cut in the middle of what was not), or all.
  enum class Kept { kNothing, kNames, kAll };
  /// The power goes, and the process with it, at call `at`; 0: never.
  UnsyncedFiles(std::string root, int at, Kept kept)
      : root_(std::move(root)), at_(at), kept_(kept) {
    namespace fs = std::filesystem;
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      const std::string path = entry.path().string();
      if (entry.is_directory()) {
        durable_folders_.insert(path);
        continue;
      }
      std::ifstream file(path, std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file),
                              std::istreambuf_iterator<char>()};
      names_[path] = durable_[path] = new_file(bytes, bytes);
    }
    folders_ = durable_folders_;
  }
  int num_calls() const { return calls_; }

  int create(const std::string& path, int& file) override {
    step();
    const int code = FileSystem::create(path, file);
    if (code == 0) open_[file] = names_[path] = new_file("", "");
    return code;
  }
  int write(int file, const void* data, std::size_t size) override {
    step();
    contents_[open_.at(file)].append(static_cast<const char*>(data), size);
    return FileSystem::write(file, data, size);
  }
  int sync(int file) override {
    step();
    synced_[open_.at(file)] = contents_[open_.at(file)];
    return 0;
  }
  int close(int file) override {
    step();
    return FileSystem::close(file);
  }
  int rename(const std::string& from, const std::string& to) override {
    step();
    const int code = FileSystem::rename(from, to);
    if (code == 0) {
      names_[to] = names_.at(from);
      names_.erase(from);
    }
    return code;
  }
  int remove(const std::string& path) override {
    step();
    const int code = FileSystem::remove(path);
    if (code == 0) names_.erase(path);
    return code;
  }
  int make_folder(const std::string& path) override {
    step();
    folders_.insert(path);
    return FileSystem::make_folder(path);
  }
  int sync_folder(const std::string& path) override {
    step();
    const auto is_in = [&](const std::string& name) {
      return std::filesystem::path(name).parent_path().string() == path;
    };
    std::erase_if(durable_, [&](const auto& entry) { return is_in(entry.first); });
    for (const auto& entry : names_) {
      if (is_in(entry.first)) durable_.insert(entry);
    }
    for (const std::string& folder : folders_) {
      if (is_in(folder)) durable_folders_.insert(folder);
    }
    return 0;
  }
  int lock(const std::string& path, int& file) override {
    step();
    const int code = FileSystem::lock(path, file);
    if (code != 0) return code;
    if (names_.count(path) == 0) names_[path] = new_file("", "");
    open_[file] = names_.at(path);
    return 0;
  }
  int truncate(int file) override {
    step();
    contents_[open_.at(file)].clear();
    return FileSystem::truncate(file);
  }
  int remove_leftover(const std::string& path) override {
    step();
    const int code = FileSystem::remove_leftover(path);
    if (code == 0) names_.erase(path);
    return code;
  }

  void lose_power() const {
    namespace fs = std::filesystem;
    for (const auto& entry : fs::directory_iterator(root_)) fs::remove_all(entry.path());
    const bool nothing = kept_ == Kept::kNothing;
    for (const std::string& folder : nothing ? durable_folders_ : folders_)
      fs::create_directories(folder);
    for (const auto& [path, file] : nothing ? durable_ : names_) {
      if (!fs::is_directory(fs::path(path).parent_path())) continue;
      const std::string& synced = synced_.at(file);
      const std::string& written = contents_.at(file);
      std::string bytes = kept_ == Kept::kAll ? written : synced;
      if (kept_ == Kept::kNames && written != synced) bytes = written.substr(0, written.size() / 2);
      std::ofstream(path, std::ios::binary) << bytes;
    }
  }

 private:
  int new_file(const std::string& synced, const std::string& content) {
    synced_[++last_] = synced;
    contents_[last_] = content;
    return last_;
  }
  void step() {
    if (++calls_ != at_) return;
    lose_power();
    ::kill(::getpid(), SIGKILL);
  }

  std::string root_;
  int at_;
  Kept kept_;
  int calls_ = 0;
  int last_ = 0;
  std::map<int, std::string> synced_, contents_;  // by the file's number
  std::map<std::string, int> names_, durable_;    // now, and after a power failure
  std::map<int, int> open_;                       // by descriptor
  std::set<std::string> folders_, durable_folders_;
};

}  // namespace tutti::testing
