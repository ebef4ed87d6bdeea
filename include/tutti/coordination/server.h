#pragma once
// A task's own server: the process that a cluster's address leads to.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti::distribute {

/// Which task of which cluster a server is.
struct ServerDef {
  std::map<std::string, std::vector<std::string>> cluster;  // job to addresses
  std::string job_name;
  int task_index = 0;
  std::string protocol = "grpc";
};

/// Files of certificates and tokens, docs/coordination.md. Empty ones come from TUTTI_TLS_CA,
/// TUTTI_TLS_CERTIFICATE, TUTTI_TLS_KEY, TUTTI_TLS_SERVER_NAME and TUTTI_TOKEN_FILE.
struct ServerConfig {
  std::string ca_file;
  std::string certificate_file;
  std::string key_file;
  std::string server_name;
  std::string token_file;
  std::string listen_address;  // empty: the task's own in the cluster
};

struct ServerOptions {
  std::string job_name = {};           // may be left out when the cluster has one job
  std::optional<int> task_index = {};  // may be left out when the job has one task
  std::string protocol = "grpc";       // the only one
  ServerConfig config = {};
  bool start = true;
};

/// tf.distribute.Server. That of the cluster's leader (chief 0, else worker 0) also runs the
/// coordination service. Members may be called from any thread.
class Server {
 public:
  using ClusterMap = std::map<std::string, std::vector<std::string>>;

  /// Throws InvalidArgument for a job or task that the cluster lacks or that must be named, and as
  /// start().
  explicit Server(const ClusterMap& cluster, const ServerOptions& options = {});
  /// From a train::ClusterSpec.
  template <class Spec>
  requires requires(const Spec& spec) { spec.job_tasks(spec.jobs().front()); }
  explicit Server(const Spec& cluster, const ServerOptions& options = {})
      : Server(map_of(cluster), options) {}
  explicit Server(const ServerDef& server_def, const ServerOptions& options = {});
  ~Server();
  Server(Server&&) noexcept;
  Server& operator=(Server&&) noexcept;

  /// A server of a cluster of its own, {"local": {"localhost:0"}}, at a free port of loopback.
  static Server create_local_server(const ServerConfig& config = {}, bool start = true);

  /// Listens; a second call does nothing. Throws AlreadyExists when the port is in use,
  /// FailedPrecondition off loopback without TLS and a token.
  void start();
  /// Blocks until stop(), which no one need ever call. FailedPrecondition before start().
  void join();
  /// Ends all calls and what waits in join(). A stopped server does not start again.
  void stop();

  /// "grpc://host:port"; of port 0 the one that was chosen, once started.
  std::string target() const;
  const ServerDef& server_def() const;

 private:
  template <class Spec>
  static ClusterMap map_of(const Spec& cluster) {
    ClusterMap map;
    for (const std::string& job : cluster.jobs()) map[job] = cluster.job_tasks(job);
    return map;
  }

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::distribute
