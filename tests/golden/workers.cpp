#include "golden/workers.h"

#include <mutex>

#include "support/workers.h"

namespace tutti::golden {

void run_on_workers(int workers, int replicas, Verdict& verdict,
                    const std::function<const Json&(int)>& part,
                    const std::function<void(const Worker&, Verdict&)>& run) {
  std::mutex mutex;
  const Verdict fresh = verdict;
  testing::on_workers(workers, replicas, [&](const std::shared_ptr<distribute::Strategy>& made) {
    const int worker = made->first_replica_id() / replicas;
    Verdict own = fresh;
    own.clear();
    try {
      run({*made, cat("worker", worker), part(worker)}, own);
    } catch (const Error& error) {
      own.fail(error.what());
    }
    std::lock_guard<std::mutex> lock(mutex);
    for (const std::string& failure : own.failures())
      verdict.fail(cat("worker ", worker, ": ", failure));
  });
}

void run_on_workers(const Json& entry, Verdict& verdict,
                    const std::function<void(const Worker&, Verdict&)>& run) {
  const Json& inputs = entry.at("inputs");
  run_on_workers(
      inputs.at("workers"), inputs.at("replicas_per_worker"), verdict,
      [&](int worker) -> const Json& { return entry.at("expected").at(cat("worker", worker)); },
      run);
}

}  // namespace tutti::golden
