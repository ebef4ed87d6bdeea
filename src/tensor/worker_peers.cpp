#include "tensor/worker_peers.h"

#include <filesystem>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {

// A text is the operation, a byte 0, and what is said in it.

std::vector<std::string> WorkerPeers::exchange(const std::string& operation,
                                               const std::string& mine) const {
  std::vector<std::string> texts = gather(operation + '\0' + mine);
  std::string first;
  for (std::size_t worker = 0; worker < texts.size(); ++worker) {
    const std::size_t end = texts[worker].find('\0');
    const std::string other = texts[worker].substr(0, end);
    if (worker == 0) first = other;
    if (other != first) {
      throw InvalidArgument(cat("save or restore [worker ", this->worker(), " of ", num_workers(),
                                "]: worker 0 is in \"", first, "\", worker ", worker, " in \"",
                                other,
                                "\", expected the same call on every worker; saving and restoring "
                                "are no matter of the chief alone"));
    }
    texts[worker] = end == std::string::npos ? "" : texts[worker].substr(end + 1);
  }
  return texts;
}

std::string WorkerPeers::of_chief(const std::string& operation, const std::string& mine) const {
  return exchange(operation, mine)[0];
}

void WorkerPeers::together(const std::string& operation, FunctionRef<void()> body) const {
  std::exception_ptr error;
  std::string failure;
  try {
    const Moving moving(this);
    body();
  } catch (const std::exception& exception) {
    error = std::current_exception();
    failure = cat("!", exception.what());
  } catch (...) {
    error = std::current_exception();
    failure = "!an exception that is no std::exception";
  }
  const std::vector<std::string> failures = exchange(operation, failure);
  if (error) std::rethrow_exception(error);
  for (std::size_t worker = 0; worker < failures.size(); ++worker) {
    if (!failures[worker].empty())
      throw Aborted(cat("worker ", worker, " failed: ", failures[worker].substr(1)));
  }
}

std::string plain_path(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path whole = std::filesystem::absolute(path, failed);
  return failed ? path : whole.lexically_normal().string();
}

bool writes_to(const WorkerPeers* peers, const std::string& operation, const std::string& path) {
  if (peers == nullptr) return true;
  const std::string mine = plain_path(path);
  return peers->of_chief(operation, mine) != mine || peers->is_chief();
}

}  // namespace tutti
