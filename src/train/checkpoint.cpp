#include "tutti/train/checkpoint.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <future>

#include "train/checkpoint_folder.h"
#include "train/state_file.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::train {

namespace fs = std::filesystem;

namespace {
constexpr int64_t kLargestCounter = int64_t{1} << 53;  // so that it can be counted on
}

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
    if (running_.valid()) running_.get();
  }
  template <class Work>
  void start(Work work) {
    running_ = std::async(std::launch::async, std::move(work));
  }

 private:
  std::future<void> running_;
};

namespace {
void check_name(const std::string& name) {
  if (name.empty() || name == "save_counter" || name.find('/') != std::string::npos)
    throw InvalidArgument(cat("Checkpoint: an object of the name \"", name,
                              "\", expected one without slash that is not save_counter"));
}
}  // namespace

Checkpoint::Checkpoint(Objects objects)
    : objects_(std::move(objects)), background_(std::make_shared<Background>()) {
  for (const auto& [name, object] : objects_) check_name(name);
}

void Checkpoint::add_hidden(const std::string& name, AnyTrackable object) {
  check_name(name);
  objects_.insert_or_assign(name, std::move(object));
  hidden_.insert(name);
}

void Checkpoint::sync() { background_->wait(); }

std::string Checkpoint::write(const std::string& path, const CheckpointOptions& options) const {
  return write_then(path, options, [](const std::string&) {});
}

std::string Checkpoint::write_then(const std::string& path, const CheckpointOptions& options,
                                   std::function<void(const std::string& bare)> then) const {
  background_->wait();
  std::map<std::string, Nest> states;
  for (const auto& [name, object] : objects_) states.emplace(name, object->state());
  const std::string bare = without_suffix(path);
  const fs::path folder = fs::path(bare).parent_path();
  std::error_code failed;
  if (!folder.empty()) fs::create_directories(folder, failed);
  if (failed)
    throw NotFound(cat("write checkpoint [", path, "]: ", failed.message(),
                       ", expected a folder that can be made"));
  Nest state = Nest::map(std::move(states));
  if (options.enable_async) {  // an object of the user's may have given its own tensors
    state = state.map_leaves(
        [](const Tensor& leaf) { return leaf.defined() ? leaf.detach().clone() : leaf; });
  }
  auto work = [bare, state = std::move(state), counter = std::to_string(save_counter_),
               then = std::move(then)] {
    write_state(file_of(bare), state, counter);
    then(bare);
  };
  if (options.enable_async) {
    background_->start(std::move(work));
  } else {
    work();
  }
  return bare;
}

std::string Checkpoint::save(const std::string& prefix, const CheckpointOptions& options) {
  sync();
  ++save_counter_;
  try {
    return write_then(cat(prefix, "-", save_counter_), options, [](const std::string& path) {
      const std::string folder = folder_of(path);
      FolderState state = read_folder_state(folder);
      state.add(path);
      write_folder_state(folder, state);
    });
  } catch (...) {
    --save_counter_;
    throw;
  }
}

LoadStatus Checkpoint::read(const std::string& path) {
  sync();
  StateFile file = read_state(file_of(without_suffix(path)));
  if (file.state.kind() != NestKind::kMap)
    throw DataLoss(cat("restore [", path, "]: no map of objects; the file is damaged"));
  const int64_t counter = number_in(file.about);
  if (counter < 0 || counter > kLargestCounter)
    throw DataLoss(cat("restore [", path, "]: the save counter ", counter,
                       ", expected the number of a save; the file is damaged"));
  auto record = std::make_shared<LoadStatus::Record>();
  record->path = path;
  for (const auto& [name, object] : objects_) {
    const auto& keys = file.state.keys();
    const bool found = std::find(keys.begin(), keys.end(), name) != keys.end();
    if (!found) {
      if (hidden_.count(name) == 0) record->not_in_file.push_back(name);
      continue;
    }
    try {
      object->check_state(file.state[name]);
    } catch (const Error& error) {
      throw InvalidArgument(
          cat("restore [", path, "]: ", name, ": ", error.what(), "; nothing was changed"));
    }
    record->given.emplace_back(name, object);
  }
  for (const std::string& name : file.state.keys()) {
    if (objects_.count(name) == 0) record->without_object.push_back(name);
  }
  for (const auto& [name, object] : record->given) object->set_state(file.state[name]);
  save_counter_ = counter;
  return LoadStatus(std::move(record));
}

LoadStatus Checkpoint::restore(const std::string& path) {
  if (path.empty()) {
    auto record = std::make_shared<LoadStatus::Record>();
    record->asked = true;
    return LoadStatus(std::move(record));
  }
  return read(path);
}

}  // namespace tutti::train
