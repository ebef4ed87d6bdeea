#pragma once
// Groups of processes: what is needed to build one, and the choice of a backend.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/store.h"
#include "tutti/collectives/communicator.h"

namespace tutti::collectives {

struct GroupOptions {
  std::shared_ptr<Store> store;
  /// Groups of one store need different prefixes, and so do the generations of one group: a rank of
  /// an older generation never meets a newer one.
  std::string prefix = "tutti";
  int64_t generation = 0;
  int rank = 0;
  int size = 1;
  /// Ranks with the same text share memory; empty: host_identity().
  std::string host;
  /// The name or IP address of this machine at which the other hosts reach it (gloo). Loopback
  /// unless told otherwise.
  std::string address = "127.0.0.1";
  /// How long to wait for the other ranks while the group is built.
  std::chrono::milliseconds timeout{5 * 60 * 1000};
  /// The most that this rank can put into its SharedArena (shm). Address space alone until used.
  int64_t arena_bytes = int64_t{1} << 30;

  /// Keys of this group: "<prefix>/<generation>/<name>".
  std::string key(const std::string& name) const;
  /// Throws InvalidArgument.
  void check() const;
};

/// The machine's boot and network namespace: equal for processes that can share memory through the
/// sockets by which shm hands it out.
std::string host_identity();

/// Every rank's text for `topic`, in rank order. Throws DeadlineExceeded that names the ranks that
/// do not say theirs in time.
std::vector<std::string> exchange(const GroupOptions& options, const std::string& topic,
                                  const std::string& mine);

/// One rank of a group of processes; blocks until all ranks are there. Throws DeadlineExceeded that
/// names the missing ones, InvalidArgument, Unavailable. kAuto: shm when all ranks are on one host,
/// gloo when each has its own, hierarchical otherwise; kRing: gloo; kNccl: nccl, Unimplemented in
/// a build without it.
std::unique_ptr<Communicator> make_communicator(
    const GroupOptions& options,
    CommunicationImplementation implementation = CommunicationImplementation::kAuto);

/// A group whose ranks are threads of this process, for tests: builds all ranks at once by `make`.
std::vector<std::unique_ptr<Communicator>> make_local_group(
    int size, std::unique_ptr<Communicator> (*make)(const GroupOptions&));

}  // namespace tutti::collectives
