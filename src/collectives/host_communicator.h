#pragma once
// What the backends that exchange bytes of the host's memory have in common: tensors of other
// devices pass through a copy on the host, and started calls keep the order of all calls.

#include <functional>
#include <memory>
#include <string>

#include "collectives/call.h"
#include "collectives/ordered_worker.h"
#include "tutti/collectives/communicator.h"

namespace tutti::collectives {

class HostCommunicator : public Communicator {
 protected:
  /// What a started call that failed and was not waited for does; it outlives the communicator.
  using Aborter = std::function<void(std::string_view reason)>;

  /// `in_background`: started calls run on a thread of the communicator.
  HostCommunicator(std::string backend, int rank, int size, bool in_background);
  void set_aborter(Aborter aborter) { aborter_ = std::move(aborter); }
  /// For the destructors of derived classes, once nothing can block any more.
  void join_background() { worker_.reset(); }
  bool is_background_busy() { return worker_ != nullptr && !worker_->is_idle(); }

 private:
  // Contiguous CPU tensors, no autograd. One call at a time, in the order of the calls.
  virtual void host_all_reduce(at::Tensor& tensor, const CallRecord& call,
                               const CommunicationOptions& options) = 0;
  virtual at::Tensor host_all_gather(const at::Tensor& tensor, const CallRecord& call,
                                     const CommunicationOptions& options) = 0;
  virtual at::Tensor host_reduce_scatter(const at::Tensor& tensor, const CallRecord& call,
                                         const CommunicationOptions& options) = 0;
  virtual void host_broadcast(at::Tensor& tensor, const CallRecord& call,
                              const CommunicationOptions& options) = 0;
  virtual void host_barrier(const CallRecord& call, const CommunicationOptions& options) = 0;

  void do_all_reduce(at::Tensor& tensor, ReduceOp op, const CommunicationOptions& options) final;
  std::unique_ptr<Work> do_start_all_reduce(at::Tensor& tensor, ReduceOp op,
                                            const CommunicationOptions& options) final;
  at::Tensor do_all_gather(const at::Tensor& tensor, const CommunicationOptions& options) final;
  at::Tensor do_reduce_scatter(const at::Tensor& tensor, ReduceOp op,
                               const CommunicationOptions& options) final;
  void do_broadcast(at::Tensor& tensor, int root, const CommunicationOptions& options) final;
  void do_barrier(const CommunicationOptions& options) final;

  CallRecord reduction_record(Verb verb, const at::Tensor& tensor, ReduceOp op,
                              const CommunicationOptions& options) const;
  /// Runs `call` after all started calls.
  template <class Function>
  void in_order(Function&& call);

  const bool in_background_;
  Aborter aborter_;
  std::unique_ptr<OrderedWorker> worker_;  // made by the first started call
};

/// Written through pointers: autograd is told, as it is of every in-place operator.
void note_written(const at::Tensor& tensor);

/// The reduction of buffers of `n` entries into `output` (one of them, or apart), for any dtype;
/// bit for bit local_reduce. MEAN only for a dtype with a loop, has_reduce_loop().
void reduce_buffers(ReduceOp op, at::ScalarType dtype, const std::vector<const void*>& inputs,
                    const std::vector<void*>& outputs, int64_t n);
/// Whether reduce_range has a loop for it. MEAN of other dtypes is a SUM, divided at the end.
bool has_reduce_loop(at::ScalarType dtype);

}  // namespace tutti::collectives
