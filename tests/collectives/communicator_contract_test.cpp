// Each backend enters the contract suite here, by one line.

#include "collectives/in_process.h"
#include "contract/communicator_failure_contract.h"

namespace tutti::collectives {

INSTANTIATE_TEST_SUITE_P(InProcess, CommunicatorContract,
                         ::testing::Values(GroupMaker{
                             "in_process", [](int size) { return make_in_process_group(size); }}));

}  // namespace tutti::collectives
