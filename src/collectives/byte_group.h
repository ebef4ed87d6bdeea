#pragma once
// What a backend of processes moves: bytes of the host's memory. GroupCommunicator makes a
// Communicator of it.

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/call.h"
#include "tutti/base/error.h"

namespace tutti::collectives {

class SharedArena;

/// One rank's side of a group. Of a call every rank does the same: announce(), then, if all agree,
/// at most one of the functions that move bytes. One thread at a time but for fail() and close().
class ByteGroup {
 public:
  virtual ~ByteGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Tells the others of this rank's call, with `bytes` (at most flat_bytes()) of data, and waits
  /// for theirs. True when the calls agree: then call_of() and payload_of() are valid until the
  /// next one. Otherwise `difference` says what differs, the same on every rank. Throws what made
  /// the group fail. `where` lives as long as the call.
  virtual bool announce(std::string_view where, const CallRecord& call, const void* payload,
                        std::size_t bytes, std::chrono::milliseconds timeout,
                        std::string* difference) = 0;
  /// The most that travels with an announcement.
  virtual std::size_t flat_bytes() const = 0;
  virtual const CallRecord& call_of(int rank) const = 0;
  /// Only when that rank's tensor has at most flat_bytes().
  virtual const void* payload_of(int rank) const = 0;

  /// `data` is this rank's tensor of the announced call. Added in rank order. MEAN only for dtypes
  /// with a loop.
  virtual void all_reduce(std::byte* data, const CallRecord& call, ReduceOp op) = 0;
  /// Rank r gets entries [bounds[r], bounds[r + 1]) of the sum, in `result`.
  virtual void reduce_scatter(const std::byte* data, const std::vector<int64_t>& bounds,
                              std::byte* result, at::ScalarType dtype, ReduceOp op) = 0;
  /// Rank r brings bytes [bounds[r], bounds[r + 1]) of `data`, and gets the others'.
  virtual void all_gather(const std::byte* mine, std::byte* data,
                          const std::vector<int64_t>& bounds) = 0;
  virtual void broadcast(std::byte* data, int64_t bytes, int root) = 0;

  /// Fails this and all later calls of every rank with that error; the first reason stays. Any
  /// thread.
  virtual void fail(ErrorCode code, std::string_view reason) = 0;
  /// Ends this rank's call under way, which another thread has: before the destructor.
  virtual void close() {}
  /// Null when the group has none.
  virtual std::shared_ptr<SharedArena> arena() const { return nullptr; }
  /// Where in the arena the tensor lies, in bytes; -1: elsewhere.
  virtual int64_t arena_offset(const at::Tensor& tensor) const { return -1; }
};

/// `in_background`: started calls run on a thread of the communicator.
std::unique_ptr<Communicator> make_group_communicator(std::string backend,
                                                      std::shared_ptr<ByteGroup> group,
                                                      bool in_background);

}  // namespace tutti::collectives
