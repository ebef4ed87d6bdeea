#include "keras/saving/shared_files.h"

#include <filesystem>

#include "distribute/variable_checkpoint.h"
#include "io/file_system.h"
#include "io/tensor_bytes.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::keras {
namespace {

void write(const std::string& path, const io::TensorFile& file, bool make_folder) {
  if (make_folder) io::make_folders(std::filesystem::path(path).parent_path().string());
  io::write_tensor_file(path, file);
}

void check_same(const WorkerPeers& peers, const char* operation, const std::string& path,
                uint32_t digest) {
  const std::vector<std::string> digests = peers.exchange(operation, std::to_string(digest));
  for (std::size_t worker = 1; worker < digests.size(); ++worker) {
    if (digests[worker] == digests[0]) continue;
    throw InvalidArgument(cat(operation, " [", path, "]: the file of worker ", worker,
                              " is another one than the chief's, expected one file for all; let "
                              "every worker read the path that the chief writes"));
  }
}

}  // namespace

void save_together(const distribute::Strategy& strategy, const char* operation,
                   const std::string& path, FunctionRef<io::TensorFile()> collect,
                   bool make_folder) {
  const auto peers = tutti::internal::peers_of(strategy);
  if (peers == nullptr) return write(path, collect(), make_folder);
  const bool writes = writes_to(peers.get(), operation, path);
  io::TensorFile file;
  peers->guarded([&] { file = collect(); });
  peers->together(operation, [&] {
    if (writes) write(path, file, make_folder);
  });
}

bool try_read_together(const WorkerPeers* peers, const char* operation, const std::string& path,
                       io::TensorFile& file, std::string& why) {
  uint32_t digest = 0;
  const auto read = [&] { file = io::read_tensor_file(path, digest); };
  try {
    if (peers == nullptr) {
      read();
    } else {
      peers->together(operation, read);
    }
  } catch (const Error& error) {
    why = error.what();
    return false;
  }
  if (peers != nullptr) check_same(*peers, operation, path, digest);
  return true;
}

io::TensorFile read_together(const distribute::Strategy& strategy, const char* operation,
                             const std::string& path, FunctionRef<void()> check) {
  const auto peers = tutti::internal::peers_of(strategy);
  io::TensorFile file;
  if (peers == nullptr) {
    check();
    return io::read_tensor_file(path);
  }
  uint32_t digest = 0;
  peers->together(operation, [&] {
    check();
    file = io::read_tensor_file(path, digest);
  });
  check_same(*peers, operation, path, digest);
  return file;
}

bool is_chief(const distribute::Strategy* strategy) {
  return strategy == nullptr || strategy->workers() == nullptr || strategy->first_replica_id() == 0;
}

}  // namespace tutti::keras
