// The checked front: what is wrong on one rank alone is said here, before anybody else is involved.

#include "tutti/collectives/communicator.h"

#include <algorithm>
#include <cmath>

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

std::string_view to_string(WireDtype dtype) {
  if (dtype == WireDtype::kSame) return "the tensor's dtype";
  return dtype == WireDtype::kBFloat16 ? "bfloat16" : "float16";
}

CommunicationOptions CommunicationOptions::merged_with(const CommunicationOptions& other) const {
  if (other.bytes_per_pack < 0 || !(other.timeout_seconds >= 0)) {
    throw InvalidArgument(cat("CommunicationOptions: bytes_per_pack ", other.bytes_per_pack,
                              ", timeout_seconds ", other.timeout_seconds,
                              ", expected none below 0; 0 stands for the default"));
  }
  CommunicationOptions merged = *this;
  if (other.bytes_per_pack != 0) merged.bytes_per_pack = other.bytes_per_pack;
  if (other.timeout_seconds != 0) merged.timeout_seconds = other.timeout_seconds;
  if (other.implementation != CommunicationImplementation::kAuto) {
    merged.implementation = other.implementation;
  }
  if (other.wire_dtype != WireDtype::kSame) merged.wire_dtype = other.wire_dtype;
  return merged;
}

std::chrono::milliseconds CommunicationOptions::timeout() const {
  constexpr double kYear = 365.0 * 24 * 3600;  // more would overflow a clock's nanoseconds
  if (!(timeout_seconds > 0)) return kDefaultTimeout;
  const double milliseconds = std::ceil(std::min(timeout_seconds, kYear) * 1000);
  return std::chrono::milliseconds(static_cast<int64_t>(milliseconds));
}

Communicator::Communicator(std::string backend, int rank, int size)
    : backend_(std::move(backend)), rank_(rank), size_(size) {}

std::string Communicator::where() const { return cat(backend_, " rank ", rank_, "/", size_); }

namespace {

/// "all_reduce [gloo rank 2/4, call 17]: ". Built only for a message: it costs more than a small
/// collective.
std::string head(const char* operation, const Communicator& group) {
  return cat(operation, " [", group.where(), ", call ", group.num_calls() + 1, "]: ");
}

void check_tensor(const char* operation, const Communicator& group, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    throw InvalidArgument(head(operation, group) + "an undefined tensor, expected one with values");
  }
  if (tensor.layout() != at::kStrided) {
    throw InvalidArgument(head(operation, group) +
                          "a sparse tensor, expected a dense one; call to_dense() first");
  }
  if (!tensor.is_contiguous()) {
    throw InvalidArgument(cat(head(operation, group), "strides ", shape_text(tensor.strides()),
                              " for sizes ", shape_text(tensor.sizes()),
                              ", expected contiguous; call contiguous() first"));
  }
}

void check_reduction(const char* operation, const Communicator& group, const at::Tensor& tensor,
                     ReduceOp op) {
  const at::ScalarType dtype = tensor.scalar_type();
  if (op == ReduceOp::kSum || at::isFloatingType(dtype) || at::isComplexType(dtype)) return;
  throw InvalidArgument(cat(head(operation, group), "MEAN of ", dtype_name(dtype),
                            ", expected a floating dtype; convert first, or use SUM"));
}

void check_options(const CommunicationOptions& options) {
  CommunicationOptions().merged_with(options);
}

}  // namespace

void Communicator::all_reduce(at::Tensor& tensor, ReduceOp op,
                              const CommunicationOptions& options) {
  check_tensor("all_reduce", *this, tensor);
  check_reduction("all_reduce", *this, tensor, op);
  check_options(options);
  ++num_calls_;
  do_all_reduce(tensor, op, options);
}

std::unique_ptr<Work> Communicator::start_all_reduce(at::Tensor& tensor, ReduceOp op,
                                                     const CommunicationOptions& options) {
  check_tensor("start_all_reduce", *this, tensor);
  check_reduction("start_all_reduce", *this, tensor, op);
  check_options(options);
  ++num_calls_;
  return do_start_all_reduce(tensor, op, options);
}

at::Tensor Communicator::all_gather(const at::Tensor& tensor, const CommunicationOptions& options) {
  check_tensor("all_gather", *this, tensor);
  if (tensor.dim() == 0) {
    throw InvalidArgument(head("all_gather", *this) +
                          "a scalar, expected rank 1 or more; use unsqueeze(0)");
  }
  check_options(options);
  ++num_calls_;
  return do_all_gather(tensor, options);
}

at::Tensor Communicator::reduce_scatter(const at::Tensor& tensor, ReduceOp op,
                                        const CommunicationOptions& options) {
  check_tensor("reduce_scatter", *this, tensor);
  check_reduction("reduce_scatter", *this, tensor, op);
  if (tensor.dim() == 0 || tensor.size(0) % size_ != 0) {
    throw InvalidArgument(cat(head("reduce_scatter", *this), "sizes ", shape_text(tensor.sizes()),
                              ", expected dimension 0 to divide by ", size_, " ranks; pad it"));
  }
  check_options(options);
  ++num_calls_;
  return do_reduce_scatter(tensor, op, options);
}

void Communicator::broadcast(at::Tensor& tensor, int root, const CommunicationOptions& options) {
  check_tensor("broadcast", *this, tensor);
  if (root < 0 || root >= size_) {
    throw InvalidArgument(
        cat(head("broadcast", *this), "root ", root, ", expected from 0 to ", size_ - 1));
  }
  check_options(options);
  ++num_calls_;
  do_broadcast(tensor, root, options);
}

void Communicator::barrier(const CommunicationOptions& options) {
  check_options(options);
  ++num_calls_;
  do_barrier(options);
}

void Communicator::abort(std::string_view reason) { do_abort(reason); }

}  // namespace tutti::collectives
