#pragma once
// One rank's view of a group that exchanges tensors: the seam that every backend implements.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/tensor/tensor.h"

namespace tutti::collectives {

enum class ReduceOp { kSum, kMean };
/// "SUM" or "MEAN"; from_name takes any case and throws InvalidArgument for other names.
std::string_view to_string(ReduceOp op);
ReduceOp reduce_op_from_name(std::string_view name);

inline constexpr std::chrono::milliseconds kDefaultTimeout{30 * 60 * 1000};

enum class CommunicationImplementation { kAuto, kRing, kNccl };

/// What float32 tensors travel as between hosts in an all_reduce: half the bytes, summed in float32
/// all the same. What crosses is rounded each time, the result too; all ranks get the same bits.
/// Ranks of one host exchange what they have, and so do all ranks with tensors of a few hundred
/// bytes.
enum class WireDtype { kSame, kBFloat16, kHalf };
/// "the tensor's dtype", "bfloat16" or "float16".
std::string_view to_string(WireDtype dtype);

/// How a collective is done. Fields of zero mean "as the strategy says".
struct CommunicationOptions {
  int64_t bytes_per_pack = 0;
  double timeout_seconds = 0;
  CommunicationImplementation implementation = CommunicationImplementation::kAuto;
  WireDtype wire_dtype = WireDtype::kSame;

  /// Fields of `other` that are set win. Throws InvalidArgument for negative values.
  CommunicationOptions merged_with(const CommunicationOptions& other) const;
  /// At least a millisecond, at most a year; kDefaultTimeout when not set.
  std::chrono::milliseconds timeout() const;
};

/// A collective under way. Destroying it without wait() is allowed; the group then fails at its
/// next call if the work failed.
class Work {
 public:
  virtual ~Work() = default;
  /// Blocks until this rank has the result, or throws what the collective threw.
  virtual void wait() = 0;
};

/// One rank of a fixed group that exchanges tensors.
///
/// All ranks call the same operations in the same order; a rank that calls another operation, or
/// one with other sizes or another dtype, makes the call fail on every rank with InvalidArgument
/// that names both calls, and the group stays usable. One thread at a time per object; groups are
/// independent. After any other error the group is broken: build a new one; what the tensors of
/// that call hold is not specified, and another rank may be using them until it has returned too.
class Communicator {
 public:
  virtual ~Communicator() = default;
  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The backend's name and this rank, as error messages show it: "in_process rank 1/2".
  std::string where() const;
  /// How many collectives this rank has begun. A call refused for what this rank alone passed (a
  /// tensor that is not contiguous, say) does not count: nobody else has heard of it.
  int64_t num_calls() const { return num_calls_; }

  /// Replaces `tensor` by its reduction over all ranks, added in rank order; returns when this rank
  /// has the result. Sizes and dtype must agree on every rank, and `tensor` must be contiguous.
  /// MEAN needs a floating dtype.
  void all_reduce(at::Tensor& tensor, ReduceOp op, const CommunicationOptions& options = {});
  /// The same, started and not waited for. `tensor` must stay untouched until the work is waited
  /// for. A backend may do the work at once (in_process does: there is nobody else to do it
  /// meanwhile).
  std::unique_ptr<Work> start_all_reduce(at::Tensor& tensor, ReduceOp op,
                                         const CommunicationOptions& options = {});
  /// The ranks' tensors joined along dimension 0, in rank order. All but that dimension must agree;
  /// it may differ.
  at::Tensor all_gather(const at::Tensor& tensor, const CommunicationOptions& options = {});
  /// The reduction over all ranks, of which this rank gets its part: `tensor`'s dimension 0 cut
  /// evenly (it must divide by size()).
  at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op,
                            const CommunicationOptions& options = {});
  /// Replaces `tensor` by that of rank `root`. Sizes and dtype must agree.
  void broadcast(at::Tensor& tensor, int root, const CommunicationOptions& options = {});
  /// Returns when every rank has called it.
  void barrier(const CommunicationOptions& options = {});
  /// Fails the pending and all later calls of every rank with Aborted. Any thread may call it.
  void abort(std::string_view reason);

 protected:
  Communicator(std::string backend, int rank, int size);

 private:
  virtual void do_all_reduce(at::Tensor& tensor, ReduceOp op, const CommunicationOptions&) = 0;
  virtual std::unique_ptr<Work> do_start_all_reduce(at::Tensor& tensor, ReduceOp op,
                                                    const CommunicationOptions&) = 0;
  virtual at::Tensor do_all_gather(const at::Tensor& tensor, const CommunicationOptions&) = 0;
  virtual at::Tensor do_reduce_scatter(const at::Tensor& tensor, ReduceOp op,
                                       const CommunicationOptions&) = 0;
  virtual void do_broadcast(at::Tensor& tensor, int root, const CommunicationOptions&) = 0;
  virtual void do_barrier(const CommunicationOptions&) = 0;
  virtual void do_abort(std::string_view reason) = 0;

  std::string backend_;
  int rank_;
  int size_;
  int64_t num_calls_ = 0;
};

}  // namespace tutti::collectives
