#include "cluster/reachable.h"

#include <gtest/gtest.h>

#include "support/message_checks.h"
#include "tutti/base/error.h"

namespace tutti::cluster {
namespace {

using testing::throws_saying;
using train::ClusterSpec;

constexpr const char* kElsewhere = "192.0.2.7:1";  // of no machine: set aside for documents

TEST(Reachable, Issue58_ALoopbackAddressAmongOtherMachinesIsRefusedWithBothNamed) {
  for (const char* own : {"127.0.0.1:1", "127.0.1.1:1", "localhost:1", "[::1]:1"}) {
    const ClusterSpec cluster({{"worker", {own, kElsewhere}}});
    EXPECT_TRUE(throws_saying<InvalidArgument>(
        [&] { check_reachable("start", cluster, "worker", 0); },
        {"start [worker 0 at ", own, "worker 1 at 192.0.2.7:1", "/etc/hosts"}))
        << own;
  }
}

TEST(Reachable, Issue58_OneMachineAndOtherMachinesAmongThemselvesAreFine) {
  const ClusterSpec here({{"worker", {"localhost:1", "127.0.0.1:2"}}});
  EXPECT_NO_THROW(check_reachable("start", here, "worker", 0));
  const ClusterSpec mixed({{"worker", {"127.0.0.1:1", kElsewhere}}});
  EXPECT_NO_THROW(check_reachable("start", mixed, "worker", 1));
  const ClusterSpec unknown({{"worker", {"localhost:1", "no-such-host.invalid:1"}}});
  EXPECT_NO_THROW(check_reachable("start", unknown, "worker", 0));
}

}  // namespace
}  // namespace tutti::cluster
