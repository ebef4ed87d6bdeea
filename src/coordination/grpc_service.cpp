#include "coordination/grpc_service.h"

#include <deque>

namespace tutti::coordination {
namespace {

/// The stream of one task: the coordinator's events in, its end out. It owns itself until gRPC is
/// done with it; the coordinator may hold it for longer.
class Session final : public grpc::ServerWriteReactor<v1::Event>,
                      public Listener,
                      public std::enable_shared_from_this<Session> {
 public:
  explicit Session(Coordinator& coordinator) : coordinator_(coordinator) {}

  void start(const v1::JoinRequest& request) {
    self_ = shared_from_this();
    number_ = coordinator_.join(request, self_);
  }

  // From the coordinator, with its lock held.
  void on_event(const v1::Event& event) override {
    MutexLock lock(mutex_);
    if (ended_) return;
    events_.push_back(event);
    proceed();
  }
  void on_end(const v1::Failure*) override {
    MutexLock lock(mutex_);
    end(grpc::Status::OK);
  }

  // From gRPC, without locks.
  void OnWriteDone(bool ok) override {
    MutexLock lock(mutex_);
    writing_ = false;
    events_.pop_front();
    if (!ok) {
      events_.clear();
      end(grpc::Status::CANCELLED);
    }
    proceed();
  }
  void OnCancel() override {
    if (number_ != 0) coordinator_.disconnected(number_);
    MutexLock lock(mutex_);
    end(grpc::Status::CANCELLED);
  }
  void OnDone() override { self_.reset(); }

 private:
  void end(const grpc::Status& status) TUTTI_REQUIRES(mutex_) {
    if (ended_) return;
    ended_ = true;
    status_ = status;
    proceed();
  }
  /// One write at a time, and the end after the last.
  void proceed() TUTTI_REQUIRES(mutex_) {
    if (writing_ || finished_) return;
    if (!events_.empty()) {
      writing_ = true;
      StartWrite(&events_.front());
    } else if (ended_) {
      finished_ = true;
      Finish(status_);
    }
  }

  Coordinator& coordinator_;
  std::shared_ptr<Session> self_;
  uint64_t number_ = 0;  // before the first reaction
  Mutex mutex_;
  std::deque<v1::Event> events_ TUTTI_GUARDED_BY(mutex_);
  grpc::Status status_ TUTTI_GUARDED_BY(mutex_);
  bool writing_ TUTTI_GUARDED_BY(mutex_) = false;
  bool ended_ TUTTI_GUARDED_BY(mutex_) = false;
  bool finished_ TUTTI_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerWriteReactor<v1::Event>* GrpcService::Join(grpc::CallbackServerContext*,
                                                       const v1::JoinRequest* request) {
  const auto session = std::make_shared<Session>(coordinator_);
  session->start(*request);
  return session.get();  // it holds itself
}

grpc::ServerUnaryReactor* GrpcService::Call(grpc::CallbackServerContext* context,
                                            const v1::Request* request, v1::Reply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  coordinator_.call(*request, [reactor, reply](v1::Reply&& answer) {
    *reply = std::move(answer);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerUnaryReactor* TaskService::Describe(grpc::CallbackServerContext* context,
                                                const v1::DescribeRequest*,
                                                v1::Description* reply) {
  *reply = description_;
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace tutti::coordination
