#include "tutti/collectives/communicator.h"

#include <gtest/gtest.h>

#include "collectives/backends.h"
#include "support/message_checks.h"
#include "tutti/base/error.h"

namespace tutti::collectives {
namespace {

using testing::throws_saying;

TEST(ReduceOp, NamesAreReadInAnyCase) {
  EXPECT_EQ(reduce_op_from_name("SUM"), ReduceOp::kSum);
  EXPECT_EQ(reduce_op_from_name("mean"), ReduceOp::kMean);
  EXPECT_EQ(reduce_op_from_name(to_string(ReduceOp::kMean)), ReduceOp::kMean);
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { reduce_op_from_name("max"); },
                                             {"\"max\"", "SUM or MEAN"}));
}

TEST(CommunicationOptions, FieldsThatAreSetWin) {
  const CommunicationOptions strategy{.bytes_per_pack = 100, .timeout_seconds = 5};
  const auto merged = strategy.merged_with(
      {.timeout_seconds = 2, .implementation = CommunicationImplementation::kRing});
  EXPECT_EQ(merged.bytes_per_pack, 100);
  EXPECT_EQ(merged.timeout_seconds, 2);
  EXPECT_EQ(merged.implementation, CommunicationImplementation::kRing);
}

TEST(CommunicationOptions, NegativeValuesAreRefused) {
  EXPECT_THROW(CommunicationOptions().merged_with({.bytes_per_pack = -1}), InvalidArgument);
  EXPECT_THROW(CommunicationOptions().merged_with({.timeout_seconds = -0.5}), InvalidArgument);
}

TEST(CommunicationOptions, TheTimeoutIsNeverZeroAndNeverOverflows) {
  EXPECT_EQ(CommunicationOptions{}.timeout(), kDefaultTimeout);
  EXPECT_EQ(CommunicationOptions{.timeout_seconds = 1.5}.timeout().count(), 1500);
  EXPECT_EQ(CommunicationOptions{.timeout_seconds = 1e-9}.timeout().count(), 1);
  EXPECT_EQ(CommunicationOptions{.timeout_seconds = 1e300}.timeout().count(),
            365LL * 24 * 3600 * 1000);
}

TEST(Backends, TheOnesInThisBuildMakeGroups) {
  const auto group = find_backend("in_process").make_local_group(2);
  ASSERT_EQ(group.size(), 2U);
  EXPECT_EQ(group[1]->where(), "in_process rank 1/2");
}

TEST(Backends, AMissingOneSaysWhatIsThereAndWhatBringsIt) {
  EXPECT_TRUE(throws_saying<Unimplemented>([] { find_backend("nccl"); },
                                           {"backend \"nccl\" is not in this build; present: "
                                            "in_process, shm, gloo, hierarchical; GPUs of"}));
  for (const Backend& backend : backends()) {
    EXPECT_EQ(backend.make_local_group == nullptr, !backend.missing.empty()) << backend.name;
  }
}

TEST(Backends, AnUnknownOneSaysWhichAreKnown) {
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] { find_backend("mpi"); }, {"\"mpi\"", "in_process, shm, gloo, hierarchical, nccl"}));
}

}  // namespace
}  // namespace tutti::collectives
