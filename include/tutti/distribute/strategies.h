#pragma once
// The strategies.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tutti/cluster/cluster_resolver.h"
#include "tutti/distribute/strategy.h"

namespace tutti::distribute {

class ReplicaPool;
class WorkerGroup;

struct MirroredStrategyOptions {
  /// Empty: all GPUs, else as many CPU devices as config::set_logical_device_configuration said
  /// (default 1).
  std::vector<std::string> devices = {};
  AnyCrossDeviceOps cross_device_ops = {};
  /// TensorFlow's form of a cluster: job → addresses. Empty, or one job with one address that is
  /// this machine (localhost, 127.0.0.1 or ::1): one local task. Anything else needs several
  /// processes and is InvalidArgument that says so.
  std::map<std::string, std::vector<std::string>> cluster_spec = {};
  /// Another name of `devices`; both given and different is InvalidArgument.
  std::vector<std::string> compute_devices = {};
  /// Defaults of every collective; fields that a call sets win over them.
  CommunicationOptions communication_options = {};
};

/// One replica a device; variables are mirrored; replicas run in parallel, each on cores / replicas
/// threads. Throws InvalidArgument for unknown or repeated devices.
class MirroredStrategy : public Strategy {
 public:
  MirroredStrategy() : MirroredStrategy(MirroredStrategyOptions{}) {}
  explicit MirroredStrategy(const MirroredStrategyOptions& options);
  ~MirroredStrategy() override;
  std::string name() const override { return "MirroredStrategy"; }

 private:
  void run_on_replicas(FunctionRef<void(int)> body) override;
  std::unique_ptr<ReplicaPool> pool_;
};

struct MultiWorkerMirroredStrategyOptions {
  /// Who is in the cluster and which task this process is; read once. Default: TF_CONFIG.
  distribute::cluster_resolver::ClusterResolver cluster_resolver = {};
  /// Defaults of every collective; fields that a call sets win over them. A collective that takes
  /// longer than timeout_seconds is DeadlineExceeded; so long the constructor waits for the others,
  /// too (10 minutes by default).
  CommunicationOptions communication_options = {};
  /// This worker's; empty: as for MirroredStrategy. Every worker must have as many.
  std::vector<std::string> devices = {};
};

/// One replica a device of every worker: the same program runs on each, and what it computes is
/// what one MirroredStrategy of all the replicas computes. Variables are mirrored over all of them
/// and begin as the chief's. All workers make the same calls in the same order: variables, run,
/// reduce, gather, steps of distributed datasets; one that does not gets InvalidArgument that names
/// both calls, as the others do, and one that fails makes the others' next call Aborted, with its
/// message. With one worker, without a cluster and for an evaluator it is a MirroredStrategy.
///
/// Between processes, an error of one worker that the others do not have ends the job: each throws
/// "worker:1 failed first: …" under that error's code from its pending or next call, Unavailable
/// when the process is gone, DeadlineExceeded when it is frozen or stuck (docs/coordination.md).
/// A process has one such strategy at a time.
class MultiWorkerMirroredStrategy : public Strategy {
 public:
  MultiWorkerMirroredStrategy()
      : MultiWorkerMirroredStrategy(MultiWorkerMirroredStrategyOptions{}) {}
  /// Waits for all workers. Throws InvalidArgument for a cluster that is none, a task that is not
  /// in it and a parameter server; DeadlineExceeded that names the tasks that do not come;
  /// AlreadyExists when the chief's port is in use; FailedPrecondition for a task with another
  /// cluster, and off loopback without TLS and a token.
  explicit MultiWorkerMirroredStrategy(const MultiWorkerMirroredStrategyOptions& options);
  /// For the library: among these workers; null: alone.
  MultiWorkerMirroredStrategy(const MultiWorkerMirroredStrategyOptions& options,
                              std::shared_ptr<WorkerGroup> workers);
  /// Waits until the other workers are at their end too. When an exception destroys it, the others
  /// hear that instead.
  ~MultiWorkerMirroredStrategy() override;
  std::string name() const override { return "MultiWorkerMirroredStrategy"; }
  /// The one of the options, or that of TF_CONFIG.
  distribute::cluster_resolver::ClusterResolver cluster_resolver() const { return resolver_; }

 private:
  void run_on_replicas(FunctionRef<void(int)> body) override;
  distribute::cluster_resolver::ClusterResolver resolver_;
  std::unique_ptr<ReplicaPool> pool_;
};

/// One replica on one device: what a program that is written for many replicas runs on while it is
/// being written.
class OneDeviceStrategy : public Strategy {
 public:
  /// `device` as in DeviceName::parse.
  explicit OneDeviceStrategy(const std::string& device);
  ~OneDeviceStrategy() override;
  std::string name() const override { return "OneDeviceStrategy"; }
  bool mirrors_variables() const override { return false; }

 private:
  void run_on_replicas(FunctionRef<void(int)> body) override;
  std::unique_ptr<ReplicaPool> pool_;
};

struct CentralStorageStrategyOptions {
  /// Empty: as for MirroredStrategy.
  std::vector<std::string> compute_devices = {};
  /// Empty: the only compute GPU when there is just one, else the CPU.
  std::string parameter_device = "";
};

/// One replica a compute device; every variable has one copy, on the parameter device; updates made
/// inside replicas are aggregated first (aggregation NONE is InvalidArgument there). Reads on
/// another device copy.
class CentralStorageStrategy : public Strategy {
 public:
  CentralStorageStrategy() : CentralStorageStrategy(CentralStorageStrategyOptions{}) {}
  explicit CentralStorageStrategy(const CentralStorageStrategyOptions& options);
  ~CentralStorageStrategy() override;
  std::string name() const override { return "CentralStorageStrategy"; }

 private:
  CentralStorageStrategy(const CentralStorageStrategyOptions& options,
                         std::vector<DeviceName> compute);
  void run_on_replicas(FunctionRef<void(int)> body) override;
  std::unique_ptr<ReplicaPool> pool_;
};

}  // namespace tutti::distribute
