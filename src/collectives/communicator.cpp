// The checked front: what is wrong on one rank alone is said here, before anybody else is involved.

#include "tutti/collectives/communicator.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::collectives {

std::string_view to_string(ReduceOp op) { return op == ReduceOp::kSum ? "SUM" : "MEAN"; }

ReduceOp reduce_op_from_name(std::string_view name) {
  const std::string lower = to_lower(name);
  if (lower == "sum") return ReduceOp::kSum;
  if (lower == "mean") return ReduceOp::kMean;
  throw InvalidArgument(cat("ReduceOp: \"", name, "\", expected SUM or MEAN"));
}

CommunicationOptions CommunicationOptions::merged_with(const CommunicationOptions& other) const {
  if (other.bytes_per_pack < 0 || other.timeout_seconds < 0) {
    throw InvalidArgument(cat("CommunicationOptions: bytes_per_pack ", other.bytes_per_pack, ", timeout_seconds ", other.timeout_seconds,
                              ", expected none below 0"));
  }
  CommunicationOptions merged = *this;
  if (other.bytes_per_pack != 0) merged.bytes_per_pack = other.bytes_per_pack;
  if (other.timeout_seconds != 0) merged.timeout_seconds = other.timeout_seconds;
  if (other.implementation != CommunicationImplementation::kAuto) merged.implementation = other.implementation;
  return merged;
}

std::chrono::milliseconds CommunicationOptions::timeout() const {
  if (timeout_seconds <= 0) return kDefaultTimeout;
  return std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
}

Communicator::Communicator(std::string backend, int rank, int size) : backend_(std::move(backend)), rank_(rank), size_(size) {}

std::string Communicator::where() const { return cat(backend_, " rank ", rank_, "/", size_); }

namespace {

void check_tensor(const char* operation, const std::string& where, const at::Tensor& tensor) {
  if (!tensor.defined()) throw InvalidArgument(cat(operation, " [", where, "]: an undefined tensor, expected one with values"));
  if (!tensor.is_contiguous()) {
    throw InvalidArgument(cat(operation, " [", where, "]: strides ", shape_text(tensor.strides()), " for sizes ", shape_text(tensor.sizes()),
                              ", expected contiguous; call contiguous() first"));
  }
}

void check_op(const char* operation, const std::string& where, const at::Tensor& tensor, ReduceOp op) {
  if (op == ReduceOp::kMean && !at::isFloatingType(tensor.scalar_type()) && !at::isComplexType(tensor.scalar_type())) {
    throw InvalidArgument(cat(operation, " [", where, "]: MEAN of ", dtype_name(tensor.scalar_type()),
                              ", expected a floating dtype; convert first, or use SUM"));
  }
}

void check_options(const CommunicationOptions& options) { CommunicationOptions().merged_with(options); }

}  // namespace

void Communicator::all_reduce(at::Tensor& tensor, ReduceOp op, const CommunicationOptions& options) {
  check_tensor("all_reduce", where(), tensor);
  check_op("all_reduce", where(), tensor, op);
  check_options(options);
  do_all_reduce(tensor, op, options);
}

std::unique_ptr<Work> Communicator::start_all_reduce(at::Tensor& tensor, ReduceOp op, const CommunicationOptions& options) {
  check_tensor("start_all_reduce", where(), tensor);
  check_op("start_all_reduce", where(), tensor, op);
  check_options(options);
  return do_start_all_reduce(tensor, op, options);
}

at::Tensor Communicator::all_gather(const at::Tensor& tensor, const CommunicationOptions& options) {
  check_tensor("all_gather", where(), tensor);
  if (tensor.dim() == 0) throw InvalidArgument(cat("all_gather [", where(), "]: a scalar, expected rank 1 or more; use unsqueeze(0)"));
  check_options(options);
  return do_all_gather(tensor, options);
}

at::Tensor Communicator::reduce_scatter(const at::Tensor& tensor, ReduceOp op, const CommunicationOptions& options) {
  check_tensor("reduce_scatter", where(), tensor);
  check_op("reduce_scatter", where(), tensor, op);
  check_options(options);
  if (tensor.dim() == 0 || tensor.size(0) % size_ != 0) {
    throw InvalidArgument(cat("reduce_scatter [", where(), "]: sizes ", shape_text(tensor.sizes()), ", expected dimension 0 to divide by ",
                              size_, " ranks; pad it"));
  }
  return do_reduce_scatter(tensor, op, options);
}

void Communicator::broadcast(at::Tensor& tensor, int root, const CommunicationOptions& options) {
  check_tensor("broadcast", where(), tensor);
  check_options(options);
  if (root < 0 || root >= size_) throw InvalidArgument(cat("broadcast [", where(), "]: root ", root, ", expected from 0 to ", size_ - 1));
  do_broadcast(tensor, root, options);
}

void Communicator::barrier(const CommunicationOptions& options) {
  check_options(options);
  do_barrier(options);
}

void Communicator::abort(std::string_view reason) { do_abort(reason); }

}  // namespace tutti::collectives
