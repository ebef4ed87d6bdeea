// What a machine of Compute Engine is told of its end.
#include "cluster/gce_termination.h"

#include <gtest/gtest.h>

#include <mutex>

#include "cluster/surroundings.h"
#include "support/http_server.h"

namespace tutti::cluster {
namespace {

using distribute::cluster_resolver::variables;
using testing::HttpReceived;
using testing::HttpReply;
using testing::HttpServer;

/// A metadata service whose answer may change.
class Metadata {
 public:
  void say(const std::string& target, const std::string& text) {
    std::lock_guard<std::mutex> lock(mutex_);
    answers_["/computeMetadata/v1/" + target] = text;
  }
  std::function<bool()> watcher(GceNotice notice) {
    return gce_termination_watcher(
        notice, variables({{"GCE_METADATA_HOST", cat("127.0.0.1:", server_.port())}}));
  }
  std::vector<HttpReceived> received() const { return server_.received(); }

 private:
  HttpReply answer(const std::string& target) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = answers_.find(target);
    if (found == answers_.end()) return {.status = 404};
    return {.body = found->second};
  }
  std::mutex mutex_;
  std::map<std::string, std::string> answers_;
  HttpServer server_{[this](const HttpReceived& request) { return answer(request.target); }};
};

TEST(GceTermination, MaintenanceThatEndsTheMachineIsANotice) {
  Metadata metadata;
  const auto watcher = metadata.watcher(GceNotice::kMaintenance);
  metadata.say("instance/maintenance-event", "NONE");
  EXPECT_FALSE(watcher());
  metadata.say("instance/maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE");
  EXPECT_FALSE(watcher());
  metadata.say("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE");
  EXPECT_TRUE(watcher());
  EXPECT_EQ(metadata.received().at(0).headers.at("metadata-flavor"), "Google");
}

TEST(GceTermination, ThePreemptionOfASpotMachineIsANotice) {
  Metadata metadata;
  const auto watcher = metadata.watcher(GceNotice::kSpot);
  metadata.say("instance/preempted", "FALSE");
  EXPECT_FALSE(watcher());
  metadata.say("instance/preempted", "TRUE");
  EXPECT_TRUE(watcher());
}

TEST(GceTermination, AServiceThatHasNoAnswerOrIsNotThereHasSaidNothing) {
  Metadata metadata;
  const auto watcher = metadata.watcher(GceNotice::kSpot);
  EXPECT_FALSE(watcher());
  EXPECT_EQ(metadata.received().size(), 1U);  // no second attempt: it is asked again anyway
  EXPECT_FALSE(gce_termination_watcher(GceNotice::kMaintenance,
                                       variables({{"GCE_METADATA_HOST", "127.0.0.1:1"}}))());
}

}  // namespace
}  // namespace tutti::cluster
