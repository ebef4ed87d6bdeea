#pragma once
// A coordinator's methods as a gRPC service.

#include <memory>
#include <string>

#include "coordination/coordinator.h"
#include "tutti/coordination.grpc.pb.h"

namespace tutti::coordination {

/// `coordinator` must outlive it, and be stopped before the server that it is registered with
/// ends: calls and sessions end then.
class GrpcService final : public v1::Coordination::CallbackService {
 public:
  explicit GrpcService(Coordinator& coordinator) : coordinator_(coordinator) {}

  grpc::ServerWriteReactor<v1::Event>* Join(grpc::CallbackServerContext* context,
                                            const v1::JoinRequest* request) override;
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const v1::Request* request,
                                 v1::Reply* reply) override;

 private:
  Coordinator& coordinator_;
};

/// Says which task listens here.
class TaskService final : public v1::Task::CallbackService {
 public:
  explicit TaskService(v1::Description description) : description_(std::move(description)) {}

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest* request,
                                     v1::Description* reply) override;

 private:
  const v1::Description description_;
};

}  // namespace tutti::coordination
