#include "collectives/group.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <set>
#include <thread>

#include "collectives/call.h"
#include "collectives/gloo/gloo.h"
#include "collectives/hierarchical/hierarchical.h"
#include "collectives/nccl/nccl.h"
#include "collectives/shm/shm.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::collectives {

std::string GroupOptions::key(const std::string& name) const {
  return cat(prefix, "/", generation, "/", name);
}

void GroupOptions::check() const {
  if (store == nullptr) throw InvalidArgument("GroupOptions: no store, expected one");
  if (size < 1 || rank < 0 || rank >= size) {
    throw InvalidArgument(cat("GroupOptions: rank ", rank, " of ", size,
                              " ranks, expected a rank from 0 to size - 1"));
  }
  if (arena_bytes < 0) {
    throw InvalidArgument(cat("GroupOptions: arena_bytes ", arena_bytes, ", expected 0 or more"));
  }
}

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  if (boot.empty()) {
    char name[256] = {};
    gethostname(name, sizeof(name) - 1);
    boot = name;
  }
  char network[64] = {};
  const ssize_t length = readlink("/proc/self/ns/net", network, sizeof(network) - 1);
  return cat(boot, " ", length > 0 ? network : "");
}

std::vector<std::string> exchange(const GroupOptions& options, const std::string& topic,
                                  const std::string& mine) {
  using Clock = std::chrono::steady_clock;
  options.store->set(options.key(cat(topic, "/", options.rank)), mine);
  const auto end = Clock::now() + options.timeout;
  std::vector<std::string> all;
  std::vector<int> missing;
  for (int rank = 0; rank < options.size; ++rank) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    try {
      all.push_back(options.store->get(options.key(cat(topic, "/", rank)),
                                       std::max(left, std::chrono::milliseconds(0))));
    } catch (const DeadlineExceeded&) {
      missing.push_back(rank);
    }
  }
  if (missing.empty()) return all;
  throw DeadlineExceeded(cat("building a group [", options.key(topic), " rank ", options.rank, "/",
                             options.size, "]: nothing from rank ", join(missing, ", rank "),
                             " in ", options.timeout.count(), " ms, expected all ", options.size,
                             " ranks; see whether it runs, or raise the timeout"));
}

std::unique_ptr<Communicator> make_communicator(const GroupOptions& options,
                                                CommunicationImplementation implementation) {
  options.check();
  if (implementation == CommunicationImplementation::kNccl) return make_nccl(options);
  if (implementation == CommunicationImplementation::kRing) return make_gloo(options);
  GroupOptions known = options;
  if (known.host.empty()) known.host = host_identity();
  const std::vector<std::string> hosts = exchange(known, "hosts", known.host);
  const std::set<std::string> different(hosts.begin(), hosts.end());
  if (different.size() == 1) return make_shm(known);
  if (different.size() == hosts.size()) return make_gloo(known);
  return make_hierarchical(known);
}

std::vector<std::unique_ptr<Communicator>> make_local_group(
    int size, std::unique_ptr<Communicator> (*make)(const GroupOptions&)) {
  std::vector<std::unique_ptr<Communicator>> group(static_cast<std::size_t>(std::max(size, 0)));
  std::vector<std::exception_ptr> errors(group.size());
  const auto store = std::make_shared<InMemoryStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      try {
        group[at] = make({.store = store, .rank = rank, .size = size});
      } catch (...) {
        errors[at] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return group;
}

}  // namespace tutti::collectives
