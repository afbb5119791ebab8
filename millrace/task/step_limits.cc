#include "millrace/task/step_limits.h"

#include <utility>

namespace millrace {

Status LimitWatch::Begin(const StepLimits& limits) {
  if (limits.cancellation != nullptr) {
    outer_ = limits.cancellation;
    outer_token_ = outer_->NewToken();
    if (!outer_->Register(outer_token_, [this] { step_->StartCancel(outer_->status()); })) {
      Status why = outer_->status();
      outer_ = nullptr;
      return why;
    }
  }
  if (limits.timeout != absl::InfiniteDuration()) {
    timer_ = TimerQueue::Real()->Schedule(limits.timeout, [this, timeout = limits.timeout] {
      timed_out_.store(true);
      step_->StartCancel(DeadlineExceeded("the step did not end within ", absl::FormatDuration(timeout)));
    });
  }
  return absl::OkStatus();
}

Status LimitWatch::Result(Status status) const {
  if (status.ok() || !timed_out_.load()) return status;
  return DeadlineExceeded(step_->status().message(), "; it was waiting in: ", status.message());
}

LimitWatch::~LimitWatch() {
  if (timer_ != 0) TimerQueue::Real()->Cancel(timer_);
  if (outer_ != nullptr) outer_->Deregister(outer_token_);
}

}  // namespace millrace
