#include "tutti/train/checkpoint.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <future>

#include "tensor/worker_peers.h"
#include "train/checkpoint_folder.h"
#include "train/checkpoint_parts.h"
#include "train/state_file.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::train {

namespace fs = std::filesystem;

namespace {
constexpr int64_t kLargestCounter = int64_t{1} << 53;  // so that it can be counted on
constexpr const char* kWrite = "write checkpoint";
constexpr const char* kRestore = "restore checkpoint";

const SharedTrackable* shared(const AnyTrackable& object) {
  return dynamic_cast<const SharedTrackable*>(&*object);
}

/// All say the same, or InvalidArgument on all with both.
void agree(const WorkerPeers& peers, const char* operation, const std::string& mine) {
  const std::vector<std::string> texts = peers.exchange(operation, mine);
  for (std::size_t worker = 1; worker < texts.size(); ++worker) {
    if (texts[worker] == texts[0]) continue;
    throw InvalidArgument(cat(operation, " [worker ", peers.worker(), " of ", peers.num_workers(),
                              "]: worker 0 has ", texts[0], ", worker ", worker, " has ",
                              texts[worker], ", expected the same on every worker"));
  }
}

bool has_key(const Nest& state, const char* key) {
  return state.kind() == NestKind::kMap &&
         std::find(state.keys().begin(), state.keys().end(), key) != state.keys().end();
}

/// What this worker takes of what was saved of an object.
Nest own_part(const AnyTrackable& object, const Nest& state, const WorkerPeers* peers) {
  const SharedTrackable* known = shared(object);
  if (known == nullptr || !known->differs_between_workers() || !has_key(state, kOfWorkers))
    return state;
  const Nest& all = state[kOfWorkers];
  const bool as_many = peers != nullptr && all.kind() == NestKind::kList &&
                       all.size() == static_cast<std::size_t>(peers->num_workers());
  return as_many ? all.items()[static_cast<std::size_t>(peers->worker())] : state;
}

template <class Body>
void guarded(const WorkerPeers* peers, Body&& body) {
  if (peers == nullptr) return body();
  peers->guarded(body);
}
template <class Body>
void together(const WorkerPeers* peers, const char* operation, Body&& body) {
  if (peers == nullptr) return body();
  peers->together(operation, body);
}
}  // namespace

struct LoadStatus::Record {
  std::string path;
  std::vector<std::string> not_in_file;     // objects
  std::vector<std::string> without_object;  // entries of the file
  std::vector<std::pair<std::string, AnyTrackable>> given;
  bool asked = false;

  std::vector<std::string> waiting() const {
    std::vector<std::string> names;
    for (const auto& [name, object] : given) {
      if (!object->state_taken()) names.push_back(name);
    }
    return names;
  }
};

LoadStatus::LoadStatus(std::shared_ptr<Record> record) : record_(std::move(record)) {}

LoadStatus::~LoadStatus() {
  if (record_ == nullptr || record_->asked || record_->without_object.empty()) return;
  log_warning("restore [", record_->path, "]: nothing here took ",
              join(record_->without_object, ", "), "; expect_partial() says that this is meant");
}

LoadStatus& LoadStatus::assert_existing_objects_matched() {
  record_->asked = true;
  if (!record_->not_in_file.empty())
    throw InvalidArgument(cat("restore [", record_->path, "]: nothing in the file for ",
                              join(record_->not_in_file, ", "),
                              ", expected a state for each object"));
  return *this;
}

LoadStatus& LoadStatus::assert_consumed() {
  assert_existing_objects_matched();
  if (!record_->without_object.empty())
    throw InvalidArgument(cat("restore [", record_->path, "]: nothing here took ",
                              join(record_->without_object, ", "),
                              ", expected an object for each entry of the file"));
  const std::vector<std::string> waiting = record_->waiting();
  if (!waiting.empty())
    throw InvalidArgument(cat("restore [", record_->path, "]: ", join(waiting, ", "),
                              " not built yet, expected built objects; the state waits for them"));
  return *this;
}

LoadStatus& LoadStatus::expect_partial() {
  record_->asked = true;
  return *this;
}

/// The write under way, if there is one.
class Checkpoint::Background {
 public:
  Background() = default;
  ~Background() {
    try {
      wait();
    } catch (const std::exception& error) {
      log_warning(error.what());
    }
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  void wait() {
    asked_ = false;
    if (running_.valid()) running_.get();
  }
  /// Since the last wait one was begun, if not here, on another worker.
  bool asked() const { return asked_; }
  void note() { asked_ = true; }
  template <class Work>
  void start(Work work) {
    running_ = std::async(std::launch::async, std::move(work));
  }

 private:
  std::future<void> running_;
  bool asked_ = false;
};

/// The folders that save() writes in. Used by one thread at a time: a write waits for the last.
class Checkpoint::Locks {
 public:
  FolderLock& of(const std::string& folder, io::FileSystem& files) {
    auto& lock = locks_[folder];
    if (lock == nullptr) lock = std::make_unique<FolderLock>(kWrite, folder, files);
    return *lock;
  }

