// GCE and TPU, beside a metadata service and their APIs.

#include <gtest/gtest.h>

#include "cluster/google_cloud.h"
#include "cluster/surroundings.h"
#include "support/http_server.h"
#include "support/message_checks.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::distribute::cluster_resolver {
namespace {

using testing::HttpReceived;
using testing::HttpReply;
using testing::HttpServer;
using testing::throws_saying;
using train::ClusterSpec;

/// Answers by target; 404 for others.
HttpServer::Handler answers(std::map<std::string, HttpReply> replies) {
  return [replies](const HttpReceived& request) -> HttpReply {
    const auto found = replies.find(request.target);
    return found == replies.end() ? HttpReply{.status = 404, .body = request.target}
                                  : found->second;
  };
}

const char* const kGroup =
    "/projects/my-project/zones/us-east1-d/instanceGroups/my-group/listInstances?orderBy=name";
const char* const kInstances = "/projects/my-project/zones/us-east1-d/instances/";

std::string instances(const std::vector<std::string>& names, const std::string& next = "") {
  std::vector<std::string> items;
  for (const std::string& name : names)
    items.push_back(cat(R"({"instance": "https://x/projects/p/zones/z/instances/)", name, "\"}"));
  return cat(R"({"items": [)", join(items, ", "), "]",
             next.empty() ? "" : cat(R"(, "nextPageToken": ")", next, "\""), "}");
}
std::string instance(const std::string& ip) {
  return cat(R"({"networkInterfaces": [{"networkIP": ")", ip, R"("}]})");
}

GCEClusterResolverOptions gce(const HttpServer& server) {
  return {.project = "my-project",
          .zone = "us-east1-d",
          .instance_group = "my-group",
          .port = 8470,
          .service = server.url(),
          .variables = variables({})};
}

TEST(Gce, TheInstancesOfTheGroupAreTheWorkers) {
  HttpServer server(answers({{kGroup, {.body = instances({"i-1", "i-2"}, "next/1")}},
                             {cat(kGroup, "&pageToken=next%2F1"), {.body = instances({"i-3"})}},
                             {cat(kInstances, "i-1"), {.body = instance("10.0.0.3")}},
                             {cat(kInstances, "i-2"), {.body = instance("10.0.0.1")}},
                             {cat(kInstances, "i-3"), {.body = instance("10.0.0.2")}}}));
  const GCEClusterResolver resolver(gce(server));
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"worker", {"10.0.0.1:8470", "10.0.0.2:8470", "10.0.0.3:8470"}}}));
  EXPECT_EQ(resolver.master(), "grpc://10.0.0.1:8470");
  EXPECT_EQ(resolver.master("worker", 2, ""), "10.0.0.3:8470");
  const HttpReceived first = server.received().at(0);
  EXPECT_EQ(first.method, "POST");
  EXPECT_EQ(first.body, R"({"instanceState": "RUNNING"})");
  EXPECT_EQ(first.headers.count("authorization"), 0U);
}

TEST(Gce, TheTaskIsWhatWasSaid) {
  HttpServer server(answers({}));
  auto options = gce(server);
  options.task_type = "ps";
  options.task_id = 3;
  options.rpc_layer = "other";
  const GCEClusterResolver resolver(options);
  EXPECT_EQ(resolver.task_type(), "ps");
  EXPECT_EQ(resolver.task_id(), 3);
  EXPECT_EQ(resolver.rpc_layer(), "other");
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { resolver.set_task_type("worker"); },
                                                {"GCEClusterResolver [task_type]"}));
}

TEST(Gce, GivenCredentialsAreSent) {
  HttpServer server(answers({{kGroup, {.body = instances({"i-1"})}},
                             {cat(kInstances, "i-1"), {.body = instance("10.0.0.3")}}}));
  auto options = gce(server);
  options.credentials = "a-token";
  GCEClusterResolver(options).cluster_spec();
  for (const HttpReceived& request : server.received())
    EXPECT_EQ(request.headers.at("authorization"), "Bearer a-token");
}

