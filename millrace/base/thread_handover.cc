#include "millrace/base/thread_handover.h"

#include <pthread.h>

#include <utility>

namespace millrace {
namespace {

uintptr_t ThisThread() { return static_cast<uintptr_t>(pthread_self()); }

}  // namespace

int ThreadHandover::Find() const {
  const uintptr_t self = ThisThread();
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].owner.load(std::memory_order_relaxed) == self) return static_cast<int>(i);
  }
  return -1;
}

EventThread* ThreadHandover::Here() const {
  const int slot = Find();
  return slot < 0 ? nullptr : slots_[slot].thread;
}

void ThreadHandover::RunNext(Scheduler* pool, EventThread::Closure closure) const {
  if (EventThread* const here = Here(); here != nullptr) return here->RunNext(pool, std::move(closure));
  pool->Schedule([closure = std::move(closure)]() mutable { closure(nullptr); });
}

ThreadHandover::Entry::Entry(RefPtr<ThreadHandover> step, EventThread* here) : step_(std::move(step)) {
  if (!step_ || here == nullptr) return;
  slot_ = step_->Find();
  if (slot_ >= 0) {
    outer_ = std::exchange(step_->slots_[slot_].thread, here);
    return;
  }
  for (size_t i = 0; i < step_->slots_.size(); ++i) {
    Slot& slot = step_->slots_[i];
    uintptr_t free = 0;
    if (slot.owner.load(std::memory_order_relaxed) != 0 ||
        !slot.owner.compare_exchange_strong(free, ThisThread(), std::memory_order_acquire))
      continue;
    slot.thread = here;
    slot_ = static_cast<int>(i);
    return;
  }
}

ThreadHandover::Entry::~Entry() {
  if (slot_ < 0) return;
  Slot& slot = step_->slots_[slot_];
  slot.thread = outer_;
  if (outer_ == nullptr) slot.owner.store(0, std::memory_order_release);
}

}  // namespace millrace
