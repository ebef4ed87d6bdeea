#include "train/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "io/file.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/io/tf_record.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

constexpr char kStateFile[] = "checkpoint";
constexpr char kSuffix[] = ".tutti";
constexpr std::size_t kLargestState = 16 << 20;
constexpr char kChecksum[] = "# crc32c: ";  // a comment to TensorFlow

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string unquoted(const std::string& file, const std::string& text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"')
    throw DataLoss(
        cat("read [", file, "]: ", text, ", expected a text in quotes; delete the file"));
  std::string out;
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 2 < text.size();
    if (escape) ++i;
    out += escape && text[i] == 'n' ? '\n' : text[i];
  }
  return out;
}

// By <charconv>, which knows nothing of locales.

double number_of(const std::string& file, const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end || !std::isfinite(number))
    throw DataLoss(cat("read [", file, "]: ", text, ", expected a time; delete the file"));
  return number;
}

std::string number_text(double number) {
  char text[400];
  const auto result =
      std::to_chars(text, text + sizeof(text), number, std::chars_format::fixed, /*precision=*/6);
  return {text, result.ptr};
}

std::string checksum_line(const std::string& text) {
  char line[32];
  std::snprintf(line, sizeof(line), "%s%08x\n", kChecksum, io::crc32c(text));
  return line;
}

/// The text without its checksum, which is right; files of others have none.
std::string checked(const std::string& file, const std::string& text) {
  const std::size_t line = text.rfind(kChecksum);
  if (line == std::string::npos) return text;
  const std::string covered = text.substr(0, line);
  if (text.substr(line) != checksum_line(covered))
    throw DataLoss(cat("read [", file,
                       "]: its checksum is wrong; the file is damaged, restore it from a copy or "
                       "delete it"));
  return covered;
}

}  // namespace

void FolderState::add(const std::string& path) {
  const std::string name = relative_to(folder_of(path), path);
  times.resize(all.size(), seconds_now());
  const auto at = std::find(all.begin(), all.end(), name);
  if (at != all.end()) {
    times.erase(times.begin() + (at - all.begin()));
    all.erase(at);
  }
  all.push_back(name);
  times.push_back(seconds_now());
  latest = name;
}

// The text form of TensorFlow's CheckpointState, so that people and tools read it as they are used
// to.
FolderState read_folder_state(const std::string& folder) {
  const std::string file = inside(folder, kStateFile);
  FolderState state;
  if (!io::file_exists(file)) return state;
  const std::vector<uint8_t> bytes = io::read_file(file, kLargestState);
  std::istringstream lines(checked(file, std::string(bytes.begin(), bytes.end())));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos)
      throw DataLoss(cat("read [", file, "]: the line ", line,
                         ", expected a key and a value; delete the file"));
    const std::string key = line.substr(0, colon);
    const std::string value = line.substr(colon + 2);
    if (key == "model_checkpoint_path") state.latest = unquoted(file, value);
    if (key == "all_model_checkpoint_paths") state.all.push_back(unquoted(file, value));
    if (key == "all_model_checkpoint_timestamps") state.times.push_back(number_of(file, value));
    if (key == "last_preserved_timestamp") state.last_preserved = number_of(file, value);
  }
  state.times.resize(state.all.size(), 0);
  if (state.latest.empty())
    throw DataLoss(cat("read [", file,
                       "]: no checkpoint, expected a model_checkpoint_path; delete "
                       "the file"));
  if (std::find(state.all.begin(), state.all.end(), state.latest) == state.all.end()) {
    state.all.push_back(state.latest);
    state.times.push_back(0);
  }
  return state;
}

void write_folder_state(const std::string& folder, const FolderState& state,
                        io::FileSystem& files) {
  std::string text = cat("model_checkpoint_path: ", quoted(state.latest), "\n");
  for (const std::string& path : state.all)
    text += cat("all_model_checkpoint_paths: ", quoted(path), "\n");
  for (double time : state.times)
    text += cat("all_model_checkpoint_timestamps: ", number_text(time), "\n");
  if (state.last_preserved > 0)
    text += cat("last_preserved_timestamp: ", number_text(state.last_preserved), "\n");
  text += checksum_line(text);
  io::write_file_atomically(inside(folder, kStateFile), {{text.data(), text.size()}}, files);
}

FolderState find_checkpoints(const std::string& folder, const std::string& name) {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string file = at->path().filename().string();
    const std::string bare = without_suffix(file);
    const std::string begin = name + "-";
    if (bare == file || bare.size() <= begin.size() || bare.size() > begin.size() + 18 ||
        bare.rfind(begin, 0) != 0 ||
        bare.find_first_not_of("0123456789", begin.size()) != std::string::npos)
      continue;
    found.emplace_back(number_in(bare.substr(begin.size())), bare);
  }
  std::sort(found.begin(), found.end());
  FolderState state;
  for (const auto& [number, bare] : found) state.all.push_back(bare);
  state.times.resize(state.all.size(), seconds_now());
  if (!state.all.empty()) state.latest = state.all.back();
  return state;
}

void remove_abandoned(FolderLock& lock, const std::string& folder, io::FileSystem& files) {
  const std::vector<std::string> names = lock.take_announced();
  if (names.empty()) return;
  FolderState state;
  try {
    state = read_folder_state(folder);
  } catch (const DataLoss&) {
    return;  // nobody knows what is kept
  }
  for (const std::string& name : names) {
    const std::string file = file_of(inside(folder, name));
    const bool kept = std::find(state.all.begin(), state.all.end(), name) != state.all.end();
    if (kept || !lies_inside(folder, file)) continue;
    files.remove(file);
    io::remove_leftovers(file, files);
  }
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string without_suffix(const std::string& path) {
  const std::size_t suffix = sizeof(kSuffix) - 1;
  const bool has = path.size() > suffix && path.compare(path.size() - suffix, suffix, kSuffix) == 0;
  return has ? path.substr(0, path.size() - suffix) : path;
}

std::string file_of(const std::string& path) { return without_suffix(path) + kSuffix; }

std::string relative_to(const std::string& folder, const std::string& path) {
  return folder_of(path) == folder ? fs::path(path).filename().string()
                                   : fs::absolute(path).string();
}

std::string inside(const std::string& folder, const std::string& name) {
  if (fs::path(name).is_absolute() || folder == ".") return name;
  return (fs::path(folder) / name).string();
}

bool lies_inside(const std::string& folder, const std::string& path) {
  std::error_code failed;
  const fs::path parent = fs::weakly_canonical(fs::path(path).parent_path(), failed);
  if (failed) return false;
  const fs::path root = fs::weakly_canonical(folder, failed);
  if (failed) return false;
  return std::mismatch(root.begin(), root.end(), parent.begin(), parent.end()).first == root.end();
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

int64_t number_in(const std::string& text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace tutti::train
