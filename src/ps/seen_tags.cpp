#include "ps/seen_tags.h"

#include "tutti/base/text.h"

namespace tutti::ps {

bool SeenTags::check(const Tag& tag) const {
  const auto found = workers_.find(tag.worker);
  const Worker none{.incarnation = tag.incarnation};
  const Worker& worker =
      found == workers_.end() || found->second.incarnation < tag.incarnation ? none : found->second;
  if (found == workers_.end() && workers_.size() >= kMostWorkers) {
    throw ResourceExhausted(cat("ps [", tag.worker, "]: a worker more than ", kMostWorkers,
                                ", the most that a server knows"));
  }
  if (tag.incarnation < worker.incarnation) {
    throw Aborted(cat("ps [", tag.worker, "]: a change of incarnation ", tag.incarnation,
                      ", expected the newest, ", worker.incarnation,
                      "; this process was replaced, let it end"));
  }
  if (tag.sequence > worker.all_up_to + kWindow) {
    throw ResourceExhausted(cat("ps [", tag.worker, "]: the change number ", tag.sequence,
                                " while number ", worker.all_up_to + 1,
                                " is missing, expected at most ", kWindow,
                                " ahead; wait for it or make it under its number, or begin a new "
                                "incarnation"));
  }
  return tag.sequence <= worker.all_up_to || worker.above.contains(tag.sequence);
}

void SeenTags::add(const Tag& tag) {
  Worker& worker = workers_[tag.worker];
  if (worker.incarnation != tag.incarnation) worker = Worker{.incarnation = tag.incarnation};
  worker.above.insert(tag.sequence);
  while (!worker.above.empty() && *worker.above.begin() == worker.all_up_to + 1) {
    worker.above.erase(worker.above.begin());
    ++worker.all_up_to;
  }
}

}  // namespace tutti::ps
