#include <gtest/gtest.h>

#include "cluster/kube_config.h"
#include "cluster/surroundings.h"
#include "support/http_server.h"
#include "support/message_checks.h"
#include "support/temporary_folder.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::distribute::cluster_resolver {
namespace {

using testing::Certificate;
using testing::HttpReceived;
using testing::HttpReply;
using testing::HttpServer;
using testing::throws_saying;
using train::ClusterSpec;
using Pods = std::vector<KubernetesPod>;
using Location = KubernetesExecutableLocation;

/// A client that gives `pods` for each selector.
KubernetesClusterResolverOptions with(std::map<std::string, Pods> pods) {
  return {.override_client = [pods](const std::string& selector) { return pods.at(selector); }};
}

Pods three_pods() {
  return {{"tensorflow-abc123", "Running", "10.1.2.3", ""},
          {"tensorflow-def456", "Running", "10.1.2.4", ""},
          {"tensorflow-999999", "Running", "10.1.2.5", ""}};
}

TEST(Kubernetes, PodsAreSortedByName) {
  const KubernetesClusterResolver resolver(with({{"job-name=tensorflow", three_pods()}}));
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec({{"worker", {"10.1.2.5:8470", "10.1.2.3:8470", "10.1.2.4:8470"}}}));
}

TEST(Kubernetes, SelectorsOfAJobFollowEachOther) {
  auto options = with(
      {{"job-name=worker1", three_pods()},
       {"job-name=worker2", {{"b", "Running", "10.1.2.7", ""}, {"a", "Running", "10.1.2.6", ""}}},
       {"job-name=ps", {{"ps", "Running", "10.1.2.1", ""}}}});
  options.job_to_label_mapping = {{"worker", {"job-name=worker1", "job-name=worker2"}},
                                  {"ps", {"job-name=ps"}}};
  options.tf_server_port = 99;
  EXPECT_EQ(
      KubernetesClusterResolver(options).cluster_spec(),
      ClusterSpec({{"ps", {"10.1.2.1:99"}},
                   {"worker",
                    {"10.1.2.5:99", "10.1.2.3:99", "10.1.2.4:99", "10.1.2.6:99", "10.1.2.7:99"}}}));
}

TEST(Kubernetes, TheTaskMustBeSet) {
  const KubernetesClusterResolver resolver(with({{"job-name=tensorflow", three_pods()}}));
  EXPECT_EQ(resolver.task_type(), std::nullopt);
  EXPECT_EQ(resolver.master(), "");
  EXPECT_EQ(resolver.master("worker", 2), "grpc://10.1.2.4:8470");
  resolver.set_task_type("worker");
  resolver.set_task_id(0);
  EXPECT_EQ(resolver.master(), "grpc://10.1.2.5:8470");
}

TEST(Kubernetes, APodsOwnAddressIsUsedWithinTheClusterItsHostsOutside) {
  const Pods pods = {{"a", "Running", "10.0.0.1", "fd00::1"},
                     {"b", "Running", "10.0.0.2", "1.2.3.4"}};
  auto options = with({{"job-name=tensorflow", pods}});
  EXPECT_EQ(KubernetesClusterResolver(options).cluster_spec(),
            ClusterSpec({{"worker", {"[fd00::1]:8470", "1.2.3.4:8470"}}}));
  options.executable_location = Location::kOffCluster;
  EXPECT_EQ(KubernetesClusterResolver(options).cluster_spec(),
            ClusterSpec({{"worker", {"10.0.0.1:8470", "10.0.0.2:8470"}}}));
}

TEST(Kubernetes, APodThatDoesNotRunIsAnError) {
  for (const char* phase : {"Pending", "Failed", "Succeeded", "Unknown", ""}) {
    auto pods = three_pods();
    pods[1].phase = phase;
    const KubernetesClusterResolver resolver(with({{"job-name=tensorflow", pods}}));
    EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { resolver.cluster_spec(); },
                                                  {"[tensorflow-def456]", phase, "Running"}));
  }
}

TEST(Kubernetes, NoPodIsAnError) {
  const KubernetesClusterResolver resolver(with({{"job-name=tensorflow", {}}}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { resolver.cluster_spec(); },
                                                {"[job-name=tensorflow]", "no pod"}));
}

TEST(Kubernetes, ArgumentsThatCannotBeAreRefused) {
  auto options = with({});
  options.executable_location = static_cast<Location>(7);
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { KubernetesClusterResolver resolver(options); },
                                             {"[executable_location]", "7"}));
  options = with({});
  options.tf_server_port = 65536;
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { KubernetesClusterResolver resolver(options); },
                                             {"[port]", "65536"}));
}

