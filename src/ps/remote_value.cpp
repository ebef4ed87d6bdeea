#include "ps/remote_value.h"

#include <chrono>

#include "tutti/base/log.h"

namespace tutti::ps {

Nest ValueToCome::get() const {
  MutexLock lock(mutex_);
  while (!value_ && !failure_) {
    const auto status = ready_.wait_for(mutex_, std::chrono::seconds(5));
    if (status == std::cv_status::timeout && !value_ && !failure_)
      log_info("RemoteValue: waits for the function \"", what_, "\" to run on a worker");
  }
  if (failure_) throw_error(failure_->code, failure_->message);
  return *value_;
}

bool ValueToCome::is_ready() const {
  MutexLock lock(mutex_);
  return value_ || failure_;
}
bool ValueToCome::has_value() const {
  MutexLock lock(mutex_);
  return value_.has_value();
}

void ValueToCome::set(Nest value) {
  MutexLock lock(mutex_);
  if (value_ || failure_) return;
  value_ = std::move(value);
  ready_.notify_all();
}
void ValueToCome::fail(ErrorCode code, const std::string& message) {
  MutexLock lock(mutex_);
  if (value_ || failure_) return;
  failure_ = {code, message};
  ready_.notify_all();
}

}  // namespace tutti::ps
