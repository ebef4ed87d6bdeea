// The contract of communicators again, with a process for each rank. One CTest test runs all cases:
// the processes are started once.

#include "collectives/processes/rank_processes.h"
#include "contract/communicator_failure_contract.h"

namespace tutti::collectives {
namespace {

GroupMaker in_processes(const char* backend) {
  return {backend, [backend](int size) { return testing::make_process_group(backend, size); }};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(ShmProcesses, CommunicatorContract,
                         ::testing::Values(in_processes("shm")));
INSTANTIATE_TEST_SUITE_P(GlooProcesses, CommunicatorContract,
                         ::testing::Values(in_processes("gloo")));
INSTANTIATE_TEST_SUITE_P(HierarchicalProcesses, CommunicatorContract,
                         ::testing::Values(in_processes("hierarchical")));

}  // namespace tutti::collectives
