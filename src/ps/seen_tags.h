#pragma once
// Which changes have been made: what makes each count once.

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "ps/parameter_server.h"

namespace tutti::ps {

/// Per worker its newest incarnation, and of that the sequences that have been applied: all up to
/// one number, and some above it. Refused changes are none: their numbers stay free. Its memory is
/// bounded by the workers and the window.
class SeenTags {
 public:
  /// A sequence may be so far ahead of the first one that is missing.
  static constexpr uint64_t kWindow = 4096;
  static constexpr std::size_t kMostWorkers = 1 << 16;

  /// True when the change has been made before. Aborted for an incarnation that a newer one of that
  /// worker has replaced, ResourceExhausted beyond the window.
  bool check(const Tag& tag) const;
  /// The change has been made now.
  void add(const Tag& tag);

  struct Worker {
    uint64_t incarnation = 0;
    uint64_t all_up_to = 0;
    std::set<uint64_t> above;
  };
  const std::map<std::string, Worker>& workers() const { return workers_; }
  void set_workers(std::map<std::string, Worker> workers) { workers_ = std::move(workers); }

 private:
  std::map<std::string, Worker> workers_;
};

}  // namespace tutti::ps