 private:
  std::map<std::string, std::unique_ptr<FolderLock>> locks_;
};

namespace {
void check_name(const std::string& name) {
  if (name.empty() || name == "save_counter" || name.find('/') != std::string::npos)
    throw InvalidArgument(cat("Checkpoint: an object of the name \"", name,
                              "\", expected one without slash that is not save_counter"));
}
}  // namespace

Checkpoint::Checkpoint(Objects objects, std::shared_ptr<io::FileSystem> files)
    : objects_(std::move(objects)),
      files_(std::move(files)),
      locks_(std::make_shared<Locks>()),
      background_(std::make_shared<Background>()) {
  if (files_ == nullptr)
    files_ = std::shared_ptr<io::FileSystem>(std::shared_ptr<void>(), &io::posix_files());
  for (const auto& [name, object] : objects_) check_name(name);
}

void Checkpoint::add_hidden(const std::string& name, AnyTrackable object) {
  check_name(name);
  objects_.insert_or_assign(name, std::move(object));
  hidden_.insert(name);
}

std::shared_ptr<WorkerPeers> Checkpoint::peers() const {
  std::shared_ptr<WorkerPeers> found;
  for (const auto& [name, object] : objects_) {
    const SharedTrackable* known = shared(object);
    const auto theirs = known == nullptr ? nullptr : known->peers();
    if (theirs == nullptr) continue;
    if (found != nullptr && found->identity() != theirs->identity())
      throw FailedPrecondition(cat("Checkpoint [", name,
                                   "]: an object of other workers than those before it, expected "
                                   "objects of one strategy; make a Checkpoint for each strategy"));
    found = theirs;
  }
  return found;
}

std::string Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, object] : objects_) names.push_back(name);
  return join(names, ", ");
}

void Checkpoint::wait(const WorkerPeers* peers) const {
  if (peers == nullptr || !background_->asked()) return background_->wait();
  peers->together("sync checkpoint", [&] { background_->wait(); });
}

void Checkpoint::sync() { wait(peers().get()); }

std::string Checkpoint::write(const std::string& path, const CheckpointOptions& options) const {
  return write_with(path, options, {});
}

Nest Checkpoint::states(const WorkerPeers* peers) const {
  std::map<std::string, Nest> states;
  for (const auto& [name, object] : objects_) {
    const SharedTrackable* known = shared(object);
    Nest state = object->state();
    if (peers != nullptr && known != nullptr && known->differs_between_workers()) {
      std::vector<Nest> all;
      for (const std::string& bytes : peers->exchange(cat("save ", name), state_bytes(state)))
        all.push_back(state_in(cat("save ", name), bytes));
      state = Nest::map({{kOfWorkers, Nest::list(std::move(all))}});
    }
    states.emplace(name, std::move(state));
  }
  return Nest::map(std::move(states));
}

std::string Checkpoint::write_with(const std::string& path, const CheckpointOptions& options,
                                   Around around) const {
  const auto peers = this->peers();
  wait(peers.get());
  const std::string bare = without_suffix(path);
  bool writes = true;
  if (peers != nullptr) {
    agree(*peers, kWrite,
          cat("the objects ", names(), ", save counter ", save_counter_,
              options.enable_async ? ", enable_async" : ""));
    writes = writes_to(peers.get(), kWrite, file_of(bare));
  }
  Nest state;
  guarded(peers.get(), [&] { state = states(peers.get()); });
  if (options.enable_async && writes) {  // an object of the user's may have given its own tensors
    state = state.map_leaves(
        [](const Tensor& leaf) { return leaf.defined() ? leaf.detach().clone() : leaf; });
  }
  auto work = [bare, files = files_, state = writes ? std::move(state) : Nest(), writes,
               counter = std::to_string(save_counter_), around = std::move(around)] {
    if (!writes) return;
    io::make_folders(fs::path(bare).parent_path().string(), *files);
    if (around.before) around.before(bare);
    write_state(file_of(bare), state, counter, *files);
    if (around.after) around.after(bare);
  };
  if (options.enable_async) {
    background_->note();
    if (writes) background_->start(std::move(work));
  } else {
    together(peers.get(), kWrite, work);
  }
  return bare;
}

