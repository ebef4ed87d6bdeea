#pragma once
// What a rank says of its call before data moves, in a form that crosses processes.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tutti/collectives/communicator.h"

namespace tutti::collectives {

enum class Verb : uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kBarrier };
std::string_view to_string(Verb verb);

/// Plain bytes, two cache lines: ranks copy it to one another as it is.
struct alignas(64) CallRecord {
  static constexpr uint8_t kOnDevice = 0x80;  // in the place of a WireDtype: a tensor of a GPU
  static constexpr int kMaxSizes = 9;  // of more dimensions these are shown and all are compared
  int64_t number = 0;
  Verb verb = Verb::kBarrier;
  uint8_t op = 0;  // a ReduceOp
  int8_t dtype = 0;
  uint8_t wire = 0;  // a WireDtype
  int32_t root = 0;
  int64_t numel = 0;
  int64_t arena_offset = -1;  // where in the rank's shared arena the tensor lies; -1: elsewhere
  int32_t num_dims = 0;
  int32_t element_size = 0;
  uint64_t sizes_hash = 0;  // of the sizes that must agree
  int64_t sizes[kMaxSizes] = {};

  at::ScalarType scalar_type() const { return static_cast<at::ScalarType>(dtype); }
  ReduceOp reduce_op() const { return static_cast<ReduceOp>(op); }
  int64_t num_bytes() const { return numel * element_size; }
};
static_assert(sizeof(CallRecord) == 128);

/// The record of a call with `tensor` (undefined for a barrier).
CallRecord record_of(Verb verb, int64_t number, const at::Tensor& tensor,
                     ReduceOp op = ReduceOp::kSum, int root = 0);

/// Whether two ranks may go on with these calls: all but the number and the place in the arena, and
/// for all_gather dimension 0, must be the same.
bool agree(const CallRecord& a, const CallRecord& b);
/// Equal for calls that agree, 64 bits.
uint64_t identity(const CallRecord& call);

/// What ranks 0 and `other` called, as InvalidArgument says it on every rank.
std::string difference_text(std::string_view where, const CallRecord& mine, const CallRecord& first,
                            int other, const CallRecord& theirs);
/// "all_reduce [gloo rank 2/4, call 17]: ".
std::string call_head(std::string_view where, const CallRecord& call);
/// "nothing from rank 2, rank 3 in 100 ms, expected all 4 ranks; …".
std::string missing_text(std::span<const int> ranks, int size, std::chrono::milliseconds timeout);

}  // namespace tutti::collectives
