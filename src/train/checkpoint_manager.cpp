#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/mutex.h"
#include "io/file.h"
#include "tensor/worker_peers.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_parts.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/train/checkpoint.h"

namespace tutti::train {

namespace fs = std::filesystem;

namespace {

constexpr double kHour = 3600;
constexpr auto kPollEvery = std::chrono::milliseconds(100);

bool is_there(const std::string& path) { return io::file_exists(file_of(path)); }

std::string plain_folder(const std::string& directory) {
  std::string folder = directory.empty() ? "." : directory;
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  return folder;
}

}  // namespace

std::string latest_checkpoint(const std::string& directory) {
  const std::string folder = plain_folder(directory);
  const FolderState state = read_folder_state(folder);
  if (state.latest.empty()) return "";
  const std::string path = inside(folder, state.latest);
  return is_there(path) ? path : "";
}

namespace {

struct Kept {
  std::string path;
  double time;  ///< seconds since the epoch, when it was saved
};

/// What a folder has, and had, at a time.
struct List {
  std::vector<Kept> kept;
  double last_preserved = 0;
};

}  // namespace

struct CheckpointManager::Folder {
  Folder(const std::string& directory, io::FileSystem& files)
      : lock("CheckpointManager", directory, files) {}
  FolderLock lock;  ///< of whoever writes: one at a time
  mutable Mutex mutex;
  List list TUTTI_GUARDED_BY(mutex);