// --- the API server ------------------------------------------------------------------------------

std::string pod_json(const std::string& name, const std::string& phase, const std::string& ip) {
  return cat(R"({"metadata": {"name": ")", name, R"("}, "spec": {}, "status": {"phase": ")", phase,
             R"(", "podIP": ")", ip, R"(", "hostIP": "10.0.0.9"}})");
}
std::string pod_list(const std::vector<std::string>& pods, const std::string& more = "") {
  return cat(R"({"kind": "PodList", "metadata": {"continue": ")", more, R"("}, "items": [)",
             join(pods, ", "), "]}");
}

/// A pod with a service account, and the API server of its cluster.
class InAPod : public testing::TemporaryFolder {
 protected:
  KubernetesClusterResolverOptions options(int port) {
    write("token", "the-token\n");
    write("ca.crt", certificate_.pem());
    return {.service_account_folder = folder_.string(),
            .variables = variables({{"KUBERNETES_SERVICE_HOST", "127.0.0.1"},
                                    {"KUBERNETES_SERVICE_PORT", std::to_string(port)}})};
  }
  KubernetesClusterResolver resolver(HttpServer::Handler handler) {
    server_ = std::make_unique<HttpServer>(std::move(handler), &certificate_, nullptr);
    return KubernetesClusterResolver(options(server_->port()));
  }
  /// What cluster_spec() does when the server always says `reply`.
  std::function<void()> asking(HttpReply reply) {
    return [this, resolver = resolver([reply](const HttpReceived&) { return reply; })] {
      resolver.cluster_spec();
    };
  }
  Certificate certificate_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(InAPod, TheApiIsAskedWithTheServiceAccount) {
  const auto resolver = this->resolver([](const HttpReceived&) -> HttpReply {
    return {.body = pod_list(
                {pod_json("b", "Running", "1.1.1.2"), pod_json("a", "Running", "1.1.1.1")})};
  });
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker", {"1.1.1.1:8470", "1.1.1.2:8470"}}}));
  const HttpReceived received = server_->received().at(0);
  EXPECT_EQ(received.target, "/api/v1/pods?limit=500&labelSelector=job-name%3Dtensorflow");
  EXPECT_EQ(received.headers.at("authorization"), "Bearer the-token");
}

TEST_F(InAPod, ANewTokenIsUsedAtTheNextCall) {
  const auto resolver = this->resolver([](const HttpReceived&) -> HttpReply {
    return {.body = pod_list({pod_json("a", "Running", "1.1.1.1")})};
  });
  resolver.cluster_spec();
  write("token", "another");
  resolver.cluster_spec();
  EXPECT_EQ(server_->received().at(1).headers.at("authorization"), "Bearer another");
}

TEST_F(InAPod, PagesAreReadToTheLast) {
  server_ = std::make_unique<HttpServer>(
      [](const HttpReceived& request) -> HttpReply {
        if (request.target.find("continue=a%2Fb") == std::string::npos)
          return {.body = pod_list({pod_json("a", "Running", "1.1.1.1")}, "a/b")};
        return {.body = pod_list({pod_json("b", "Running", "1.1.1.2")})};
      },
      &certificate_, nullptr);
  auto options = this->options(server_->port());
  options.pod_namespace = "my team";
  EXPECT_EQ(KubernetesClusterResolver(options).cluster_spec().num_tasks("worker"), 2);
  EXPECT_EQ(server_->received().at(0).target.rfind("/api/v1/namespaces/my%20team/pods?", 0), 0U);
}

TEST_F(InAPod, BadAnswersAreErrorsThatNameThePlace) {
  EXPECT_TRUE(throws_saying<Unavailable>(asking({.body = "<html>"}), {"[$]", "no JSON"}));
  EXPECT_TRUE(throws_saying<Unavailable>(asking({.body = "[]"}), {"[$]", "a list"}));
  EXPECT_TRUE(throws_saying<Unavailable>(asking({.body = "{}"}), {"[$]", "no key items"}));
  EXPECT_TRUE(throws_saying<Unavailable>(asking({.body = R"({"items": 3})"}), {"[$.items]", "3"}));
  EXPECT_TRUE(
      throws_saying<Unavailable>(asking({.body = R"({"items": [7]})"}), {"[$.items[0]]", "7"}));
  EXPECT_TRUE(throws_saying<Unavailable>(
      asking({.body = R"({"items": [{"status": {}, "metadata": {"name": 5}}]})"}),
      {"[$.items[0].metadata.name]", "5"}));
  EXPECT_TRUE(throws_saying<Unavailable>(
      asking({.body = R"({"items": [{"status": [], "metadata": {"name": "a"}}]})"}),
      {"[$.items[0].status]", "a list"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      asking({.body = pod_list({pod_json("a", "Running", "1.1.1.999")})}), {"[a]", "1.1.1.999"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      asking({.body = pod_list(
                  {pod_json("a", "Running", "1.1.1.1"), pod_json("b", "Running", "1.1.1.1")})}),
      {"[worker:1]", "an address of its own"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      asking({.body = pod_list({pod_json("a", "Pending", "")})}), {"[a]", "Pending"}));
  EXPECT_TRUE(
      throws_saying<FailedPrecondition>(asking({.body = R"({"items": null})"}), {"no pod"}));
}

TEST_F(InAPod, FailuresOfTheServerAreTheirOwnErrors) {
  EXPECT_TRUE(throws_saying<PermissionDenied>(asking({.status = 403, .body = "pods is forbidden"}),
                                              {"403", "pods is forbidden"}));
  EXPECT_TRUE(throws_saying<Unauthenticated>(asking({.status = 401}), {"401"}));
  EXPECT_TRUE(throws_saying<NotFound>(asking({.status = 404}), {"404"}));
  EXPECT_TRUE(throws_saying<Unavailable>(
      asking({.raw = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"items\""}), {"[GET"}));
  EXPECT_TRUE(throws_saying<ResourceExhausted>(asking({.body = std::string((32 << 20) + 1, ' ')}),
                                               {"more than 33554432 bytes"}));
}

TEST_F(InAPod, AServerThatTheAccountDoesNotTrustGetsNoToken) {
  const Certificate other;
  server_ = std::make_unique<HttpServer>([](const HttpReceived&) { return HttpReply{}; }, &other,
                                         nullptr);
  const KubernetesClusterResolver resolver(options(server_->port()));
  EXPECT_TRUE(throws_saying<Unauthenticated>([&] { resolver.cluster_spec(); }, {"certificate"}));
  EXPECT_TRUE(server_->received().empty());
}

TEST_F(InAPod, OutsideOfAPodItSaysSo) {
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [] { KubernetesClusterResolver({.variables = variables({})}); },
      {"[KUBERNETES_SERVICE_HOST]", "not in a pod of Kubernetes"}));
  auto without_account = options(1);
  std::filesystem::remove(path("token"));
  EXPECT_TRUE(throws_saying<FailedPrecondition>(
      [&] { KubernetesClusterResolver resolver(without_account); }, {"token]", "service account"}));
  auto bad_host = options(1);
  (*bad_host.variables)["KUBERNETES_SERVICE_HOST"] = "a/b";
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { KubernetesClusterResolver resolver(bad_host); },
                                             {"[KUBERNETES_SERVICE_HOST]"}));
}

