#include "millrace/net/grpc/completion_queue.h"

#include <grpc/support/time.h>

#include <chrono>

#include "millrace/base/status.h"
#include "millrace/net/grpc/library.h"

namespace millrace::net {
namespace {

// A handler that runs for longer than this, or at most twice as long, has another thread poll in its place.
constexpr absl::Duration kTick = absl::Microseconds(500);
// The same where handlers have all been short for a while: looking more often would cost small calls a tenth of their
// time.
constexpr absl::Duration kCalmTick = absl::Milliseconds(5);
// A handler that makes the next ticks short ones.
constexpr std::chrono::steady_clock::duration kLongHandler = std::chrono::microseconds(500);
constexpr int kShortTicks = 100;
// After this time without an event the watching thread sleeps until there is one: an idle server costs nothing.
constexpr absl::Duration kQuiet = absl::Milliseconds(25);
// Threads kept for handlers that run long at the same time, and for how long.
constexpr int kMaxSpares = 4;
constexpr absl::Duration kSpareTime = absl::Seconds(5);

grpc_event Next(grpc_completion_queue* queue) {
  return grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), nullptr);
}

// True when it ran long.
bool Handle(const grpc_event& event) {
  const auto began = std::chrono::steady_clock::now();
  static_cast<CompletionEvent*>(event.tag)->Run(event.success != 0);
  return std::chrono::steady_clock::now() - began > kLongHandler;
}

}  // namespace

CompletionQueue::CompletionQueue(int max_threads)
    : queue_((InitGrpc(), grpc_completion_queue_create_for_next(nullptr))), max_threads_(max_threads), group_("grpc") {
  MutexLock lock(&mu_);
  StartThread();
  MR_CHECK(threads_ == 1);
}

CompletionQueue::~CompletionQueue() {
  grpc_completion_queue_shutdown(queue_);
  // The threads may all be in handlers, so this one helps.
  for (;;) {
    const grpc_event event = Next(queue_);
    if (event.type == GRPC_QUEUE_SHUTDOWN) break;
    Handle(event);
  }
  {
    MutexLock lock(&mu_);
    Close();
    while (threads_ > 0) ended_.Wait(&mu_);
  }
  grpc_completion_queue_destroy(queue_);
}

void CompletionQueue::Close() {
  closed_ = true;
  watch_.SignalAll();
  spare_.SignalAll();
}

void CompletionQueue::StartThread() {
  ++threads_;
  // Without one more thread what arrives during a long handler waits for its end.
  if (!group_.Start([this] { Work(); })) --threads_;
}

void CompletionQueue::LeaveQueue() {
  polling_ = false;
  ++taken_;
  if (asleep_) {
    asleep_ = false;
    watch_.Signal();
  } else if (!watched_ && spares_ > 0) {
    spare_.Signal();  // the spare that was to watch may have polled instead, and be the one that leaves now
  } else if (!watched_ && threads_ < max_threads_) {
    StartThread();
  }
}

void CompletionQueue::HandlerRunsLong() {
  MutexLock lock(&mu_);
  if (polling_ || closed_ || replace_) return;
  replace_ = true;
  if (watched_) {
    asleep_ = false;
    watch_.Signal();
  } else if (spares_ > 0) {
    spare_.Signal();
  } else if (threads_ < max_threads_) {
    StartThread();
  }
}

void CompletionQueue::Watch() {
  uint64_t seen = taken_;
  for (absl::Duration quiet; !closed_;) {
    const absl::Duration tick = short_ticks_ > 0 ? kTick : kCalmTick;
    if (short_ticks_ > 0) --short_ticks_;
    if (quiet >= kQuiet) {
      asleep_ = true;
      while (asleep_ && !closed_) watch_.Wait(&mu_);
      asleep_ = false;
      quiet = absl::ZeroDuration();
      seen = taken_;
    } else {
      watch_.WaitFor(&mu_, tick);
      if (taken_ == seen && !polling_) {  // the same handler as a tick ago
        short_ticks_ = kShortTicks;
        return;
      }
    }
    if (replace_ && !polling_) return;
    if (taken_ != seen) {
      seen = taken_;
      quiet = absl::ZeroDuration();
    } else {
      quiet += tick;
    }
  }
}

bool CompletionQueue::Park() {
  if (!watched_) {
    watched_ = true;
    Watch();
    watched_ = false;
    spare_.Signal();  // somebody else is to watch
    return true;
  }
  if (spares_ == kMaxSpares) return false;
  ++spares_;
  const bool wanted = spare_.WaitFor(&mu_, kSpareTime);
  --spares_;
  return wanted || !watched_ || !polling_;  // a signal may have come as the time was up
}

void CompletionQueue::Work() {
  mu_.Lock();
  while (!closed_) {
    if (polling_) {
      if (Park()) continue;
      break;
    }
    polling_ = true;
    replace_ = false;
    mu_.Unlock();
    const grpc_event event = Next(queue_);
    mu_.Lock();
    if (event.type == GRPC_QUEUE_SHUTDOWN) {
      Close();
      break;
    }
    LeaveQueue();
    mu_.Unlock();
    const bool ran_long = Handle(event);
    mu_.Lock();
    if (ran_long) short_ticks_ = kShortTicks;
  }
  --threads_;
  ended_.SignalAll();
  mu_.Unlock();
}

}  // namespace millrace::net
