#include "millrace/net/grpc/completion_queue.h"

#include <grpc/support/time.h>

#include "millrace/base/status.h"
#include "millrace/net/grpc/library.h"

namespace millrace::net {
namespace {

// How long a thread that is not needed waits before it ends.
constexpr int64_t kSurplusSeconds = 5;

}  // namespace

CompletionQueue::CompletionQueue(int max_threads)
    : queue_((InitGrpc(), grpc_completion_queue_create_for_next(nullptr))), max_threads_(max_threads), group_("grpc") {
  MutexLock lock(&mu_);
  MR_CHECK(StartPoller());
}

CompletionQueue::~CompletionQueue() {
  grpc_completion_queue_shutdown(queue_);
  // The threads see the end after the last event. This one helps, as they may all be in handlers.
  for (;;) {
    const grpc_event event = grpc_completion_queue_next(queue_, gpr_inf_future(GPR_CLOCK_MONOTONIC), nullptr);
    if (event.type == GRPC_QUEUE_SHUTDOWN) break;
    static_cast<CompletionEvent*>(event.tag)->Run(event.success != 0);
  }
  for (;;) {
    MutexLock lock(&mu_);
    if (threads_ == 0) break;
    ended_.Wait(&mu_);
  }
  grpc_completion_queue_destroy(queue_);
}

bool CompletionQueue::StartPoller() {
  ++threads_;
  ++polling_;
  if (group_.Start([this] { Poll(); })) return true;
  --threads_;
  --polling_;
  return false;
}

void CompletionQueue::LeaveToHandle() {
  MutexLock lock(&mu_);
  --polling_;
  // Without another thread, or leave to start one, what arrives waits until a handler returns.
  if (polling_ == 0 && threads_ < max_threads_) static_cast<void>(StartPoller());
}

void CompletionQueue::Poll() {
  for (;;) {
    bool surplus;
    {
      MutexLock lock(&mu_);
      surplus = polling_ > 1;
    }
    const gpr_timespec deadline = surplus ? gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(kSurplusSeconds, GPR_TIMESPAN))
                                          : gpr_inf_future(GPR_CLOCK_MONOTONIC);
    const grpc_event event = grpc_completion_queue_next(queue_, deadline, nullptr);
    if (event.type == GRPC_OP_COMPLETE) {
      LeaveToHandle();
      static_cast<CompletionEvent*>(event.tag)->Run(event.success != 0);
      MutexLock lock(&mu_);
      ++polling_;
      continue;
    }
    MutexLock lock(&mu_);
    if (event.type == GRPC_QUEUE_TIMEOUT && polling_ == 1) continue;
    --polling_;
    --threads_;
    ended_.SignalAll();
    return;
  }
}

}  // namespace millrace::net