  List now() const {
    MutexLock held(mutex);
    return list;
  }
  void become(List next) {
    MutexLock held(mutex);
    list = std::move(next);
  }
};

/// The list behind a save, and what is removed for it.
struct CheckpointManager::Plan {
  List list;
  std::vector<std::string> gone;
};

CheckpointManager::CheckpointManager(Checkpoint& checkpoint, const std::string& directory,
                                     const CheckpointManagerOptions& options)
    : checkpoint_(checkpoint),
      directory_(plain_folder(directory)),
      options_(options),
      folder_(std::make_shared<Folder>(directory_, *checkpoint.files_)) {
  if (options_.max_to_keep && *options_.max_to_keep < 1)
    throw InvalidArgument(cat("CheckpointManager [", directory, "]: max_to_keep ",
                              *options_.max_to_keep, ", expected at least 1, or none for all"));
  if (options_.checkpoint_interval && !options_.step_counter)
    throw InvalidArgument(cat("CheckpointManager [", directory,
                              "]: a checkpoint_interval without step_counter, expected both"));
  FolderState state;
  try {
    state = read_folder_state(directory_);
  } catch (const DataLoss& error) {
    state = find_checkpoints(directory_, options_.checkpoint_name);
    log_warning(error.what(), "; the checkpoints that are there are taken by their numbers");
  }
  List list{{}, state.last_preserved > 0 ? state.last_preserved : seconds_now()};
  for (std::size_t i = 0; i < state.all.size(); ++i) {
    const std::string path = inside(directory_, state.all[i]);
    if (is_there(path)) list.kept.push_back({path, state.times[i]});
  }
  folder_->become(std::move(list));
}

std::string CheckpointManager::latest_checkpoint() const {
  const std::vector<std::string> paths = checkpoints();
  return paths.empty() ? "" : paths.back();
}

std::vector<std::string> CheckpointManager::checkpoints() const {
  std::vector<std::string> paths;
  for (const Kept& kept : folder_->now().kept) paths.push_back(kept.path);
  return paths;
}

CheckpointManager::Plan CheckpointManager::plan_for(const std::string& path, double now) const {
  Plan plan{folder_->now(), {}};
  std::vector<Kept>& kept = plan.list.kept;
  std::erase_if(kept, [&](const Kept& old) { return old.path == path; });
  kept.push_back({path, now});
  while (options_.max_to_keep && kept.size() > static_cast<std::size_t>(*options_.max_to_keep)) {
    const Kept oldest = kept.front();
    kept.erase(kept.begin());
    const bool preserve =
        options_.keep_checkpoint_every_n_hours &&
        oldest.time - plan.list.last_preserved >= *options_.keep_checkpoint_every_n_hours * kHour;
    if (preserve) {
      plan.list.last_preserved = oldest.time;
    } else if (lies_inside(directory_, oldest.path)) {
      // The folder's file may be another's work: what it names elsewhere is not ours to remove.
      plan.gone.push_back(oldest.path);
    }
  }
  return plan;
}

namespace {

FolderState state_of(const std::string& directory, const List& list) {
  FolderState state;
  for (const Kept& kept : list.kept) {
    state.all.push_back(relative_to(directory, kept.path));
    state.times.push_back(kept.time);
  }
  state.latest = state.all.back();
  state.last_preserved = list.last_preserved;
  return state;
}

/// What the chief says of a save: whether it is due, its number, and the time.
struct Decision {
  bool due;
  int64_t number;
  double now;
};

Decision of_chief(const WorkerPeers* peers, const Decision& mine) {
  if (peers == nullptr) return mine;
  constexpr double kPerSecond = 1e6;
  const std::string text =
      cat(mine.due ? 1 : 0, " ", mine.number, " ", static_cast<int64_t>(mine.now * kPerSecond));
  std::istringstream said(peers->of_chief("CheckpointManager::save", text));
  Decision decision = mine;
  int64_t now = 0;
  said >> decision.due >> decision.number >> now;
  decision.now = static_cast<double>(now) / kPerSecond;
  return decision;
}

}  // namespace

// Files go only after the folder's file no longer names them: a crash in between leaves a file too
// many, never a name without its file; and the lock's file names it for whoever comes next.
std::optional<std::string> CheckpointManager::save(std::optional<int64_t> checkpoint_number,
                                                   bool check_interval,
                                                   const CheckpointOptions& options) {
  const auto peers = checkpoint_.peers();
  checkpoint_.wait(peers.get());
  const std::optional<int64_t> step =
      options_.step_counter ? std::optional(options_.step_counter()) : std::nullopt;
  const bool due = !check_interval || !options_.checkpoint_interval || !last_step_ ||
                   *step >= *last_step_ + *options_.checkpoint_interval;
  const Decision decision = of_chief(
      peers.get(), {due, checkpoint_number.value_or(checkpoint_.save_counter_ + 1), seconds_now()});
  if (!decision.due) return std::nullopt;
  const std::string name = cat(options_.checkpoint_name, "-", decision.number);
  const Plan plan = plan_for(inside(directory_, name), decision.now);
  const auto files = checkpoint_.files_;
  const auto before = [=, folder = folder_, directory = directory_](const std::string& path) {
    folder->lock.hold();
    remove_abandoned(folder->lock, directory, *files);
    std::vector<std::string> names{relative_to(directory, path)};
    for (const std::string& old : plan.gone) names.push_back(relative_to(directory, old));
    folder->lock.announce(names);
  };
  const auto after = [=, folder = folder_, directory = directory_](const std::string& path) {
    write_folder_state(directory, state_of(directory, plan.list), *files);
    folder->become(plan.list);
    for (const std::string& old : plan.gone) files->remove(file_of(old));
  };
  ++checkpoint_.save_counter_;
  std::string path;
  try {
    path = checkpoint_.write_with(inside(directory_, name), options, {before, after});
  } catch (...) {
    --checkpoint_.save_counter_;
    throw;
  }
  if (peers != nullptr && !peers->is_chief()) folder_->become(plan.list);
  last_step_ = step;
  return path;
}

std::optional<std::string> CheckpointManager::restore_or_initialize() {
  constexpr const char* kOperation = "restore_or_initialize";
  const auto peers = checkpoint_.peers();
  checkpoint_.wait(peers.get());
  std::vector<std::string> candidates = checkpoints();
  if (peers != nullptr) {  // a name may have anything in it but a byte 0
    std::string text;
    for (const std::string& path : candidates) text += plain_path(path) + '\0';
    candidates.clear();
    std::istringstream said(peers->of_chief(kOperation, text));
    for (std::string path; std::getline(said, path, '\0');) {
      const bool same = plain_path(inside(directory_, fs::path(path).filename().string())) == path;
      candidates.push_back(same ? inside(directory_, fs::path(path).filename().string()) : path);
    }
  }
  std::vector<std::string> reasons;
  for (auto path = candidates.rbegin(); path != candidates.rend(); ++path) {
    std::string why;
    const auto file = checkpoint_.try_read(peers.get(), *path, why);
    if (file == nullptr) {
      reasons.push_back(cat(*path, ": ", why));
      continue;
    }
    checkpoint_.give(peers.get(), *path, *file).assert_existing_objects_matched();
    if (options_.step_counter) last_step_ = options_.step_counter();
    for (const std::string& reason : reasons)
      log_warning(kOperation, " [", directory_, "]: passed over ", reason, "; ", *path,
                  " is taken");
    return *path;
  }
  if (!reasons.empty())
    throw DataLoss(cat(kOperation, " [", directory_, "]: none of ", reasons.size(),
                       " checkpoints can be read: ", join(reasons, "; "),
                       "; restore them from a copy, or delete the folder to begin anew"));
  if (options_.init_fn) options_.init_fn();
  return std::nullopt;
}

CheckpointsIterator::CheckpointsIterator(const std::string& directory,
                                         const CheckpointsIteratorOptions& options)
    : directory_(plain_folder(directory)), options_(options) {}

std::optional<std::string> CheckpointsIterator::next() {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](double amount) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(amount));
  };
  const double wait = last_time_ + options_.min_interval_secs - seconds_now();
  if (!last_.empty() && wait > 0) std::this_thread::sleep_for(seconds(wait));
  auto start = Clock::now();
  for (;;) {
    const std::string latest = train::latest_checkpoint(directory_);
    if (!latest.empty() && latest != last_) {
      last_ = latest;
      last_time_ = seconds_now();
      return latest;
    }
    if (options_.timeout && Clock::now() - start >= seconds(*options_.timeout)) {
      if (!options_.timeout_fn || options_.timeout_fn()) return std::nullopt;
      start = Clock::now();
    }
    std::this_thread::sleep_for(kPollEvery);
  }
}

}  // namespace tutti::train