TEST(Gce, BadAnswersAreErrorsThatNameThePlace) {
  const auto asking = [](HttpReply group, HttpReply instance) {
    return [=] {
      HttpServer server(answers({{kGroup, group}, {cat(kInstances, "i-1"), instance}}));
      GCEClusterResolver(gce(server)).cluster_spec();
    };
  };
  const HttpReply one = {.body = instances({"i-1"})};
  EXPECT_TRUE(throws_saying<FailedPrecondition>(asking({.body = "{}"}, {}),
                                                {"[my-group]", "no instance that runs"}));
  EXPECT_TRUE(throws_saying<Unavailable>(asking({.body = "[]"}, {}), {"[$]", "a list"}));
  EXPECT_TRUE(throws_saying<Unavailable>(asking({.body = "x"}, {}), {"[$]", "no JSON"}));
  EXPECT_TRUE(
      throws_saying<Unavailable>(asking({.body = R"({"items": 1})"}, {}), {"[$.items]", "1"}));
  EXPECT_TRUE(throws_saying<Unavailable>(asking({.body = R"({"items": [{}]})"}, {}),
                                         {"[$.items[0]]", "no key instance"}));
  EXPECT_TRUE(throws_saying<Unavailable>(asking(one, {.body = "{}"}), {"no key networkInter"}));
  EXPECT_TRUE(throws_saying<Unavailable>(asking(one, {.body = R"({"networkInterfaces": []})"}),
                                         {"[$.networkInterfaces]", "\"i-1\""}));
  EXPECT_TRUE(throws_saying<Unavailable>(asking(one, {.body = instance("10.0.0.300")}),
                                         {"[$.networkInterfaces[0].networkIP]", "10.0.0.300"}));
  EXPECT_TRUE(throws_saying<NotFound>(asking(one, {.status = 404}), {"404", "instances/i-1"}));
  EXPECT_TRUE(throws_saying<PermissionDenied>(asking({.status = 403}, {}), {"403"}));
}

TEST(Gce, AGroupWithoutALastPageEnds) {
  HttpServer server(
      [](const HttpReceived&) -> HttpReply { return {.body = R"({"nextPageToken": "again"})"}; });
  EXPECT_TRUE(throws_saying<Unavailable>([&] { GCEClusterResolver(gce(server)).cluster_spec(); },
                                         {"more than 1000 pages"}));
}

