#pragma once
// Rounds of named barriers: who is there, until when, how it ended.

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::coordination {

using TimePoint = std::chrono::steady_clock::time_point;

/// One round of one barrier.
struct BarrierRound {
  std::set<std::string> tasks;    // that take part
  std::set<std::string> arrived;  // of them
  TimePoint deadline = TimePoint::max();
  bool departed_count = false;  // a task that left in order counts as arrived
};

struct BarrierFailure {
  ErrorCode code;
  std::string message;
};

/// A round is asked for until it is complete or has failed; both are remembered, so that a call
/// that is repeated gets the same answer. Not locked: its owner does that.
class Barriers {
 public:
  using Key = std::pair<std::string, uint64_t>;  // name, round

  enum class Outcome { kOpen, kComplete, kFailed };
  Outcome outcome(const Key& key) const;
  const BarrierFailure& failure(const Key& key) const { return failed_.at(key); }

  /// The open round, made when it is not there. Throws InvalidArgument when other tasks than
  /// `tasks` take part in it, ResourceExhausted when too many rounds are open.
  BarrierRound& open(const Key& key, const std::set<std::string>& tasks, bool departed_count);
  std::map<Key, BarrierRound>& open_rounds() { return open_; }
  const std::map<Key, BarrierRound>& open_rounds() const { return open_; }

  void complete(const Key& key);
  void fail(const Key& key, BarrierFailure failure);

 private:
  std::map<Key, BarrierRound> open_;
  std::map<std::string, uint64_t> completed_;  // the last round of each name
  std::map<Key, BarrierFailure> failed_;
};

}  // namespace tutti::coordination
