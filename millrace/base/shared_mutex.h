// A reader-writer lock.
#pragma once

#include "millrace/base/mutex.h"

namespace millrace {

// Prefers writers: a waiting writer blocks new readers, so a stream of readers cannot starve it. Not recursive: a
// thread that holds it shared must not lock it again.
//
// Locking does not hand over the thread's other duties (ThreadHandover): it has no step to do it for. What they wait
// for is bounded by the backstop of the event loop, 20 ms (EventThread).
class ABSL_LOCKABLE SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    MutexLock lock(&mu_);
    ++waiting_;
    while (alone_ || sharers_ > 0) cv_.Wait(&mu_);
    --waiting_;
    alone_ = true;
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    MutexLock lock(&mu_);
    alone_ = false;
    cv_.SignalAll();
  }
  void LockShared() ABSL_SHARED_LOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    MutexLock lock(&mu_);
    while (alone_ || waiting_ > 0) cv_.Wait(&mu_);
    ++sharers_;
  }
  void UnlockShared() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    MutexLock lock(&mu_);
    if (--sharers_ == 0) cv_.SignalAll();
  }

 private:
  Mutex mu_;
  CondVar cv_;
  int sharers_ = 0;
  int waiting_ = 0;
  bool alone_ = false;
};

class ABSL_SCOPED_LOCKABLE ExclusiveLock {
 public:
  explicit ExclusiveLock(SharedMutex* mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) { mu_->Lock(); }
  ~ExclusiveLock() ABSL_UNLOCK_FUNCTION() { mu_->Unlock(); }
  ExclusiveLock(const ExclusiveLock&) = delete;
  ExclusiveLock& operator=(const ExclusiveLock&) = delete;

 private:
  SharedMutex* const mu_;
};

}  // namespace millrace
