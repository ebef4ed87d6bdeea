// A worker that fails cannot know where the others are: waiting for it in a collective, failing
// too, or far from any. It makes a call that no other one fits, in which it says what happened.
// Those that wait in another collective get the mismatch, as it does itself; all then exchange what
// they have to say, so that everybody learns the cause and the group goes on. Those that fail too
// meet it at once.

#include "distribute/worker_group.h"

#include <cstring>

#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/tensor/flat_buffer.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::distribute {
namespace {

constexpr int64_t kTextAxes = 5;  // no tensor of a user is int8 with so many axes
/// So long a failed worker waits for the others to come and hear why.
constexpr double kPatienceSeconds = 20;

std::string failure_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

/// Host memory that a backend takes: the tensor itself where possible.
at::Tensor on_host(const at::Tensor& tensor) {
  at::Tensor host = tensor.detach();
  if (!host.is_cpu()) host = host.cpu();
  return host.contiguous();
}

}  // namespace

int64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return static_cast<int64_t>(hash);
}

std::vector<std::string> gather_texts(collectives::Communicator& group, const std::string& mine,
                                      const CommunicationOptions& options) {
  const auto size = static_cast<uint32_t>(mine.size());
  std::string parcel(sizeof(size), '\0');
  std::memcpy(parcel.data(), &size, sizeof(size));
  parcel += mine;
  at::Tensor bytes = at::empty({static_cast<int64_t>(parcel.size())}, at::kChar);
  std::memcpy(bytes.mutable_data_ptr(), parcel.data(), parcel.size());
  std::vector<int64_t> shape(kTextAxes, 1);
  shape[0] = bytes.numel();
  const at::Tensor all = group.all_gather(bytes.view(shape), options);
  const auto* at = static_cast<const char*>(all.const_data_ptr());
  std::vector<std::string> texts;
  for (int rank = 0; rank < group.size(); ++rank) {
    uint32_t length = 0;
    std::memcpy(&length, at, sizeof(length));
    texts.emplace_back(at + sizeof(length), length);
    at += sizeof(length) + length;
  }
  return texts;
}

WorkerGroup::WorkerGroup(std::unique_ptr<collectives::Communicator> communicator)
    : communicator_(std::move(communicator)) {}

WorkerGroup::~WorkerGroup() {
  communicator_->abort(cat("worker ", worker(), " has left, expected all ", num_workers(),
                           " workers; every worker must take the same number of steps"));
}

/// Runs one call on the communicator and sorts its errors.
void WorkerGroup::collective(FunctionRef<void()> call) {
  all_know_ = false;
  const int64_t calls = communicator_->num_calls();
  std::string mismatch;
  try {
    return call();
  } catch (const InvalidArgument& error) {
    if (communicator_->num_calls() == calls) throw;  // refused here: nobody else has heard of it
    mismatch = error.what();
  } catch (...) {
    broken_ = true;
    throw;
  }
  explain(mismatch);
}

void WorkerGroup::explain(const std::string& mismatch) {
  std::vector<std::string> failures;
  try {
    failures = gather_texts(*communicator_, "", options_);
  } catch (...) {
    broken_ = true;
    throw;
  }
  all_know_ = true;
  for (std::size_t worker = 0; worker < failures.size(); ++worker) {
    if (!failures[worker].empty())
      throw Aborted(cat("worker ", worker, " failed: ", failures[worker]));
  }
  throw InvalidArgument(cat("workers make different calls (a rank is a worker): ", mismatch));
}

void WorkerGroup::tell(const std::string& failure) {
  if (broken_ || all_know_) return;
  log_warning("worker ", worker(), " of ", num_workers(), " failed: ", failure);
  CommunicationOptions options = options_;
  if (!(options.timeout_seconds > 0 && options.timeout_seconds < kPatienceSeconds))
    options.timeout_seconds = kPatienceSeconds;
  // The second try is where those that were in another call ask why.
  for (int tries = 0; tries < 2; ++tries) {
    try {
      gather_texts(*communicator_, failure.empty() ? "no message" : failure, options);
      all_know_ = true;  // for whoever guards the caller
      return;
    } catch (const InvalidArgument&) {
    } catch (...) {
      break;
    }
  }
  broken_ = true;
  communicator_->abort(cat("worker ", worker(), " failed: ", failure));
}