// --- kubectl's configuration ---------------------------------------------------------------------

class KubeConfigFile : public testing::TemporaryFolder {
 protected:
  /// A resolver off the cluster by the configuration `text`.
  KubernetesClusterResolver by(const std::string& text) {
    return KubernetesClusterResolver(
        {.executable_location = Location::kOffCluster,
         .variables = variables({{"KUBECONFIG", write("config", text)}})});
  }
  cluster::KubernetesAccess access(const std::string& files) {
    return cluster::access_by_kube_config(
        "Test", cluster::Variables("Test", variables({{"KUBECONFIG", files}})));
  }
  std::string config(const std::string& server, const std::string& cluster_more,
                     const std::string& user) {
    return cat(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\ncontexts:\n- name: other\n"
        "  context: {cluster: none, user: none}\n- name: here\n  context:\n"
        "    cluster: c\n    user: u\nclusters:\n- name: c\n  cluster:\n    server: ",
        server, "\n", cluster_more, "users:\n- name: u\n  user:\n", user);
  }
};

TEST_F(KubeConfigFile, TheCurrentContextSaysWhereAndWho) {
  HttpServer server([](const HttpReceived&) -> HttpReply {
    return {.body = pod_list({pod_json("a", "Running", "1.1.1.1")})};
  });
  const auto resolver = by(config(server.url() + "/", "", "    token: the-token\n"));
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec({{"worker", {"10.0.0.9:8470"}}}));
  EXPECT_EQ(server.received().at(0).headers.at("authorization"), "Bearer the-token");
}

