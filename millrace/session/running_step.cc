#include "millrace/session/running_step.h"

#include <utility>

namespace millrace {

Status DirectSession::RunningStep::Begin(const RunOptions& options, absl::Duration default_timeout) {
  {
    MutexLock lock(&session_->steps_mu_);
    if (session_->closed_) return Cancelled("the session is closed");
    next_ = session_->running_;
    if (next_ != nullptr) next_->previous_ = this;
    session_->running_ = this;
    begun_ = true;
  }
  if (options.cancellation != nullptr) {
    outer_ = options.cancellation;
    outer_token_ = outer_->NewToken();
    if (!outer_->Register(outer_token_, [this] { cancellation_.StartCancel(outer_->status()); })) {
      Status why = outer_->status();
      outer_ = nullptr;
      return why;
    }
  }
  const absl::Duration timeout =
      options.timeout == absl::InfiniteDuration() ? default_timeout : options.timeout;
  if (timeout != absl::InfiniteDuration()) {
    timer_ = TimerQueue::Real()->Schedule(timeout, [this, timeout] {
      timed_out_.store(true);
      cancellation_.StartCancel(
          DeadlineExceeded("the step did not end within ", absl::FormatDuration(timeout)));
    });
  }
  return absl::OkStatus();
}

Status DirectSession::RunningStep::Result(Status status) const {
  if (status.ok() || !timed_out_.load()) return status;
  return DeadlineExceeded(cancellation_.status().message(), "; it was waiting in: ", status.message());
}

DirectSession::RunningStep::~RunningStep() {
  if (timer_ != 0) TimerQueue::Real()->Cancel(timer_);
  if (outer_ != nullptr) outer_->Deregister(outer_token_);
  if (!begun_) return;
  MutexLock lock(&session_->steps_mu_);
  while (pins_ > 0) session_->step_ended_.Wait(&session_->steps_mu_);
  if (previous_ != nullptr) {
    previous_->next_ = next_;
  } else {
    session_->running_ = next_;
  }
  if (next_ != nullptr) next_->previous_ = previous_;
  if (session_->running_ == nullptr) session_->step_ended_.SignalAll();
}

void DirectSession::CancelRunningSteps() {
  steps_mu_.Lock();
  for (RunningStep* step = running_; step != nullptr;) {
    if (step->told_to_stop_) {
      step = step->next_;
      continue;
    }
    // Cancelling calls back into whoever waits, so not under the lock; the pin keeps the step alive.
    step->told_to_stop_ = true;
    ++step->pins_;
    steps_mu_.Unlock();
    step->cancellation_.StartCancel(Cancelled("the session was closed while the step ran"));
    steps_mu_.Lock();
    --step->pins_;
    step_ended_.SignalAll();
    step = running_;
  }
  steps_mu_.Unlock();
}

}  // namespace millrace
