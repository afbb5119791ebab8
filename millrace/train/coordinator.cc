#include "millrace/train/coordinator.h"

#include <algorithm>
#include <list>
#include <utility>

#include "absl/strings/str_join.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_group.h"

namespace millrace {
namespace {

constexpr absl::Duration kFirstComplaint = absl::Seconds(10);

// A virtual clock wakes nobody, so it is polled.
constexpr absl::Duration kLookAtVirtualClock = absl::Milliseconds(1);
// The same in a simulation, of its own time.
constexpr absl::Duration kLookInSimulation = absl::Milliseconds(20);

}  // namespace

struct Coordinator::State {
  CoordinatorOptions options;
  mutable Mutex mu;
  mutable CondVar changed;
  bool stop ABSL_GUARDED_BY(mu) = false;
  absl::Time stopped_at ABSL_GUARDED_BY(mu);
  Status error ABSL_GUARDED_BY(mu);
  bool reported ABSL_GUARDED_BY(mu) = false;  // Join returned an error; later ones are its consequences
  std::list<std::string> running ABSL_GUARDED_BY(mu);
  std::vector<absl::AnyInvocable<void()>> on_stop ABSL_GUARDED_BY(mu);
  ThreadGroup threads{"coordinated"};  // last: its destructor waits for threads that use the other members

  // Returns when something may have changed, after `left` at the latest.
  void AwaitChange(absl::Duration left) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (options.pause == nullptr) {
      changed.WaitFor(&mu, options.clock == Clock::Real() ? left : std::min(left, kLookAtVirtualClock));
      return;
    }
    mu.Unlock();
    options.pause(std::min(left, kLookInSimulation));
    mu.Lock();
  }
  bool StartThread(absl::AnyInvocable<void()> body) {
    return options.start_thread == nullptr ? threads.Start(std::move(body)) : options.start_thread(std::move(body));
  }

  // Waits for a stop. Returns false if `deadline` came first.
  bool AwaitStop(absl::Time deadline) const {
    MutexLock lock(&mu);
    while (!stop) {
      const absl::Duration left = deadline - options.clock->Now();
      if (left <= absl::ZeroDuration()) return false;
      AwaitChange(left);
    }
    return true;
  }

  // Waits until all threads have ended. Returns false if they have not within `stop_grace_period` after a stop.
  bool AwaitThreads(absl::Duration stop_grace_period) const {
    MutexLock lock(&mu);
    while (!running.empty()) {
      const absl::Duration left =
          stop ? stopped_at + stop_grace_period - options.clock->Now() : absl::InfiniteDuration();
      if (left <= absl::ZeroDuration()) return false;
      AwaitChange(left);
    }
    return true;
  }
};

Coordinator::Coordinator(CoordinatorOptions options) : state_(new State) { state_->options = std::move(options); }

Coordinator::~Coordinator() {
  RequestStop();
  for (absl::Duration wait = kFirstComplaint; !state_->AwaitThreads(wait); wait *= 2) {
    MR_LOG(Warning, "waiting for threads that do not stop: ", absl::StrJoin(running(), ", "));
  }
  if (const Status error = status(); !error.ok())
    MR_LOG(Error, "a coordinator is destroyed with an error that Join did not return: ", error.ToString());
}

void Coordinator::RequestStop(Status why) {
  std::vector<absl::AnyInvocable<void()>> callbacks;
  {
    MutexLock lock(&state_->mu);
    const auto& clean = state_->options.clean_stop_codes;
    const bool is_clean = why.ok() || absl::IsOutOfRange(why) ||
                          (state_->stop && std::find(clean.begin(), clean.end(), why.code()) != clean.end());
    if (!is_clean && state_->error.ok() && !state_->reported) state_->error = std::move(why);
    if (!std::exchange(state_->stop, true)) state_->stopped_at = state_->options.clock->Now();
    callbacks.swap(state_->on_stop);
    state_->changed.SignalAll();
  }
  for (auto& callback : callbacks) callback();
}

bool Coordinator::ShouldStop() const {
  MutexLock lock(&state_->mu);
  return state_->stop;
}

Clock* Coordinator::clock() const { return state_->options.clock; }

bool Coordinator::WaitForStop(absl::Duration timeout) const {
  return state_->AwaitStop(timeout == absl::InfiniteDuration() ? absl::InfiniteFuture()
                                                               : state_->options.clock->Now() + timeout);
}

Status Coordinator::ClearStop() {
  MutexLock lock(&state_->mu);
  if (!state_->running.empty()) return FailedPrecondition("threads still run: ", absl::StrJoin(state_->running, ", "));
  state_->stop = false;
  state_->error = absl::OkStatus();
  state_->reported = false;
  state_->on_stop.clear();
  return absl::OkStatus();
}

Status Coordinator::Start(std::string name, absl::AnyInvocable<Status()> body) {
  std::list<std::string>::iterator entry;
  {
    MutexLock lock(&state_->mu);
    if (state_->stop) return FailedPrecondition("thread '", name, "' was started after a stop was requested");
    entry = state_->running.insert(state_->running.end(), name);
  }
  const auto end = [this, entry] {
    MutexLock lock(&state_->mu);
    state_->running.erase(entry);
    state_->changed.SignalAll();
  };
  const bool started = state_->StartThread([this, end, name, body = std::move(body)]() mutable {
    Status status = body();
    body = nullptr;  // release what it holds before anyone can see that the thread has ended
    if (!status.ok()) RequestStop(WithPrefix(absl::StrCat(name, ": "), status));
    end();
  });
  if (started) return absl::OkStatus();
  end();
  return ResourceExhausted("cannot create a thread for '", name, "'");
}

Status Coordinator::Loop(std::string name, absl::Duration period, absl::AnyInvocable<Status()> body) {
  if (period < absl::ZeroDuration())
    return InvalidArgument("the period of '", name, "' is negative: ", absl::FormatDuration(period));
  return Start(std::move(name), [this, period, body = std::move(body)]() mutable -> Status {
    absl::Time next = state_->options.clock->Now();
    while (!state_->AwaitStop(next)) {
      MR_RETURN_IF_ERROR(body());
      next = std::max(next + period, state_->options.clock->Now());
      if (ShouldStop()) break;
    }
    return absl::OkStatus();
  });
}

void Coordinator::OnStop(absl::AnyInvocable<void()> callback) {
  {
    MutexLock lock(&state_->mu);
    if (!state_->stop) {
      state_->on_stop.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

Status Coordinator::Join(absl::Duration stop_grace_period) {
  const bool all_ended = state_->AwaitThreads(stop_grace_period);
  MutexLock lock(&state_->mu);
  if (!state_->error.ok()) {
    state_->reported = true;
    return std::exchange(state_->error, absl::OkStatus());
  }
  if (all_ended) return absl::OkStatus();
  return DeadlineExceeded("threads did not stop within ", absl::FormatDuration(stop_grace_period),
                          " of being asked to: ", absl::StrJoin(state_->running, ", "));
}

Status Coordinator::status() const {
  MutexLock lock(&state_->mu);
  return state_->error;
}

std::vector<std::string> Coordinator::running() const {
  MutexLock lock(&state_->mu);
  return {state_->running.begin(), state_->running.end()};
}

}  // namespace millrace
