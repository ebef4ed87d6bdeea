#pragma once
// Connections between all ranks of a group, by c10d's ProcessGroupGloo. No other file sees c10d.

#include <chrono>
#include <cstddef>
#include <memory>

#include "collectives/group.h"

namespace tutti::collectives {

/// A message under way. Destroying it gives the message up.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Blocks until it is sent (handed to the kernel) or received. False at `end`, with nothing
  /// closed. Throws something when the connection is closed. One thread at a time of all those that
  /// wait for messages of the mesh.
  virtual bool wait_until(std::chrono::steady_clock::time_point end) = 0;
  /// The same, but throws after `timeout`; then all connections of this rank are closed.
  virtual void wait(std::chrono::milliseconds timeout) = 0;
};

/// Messages between two ranks that have the same tag keep their order; a message must be received
/// into exactly as many bytes as it has (Gloo ends the process otherwise). Any thread.
class Mesh {
 public:
  virtual ~Mesh() = default;
  virtual std::unique_ptr<Transfer> send(int to, const void* data, std::size_t bytes, int tag) = 0;
  virtual std::unique_ptr<Transfer> receive(int from, void* data, std::size_t bytes, int tag) = 0;
  /// Closes all connections of this rank: what waits here and at the others, throws.
  virtual void close() = 0;
};

/// Blocks until all ranks are connected. Throws DeadlineExceeded that names the missing ranks.
std::unique_ptr<Mesh> make_mesh(const GroupOptions& options);

}  // namespace tutti::collectives
