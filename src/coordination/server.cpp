#include "tutti/coordination/server.h"

#include "coordination/cluster.h"
#include "coordination/grpc_service.h"
#include "rpc/server.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/version.h"

namespace tutti::distribute {
namespace {

using coordination::Coordinator;
using coordination::Milliseconds;

constexpr Milliseconds kFlush{1000};

std::string first_of(const std::string& preferred, const std::string& other) {
  return preferred.empty() ? other : preferred;
}

rpc::Security security_of(const ServerConfig& config) {
  const auto environment = rpc::Security::from_environment();
  rpc::Security security;
  security.ca_file = first_of(config.ca_file, environment.ca_file);
  security.certificate_file = first_of(config.certificate_file, environment.certificate_file);
  security.key_file = first_of(config.key_file, environment.key_file);
  security.server_name = first_of(config.server_name, environment.server_name);
  security.token_file = first_of(config.token_file, environment.token_file);
  return security;
}

ServerDef checked_def(const Server::ClusterMap& cluster, const ServerOptions& options) {
  const std::string where = cat("Server [", coordination::summary_of(cluster), "]: ");
  if (options.protocol != "grpc") {
    throw InvalidArgument(cat(where, "protocol \"", options.protocol, "\", expected \"grpc\""));
  }
  ServerDef def{.cluster = cluster, .job_name = options.job_name, .protocol = options.protocol};
  if (def.job_name.empty()) {
    if (cluster.size() != 1) {
      throw InvalidArgument(cat(where, "no job name for a cluster of ", cluster.size(),
                                " jobs, expected one; set ServerOptions::job_name"));
    }
    def.job_name = cluster.begin()->first;
  }
  const auto job = cluster.find(def.job_name);
  if (job == cluster.end())
    throw InvalidArgument(cat(where, "no job \"", def.job_name, "\"; name one of the cluster"));
  if (!options.task_index && job->second.size() != 1) {
    throw InvalidArgument(cat(where, "no task index for job \"", def.job_name, "\" of ",
                              job->second.size(),
                              " tasks, expected one; set ServerOptions::task_index"));
  }
  def.task_index = options.task_index.value_or(0);
  if (def.task_index < 0 || static_cast<std::size_t>(def.task_index) >= job->second.size()) {
    throw InvalidArgument(cat(where, "task ", def.task_index, " of job \"", def.job_name,
                              "\", which has ", job->second.size()));
  }
  return def;
}

}  // namespace

struct Server::Impl {
  Impl(ServerDef server_def, const ServerConfig& server_config)
      : def(std::move(server_def)), config(server_config) {}
  ~Impl() { stop(); }

  std::string task() const { return coordination::task_name(def.job_name, def.task_index); }
  std::string own_address() const {
    return config.listen_address.empty() ? coordination::address_of(def.cluster, task())
                                         : config.listen_address;
  }

  void start() {
    MutexLock lock(mutex);
    if (stopped) {
      throw FailedPrecondition(
          cat("Server::start [", task(), "]: stopped before, expected a new server; make another"));
    }
    if (server) return;
    v1_description.set_cluster_hash(coordination::cluster_hash(def.cluster));
    v1_description.set_task(task());
    v1_description.set_version(TUTTI_VERSION_STRING);
    v1_description.set_process(coordination::this_process());
    auto new_task_service = std::make_unique<coordination::TaskService>(v1_description);
    std::vector<grpc::Service*> services{new_task_service.get()};
    std::unique_ptr<Coordinator> new_coordinator;
    std::unique_ptr<coordination::GrpcService> new_service;
    if (coordination::leader_of(def.cluster) == task()) {
      new_coordinator = std::make_unique<Coordinator>(coordination::CoordinatorOptions{
          .cluster = def.cluster, .limits = coordination::Limits::from_environment()});
      new_service = std::make_unique<coordination::GrpcService>(*new_coordinator);
      services.push_back(new_service.get());
    }
    server = std::make_unique<rpc::RpcServer>(own_address(), security_of(config), services);
    task_service = std::move(new_task_service);
    coordinator = std::move(new_coordinator);
    service = std::move(new_service);
    address = server->address();
  }

  void stop() {
    MutexLock lock(mutex);
    if (server && !stopped) {
      if (coordinator) coordinator->stop("Server::stop");
      server->shutdown(kFlush);
    }
    stopped = true;
    changed.notify_all();
  }

  void join() {
    MutexLock lock(mutex);
    if (!server)
      throw FailedPrecondition(cat("Server::join [", task(), "]: not started; call start()"));
    while (!stopped) changed.wait(mutex);
  }

  const ServerDef def;
  const ServerConfig config;
  Mutex mutex;
  ConditionVariable changed;
  bool stopped TUTTI_GUARDED_BY(mutex) = false;
  std::string address TUTTI_GUARDED_BY(mutex);
  coordination::v1::Description v1_description TUTTI_GUARDED_BY(mutex);
  // In the order of their making; the server ends first.
  std::unique_ptr<Coordinator> coordinator TUTTI_GUARDED_BY(mutex);
  std::unique_ptr<coordination::GrpcService> service TUTTI_GUARDED_BY(mutex);
  std::unique_ptr<coordination::TaskService> task_service TUTTI_GUARDED_BY(mutex);
  std::unique_ptr<rpc::RpcServer> server TUTTI_GUARDED_BY(mutex);
};

Server::Server(const ClusterMap& cluster, const ServerOptions& options)
    : impl_(std::make_unique<Impl>(checked_def(cluster, options), options.config)) {
  if (options.start) start();
}

Server::Server(const ServerDef& server_def, const ServerOptions& options)
    : Server(server_def.cluster,
             ServerOptions{.job_name = first_of(options.job_name, server_def.job_name),
                           .task_index = options.task_index.value_or(server_def.task_index),
                           .protocol = server_def.protocol,
                           .config = options.config,
                           .start = options.start}) {}

Server::~Server() = default;
Server::Server(Server&&) noexcept = default;
Server& Server::operator=(Server&&) noexcept = default;

Server Server::create_local_server(const ServerConfig& config, bool start) {
  return Server(ClusterMap{{"local", {"localhost:0"}}},
                {.job_name = "local", .task_index = 0, .config = config, .start = start});
}

void Server::start() { impl_->start(); }
void Server::join() { impl_->join(); }
void Server::stop() { impl_->stop(); }

std::string Server::target() const {
  MutexLock lock(impl_->mutex);
  return cat("grpc://", impl_->address.empty() ? impl_->own_address() : impl_->address);
}

const ServerDef& Server::server_def() const { return impl_->def; }

}  // namespace tutti::distribute