std::string Checkpoint::save(const std::string& prefix, const CheckpointOptions& options) {
  sync();
  ++save_counter_;
  const auto before = [files = files_, locks = locks_](const std::string& path) {
    const std::string folder = folder_of(path);
    FolderLock& lock = locks->of(folder, *files);
    lock.hold();
    remove_abandoned(lock, folder, *files);
    lock.announce({relative_to(folder, path)});
  };
  const auto after = [files = files_](const std::string& path) {
    const std::string folder = folder_of(path);
    FolderState state = read_folder_state(folder);
    state.add(path);
    write_folder_state(folder, state, *files);
  };
  try {
    return write_with(cat(prefix, "-", save_counter_), options, {before, after});
  } catch (...) {
    --save_counter_;
    throw;
  }
}

// ---- restoring

std::shared_ptr<const StateFile> Checkpoint::try_read(const WorkerPeers* peers,
                                                      const std::string& path,
                                                      std::string& why) const {
  std::shared_ptr<const StateFile> file;
  try {
    const WorkerPeers::Moving moving(peers);
    file = std::make_shared<const StateFile>(checked_file(path));
  } catch (const Error& error) {
    why = error.what();
    if (peers == nullptr) return nullptr;
  }
  if (peers == nullptr) return file;
  const std::vector<std::string> texts =
      peers->exchange(kRestore, file == nullptr ? cat("!", why) : std::to_string(file->digest));
  why.clear();
  for (std::size_t worker = 0; worker < texts.size(); ++worker) {
    if (texts[worker][0] != '!') continue;
    why = cat("worker ", worker, " failed: ", texts[worker].substr(1));
    return nullptr;
  }
  for (std::size_t worker = 1; worker < texts.size(); ++worker) {
    if (texts[worker] == texts[0]) continue;
    throw InvalidArgument(cat("restore [", path, "]: the file of worker ", worker,
                              " is another one than the chief's, expected one file for all; let "
                              "every worker read the path that the chief writes"));
  }
  return file;
}

LoadStatus Checkpoint::give(const WorkerPeers* peers, const std::string& path,
                            const StateFile& file) {
  auto record = std::make_shared<LoadStatus::Record>();
  record->path = path;
  std::vector<std::pair<AnyTrackable, Nest>> parts;
  together(peers, kRestore, [&] {
    for (const auto& [name, object] : objects_) {
      if (!has_key(file.state, name.c_str())) {
        if (hidden_.count(name) == 0) record->not_in_file.push_back(name);
        continue;
      }
      try {
        parts.emplace_back(object, own_part(object, file.state[name], peers));
        object->check_state(parts.back().second);
      } catch (const Error& error) {
        throw InvalidArgument(
            cat("restore [", path, "]: ", name, ": ", error.what(), "; nothing was changed"));
      }
      record->given.emplace_back(name, object);
    }
  });
  for (const std::string& name : file.state.keys()) {
    if (objects_.count(name) == 0) record->without_object.push_back(name);
  }
  guarded(peers, [&] {
    for (const auto& [object, state] : parts) object->set_state(state);
  });
  save_counter_ = number_in(file.about);
  return LoadStatus(std::move(record));
}

StateFile checked_file(const std::string& path) {
  StateFile file = read_state(file_of(without_suffix(path)));
  if (file.state.kind() != NestKind::kMap)
    throw DataLoss(cat("restore [", path, "]: no map of objects; the file is damaged"));
  const int64_t counter = number_in(file.about);
  if (counter < 0 || counter > kLargestCounter)
    throw DataLoss(cat("restore [", path, "]: the save counter ", counter,
                       ", expected the number of a save; the file is damaged"));
  return file;
}

LoadStatus Checkpoint::read(const std::string& path) {
  const auto peers = this->peers();
  wait(peers.get());
  if (peers == nullptr) return give(nullptr, path, checked_file(path));
  agree(*peers, kRestore, cat("the objects ", names(), ", a checkpoint"));
  std::string why;
  std::shared_ptr<const StateFile> file = try_read(peers.get(), path, why);
  if (file == nullptr) {
    checked_file(path);  // who failed says so itself
    throw Aborted(cat("restore [", path, "]: ", why));
  }
  return give(peers.get(), path, *file);
}

LoadStatus Checkpoint::restore(const std::string& path) {
  if (path.empty()) {
    if (const auto peers = this->peers())
      agree(*peers, kRestore, cat("the objects ", names(), ", no checkpoint"));
    auto record = std::make_shared<LoadStatus::Record>();
    record->asked = true;
    return LoadStatus(std::move(record));
  }
  return read(path);
}

}  // namespace tutti::train
