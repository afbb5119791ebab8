#include "millrace/base/fan_in.h"

#include <utility>

namespace millrace {

void FanIn::Arrive(const Status& status) {
  if (!status.ok()) {
    MutexLock lock(&mu_);
    if (first_error_.ok()) first_error_ = status;
    failed_.store(true, std::memory_order_relaxed);
  }
  if (pending_.fetch_sub(1, std::memory_order_acq_rel) != 1 || !Cancel()) return;
  Status result;
  if (failed_.load(std::memory_order_relaxed)) {
    MutexLock lock(&mu_);
    result = std::move(first_error_);
  }
  // It may destroy this object.
  Done done = std::move(done_);
  done(std::move(result));
}

void FanIn::Fail(Status why) {
  if (!Cancel()) return;
  Done done = std::move(done_);
  done(std::move(why));
}

}  // namespace millrace
