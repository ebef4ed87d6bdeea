// Each resolver enters the contract suite here, by one line.

#include "contract/cluster_resolver_contract.h"

#include "cluster/surroundings.h"
#include "support/http_server.h"
#include "tutti/base/text.h"

namespace tutti::distribute::cluster_resolver {
namespace {

using testing::HttpReceived;
using testing::HttpReply;
using testing::HttpServer;
using train::ClusterSpec;

const std::pair<const std::string, std::string> kTwoGpus = {"CUDA_VISIBLE_DEVICES", "0,1"};

ClusterSpec workers(std::vector<std::string> addresses) {
  return ClusterSpec({{"worker", std::move(addresses)}});
}

ResolverWorld make_simple() {
  const ClusterSpec cluster({{"worker", {"a:1", "b:1", "c:1"}}, {"ps", {"d:1"}}});
  return {.resolver = SimpleClusterResolver(
              cluster, {.task_type = "worker", .task_id = 1, .num_accelerators = {{"GPU", 2}}}),
          .cluster = cluster,
          .own_id = 1};
}

ResolverWorld make_tf_config() {
  const auto surroundings = variables({kTwoGpus, {"TF_CONFIG", R"({"cluster": {"worker":
      ["a:1", "b:1", "c:1"]}, "task": {"type": "worker", "index": 2}})"}});
  return {.resolver = TFConfigClusterResolver({.variables = surroundings}),
          .cluster = workers({"a:1", "b:1", "c:1"}),
          .own_id = 2,
          .change =
              [=] { (*surroundings)["TF_CONFIG"] = R"({"cluster": {"worker": ["x:1", "y:1"]}})"; },
          .changed = workers({"x:1", "y:1"})};
}

ResolverWorld make_union() {
  ResolverWorld world = make_tf_config();
  world.resolver =
      UnionResolver({world.resolver, SimpleClusterResolver(ClusterSpec({{"ps", {"p:1"}}}))});
  world.cluster = ClusterSpec({{"worker", {"a:1", "b:1", "c:1"}}, {"ps", {"p:1"}}});
  world.changed = ClusterSpec({{"worker", {"x:1", "y:1"}}, {"ps", {"p:1"}}});
  return world;
}

ResolverWorld make_slurm() {
  return {.resolver = SlurmClusterResolver(
              {.gpus_per_task = 2,
               .variables = variables({kTwoGpus,
                                       {"SLURM_PROCID", "1"},
                                       {"SLURM_STEP_NUM_TASKS", "3"},
                                       {"SLURM_STEP_NODELIST", "n[1-3]"},
                                       {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"}})}),
          .cluster = workers({"n1:8888", "n2:8888", "n3:8888"}),
          .own_id = 1,
          .own_id_comes_late = true};
}

ResolverWorld make_kubernetes() {
  const auto pods = std::make_shared<std::vector<KubernetesPod>>(
      std::vector<KubernetesPod>{{"a", "Running", "", "10.0.0.1"},
                                 {"b", "Running", "", "10.0.0.2"},
                                 {"c", "Running", "", "10.0.0.3"}});
  return {.resolver = KubernetesClusterResolver(
              {.override_client = [pods](const std::string&) { return *pods; },
               .variables = variables({kTwoGpus})}),
          .cluster = workers({"10.0.0.1:8470", "10.0.0.2:8470", "10.0.0.3:8470"}),
          .change = [pods] { pods->pop_back(); },
          .changed = workers({"10.0.0.1:8470", "10.0.0.2:8470"})};
}

ResolverWorld make_gce() {
  const auto count = std::make_shared<int>(3);
  const auto server = std::make_shared<HttpServer>([count](const HttpReceived& request) {
    if (request.method == "GET") {
      const std::string number = request.target.substr(request.target.size() - 1);
      return HttpReply{
          .body = cat(R"({"networkInterfaces": [{"networkIP": "10.0.0.)", number, R"("}]})")};
    }
    std::vector<std::string> items;
    for (int i = 1; i <= *count; ++i) items.push_back(cat(R"({"instance": "i-)", i, "\"}"));
    return HttpReply{.body = cat(R"({"items": [)", join(items, ","), "]}")};
  });
  return {.resolver = GCEClusterResolver({.project = "p",
                                          .zone = "z",
                                          .instance_group = "g",
                                          .port = 1,
                                          .service = server->url(),
                                          .variables = variables({kTwoGpus})}),
          .cluster = workers({"10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"}),
          .own_id = 0,
          .change = [count] { *count = 2; },
          .changed = workers({"10.0.0.1:1", "10.0.0.2:1"}),
          .task_type_settable = false,
          .surroundings = server};
}

ResolverWorld make_sage_maker() {
  const auto surroundings =
      variables({kTwoGpus, {"SM_HOSTS", R"(["a", "b", "c"])"}, {"SM_CURRENT_HOST", "b"}});
  return {.resolver = SageMakerClusterResolver({.variables = surroundings}),
          .cluster = workers({"a:2223", "b:2223", "c:2223"}),
          .own_id = 1,
          .change = [=] { (*surroundings)["SM_HOSTS"] = R"(["a", "b"])"; },
          .changed = workers({"a:2223", "b:2223"})};
}

ResolverWorld make_tpu() {
  const auto addresses = std::make_shared<std::vector<std::string>>(
      std::vector<std::string>{"10.0.0.1", "10.0.0.2", "10.0.0.3"});
  const auto server = std::make_shared<HttpServer>([addresses](const HttpReceived&) {
    std::vector<std::string> endpoints;
    for (const std::string& ip : *addresses)
      endpoints.push_back(cat(R"({"ipAddress": ")", ip, R"("})"));
    return HttpReply{.body = cat(R"({"state": "READY", "acceleratorType": "v3-6",
                                     "networkEndpoints": [)",
                                 join(endpoints, ","), "]}")};
  });
  return {.resolver = TPUClusterResolver({.tpu = "t",
                                          .zone = "z",
                                          .project = "p",
                                          .service = server->url(),
                                          .variables = variables({})}),
          .cluster = workers({"10.0.0.1:8470", "10.0.0.2:8470", "10.0.0.3:8470"}),
          .own_id = 0,
          .change = [addresses] { addresses->pop_back(); },
          .changed = workers({"10.0.0.1:8470", "10.0.0.2:8470"}),
          .accelerators = {{"TPU", 2}},
          .surroundings = server};
}

ResolverWorld make_torchrun() {
  return {.resolver = TorchrunClusterResolver({.variables = variables({kTwoGpus,
                                                                       {"RANK", "2"},
                                                                       {"WORLD_SIZE", "3"},
                                                                       {"LOCAL_RANK", "2"},
                                                                       {"LOCAL_WORLD_SIZE", "3"},
                                                                       {"GROUP_RANK", "0"},
                                                                       {"MASTER_ADDR", "h"},
                                                                       {"MASTER_PORT", "99"}})}),
          .cluster = workers({"h:100", "h:101", "h:102"}),
          .own_id = 2};
}

ResolverWorld make_mpi() {
  return {.resolver =
              MPIClusterResolver({.hosts = {"a", "b", "c"},
                                  .variables = variables({kTwoGpus,
                                                          {"OMPI_COMM_WORLD_RANK", "1"},
                                                          {"OMPI_COMM_WORLD_SIZE", "3"},
                                                          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}})}),
          .cluster = workers({"a:8888", "b:8888", "c:8888"}),
          .own_id = 1};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Simple, ClusterResolverContract,
                         ::testing::Values(ResolverMaker{"simple", make_simple}));
INSTANTIATE_TEST_SUITE_P(TfConfig, ClusterResolverContract,
                         ::testing::Values(ResolverMaker{"tf_config", make_tf_config}));
INSTANTIATE_TEST_SUITE_P(Union, ClusterResolverContract,
                         ::testing::Values(ResolverMaker{"union", make_union}));
INSTANTIATE_TEST_SUITE_P(Slurm, ClusterResolverContract,
                         ::testing::Values(ResolverMaker{"slurm", make_slurm}));
INSTANTIATE_TEST_SUITE_P(Kubernetes, ClusterResolverContract,
                         ::testing::Values(ResolverMaker{"kubernetes", make_kubernetes}));
INSTANTIATE_TEST_SUITE_P(Gce, ClusterResolverContract,
                         ::testing::Values(ResolverMaker{"gce", make_gce}));
INSTANTIATE_TEST_SUITE_P(SageMaker, ClusterResolverContract,
                         ::testing::Values(ResolverMaker{"sage_maker", make_sage_maker}));
INSTANTIATE_TEST_SUITE_P(Tpu, ClusterResolverContract,
                         ::testing::Values(ResolverMaker{"tpu", make_tpu}));
INSTANTIATE_TEST_SUITE_P(Torchrun, ClusterResolverContract,
                         ::testing::Values(ResolverMaker{"torchrun", make_torchrun}));
INSTANTIATE_TEST_SUITE_P(Mpi, ClusterResolverContract,
                         ::testing::Values(ResolverMaker{"mpi", make_mpi}));

}  // namespace tutti::distribute::cluster_resolver
