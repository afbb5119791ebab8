// What a thread that handles events goes on with by itself, instead of waking another thread for it.
#pragma once

#include "absl/functional/any_invocable.h"
#include "millrace/base/thread_pool.h"

namespace millrace {

// Runs `closure` soon: on this thread, when what it is at has ended (see RunNextScope), or else on `pool`. Waking a thread costs both of them microseconds, and
// what was just written is in this core's cache.
void RunNext(Scheduler* pool, absl::AnyInvocable<void()> closure);

// This thread is going to be at work for long: gives what it has left for later to the pools, and what it watches back (see EventWait), so that others
// see to it.
void HandOverNext();

// On the stack of a thread that belongs to nobody who waits for it, around one piece of its work that does not block. What RunNext was given meanwhile runs
// when the scope ends, in order. A scope within another is a part of it.
class RunNextScope {
 public:
  RunNextScope();
  ~RunNextScope();
  RunNextScope(const RunNextScope&) = delete;
  RunNextScope& operator=(const RunNextScope&) = delete;

 private:
  const bool outermost_;
};

}  // namespace millrace
