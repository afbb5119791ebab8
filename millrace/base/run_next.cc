#include "millrace/base/run_next.h"

#include <deque>
#include <utility>

#include "millrace/base/event_wait.h"

namespace millrace {
namespace {

struct Next {
  Scheduler* pool;
  absl::AnyInvocable<void()> closure;
};

struct ThisThread {
  bool in_scope = false;
  std::deque<Next> next;
};

ThisThread& Here() {
  static thread_local ThisThread here;
  return here;
}

}  // namespace

void RunNext(Scheduler* pool, absl::AnyInvocable<void()> closure) {
  ThisThread& here = Here();
  if (!here.in_scope || pool == Scheduler::Inline()) return pool->Schedule(std::move(closure));
  here.next.push_back({pool, std::move(closure)});
}

void HandOverNext() {
  if (EventWatch* watch = EventWatch::Here(); watch != nullptr) watch->GiveBack();
  std::deque<Next>& next = Here().next;
  while (!next.empty()) {
    Next first = std::move(next.front());
    next.pop_front();
    first.pool->Schedule(std::move(first.closure));
  }
}

RunNextScope::RunNextScope() : outermost_(!Here().in_scope) { Here().in_scope = true; }

RunNextScope::~RunNextScope() {
  if (!outermost_) return;
  ThisThread& here = Here();
  while (!here.next.empty()) {
    Next first = std::move(here.next.front());
    here.next.pop_front();
    first.closure();
  }
  here.in_scope = false;
}

}  // namespace millrace
