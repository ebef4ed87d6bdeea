#include "collectives/call.h"

#include <algorithm>

#include "tutti/base/text.h"
#include "tutti/tensor/tensor_spec.h"

namespace tutti::collectives {
namespace {

/// SplitMix64's mixing of `value` into `hash`.
uint64_t mixed(uint64_t hash, uint64_t value) {
  uint64_t x = hash + 0x9e3779b97f4a7c15ULL + value;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

bool reduces(const CallRecord& call) {
  return call.verb == Verb::kAllReduce || call.verb == Verb::kReduceScatter;
}

std::string call_text(int rank, const CallRecord& call) {
  std::string text = cat("rank ", rank, ": ", to_string(call.verb));
  if (reduces(call)) text += cat(" ", to_string(call.reduce_op()));
  if (call.verb != Verb::kBarrier) {
    const int shown = std::min(call.num_dims, CallRecord::kMaxSizes);
    text += cat(" ", dtype_name(call.scalar_type()), " ",
                shape_text(at::IntArrayRef(call.sizes, static_cast<std::size_t>(shown))));
    if (shown < call.num_dims) text += cat(" and ", call.num_dims - shown, " more sizes");
  }
  if ((call.wire & CallRecord::kOnDevice) != 0) {
    text += " on a GPU";
  } else if (call.wire != 0) {
    text += cat(" on the wire as ", to_string(static_cast<WireDtype>(call.wire)));
  }
  if (call.verb == Verb::kBroadcast) text += cat(" from root ", call.root);
  return cat(text, ", call ", call.number);
}

}  // namespace

std::string_view to_string(Verb verb) {
  switch (verb) {
    case Verb::kAllReduce:
      return "all_reduce";
    case Verb::kAllGather:
      return "all_gather";
    case Verb::kReduceScatter:
      return "reduce_scatter";
    case Verb::kBroadcast:
      return "broadcast";
    case Verb::kBarrier:
      break;
  }
  return "barrier";
}

CallRecord record_of(Verb verb, int64_t number, const at::Tensor& tensor, ReduceOp op, int root) {
  CallRecord call;
  call.number = number;
  call.verb = verb;
  call.op = static_cast<uint8_t>(op);
  call.root = root;
  if (!tensor.defined()) return call;
  call.dtype = static_cast<int8_t>(tensor.scalar_type());
  call.numel = tensor.numel();
  call.element_size = static_cast<int32_t>(tensor.element_size());
  call.num_dims = static_cast<int32_t>(tensor.dim());
  const at::IntArrayRef sizes = tensor.sizes();
  std::copy_n(sizes.begin(), std::min<std::size_t>(sizes.size(), CallRecord::kMaxSizes),
              call.sizes);
  for (std::size_t i = verb == Verb::kAllGather ? 1 : 0; i < sizes.size(); ++i) {
    call.sizes_hash = mixed(call.sizes_hash, static_cast<uint64_t>(sizes[i]));
  }
  return call;
}

bool agree(const CallRecord& a, const CallRecord& b) {
  if (a.verb != b.verb || a.op != b.op || a.dtype != b.dtype || a.wire != b.wire) return false;
  if (a.root != b.root || a.num_dims != b.num_dims || a.sizes_hash != b.sizes_hash) return false;
  const int skipped = a.verb == Verb::kAllGather ? 1 : 0;
  const int shown = std::min(a.num_dims, CallRecord::kMaxSizes);
  return shown <= skipped || std::equal(a.sizes + skipped, a.sizes + shown, b.sizes + skipped);
}

uint64_t identity(const CallRecord& call) {
  const uint64_t fields = static_cast<uint64_t>(static_cast<uint32_t>(call.root)) << 32 |
                          static_cast<uint64_t>(call.wire) << 24 |
                          static_cast<uint64_t>(static_cast<uint8_t>(call.dtype)) << 16 |
                          static_cast<uint64_t>(call.op) << 8 | static_cast<uint64_t>(call.verb);
  return mixed(mixed(fields, static_cast<uint64_t>(call.num_dims)), call.sizes_hash);
}

std::string difference_text(std::string_view where, const CallRecord& mine, const CallRecord& first,
                            int other, const CallRecord& theirs) {
  std::string text = cat(to_string(mine.verb), " [", where, "]: ");
  if (first.verb != theirs.verb) {
    text += cat("rank 0 called ", to_string(first.verb), ", rank ", other, " called ",
                to_string(theirs.verb), " (", call_text(0, first), "; ", call_text(other, theirs),
                "), expected one operation");
  } else {
    text += cat(call_text(0, first), "; ", call_text(other, theirs), ", expected calls that agree",
                first.verb == Verb::kAllGather ? " but for dimension 0" : "");
  }
  return text + "; every replica must make the same calls in the same order";
}

std::string call_head(std::string_view where, const CallRecord& call) {
  return cat(to_string(call.verb), " [", where, ", call ", call.number, "]: ");
}

std::string missing_text(std::span<const int> ranks, int size, std::chrono::milliseconds timeout) {
  return cat("nothing from rank ", join(ranks, ", rank "), " in ", timeout.count(),
             " ms, expected all ", size,
             " ranks; look at what it does, or raise CommunicationOptions::timeout_seconds");
}

}  // namespace tutti::collectives
