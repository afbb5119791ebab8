#include "millrace/net/inproc/ordered_messages.h"

#include <utility>

namespace millrace::net {

void OrderedMessages::Begin(Scheduler* scheduler, RefPtr<const RefCounted> keep) {
  {
    MutexLock lock(&mu_);
    if (delivering_ || !(ended_ || (has_handler_ && !waiting_.empty()))) return;
    delivering_ = true;
  }
  scheduler->Schedule([this, keep = std::move(keep)] { Deliver(); });
}

void OrderedMessages::SetHandler(Handler handler, Scheduler* scheduler, RefPtr<const RefCounted> keep) {
  {
    MutexLock lock(&mu_);
    if (ended_ || has_handler_) return;
    handler_ = std::move(handler);  // nobody delivers yet
    has_handler_ = true;
  }
  Begin(scheduler, std::move(keep));
}

void OrderedMessages::Add(Bytes message, Scheduler* scheduler, RefPtr<const RefCounted> keep) {
  {
    MutexLock lock(&mu_);
    if (ended_) return;
    waiting_.push_back(std::move(message));
  }
  Begin(scheduler, std::move(keep));
}

void OrderedMessages::End(bool drop, absl::AnyInvocable<void()> last, Scheduler* scheduler,
                          RefPtr<const RefCounted> keep) {
  std::deque<Bytes> dropped;  // destroyed without the lock
  {
    MutexLock lock(&mu_);
    if (ended_) return;
    ended_ = true;
    last_ = std::move(last);
    if (drop || !has_handler_) dropped.swap(waiting_);
  }
  Begin(scheduler, std::move(keep));
}

void OrderedMessages::Deliver() {
  while (true) {
    Bytes message;
    {
      MutexLock lock(&mu_);
      if (waiting_.empty() && ended_) break;
      if (waiting_.empty()) {
        delivering_ = false;
        return;
      }
      message = std::move(waiting_.front());
      waiting_.pop_front();
    }
    handler_(std::move(message));
  }
  // Permanently: what the handler holds is released before the final callback.
  handler_ = nullptr;
  absl::AnyInvocable<void()> last;
  {
    MutexLock lock(&mu_);
    last = std::move(last_);
  }
  if (last != nullptr) last();
}

}  // namespace millrace::net