TEST(Gce, NamesAndPortsMustBeGiven) {
  HttpServer server(answers({}));
  const auto without = [&](auto clear) {
    return [&server, clear] {
      auto options = gce(server);
      clear(options);
      GCEClusterResolver resolver(options);
    };
  };
  EXPECT_TRUE(throws_saying<InvalidArgument>(without([](auto& o) { o.project = ""; }),
                                             {"GCEClusterResolver [project]"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(without([](auto& o) { o.zone = ""; }), {"[zone]"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(without([](auto& o) { o.instance_group = ""; }),
                                             {"[instance_group]"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(without([](auto& o) { o.port = 0; }), {"[port]"}));
}

TEST(Gce, NamesCannotLeaveTheirPlaceInTheAddress) {
  HttpServer server(answers({}));
  auto options = gce(server);
  options.project = "../x?y#z";
  EXPECT_THROW(GCEClusterResolver(options).cluster_spec(), NotFound);
  EXPECT_EQ(server.received().at(0).target.rfind("/projects/..%2Fx%3Fy%23z/zones/", 0), 0U);
}

// --- the metadata service ------------------------------------------------------------------------

TEST(GoogleMetadata, IsAskedWithItsHeader) {
  HttpServer server(answers({{"/computeMetadata/v1/project/project-id", {.body = "mine"}}}));
  const std::string host = cat("127.0.0.1:", server.port());
  for (const char* name : {"GCE_METADATA_HOST", "GCE_METADATA_IP"}) {
    const cluster::GoogleCloud cloud("Test", cluster::Variables("Test", variables({{name, host}})),
                                     "https://x.invalid", "", "default");
    EXPECT_EQ(cloud.metadata("project/project-id"), "mine");
  }
  EXPECT_EQ(server.received().at(0).headers.at("metadata-flavor"), "Google");
}

TEST(GoogleMetadata, ItsTokenIsNeededForGooglesOwnService) {
  HttpServer server(answers({{"/computeMetadata/v1/instance/service-accounts/default/token",
                              {.body = R"({"expires_in": 5})"}}}));
  const cluster::GoogleCloud cloud(
      "Test",
      cluster::Variables("Test",
                         variables({{"GCE_METADATA_HOST", cat("127.0.0.1:", server.port())}})),
      "https://x.invalid", "", "default");
  EXPECT_TRUE(throws_saying<Unavailable>([&] { cloud.get("/x"); }, {"[$]", "no key access_token"}));
}

// --- TPU -----------------------------------------------------------------------------------------

const char* const kNode = "/projects/p/locations/z/nodes/my-tpu";

std::string node(const std::string& type, const std::string& endpoints) {
  return cat(R"({"state": "READY", "acceleratorType": ")", type, R"(", "networkEndpoints": [)",
             endpoints, "]}");
}

TPUClusterResolverOptions tpu(const HttpServer& server) {
  return {.tpu = "my-tpu",
          .zone = "z",
          .project = "p",
          .service = server.url(),
          .variables = variables({})};
}

TEST(Tpu, ItsHostsAreTheWorkers) {
  HttpServer server(
      answers({{kNode, {.body = node("v3-32", R"({"ipAddress": "10.2.3.4", "port": 8470},
                                         {"ipAddress": "10.2.3.5", "port": "8471"},
                                         {"ipAddress": "10.2.3.6"},
                                         {"ipAddress": "fd00::7", "port": 1})")}}}));
  const TPUClusterResolver resolver(tpu(server));
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec(
                {{"worker", {"10.2.3.4:8470", "10.2.3.5:8471", "10.2.3.6:8470", "[fd00::7]:1"}}}));
  EXPECT_EQ(resolver.master(), "grpc://10.2.3.4:8470");
  EXPECT_EQ(resolver.get_master(), "grpc://10.2.3.4:8470");
  EXPECT_EQ(resolver.master("worker", 1), "grpc://10.2.3.5:8471");
  EXPECT_EQ(resolver.get_job_name(), "worker");
  EXPECT_EQ(resolver.get_coordination_service_leader(), "/job:worker/task:0");
  EXPECT_EQ(resolver.num_accelerators().at("TPU"), 8);
}

TEST(Tpu, AnOldNodeHasOneAddress) {
  HttpServer server(answers({{kNode, {.body = R"({"state": "READY", "ipAddress": "10.2.3.4",
                                                  "port": "8470"})"}}}));
  EXPECT_EQ(TPUClusterResolver(tpu(server)).cluster_spec(),
            ClusterSpec({{"worker", {"10.2.3.4:8470"}}}));
}

TEST(Tpu, ACoordinatorIsAJobOfItsOwn) {
  HttpServer server(answers({{kNode, {.body = node("v3-8", R"({"ipAddress": "10.2.3.4"})")}}}));
  auto options = tpu(server);
  options.job_name = "tpu";
  options.coordinator_name = "coordinator";
  options.coordinator_address = "10.9.9.9:1234";
  EXPECT_EQ(TPUClusterResolver(options).cluster_spec(),
            ClusterSpec({{"coordinator", {"10.9.9.9:1234"}}, {"tpu", {"10.2.3.4:8470"}}}));
  options.coordinator_address = "";
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { TPUClusterResolver resolver(options); },
                                             {"[coordinator_address]"}));
  options.coordinator_address = "nowhere";
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { TPUClusterResolver resolver(options); },
                                             {"[coordinator_address]", "no port"}));
}

TEST(Tpu, AddressesNeedNoService) {
  const TPUClusterResolver resolver(
      {.tpu = "grpc://10.1.2.3:8470,grpc://10.1.2.4,10.1.2.5:1", .variables = variables({})});
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"worker", {"10.1.2.3:8470", "10.1.2.4:8470", "10.1.2.5:1"}}}));
  EXPECT_TRUE(throws_saying<Unimplemented>([&] { resolver.num_accelerators(); }, {"addresses"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([] { TPUClusterResolver({.tpu = "grpc://a b"}); },
                                             {"TPUClusterResolver [tpu]"}));
}

TEST(Tpu, TheEnvironmentNamesIt) {
  for (const char* name : {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME"}) {
    EXPECT_EQ(TPUClusterResolver({.variables = variables({{name, "grpc://10.1.2.3:1"}})}).master(),
              "grpc://10.1.2.3:1");
  }
  HttpServer server(answers({{kNode, {.body = node("v3-8", R"({"ipAddress": "10.2.3.4"})")}}}));
  EXPECT_EQ(TPUClusterResolver(
                {.service = server.url(),
                 .variables = variables({{"TPU_CONFIG", R"({"tpu_node_name": "my-tpu", "project":
                     "p", "zone": "z"})"}})})
                .master(),
            "grpc://10.2.3.4:8470");
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] { TPUClusterResolver({.variables = variables({})}); }, {"[tpu]", "no name"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [] {
        TPUClusterResolver({.variables = variables({{"TPU_CONFIG", "{}"}})});
      },
      {"TPU_CONFIG [$]", "tpu_node_name"}));
}

TEST(Tpu, TheMetadataServiceSaysWhereThisMachineIs) {
  HttpServer server(
      answers({{"/computeMetadata/v1/project/project-id", {.body = "p"}},
               {"/computeMetadata/v1/instance/zone", {.body = "projects/123/zones/z"}},
               {kNode, {.body = node("v3-8", R"({"ipAddress": "10.2.3.4"})")}}}));
  const TPUClusterResolver resolver(
      {.tpu = "my-tpu",
       .service = server.url(),
       .variables = variables({{"GCE_METADATA_HOST", cat("127.0.0.1:", server.port())}})});
  EXPECT_EQ(resolver.master(), "grpc://10.2.3.4:8470");
}

TEST(Tpu, ADiscoveryDocumentSaysWhereTheApiIs) {
  std::string url;
  HttpServer server([&](const HttpReceived& request) -> HttpReply {
    if (request.target == "/discovery/tpu/v1")
      return {.body = cat(R"({"rootUrl": ")", url, R"(/", "servicePath": ""})")};
    if (request.target == cat("/v1", kNode))
      return {.body = node("v3-8", R"({"ipAddress": "10.2.3.4"})")};
    return {.status = 404};
  });
  url = server.url();
  auto options = tpu(server);
  options.service = "";
  options.credentials = "a-token";
  options.discovery_url = url + "/discovery/{api}/{apiVersion}";
  EXPECT_EQ(TPUClusterResolver(options).master(), "grpc://10.2.3.4:8470");
  options.discovery_url = "http://127.0.0.1:1/";
  options.variables = variables({{"TPU_API_DISCOVERY_URL", url + "/discovery/{api}/{apiVersion}"}});
  EXPECT_EQ(TPUClusterResolver(options).master(), "grpc://10.2.3.4:8470");
}

TEST(Tpu, ALocalOneHasNoCluster) {
  const TPUClusterResolver resolver({.tpu = "local", .variables = variables({})});
  EXPECT_FALSE(resolver.cluster_spec());
  EXPECT_EQ(resolver.master(), "");
  EXPECT_EQ(resolver.num_accelerators().count("TPU"), 1U);
}

TEST(Tpu, WhatIsWrongIsNamed) {
  const auto asking = [](HttpReply reply, bool accelerators = false) {
    return [=] {
      HttpServer server(answers({{kNode, reply}}));
      const TPUClusterResolver resolver(tpu(server));
      if (accelerators) {
        resolver.num_accelerators();
      } else {
        resolver.cluster_spec();
      }
    };
  };
  EXPECT_TRUE(throws_saying<FailedPrecondition>(asking({.body = R"({"state": "CREATING"})"}),
                                                {"[my-tpu]", "CREATING", "READY"}));
  EXPECT_TRUE(throws_saying<NotFound>(asking({.status = 404}), {"404", "nodes/my-tpu"}));
  EXPECT_TRUE(throws_saying<Unavailable>(asking({.body = "{}"}), {"no key state"}));
  EXPECT_TRUE(throws_saying<Unavailable>(asking({.body = node("v3-8", "{}")}),
                                         {"[$.networkEndpoints[0]]", "no key ipAddress"}));
  EXPECT_TRUE(throws_saying<Unavailable>(
      asking({.body = node("v3-8", R"({"ipAddress": "10.2.3.4", "port": 70000})")}),
      {"[$.networkEndpoints[0].ipAddress]", "70000"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      asking({.body = node("v3-8", R"({"ipAddress": "10.2.3.4"}, {"ipAddress": "10.2.3.5"},
                                      {"ipAddress": "10.2.3.6"})")},
             true),
      {"8 cores on 3 hosts"}));
  EXPECT_TRUE(throws_saying<Unavailable>(
      asking({.body = node("big", R"({"ipAddress": "10.2.3.4"})")}, true),
      {"[$.acceleratorType]", "big"}));
}

}  // namespace
}  // namespace tutti::distribute::cluster_resolver
