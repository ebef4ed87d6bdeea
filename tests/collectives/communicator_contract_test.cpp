// Each backend enters the contract suite here, by one line. The ranks are threads;
// processes/contract_in_processes.cpp has the same suite with processes.

#include "collectives/gloo/gloo.h"
#include "collectives/group.h"
#include "collectives/hierarchical/hierarchical.h"
#include "collectives/in_process.h"
#include "collectives/shm/shm.h"
#include "contract/communicator_failure_contract.h"

namespace tutti::collectives {
namespace {

/// Two ranks on each of the hosts but the last, which may have one.
std::unique_ptr<Communicator> make_in_pairs(const GroupOptions& options) {
  GroupOptions told = options;
  told.host = "host " + std::to_string(options.rank / 2);
  return make_hierarchical(told);
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(InProcess, CommunicatorContract,
                         ::testing::Values(GroupMaker{
                             "in_process", [](int size) { return make_in_process_group(size); }}));
INSTANTIATE_TEST_SUITE_P(Shm, CommunicatorContract,
                         ::testing::Values(GroupMaker{
                             "shm", [](int size) { return make_local_group(size, make_shm); }}));
INSTANTIATE_TEST_SUITE_P(Gloo, CommunicatorContract,
                         ::testing::Values(GroupMaker{
                             "gloo", [](int size) { return make_local_group(size, make_gloo); }}));
INSTANTIATE_TEST_SUITE_P(Hierarchical, CommunicatorContract,
                         ::testing::Values(GroupMaker{"hierarchical", [](int size) {
                                                        return make_local_group(size,
                                                                                make_in_pairs);
                                                      }}));

}  // namespace tutti::collectives