void WorkerGroup::guarded(FunctionRef<void()> body) {
  all_know_ = false;
  try {
    body();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    tell(failure_text(error));
    std::rethrow_exception(error);
  }
}

void WorkerGroup::abort(const std::string& reason) { communicator_->abort(reason); }

void WorkerGroup::all_reduce(at::Tensor& tensor, ReduceOp op, const CommunicationOptions& options) {
  at::NoGradGuard no_grad;
  at::Tensor host = on_host(tensor);
  collective([&] { communicator_->all_reduce(host, op, options); });
  if (!host.is_alias_of(tensor)) tensor.copy_(host);
}

at::Tensor WorkerGroup::all_gather(const at::Tensor& tensor, const CommunicationOptions& options) {
  at::NoGradGuard no_grad;
  at::Tensor joined;
  const at::Tensor host = on_host(tensor);
  collective([&] { joined = communicator_->all_gather(host, options); });
  return joined.to(tensor.device());
}

void WorkerGroup::broadcast(at::Tensor& tensor, int root, const CommunicationOptions& options) {
  at::NoGradGuard no_grad;
  at::Tensor host = on_host(tensor);
  collective([&] { communicator_->broadcast(host, root, options); });
  if (!host.is_alias_of(tensor)) tensor.copy_(host);
}

void WorkerGroup::barrier(const CommunicationOptions& options) {
  collective([&] { communicator_->barrier(options); });
}

void WorkerGroup::add_up(std::vector<int64_t>& numbers) {
  at::Tensor tensor =
      at::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())}, at::kLong);
  all_reduce(tensor, ReduceOp::kSum, options_);
}

std::vector<std::vector<int64_t>> WorkerGroup::exchange(const std::vector<int64_t>& numbers) {
  const auto count = static_cast<int64_t>(numbers.size());
  // With an axis more than anything that replicas exchange.
  const at::Tensor all = all_gather(at::tensor(numbers, at::kLong).view({1, 1, count}), options_);
  std::vector<std::vector<int64_t>> rows;
  const auto* row = all.const_data_ptr<int64_t>();
  for (int w = 0; w < num_workers(); ++w, row += count) rows.emplace_back(row, row + count);
  return rows;
}

at::Tensor WorkerGroup::of_first(const at::Tensor& mine) {
  at::NoGradGuard no_grad;
  at::Tensor first = mine.detach().cpu().clone(at::MemoryFormat::Contiguous);
  broadcast(first, 0, options_);
  if (is_chief()) return mine.detach();
  at::Tensor value = zeros_like_dense(mine.detach());
  value.copy_(first);
  return value;
}

int64_t WorkerGroup::of_first(int64_t mine) {
  at::Tensor number = at::scalar_tensor(mine, at::kLong);
  broadcast(number, 0, options_);
  return number.item<int64_t>();
}

void WorkerGroup::agree(const char* operation, const std::string& text) {
  bool equal = true;
  for (const std::vector<int64_t>& other : exchange({hash_of(operation), hash_of(text)}))
    equal = equal && other == std::vector<int64_t>{hash_of(operation), hash_of(text)};
  if (equal) return;  // and so on every worker: all have seen the same numbers
  std::vector<std::string> texts;
  collective([&] { texts = gather_texts(*communicator_, cat(operation, " ", text), options_); });
  std::size_t other = 0;
  while (other + 1 < texts.size() && texts[other] == texts[0]) ++other;
  all_know_ = true;
  throw InvalidArgument(cat(operation, " [worker ", worker(), " of ", num_workers(),
                            "]: worker 0 makes ", texts[0], ", worker ", other, " makes ",
                            texts[other],
                            ", expected the same on every worker; all must run one program"));
}

}  // namespace tutti::distribute
