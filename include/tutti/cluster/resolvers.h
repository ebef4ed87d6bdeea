#pragma once
// The resolvers of schedulers, launchers and clouds. docs/cluster.md says what each reads.
//
// Those that ask a service (Kubernetes, GCE, TPU) do so at every call, within ten seconds, three
// times when it is not there, and take no more than 32 MiB: Unavailable, DeadlineExceeded,
// Unauthenticated, PermissionDenied, NotFound or ResourceExhausted tell what went wrong. A token is
// sent over https only, or to this machine.

#include <functional>
#include <utility>

#include "tutti/cluster/cluster_resolver.h"

namespace tutti::distribute::cluster_resolver {

struct SlurmClusterResolverOptions {
  /// Job → number of tasks; all tasks are workers when empty.
  std::map<std::string, int64_t> jobs = {};
  int64_t port_base = 8888;
  /// Those of CUDA_VISIBLE_DEVICES, else what nvidia-smi lists.
  std::optional<int64_t> gpus_per_node = {};
  /// The GPUs of a node shared out evenly.
  std::optional<int64_t> gpus_per_task = {};
  /// Of every node.
  std::optional<int64_t> tasks_per_node = {};
  bool auto_set_gpu = true;
  std::string rpc_layer = "grpc";
  /// TensorFlow's map form of tasks_per_node: host → number of tasks.
  std::map<std::string, int64_t> tasks_of_host = {};
  std::shared_ptr<EnvironmentVariables> variables = {};
};

/// A step of Slurm. Reads SLURM_PROCID, and where the options leave it open SLURM_STEP_NUM_TASKS,
/// SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE.
///
/// Tasks are numbered host by host (hosts sorted by name, numbers in it by value) and dealt to jobs
/// by name; the i-th task of a host has port port_base + i and the i-th share of its GPUs.
/// cluster_spec() sets CUDA_VISIBLE_DEVICES to this task's share if auto_set_gpu, so call it before
/// CUDA is used and before other threads read the environment. task_type() and task_id() are
/// nothing until then.
///
/// FailedPrecondition outside a step, for more GPUs than a node has, for jobs that are not as many
/// tasks as the step, and when Slurm placed this task elsewhere (another distribution than block);
/// InvalidArgument for lists that cannot be read.
class SlurmClusterResolver : public ClusterResolver {
 public:
  explicit SlurmClusterResolver(SlurmClusterResolverOptions options = {});
  /// (task_type(), task_id()).
  std::pair<std::optional<std::string>, std::optional<int64_t>> get_task_info() const;
};

enum class KubernetesExecutableLocation { kWithinCluster = 0, kOffCluster = 1 };

struct KubernetesPod {
  std::string name;
  /// "Running", "Pending", …
  std::string phase;
  std::string host_ip;
  std::string pod_ip;
};

struct KubernetesClusterResolverOptions {
  /// Job → label selectors; {{"worker", {"job-name=tensorflow"}}} when empty.
  std::map<std::string, std::vector<std::string>> job_to_label_mapping = {};
  int64_t tf_server_port = 8470;
  std::string rpc_layer = "grpc";
  /// Gives the pods of a label selector, instead of the Kubernetes API.
  std::function<std::vector<KubernetesPod>(const std::string& label_selector)> override_client = {};
  KubernetesExecutableLocation executable_location = KubernetesExecutableLocation::kWithinCluster;
  /// All namespaces when empty.
  std::string pod_namespace = "";
  std::string service_account_folder = "/var/run/secrets/kubernetes.io/serviceaccount";
  std::shared_ptr<EnvironmentVariables> variables = {};
};

/// The pods that have the labels, sorted by name for each selector. Asks the API server that
/// KUBERNETES_SERVICE_HOST and the pod's service account name, or off the cluster the one of
/// KUBECONFIG or ~/.kube/config. An address is the pod's IP (off the cluster, its host's) with
/// tf_server_port. Which task this is must be set: set_task_type(), set_task_id().
///
/// FailedPrecondition when a pod is not Running, when there is none, and outside a cluster.
class KubernetesClusterResolver : public ClusterResolver {
 public:
  explicit KubernetesClusterResolver(KubernetesClusterResolverOptions options = {});
};

struct GCEClusterResolverOptions {
  std::string project;
  std::string zone;
  std::string instance_group;
  int64_t port = 0;
  std::string task_type = "worker";
  int64_t task_id = 0;
  std::string rpc_layer = "grpc";
  /// An access token; "default" asks the metadata service for one.
  std::string credentials = "default";
  /// Where the Compute Engine API is, instead of https://compute.googleapis.com/compute/v1. No
  /// default credentials are sent there.
  std::string service = "";
  std::shared_ptr<EnvironmentVariables> variables = {};
};

/// The running instances of an instance group, by network IP, sorted. The type of its tasks cannot
/// be set later (FailedPrecondition); FailedPrecondition also for a group where nothing runs.
class GCEClusterResolver : public ClusterResolver {
 public:
  explicit GCEClusterResolver(GCEClusterResolverOptions options);
};

struct SageMakerClusterResolverOptions {
  int64_t port = 2223;
  std::optional<std::string> task_type = {};
  std::optional<int64_t> task_id = {};
  std::optional<std::string> rpc_layer = {};
  std::string environment = "";
  std::shared_ptr<EnvironmentVariables> variables = {};
};

/// Reads SM_HOSTS (a JSON list) and SM_CURRENT_HOST at every call: hosts sorted, all of them
/// workers. An empty cluster when the current host is not among them. FailedPrecondition when the
/// variables are not set.
class SageMakerClusterResolver : public ClusterResolver {
 public:
  explicit SageMakerClusterResolver(SageMakerClusterResolverOptions options = {});
};

struct TPUClusterResolverOptions {
  /// A TPU's name, its address (`grpc://…`, several with commas), or "local"; when empty
  /// KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME or the `tpu_node_name` of TPU_CONFIG.
  std::string tpu = "";
  /// Of TPU_CONFIG, else this machine's, from the metadata service.
  std::string zone = "";
  std::string project = "";
  std::string job_name = "worker";
  /// A further job of one task, at coordinator_address.
  std::string coordinator_name = "";
  std::string coordinator_address = "";
  /// As for GCE.
  std::string credentials = "default";
  /// Where the TPU API is, instead of https://tpu.googleapis.com/v1.
  std::string service = "";
  /// Template of a discovery document's address, which says where the API is; {api} and
  /// {apiVersion} are filled in. TPU_API_DISCOVERY_URL wins.
  std::string discovery_url = "";
  std::shared_ptr<EnvironmentVariables> variables = {};
};

/// The hosts of a Cloud TPU. FailedPrecondition when it is not ready or its cores are not the same
/// on all hosts. num_accelerators() knows the cores by the TPU's type, of a local one by its device
/// files; of bare addresses it does not (Unimplemented).
class TPUClusterResolver : public ClusterResolver {
 public:
  explicit TPUClusterResolver(TPUClusterResolverOptions options = {});
  std::string get_master() const { return master(); }
  std::string get_job_name() const;
  /// `/job:<job>/task:0`.
  std::string get_coordination_service_leader() const;
};

struct TorchrunClusterResolverOptions {
  /// The hosts by group rank; needed when there are several.
  std::vector<std::string> hosts = {};
  /// 0 is MASTER_PORT + 1: torchrun itself listens on MASTER_PORT.
  int64_t port_base = 0;
  std::string rpc_layer = "";
  std::shared_ptr<EnvironmentVariables> variables = {};
};

/// The workers that torchrun started. Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
/// GROUP_RANK, MASTER_ADDR and MASTER_PORT; the worker of local rank i has port port_base + i.
/// FailedPrecondition outside torchrun, and for several hosts without `hosts`.
class TorchrunClusterResolver : public ClusterResolver {
 public:
  explicit TorchrunClusterResolver(TorchrunClusterResolverOptions options = {});
};

struct MPIClusterResolverOptions {
  /// `host` or `host:slots`, as ranks are placed; when empty those of the host file.
  std::vector<std::string> hosts = {};
  /// Lines `host`, `host:slots` or `host slots=N`, a host once or once a slot; when empty
  /// PBS_NODEFILE or LSB_DJOB_HOSTFILE, else SLURM_STEP_NODELIST.
  std::string hostfile = "";
  int64_t port_base = 8888;
  std::string rpc_layer = "";
  std::shared_ptr<EnvironmentVariables> variables = {};
};

/// The workers that mpirun started: Open MPI's OMPI_COMM_WORLD_…, MVAPICH's MV2_COMM_WORLD_…, or
/// PMI_RANK, PMI_SIZE, MPI_LOCALRANKID and MPI_LOCALNRANKS of MPICH and Intel MPI. Ranks fill the
/// hosts one after another; a host without a number of slots takes as many as this one has.
/// FailedPrecondition outside MPI, for hosts that are not known, and for ranks placed otherwise.
class MPIClusterResolver : public ClusterResolver {
 public:
  explicit MPIClusterResolver(MPIClusterResolverOptions options = {});
};

}  // namespace tutti::distribute::cluster_resolver
