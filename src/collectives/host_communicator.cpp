#include "collectives/host_communicator.h"

#include <exception>

#include "collectives/local_reduce.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::collectives {

// ---- The thread --------------------------------------------------------------------------------

OrderedWorker::OrderedWorker() : thread_([this] { run(); }) {}

OrderedWorker::~OrderedWorker() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void OrderedWorker::give(std::function<void()> job) {
  {
    MutexLock lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void OrderedWorker::drain() {
  std::unique_lock<Mutex> lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty() && !busy_; });
}

bool OrderedWorker::is_idle() {
  MutexLock lock(mutex_);
  return jobs_.empty() && !busy_;
}

void OrderedWorker::run() {
  std::unique_lock<Mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    {
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      job();
    }
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

// ---- Started calls -----------------------------------------------------------------------------

namespace {

constexpr const char* kNotWaitedFor = "a start_all_reduce failed and was not waited for";

/// What a started call and its Work share.
class Outcome {
 public:
  explicit Outcome(std::function<void(std::string_view)> aborter) : aborter_(std::move(aborter)) {}

  void finish(std::exception_ptr error) {
    bool abandoned = false;
    {
      MutexLock lock(mutex_);
      done_ = true;
      error_ = std::move(error);
      abandoned = error_ != nullptr && dropped_;
    }
    changed_.notify_all();
    if (abandoned) aborter_(kNotWaitedFor);
  }
  void wait() {
    std::unique_lock<Mutex> lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  void drop() {
    bool abandoned = false;
    {
      MutexLock lock(mutex_);
      dropped_ = true;
      abandoned = error_ != nullptr;
    }
    if (abandoned) aborter_(kNotWaitedFor);
  }

 private:
  std::function<void(std::string_view)> aborter_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool done_ TUTTI_GUARDED_BY(mutex_) = false;
  bool dropped_ TUTTI_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ TUTTI_GUARDED_BY(mutex_);
};

class StartedWork : public Work {
 public:
  explicit StartedWork(std::shared_ptr<Outcome> outcome) : outcome_(std::move(outcome)) {}
  ~StartedWork() override { outcome_->drop(); }
  void wait() override { outcome_->wait(); }

 private:
  std::shared_ptr<Outcome> outcome_;
};

at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.is_cpu() ? tensor.detach() : tensor.detach().cpu();
}

void copy_back(const at::Tensor& tensor, const at::Tensor& host) {
  if (!tensor.is_cpu()) tensor.detach().copy_(host);
}

}  // namespace

HostCommunicator::HostCommunicator(std::string backend, int rank, int size, bool in_background)
    : Communicator(std::move(backend), rank, size), in_background_(in_background) {}

template <class Function>
void HostCommunicator::in_order(Function&& call) {
  if (worker_ != nullptr) worker_->drain();
  at::NoGradGuard no_grad;
  call();
}

CallRecord HostCommunicator::reduction_record(Verb verb, const at::Tensor& tensor, ReduceOp op,
                                              const CommunicationOptions& options) const {
  CallRecord call = record_of(verb, num_calls(), tensor, op);
  if (verb == Verb::kAllReduce && tensor.scalar_type() == at::kFloat) {
    call.wire = static_cast<uint8_t>(options.wire_dtype);
  }
  return call;
}

void HostCommunicator::do_all_reduce(at::Tensor& tensor, ReduceOp op,
                                     const CommunicationOptions& options) {
  const CallRecord call = reduction_record(Verb::kAllReduce, tensor, op, options);
  in_order([&] {
    at::Tensor host = on_host(tensor);
    host_all_reduce(host, call, options);
    copy_back(tensor, host);
  });
  note_written(tensor);
}

std::unique_ptr<Work> HostCommunicator::do_start_all_reduce(at::Tensor& tensor, ReduceOp op,
                                                            const CommunicationOptions& options) {
  const auto outcome = std::make_shared<Outcome>(aborter_);
  const CallRecord call = reduction_record(Verb::kAllReduce, tensor, op, options);
  at::Tensor host = on_host(tensor);
  note_written(tensor);
  const auto job = [this, outcome, call, tensor = tensor, host, options]() mutable {
    at::NoGradGuard no_grad;
    std::exception_ptr error;
    try {
      host_all_reduce(host, call, options);
      copy_back(tensor, host);
    } catch (...) {
      error = std::current_exception();
    }
    // Before anybody is told: what is waited for is not used any more.
    host.reset();
    tensor.reset();
    outcome->finish(std::move(error));
  };
  if (in_background_) {
    if (worker_ == nullptr) worker_ = std::make_unique<OrderedWorker>();
    worker_->give(job);
  } else {
    auto now = job;
    now();
  }
  return std::make_unique<StartedWork>(outcome);
}

at::Tensor HostCommunicator::do_all_gather(const at::Tensor& tensor,
                                           const CommunicationOptions& options) {
  const CallRecord call = record_of(Verb::kAllGather, num_calls(), tensor);
  at::Tensor joined;
  in_order([&] { joined = host_all_gather(on_host(tensor), call, options).to(tensor.device()); });
  return joined;
}

at::Tensor HostCommunicator::do_reduce_scatter(const at::Tensor& tensor, ReduceOp op,
                                               const CommunicationOptions& options) {
  const CallRecord call = reduction_record(Verb::kReduceScatter, tensor, op, options);
  at::Tensor part;
  in_order([&] { part = host_reduce_scatter(on_host(tensor), call, options).to(tensor.device()); });
  return part;
}

void HostCommunicator::do_broadcast(at::Tensor& tensor, int root,
                                    const CommunicationOptions& options) {
  const CallRecord call = record_of(Verb::kBroadcast, num_calls(), tensor, ReduceOp::kSum, root);
  in_order([&] {
    at::Tensor host = on_host(tensor);
    host_broadcast(host, call, options);
    copy_back(tensor, host);
  });
  if (rank() != root) note_written(tensor);
}

void HostCommunicator::do_barrier(const CommunicationOptions& options) {
  const CallRecord call = record_of(Verb::kBarrier, num_calls(), at::Tensor());
  in_order([&] { host_barrier(call, options); });
}

// ---- Reductions --------------------------------------------------------------------------------

void note_written(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

bool has_reduce_loop(at::ScalarType dtype) {
  static const std::vector<const void*> kNoInputs{nullptr};
  static const std::vector<void*> kNoOutputs;
  return reduce_range(ReduceOp::kSum, dtype, kNoInputs, kNoOutputs, 0, 0);
}

void reduce_buffers(ReduceOp op, at::ScalarType dtype, const std::vector<const void*>& inputs,
                    const std::vector<void*>& outputs, int64_t n) {
  if (n == 0 || reduce_range(op, dtype, inputs, outputs, 0, n)) return;
  std::vector<at::Tensor> tensors;
  for (const void* input : inputs) {
    tensors.push_back(at::from_blob(const_cast<void*>(input), {n}, dtype));
  }
  const at::Tensor sum = local_reduce(ReduceOp::kSum, tensors);
  for (void* output : outputs) at::from_blob(output, {n}, dtype).copy_(sum);
}

}  // namespace tutti::collectives
