#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "io/file.h"
#include "train/checkpoint_folder.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/train/checkpoint.h"

namespace tutti::train {
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

CheckpointManager::CheckpointManager(Checkpoint& checkpoint, const std::string& directory,
                                     const CheckpointManagerOptions& options)
    : checkpoint_(checkpoint),
      directory_(plain_folder(directory)),
      options_(options),
      last_preserved_(seconds_now()) {
  if (options_.max_to_keep && *options_.max_to_keep < 1)
    throw InvalidArgument(cat("CheckpointManager [", directory, "]: max_to_keep ",
                              *options_.max_to_keep, ", expected at least 1, or none for all"));
  if (options_.checkpoint_interval && !options_.step_counter)
    throw InvalidArgument(cat("CheckpointManager [", directory,
                              "]: a checkpoint_interval without step_counter, expected both"));
  const FolderState state = read_folder_state(directory_);
  if (state.last_preserved > 0) last_preserved_ = state.last_preserved;
  for (std::size_t i = 0; i < state.all.size(); ++i) {
    const std::string path = inside(directory_, state.all[i]);
    if (is_there(path)) kept_.push_back({path, state.times[i]});
  }
}

std::string CheckpointManager::latest_checkpoint() const {
  return kept_.empty() ? "" : kept_.back().path;
}

std::vector<std::string> CheckpointManager::checkpoints() const {
  std::vector<std::string> paths;
  for (const Kept& kept : kept_) paths.push_back(kept.path);
  return paths;
}

std::optional<std::string> CheckpointManager::save(std::optional<int64_t> checkpoint_number,
                                                   bool check_interval) {
  const std::optional<int64_t> step =
      options_.step_counter ? std::optional(options_.step_counter()) : std::nullopt;
  if (check_interval && options_.checkpoint_interval && last_step_ &&
      *step < *last_step_ + *options_.checkpoint_interval)
    return std::nullopt;
  const int64_t number = checkpoint_number.value_or(checkpoint_.save_counter_ + 1);
  ++checkpoint_.save_counter_;
  std::string path;
  try {
    path = checkpoint_.write(inside(directory_, cat(options_.checkpoint_name, "-", number)));
  } catch (...) {
    --checkpoint_.save_counter_;
    throw;
  }
  last_step_ = step;
  std::erase_if(kept_, [&](const Kept& kept) { return kept.path == path; });
  kept_.push_back({path, seconds_now()});
  drop_old();
  return path;
}

/// Files go only after the folder's file no longer names them: a crash in between leaves a file too
/// many, never a name without its file.
void CheckpointManager::drop_old() {
  std::vector<Kept> gone;
  while (options_.max_to_keep && kept_.size() > static_cast<std::size_t>(*options_.max_to_keep)) {
    const Kept oldest = kept_.front();
    kept_.erase(kept_.begin());
    const bool preserve =
        options_.keep_checkpoint_every_n_hours &&
        oldest.time - last_preserved_ >= *options_.keep_checkpoint_every_n_hours * kHour;
    if (preserve) {
      last_preserved_ = oldest.time;
      preserved_.push_back(oldest);
    } else {
      gone.push_back(oldest);
    }
  }
  FolderState state;
  for (const Kept& kept : kept_) {
    state.all.push_back(relative_to(directory_, kept.path));
    state.times.push_back(kept.time);
  }
  state.latest = state.all.back();
  state.last_preserved = last_preserved_;
  write_folder_state(directory_, state);
  // The folder's file may be another's work: what it names elsewhere is not ours to remove.
  for (const Kept& old : gone) {
    if (lies_inside(directory_, old.path)) std::remove(file_of(old.path).c_str());
  }
}

std::optional<std::string> CheckpointManager::restore_or_initialize() {
  const std::string latest = latest_checkpoint();
  if (!latest.empty()) {
    checkpoint_.restore(latest).assert_existing_objects_matched();
    if (options_.step_counter) last_step_ = options_.step_counter();
    return latest;
  }
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
