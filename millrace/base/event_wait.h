// Threads that look at descriptors themselves, instead of being woken by a thread that was woken for them.
#pragma once

#include <atomic>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"

namespace millrace {

// What happens at a descriptor.
class EventHandler : public RefCounted {
 public:
  virtual void OnReadable() = 0;
  virtual void OnWritable() {}
  // The thread that watched it (see EventWatch) does so no more: others are to. That thread may hold locks.
  virtual void OnGivenBack() {}
  // The thread that watches it has been at other work for a while: others are to watch it as well. On any thread.
  virtual void OnLeftAlone() {}

  bool watched() const { return watched_.load(); }
  bool left_alone() const { return watched_.load() && !waited_for_.load(); }

 private:
  friend class EventWatch;
  std::atomic<bool> watched_{false};
  std::atomic<bool> waited_for_{false};  // by the thread that watches it, at this moment
};

// The descriptors that a thread watches in place of those that wait for events in general: only this thread is woken by them, and goes on with
// what they bring. It gives them back before it works for long or waits for something else (HandOverNext in base/run_next.h). On that thread's
// stack, and for that thread alone.
class EventWatch {
 public:
  EventWatch();
  ~EventWatch();
  EventWatch(const EventWatch&) = delete;
  EventWatch& operator=(const EventWatch&) = delete;

  // This thread's innermost; null when it has none.
  static EventWatch* Here();

  // False: another thread watches it, or this one watches enough. Otherwise nobody else needs to until OnGivenBack.
  bool Add(RefPtr<EventHandler> handler, int fd);
  bool Has(const EventHandler* handler) const;
  bool empty() const { return watched_.empty(); }
  // Its descriptor brings nothing any more; there is no OnGivenBack.
  void Forget(const EventHandler* handler);
  void GiveBack();

  // Handles what is there, once something is. False when nothing has come for `timeout` milliseconds (negative: no limit) or `wake` is
  // readable (negative: none).
  bool HandleEvents(int timeout, int wake = -1);

 private:
  struct Watched {
    RefPtr<EventHandler> handler;
    int fd;
  };

  EventWatch* const outer_;
  std::vector<Watched> watched_;
};

// On a thread's stack, from before it asks for something until it has the answer. What the answer comes through may let this thread watch its
// descriptor meanwhile, as long as the answer comes soon.
class EventWait {
 public:
  EventWait();
  ~EventWait();
  EventWait(const EventWait&) = delete;
  EventWait& operator=(const EventWait&) = delete;

  // This thread's innermost; null when it waits for no answer.
  static EventWait* Here();

  // The answer is there. Once, on any thread.
  void Notify();
  // On the thread itself.
  void Wait();
  EventWatch* watch() { return &watch_; }

 private:
  enum class Asleep { kNo, kAtDescriptors, kAtCondition };

  EventWait* const outer_;
  EventWatch watch_;
  Mutex mu_;
  CondVar notified_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  Asleep asleep_ ABSL_GUARDED_BY(mu_) = Asleep::kNo;
  int wake_ ABSL_GUARDED_BY(mu_) = -1;  // makes the thread look up from its descriptors
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace millrace
