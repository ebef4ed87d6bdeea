#include "coordination/service.h"

#include "coordination/grpc_service.h"
#include "rpc/server.h"

namespace tutti::coordination {
namespace {

// For the last events to reach their tasks.
constexpr Milliseconds kFlush{1000};

std::string listening_address(const ServiceOptions& options) {
  return options.address.empty() ? address_of(options.cluster, leader_of(options.cluster))
                                 : options.address;
}

}  // namespace

struct CoordinationService::Impl {
  explicit Impl(const ServiceOptions& options)
      : coordinator({.cluster = options.cluster,
                     .generation = options.generation,
                     .limits = options.limits,
                     .recoverable_jobs = options.recoverable_jobs}),
        service(coordinator),
        server(listening_address(options), options.security, {&service}) {}
  ~Impl() { stop("its process ended"); }

  void stop(const std::string& reason) {
    coordinator.stop(reason);
    server.shutdown(kFlush);
  }

  Coordinator coordinator;
  GrpcService service;
  rpc::RpcServer server;
};

CoordinationService::CoordinationService(const ServiceOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
CoordinationService::~CoordinationService() = default;

const std::string& CoordinationService::address() const { return impl_->server.address(); }
int CoordinationService::port() const { return impl_->server.port(); }
uint64_t CoordinationService::generation() const { return impl_->coordinator.generation(); }

std::optional<JobFailure> CoordinationService::failure() const {
  const auto failure = impl_->coordinator.root_cause();
  if (!failure) return std::nullopt;
  return JobFailure{static_cast<ErrorCode>(failure->code()), failure->task(), failure->message()};
}

bool CoordinationService::shutdown(Milliseconds timeout) {
  const bool all_left = impl_->coordinator.wait_until_all_left(timeout);
  impl_->stop("not all tasks left in time");
  return all_left;
}

}  // namespace tutti::coordination
