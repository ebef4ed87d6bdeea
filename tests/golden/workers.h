#pragma once
// Cases of several workers ("mwms2/…"): each worker is a thread.

#include <functional>

#include "golden/golden_file.h"
#include "tutti/tutti.h"

namespace tutti::golden {

/// One worker of a case.
struct Worker {
  distribute::Strategy& strategy;
  std::string key;       // "worker0": its part of what is expected
  const Json& expected;  // that part
};

/// Calls `run` on a thread for each of the case's workers, whose inputs say how many and with how
/// many replicas; what one finds is said with the worker's name in front.
void run_on_workers(const Json& entry, Verdict& verdict,
                    const std::function<void(const Worker&, Verdict&)>& run);
/// The same for so many workers of one replica, of which `part(worker)` is what is expected.
void run_on_workers(int workers, int replicas, Verdict& verdict,
                    const std::function<const Json&(int)>& part,
                    const std::function<void(const Worker&, Verdict&)>& run);

/// variable_cases.cpp: a case of variables as one worker sees it.
void run_variable_case_of(const GoldenFile& file, const Json& entry, const Worker& worker,
                          Verdict& verdict);

}  // namespace tutti::golden
