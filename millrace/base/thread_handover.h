// ThreadHandover: an object that a step carries, so that code that runs for the step can hand over its thread's other
// duties.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "millrace/base/event_thread.h"
#include "millrace/base/ref.h"

namespace millrace {

// The event threads that currently work for one step (or one call). A transport creates one for each call that it
// serves, and its threads enter it while they deliver messages; an EventWait creates one for the thread that waits. It
// is passed with the call to the step's StepContext, and from there to the kernels.
//
// Thread-safe. The methods act on the calling thread only, and do nothing on threads that have not entered it, such as
// pool threads, which have nothing to hand over.
class ThreadHandover final : public RefCounted {
 public:
  // RAII: enters `step` on this thread, whose EventThread is `here`, until the end of the scope. A no-op if either is
  // null. May be nested.
  class Entry {
   public:
    Entry(RefPtr<ThreadHandover> step, EventThread* here);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    const RefPtr<ThreadHandover> step_;
    int slot_ = -1;                 // the slot that this entry has taken or changed
    EventThread* outer_ = nullptr;  // this thread's previous value in that slot
  };

  // The calling thread's EventThread; null if it has not entered.
  EventThread* Here() const;
  // Call it before work that takes long (some 100 us or more) and before blocking; see EventThread.
  void HandOver() const {
    if (EventThread* const here = Here(); here != nullptr) here->HandOver();
  }
  // EventThread::RunNext on the calling thread; on a thread that has not entered, schedules `closure` on `pool`.
  void RunNext(Scheduler* pool, EventThread::Closure closure) const;

 private:
  // A slot belongs to the thread that has written `owner`; only that thread accesses the rest.
  struct Slot {
    std::atomic<uintptr_t> owner{0};
    EventThread* thread = nullptr;
  };
  int Find() const;

  // If there are more threads than slots, the others do not hand over.
  std::array<Slot, 8> slots_;
};

}  // namespace millrace
