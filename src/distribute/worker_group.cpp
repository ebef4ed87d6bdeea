// A worker that fails cannot know where the others are: waiting for it in a collective, failing
// too, or far from any. It makes a call that no other one fits, in which it says what happened.
// Those that wait in another collective get the mismatch, as it does itself; all then exchange what
// they have to say, so that everybody learns the cause and the group goes on. Those that fail too
// meet it at once.
//
// An early call (EarlyCalls) may meet another worker's other call too, since when a bucket is full
// is each worker's own affair. The worker whose call was early says so in the exchange, and that is
// no error: it leaves the bucket for later, those in another call make it again.

#include "distribute/worker_group.h"

#include <cstring>
#include <exception>

#include "base/environment.h"
#include "distribute/membership.h"
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
constexpr double kPatienceOfProcessesSeconds = 5;
/// Between the moment when all know that a worker failed and that worker's report.
constexpr std::chrono::milliseconds kReportTime{5000};
const char* const kLeft = " has left";
const char* const kEarlyCall = " early";

bool between_hosts(const collectives::Communicator& communicator) {
  const std::string where = communicator.where();
  return where.rfind("gloo ", 0) == 0 || where.rfind("hierarchical ", 0) == 0;
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

/// Tells the coordination that this worker is in a collective, and when it is out.
class WorkerGroup::Waiting {
 public:
  Waiting(WorkerGroup& group, const char* name) : group_(group) {
    if (group.membership_)
      group.membership_->report_progress(group.num_calls() + 1, name, /*waiting=*/true);
  }
  ~Waiting() {
    if (group_.membership_)
      group_.membership_->report_progress(group_.num_calls(), "own work", /*waiting=*/false);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  WorkerGroup& group_;
};

WorkerGroup::WorkerGroup(std::unique_ptr<collectives::Communicator> communicator)
    : WorkerGroup(std::move(communicator), nullptr) {}

WorkerGroup::WorkerGroup(std::unique_ptr<collectives::Communicator> communicator,
                         std::unique_ptr<Membership> membership)
    : exceptions_(std::uncaught_exceptions()),
      communicator_(std::move(communicator)),
      membership_(std::move(membership)),
      overlaps_(environment("TUTTI_OVERLAP") ? environment_flag("TUTTI_OVERLAP")
                                             : between_hosts(*communicator_)),
      early_([this](at::Tensor& bucket) { return reduce_early(bucket); }, all_know_) {
  if (membership_)
    membership_->on_failure(
        [group = communicator_.get()](const std::string& cause) { group->abort(cause); });
}

bool WorkerGroup::leave() noexcept {
  if (!membership_) return left_in_order_;
  left_in_order_ = leaves_in_order();
  // Before the agent goes, by which the ranks tell each other why.
  if (!left_in_order_ || !early_.settle_for(std::chrono::milliseconds(0))) abort_as_left();
  early_.settle();
  membership_->leave(left_in_order_);
  membership_.reset();
  return left_in_order_;
}

std::shared_ptr<coordination::CoordinationAgent> WorkerGroup::agent() const {
  return membership_ ? membership_->shared_agent() : nullptr;
}

void WorkerGroup::count_as_moving(bool on) const {
  if (membership_) membership_->agent().count_as_moving(on);
}

void WorkerGroup::abort_as_left() noexcept {
  try {
    communicator_->abort(cat("worker ", worker(), kLeft, ", expected all ", num_workers(),
                             " workers; every worker must take the same number of steps"));
  } catch (const std::exception& error) {
    log_warning("worker ", worker(), " leaves: ", error.what());
  }
}

WorkerGroup::~WorkerGroup() {
  const bool of_processes = membership_ != nullptr;
  if (!leave() && !of_processes) abort_as_left();
}

/// True when all workers are at their end; else the job has ended by an error, which they hear.
bool WorkerGroup::leaves_in_order() noexcept {
  try {
    if (std::uncaught_exceptions() > exceptions_) {
      membership_->fail(ErrorCode::kAborted,
                        last_error().empty() ? "an exception left its strategy" : last_error());
      return false;
    }
    early_.settle();
    if (broken_ || membership_->failed()) return false;
    // The second try is where a worker that was in another call asks why.
    for (int tries = 0; tries < 2; ++tries) {
      try {
        const std::string mine =
            cat(kLeft, ", expected to take the same number of steps as every worker");
        bool in_order = true;
        bool any_early = false;
        for (const std::string& text : say(mine, 0)) {
          any_early = any_early || text == kEarlyCall;
          in_order = in_order && (text == mine || text == kEarlyCall);
        }
        if (in_order && any_early) {  // of nothing that is going to be used: it is given up
          tries = -1;
          continue;
        }
        if (in_order && tries == 0) return true;
        break;
      } catch (const InvalidArgument&) {
      }
    }
    membership_->fail(ErrorCode::kFailedPrecondition,
                      cat("it", kLeft, " while others wait for it, expected all ", num_workers(),
                          " workers; every worker must take the same number of steps"));
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    try {
      membership_->fail(code_of(error), message_of(error));
    } catch (...) {  // it has no way to hear of it
    }
  }
  return false;
}

void WorkerGroup::remember(const std::string& error) {
  MutexLock lock(mutex_);
  last_error_ = error;
}

std::string WorkerGroup::last_error() {
  MutexLock lock(mutex_);
  return last_error_;
}

void WorkerGroup::finish_early() {
  bool known = false;
  if (const std::exception_ptr error = early_.take_error(&known)) {
    all_know_ = known;
    std::rethrow_exception(error);
  }
}

bool WorkerGroup::reduce_early(at::Tensor& bucket) {
  at::NoGradGuard no_grad;
  return done(
      "all_reduce", [&] { communicator_->all_reduce(bucket, ReduceOp::kSum, options_); },
      From::kEarly);
}

void WorkerGroup::collective(const char* name, FunctionRef<void()> call) {
  finish_early();
  while (!done(name, call, From::kCaller)) {
  }
}

/// Runs one call on the communicator and sorts its errors. False: nothing has moved, since this
/// call or another worker's was early; the caller's is to be made again.
bool WorkerGroup::done(const char* name, FunctionRef<void()> call, From from) {
  all_know_ = false;
  const int64_t calls = communicator_->num_calls();
  std::string mismatch;
  try {
    const Waiting waiting(*this, name);
    call();
    return true;
  } catch (const InvalidArgument& error) {
    if (communicator_->num_calls() == calls) throw;  // refused here: nobody else has heard of it
    mismatch = error.what();
  } catch (const Error& error) {
    broken_ = true;
    if (!membership_) throw;
    membership_->throw_failure(error.code(), error.what());
  } catch (...) {
    broken_ = true;
    throw;
  }
  explain(mismatch, from);
  return false;
}

/// The texts of all workers. `patience` in seconds is the most that it waits; 0: as long as for any
/// collective.
std::vector<std::string> WorkerGroup::say(const std::string& mine, double patience) {
  const Waiting waiting(*this, "comparing failures");
  CommunicationOptions options = options_;
  if (patience > 0 && !(options.timeout_seconds > 0 && options.timeout_seconds < patience))
    options.timeout_seconds = patience;
  return gather_texts(*communicator_, mine, options);
}

/// Returns where no worker has failed and the call of some was early.
void WorkerGroup::explain(const std::string& mismatch, From from) {
  std::vector<std::string> failures;
  try {
    failures = say(from == From::kEarly ? kEarlyCall : "", 0);
  } catch (const Error& error) {
    broken_ = true;
    if (!membership_) throw;
    membership_->throw_failure(error.code(), error.what());
  }
  bool any_early = false;
  all_know_ = true;
  for (std::size_t worker = 0; worker < failures.size(); ++worker) {
    any_early = any_early || failures[worker] == kEarlyCall;
    const bool leaves = failures[worker].rfind(kLeft, 0) == 0;
    if (failures[worker].empty() || failures[worker] == kEarlyCall) continue;
    if (leaves && from == From::kEarly) continue;  // nobody waits for this call
    const std::string failure = cat("worker ", worker, " failed: ", failures[worker]);
    remember(failure);
    // That worker is reporting it.
    if (membership_ && membership_->wait_for_failure(kReportTime)) {
      broken_ = true;
      membership_->throw_failure(ErrorCode::kAborted, failure);
    }
    throw Aborted(failure);
  }
  if (any_early) {
    all_know_ = false;  // it was no error
    return early_.turn_off();
  }
  const std::string difference =
      cat("workers make different calls (a rank is a worker): ", mismatch);
  remember(difference);
  throw InvalidArgument(difference);
}

/// An early call under way is let go on for a while: the others come to it or to another call. True
/// when it is over and did not tell every worker of an error already.
bool WorkerGroup::settle_to_tell(ErrorCode code, const std::string& failure) {
  const double patience = membership_ ? kPatienceOfProcessesSeconds : kPatienceSeconds;
  const std::chrono::milliseconds limit(static_cast<int64_t>(patience * 1000));
  if (!early_.settle_for(limit)) {
    if (membership_) membership_->fail(code, failure);
    communicator_->abort(cat("worker ", worker(), " failed: ", failure));
  }
  bool known = false;
  if (early_.take_error(&known) && known) all_know_ = true;
  return !broken_ && !all_know_;
}

void WorkerGroup::tell(ErrorCode code, const std::string& failure) {
  if (!settle_to_tell(code, failure)) return;
  log_warning("worker ", worker(), " of ", num_workers(), " failed: ", failure);
  remember(failure);
  // The second try is where those that were in another call ask why.
  for (int tries = 0; tries < 2; ++tries) {
    try {
      const std::vector<std::string> texts =
          say(failure.empty() ? "no message" : failure,
              membership_ ? kPatienceOfProcessesSeconds : kPatienceSeconds);
      all_know_ = true;  // for whoever guards the caller
      if (!membership_) return;
      bool all_failed = true;
      for (const std::string& text : texts)
        all_failed = all_failed && !text.empty() && text != kEarlyCall && text.rfind(kLeft, 0) != 0;
      if (all_failed) return;
      break;
    } catch (const InvalidArgument&) {
    } catch (...) {
      break;
    }
  }
  broken_ = true;
  if (membership_) membership_->fail(code, failure);
  communicator_->abort(cat("worker ", worker(), " failed: ", failure));
}

void WorkerGroup::guarded(FunctionRef<void()> body) {
  all_know_ = false;
  try {
    body();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    tell(code_of(error), message_of(error));
    std::rethrow_exception(error);
  }
}

void WorkerGroup::abort(const std::string& reason) { communicator_->abort(reason); }

void WorkerGroup::all_reduce(at::Tensor& tensor, ReduceOp op, const CommunicationOptions& options) {
  at::NoGradGuard no_grad;
  at::Tensor host = on_host(tensor);
  collective("all_reduce", [&] { communicator_->all_reduce(host, op, options); });
  if (!host.is_alias_of(tensor)) tensor.copy_(host);
}

at::Tensor WorkerGroup::all_gather(const at::Tensor& tensor, const CommunicationOptions& options) {
  at::NoGradGuard no_grad;
  at::Tensor joined;
  const at::Tensor host = on_host(tensor);
  collective("all_gather", [&] { joined = communicator_->all_gather(host, options); });
  return joined.to(tensor.device());
}

void WorkerGroup::broadcast(at::Tensor& tensor, int root, const CommunicationOptions& options) {
  at::NoGradGuard no_grad;
  at::Tensor host = on_host(tensor);
  collective("broadcast", [&] { communicator_->broadcast(host, root, options); });
  if (!host.is_alias_of(tensor)) tensor.copy_(host);
}

void WorkerGroup::barrier(const CommunicationOptions& options) {
  collective("barrier", [&] { communicator_->barrier(options); });
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
  collective("all_gather",
             [&] { texts = gather_texts(*communicator_, cat(operation, " ", text), options_); });
  std::size_t other = 0;
  while (other + 1 < texts.size() && texts[other] == texts[0]) ++other;
  all_know_ = true;
  const std::string difference =
      cat(operation, " [worker ", worker(), " of ", num_workers(), "]: worker 0 makes ", texts[0],
          ", worker ", other, " makes ", texts[other],
          ", expected the same on every worker; all must run one program");
  remember(difference);
  throw InvalidArgument(difference);
}

}  // namespace tutti::distribute
