#include "coordination/in_process_link.h"

namespace tutti::coordination {
namespace {

/// Hands events on until the link closes.
class Relay final : public Listener {
 public:
  explicit Relay(Listener& to) : to_(&to) {}

  void on_event(const v1::Event& event) override {
    MutexLock lock(mutex_);
    if (to_ != nullptr) to_->on_event(event);
  }
  void on_end(const v1::Failure* failure) override {
    MutexLock lock(mutex_);
    if (to_ != nullptr) to_->on_end(failure);
    to_ = nullptr;
  }
  void close() {
    MutexLock lock(mutex_);
    to_ = nullptr;
  }

 private:
  Mutex mutex_;
  Listener* to_ TUTTI_GUARDED_BY(mutex_);
};

class InProcessLink final : public Link {
 public:
  explicit InProcessLink(Coordinator& coordinator) : coordinator_(coordinator) {}
  ~InProcessLink() override { close(); }

  void join(const v1::JoinRequest& request, Listener& listener) override {
    relay_ = std::make_shared<Relay>(listener);
    session_ = coordinator_.join(request, relay_);
  }
  void call(const v1::Request& request, Milliseconds, Done done) override {
    coordinator_.call(
        request, [done = std::move(done)](v1::Reply&& reply) { done(true, std::move(reply)); });
  }
  void close() override {
    // Its calls are answered in there: the coordinator drops the waits of a lost task.
    if (session_ != 0) coordinator_.disconnected(session_);
    if (relay_) relay_->close();
  }
  std::string address() const override { return "this process"; }

 private:
  Coordinator& coordinator_;
  std::shared_ptr<Relay> relay_;
  uint64_t session_ = 0;
};

}  // namespace

std::unique_ptr<Link> make_in_process_link(Coordinator& coordinator) {
  return std::make_unique<InProcessLink>(coordinator);
}

}  // namespace tutti::coordination
