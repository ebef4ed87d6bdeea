#pragma once
// tf.distribute.cluster_resolver: who else is in this job, and which task this process is.
// docs/cluster.md has an example of each; resolvers.h has those of schedulers and clouds.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/cluster/cluster_spec.h"

namespace tutti::distribute::cluster_resolver {

/// Environment variables by name. A resolver that is given some reads (and sets) these instead of
/// the process's.
using EnvironmentVariables = std::map<std::string, std::string>;

/// A handle on a resolver: copies are the same resolver. One thread at a time. A handle made
/// without arguments holds none, and every call but defined() is then FailedPrecondition.
class ClusterResolver {
 public:
  class Impl;
  ClusterResolver() = default;
  ClusterResolver(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}  // NOLINT: as a metric's
  bool defined() const { return impl_ != nullptr; }

  /// The cluster as it is now; nothing is remembered between two calls.
  train::ClusterSpec cluster_spec() const;
  /// The address of a task, with `rpc_layer://` in front where there is one. What is not asked for
  /// is this process's own; "" when that is not known. InvalidArgument for a task that the cluster
  /// lacks.
  std::string master(std::optional<std::string> task_type = {}, std::optional<int64_t> task_id = {},
                     std::optional<std::string> rpc_layer = {}) const;
  /// How many devices of each kind a worker has: {{"GPU", 2}}. What this process sees, unless the
  /// resolver was told: all workers are taken to be alike.
  std::map<std::string, int64_t> num_accelerators(std::optional<std::string> task_type = {},
                                                  std::optional<int64_t> task_id = {}) const;
  /// "" everywhere but where the resolver was told otherwise.
  std::string environment() const;

  /// Which task this process is; nothing where the resolver cannot know.
  std::optional<std::string> task_type() const;
  std::optional<int64_t> task_id() const;
  /// The protocol in front of addresses; "" for none.
  std::string rpc_layer() const;
  /// From now on, whatever the resolver reads. InvalidArgument for a job name, an id or a protocol
  /// that cannot be.
  void set_task_type(const std::string& task_type) const;
  void set_task_id(int64_t task_id) const;
  void set_rpc_layer(const std::string& rpc_layer) const;

 protected:
  Impl& impl(const char* operation) const;

 private:
  std::shared_ptr<Impl> impl_;
};

/// Base of every resolver; one's own derives from it and is used as
/// `ClusterResolver(std::make_shared<Own>())`. The handle has checked the arguments of what it
/// calls here.
class ClusterResolver::Impl {
 public:
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

 protected:
  /// `name` begins error messages.
  explicit Impl(std::string name) : name_(std::move(name)) {}
  const std::string& name() const { return name_; }
  /// What the user set wins over what is read.
  std::optional<std::string> task_type() const {
    return task_type_ ? task_type_ : read_task_type();
  }
  std::optional<int64_t> task_id() const { return task_id_ ? task_id_ : read_task_id(); }
  std::string rpc_layer() const { return rpc_layer_ ? *rpc_layer_ : read_rpc_layer(); }
  /// For constructors: checks and sets what is there.
  void give(const std::optional<std::string>& task_type, const std::optional<int64_t>& task_id,
            const std::optional<std::string>& rpc_layer);
  /// `protocol://address`, or one of the two.
  static std::string with_rpc_layer(const std::string& address, const std::string& rpc_layer);
  /// The default: the address of the task asked for, else of this one, "" when that is unknown.
  virtual std::string read_master(const std::optional<std::string>& task_type,
                                  const std::optional<int64_t>& task_id,
                                  const std::optional<std::string>& rpc_layer);

 private:
  friend class ClusterResolver;
  virtual train::ClusterSpec read_cluster_spec() = 0;
  /// The default: the GPUs that this process sees, no key when there are none.
  virtual std::map<std::string, int64_t> read_accelerators();
  virtual std::string read_environment() const { return ""; }
  virtual std::optional<std::string> read_task_type() const { return {}; }
  virtual std::optional<int64_t> read_task_id() const { return {}; }
  virtual std::string read_rpc_layer() const { return ""; }
  /// Throws where the task's type cannot be set.
  virtual void check_task_type_settable() const {}

  std::string name_;
  std::optional<std::string> task_type_;
  std::optional<int64_t> task_id_;
  std::optional<std::string> rpc_layer_;
};

struct SimpleClusterResolverOptions {
  /// What master() gives when it is not asked for a task.
  std::string master = "";
  std::optional<std::string> task_type = {};
  std::optional<int64_t> task_id = {};
  std::string environment = "";
  std::map<std::string, int64_t> num_accelerators = {};
  std::optional<std::string> rpc_layer = {};
};

/// Says what it was told.
class SimpleClusterResolver : public ClusterResolver {
 public:
  explicit SimpleClusterResolver(train::ClusterSpec cluster_spec,
                                 SimpleClusterResolverOptions options = {});
};

struct TFConfigClusterResolverOptions {
  std::optional<std::string> task_type = {};
  std::optional<int64_t> task_id = {};
  std::optional<std::string> rpc_layer = {};
  std::string environment = "";
  /// False takes unknown keys, job names of one's own, and a number as the task's type.
  bool strict = true;
  std::shared_ptr<EnvironmentVariables> variables = {};
};

/// Reads TF_CONFIG at every call:
///
///     {"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}
///
/// Jobs are chief (one task at most), worker, ps and evaluator (one at most; it may be missing). A
/// variable that is not set or empty is an empty cluster. Beside them may stand `rpc_layer`, and
/// `session_master`, which master() then gives. InvalidArgument for everything else, at most 1 MiB
/// of it, with the place in the JSON: `TF_CONFIG [$.cluster.worker[1]]: …`.
class TFConfigClusterResolver : public ClusterResolver {
 public:
  explicit TFConfigClusterResolver(TFConfigClusterResolverOptions options = {});
};

struct UnionResolverOptions {
  std::optional<std::string> rpc_layer = {};
  std::optional<std::string> task_type = {};
  std::optional<int64_t> task_id = {};
};

/// Several resolvers as one. Lists of the same job are joined, the first resolver's first; when one
/// of them is sparse, by index. A task that two resolvers name with one address counts once; one
/// index with two addresses is InvalidArgument. Everything else is the first resolver's.
class UnionResolver : public ClusterResolver {
 public:
  /// InvalidArgument without resolvers, or with a handle that holds none.
  explicit UnionResolver(std::vector<ClusterResolver> resolvers, UnionResolverOptions options = {});
};

}  // namespace tutti::distribute::cluster_resolver