TEST_F(KubeConfigFile, CertificatesAreUsed) {
  const Certificate certificate;
  const Certificate own;
  HttpServer server(
      [](const HttpReceived&) -> HttpReply {
        return {.body = pod_list({pod_json("a", "Running", "1.1.1.1")})};
      },
      &certificate, &own);
  write("ca.pem", certificate.pem());
  write("own.pem", own.pem());
  write("own.key", own.key_pem());
  const auto resolver = by(config(server.url(), "    certificate-authority: ca.pem\n",
                                  "    client-certificate: own.pem\n    client-key: own.key\n"));
  EXPECT_EQ(resolver.cluster_spec().num_tasks("worker"), 1);
}

TEST_F(KubeConfigFile, DataMayStandInTheFile) {
  const auto found = access(write(
      "config", config("https://h:1",
                       "    certificate-authority-data: aGVsbG8=\n"
                       "    insecure-skip-tls-verify: true\n",
                       "    client-certificate-data: Y2VydA==\n    client-key-data: a2V5\n")));
  EXPECT_EQ(found.server, "https://h:1");
  EXPECT_EQ(found.tls.authority, "hello");
  EXPECT_EQ(found.tls.certificate, "cert");
  EXPECT_EQ(found.tls.key, "key");
  EXPECT_FALSE(found.tls.verify);
}

TEST_F(KubeConfigFile, ATokenMayStandInAFileOfItsOwn) {
  write("token", "by-file\n");
  EXPECT_EQ(access(write("config", config("https://h:1", "", "    tokenFile: token\n"))).token,
            "by-file");
}

TEST_F(KubeConfigFile, SeveralFilesAreOne) {
  const std::string first = write("first", "current-context: x\ncontexts: null\n");
  const std::string second = write("second",
                                   "current-context: y\ncontexts: [{name: x, context: {cluster: "
                                   "c}}]\nclusters: [{name: c, cluster: {server: 'https://h'}}]\n");
  EXPECT_EQ(access(cat(first, ":", path("none"), ":", second)).server, "https://h");
}

TEST_F(KubeConfigFile, TheHomeFolderHasOneToo) {
  std::filesystem::create_directories(folder_ / ".kube");
  write(".kube/config", config("https://home", "", "    token: t\n"));
  EXPECT_EQ(cluster::access_by_kube_config(
                "Test", cluster::Variables("Test", variables({{"HOME", folder_.string()}})))
                .server,
            "https://home");
}

TEST_F(KubeConfigFile, WhatIsWrongIsNamed) {
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { access(path("none")); },
                                                {"none]", "no such file", "KUBECONFIG"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { by("a: [1"); }, {"[line 2]", "plain YAML"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { by("- 1"); }, {"[$]", "a list"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { by("a: 1\na: 2"); }, {"[line 2]", "twice"}));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>([&] { by("a: &x 1\nb: *x"); }, {"[line 2]", "an alias"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { by(std::string(100, '[')); }, {"32 levels"}));
  EXPECT_TRUE(throws_saying<FailedPrecondition>([&] { by("a: 1"); }, {"[current-context]"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { by("current-context: x"); },
                                             {"[contexts]", "no entry \"x\""}));
  EXPECT_TRUE(
      throws_saying<InvalidArgument>([&] { by("current-context: x\ncontexts: [{name: x}]"); },
                                     {"[$.contexts[0]]", "no key context"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { by(config("https://h", "    certificate-authority-data: '***'\n", "    token: t\n")); },
      {"certificate-authority-data]", "base64"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>(
      [&] { by(config("https://h", "    certificate-authority: gone.pem\n", "    token: t\n")); },
      {"certificate-authority]", "gone.pem", "cannot be read"}));
  EXPECT_TRUE(throws_saying<Unimplemented>(
      [&] { by(config("https://h", "", "    exec: {command: aws}\n")); },
      {"credentials by exec", "kubectl create token"}));
  EXPECT_TRUE(throws_saying<InvalidArgument>([&] { by(std::string((1 << 20) + 1, ' ')); },
                                             {"more than 1 MiB"}));
}

TEST(KubeConfigYaml, ScalarsAreTextButForTruthAndNothing) {
  const auto json = cluster::parse_yaml(
      "Test", "a: 1\nb: true\nc: 'true'\nd:\ne: [x, {f: no}, null]\n--- \nsecond: 1\n");
  EXPECT_EQ(json.dump(), R"({"a":"1","b":true,"c":"true","d":null,"e":["x",{"f":"no"},null]})");
}

}  // namespace
}  // namespace tutti::distribute::cluster_resolver
