#pragma once
// Files that all workers of a strategy save and load together. With one worker: files.

#include <memory>
#include <string>

#include "tensor/worker_peers.h"
#include "tutti/distribute/strategy.h"
#include "tutti/io/tensor_file.h"

namespace tutti::keras {

/// Writes what `collect` gives, which every worker calls: the chief alone, and who was given
/// another path than the chief. What fails on one worker, fails on all.
void save_together(const distribute::Strategy& strategy, const char* operation,
                   const std::string& path, FunctionRef<io::TensorFile()> collect,
                   bool make_folder = false);

/// read_tensor_file() on every worker. When it fails on one, it fails on all, and files that are
/// not the same are InvalidArgument. `check`, before it is read.
io::TensorFile read_together(
    const distribute::Strategy& strategy, const char* operation, const std::string& path,
    FunctionRef<void()> check = [] {});

/// The same, but false, and `why`, when it cannot be read. `peers`: null of one worker.
bool try_read_together(const WorkerPeers* peers, const char* operation, const std::string& path,
                       io::TensorFile& file, std::string& why);

/// Whether this worker writes what people look at. `strategy` of a null model: yes.
bool is_chief(const distribute::Strategy* strategy);

}  // namespace tutti::keras
