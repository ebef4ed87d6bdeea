#include "coordination/barriers.h"

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti::coordination {
namespace {

constexpr std::size_t kMostOpenRounds = 10'000;
constexpr std::size_t kMostNames = 100'000;
constexpr std::size_t kMostFailures = 10'000;

}  // namespace

Barriers::Outcome Barriers::outcome(const Key& key) const {
  if (failed_.count(key)) return Outcome::kFailed;
  const auto found = completed_.find(key.first);
  const bool complete = found != completed_.end() && key.second <= found->second;
  return complete ? Outcome::kComplete : Outcome::kOpen;
}

BarrierRound& Barriers::open(const Key& key, const std::set<std::string>& tasks,
                             bool departed_count) {
  const auto found = open_.find(key);
  if (found == open_.end()) {
    const bool full = completed_.size() >= kMostNames && !completed_.count(key.first);
    if (open_.size() >= kMostOpenRounds || full) {
      throw ResourceExhausted(cat("barrier \"", key.first, "\": ", open_.size(), " open and ",
                                  completed_.size(), " names, expected at most ", kMostOpenRounds,
                                  " and ", kMostNames, "; enter barriers of one name again"));
    }
    BarrierRound& round = open_[key];
    round.tasks = tasks;
    round.departed_count = departed_count;
    return round;
  }
  if (found->second.tasks != tasks || found->second.departed_count != departed_count) {
    throw InvalidArgument(cat("barrier \"", key.first, "\" round ", key.second, ": for tasks ",
                              join(tasks, ", "), ", while others entered it for ",
                              join(found->second.tasks, ", "),
                              "; name the same tasks on all of them"));
  }
  return found->second;
}

void Barriers::complete(const Key& key) {
  uint64_t& last = completed_[key.first];
  last = std::max(last, key.second);
  open_.erase(key);
}

void Barriers::fail(const Key& key, BarrierFailure failure) {
  if (failed_.size() >= kMostFailures) failed_.erase(failed_.begin());
  failed_.insert_or_assign(key, std::move(failure));
  open_.erase(key);
}

}  // namespace tutti::coordination
