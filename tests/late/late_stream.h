// Work in order that is done when somebody waits for it, and not before.
#pragma once

#include <deque>
#include <thread>

#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/device/device.h"

namespace millrace::late {

// Thread-safe; never destroyed.
class LateStream : public Stream {
 public:
  LateStream();

  using Work = absl::AnyInvocable<Status()>;
  // An error is reported to whoever waits next.
  void Enqueue(Work work);
  // Enqueue for a kernel that reads values of variables: waits while there is a Run. Whether an update, which is a Run,
  // may be in place depends on who holds the value, and the caller lets go of it when this returns.
  void EnqueueReader(Work work);
  // Does the work after everything enqueued so far, and returns its status. Not for callbacks of this stream.
  Status Run(absl::FunctionRef<Status()> work);
  // Work that has not begun is dropped from now on, and whoever waits or calls Run gets `why`.
  void Fail(Status why);
  // True on the thread that does the work.
  bool IsAtWork() const { return std::this_thread::get_id() == thread_.get_id(); }

  void WhenDone(absl::AnyInvocable<void(Status)> done) override;
  Status Synchronize() override;

 private:
  // Work that piles up is done without being waited for.
  static constexpr int kMostWaiting = 2000;

  struct Entry {
    Work work;
    bool told = false;  // it knows what to do when the stream has failed
  };

  void Push(Entry entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Loop();
  // The errors since somebody last asked, or why the stream has failed.
  Status TakeError();
  // False if there is no work that may begin.
  bool DoNext();

  ThreadPool callbacks_{"late_done", 2};
  Mutex mu_;
  CondVar changed_;
  std::deque<Entry> queue_ ABSL_GUARDED_BY(mu_);
  int64_t enqueued_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t begun_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t wanted_ ABSL_GUARDED_BY(mu_) = 0;  // the work up to this number may begin
  int runs_ ABSL_GUARDED_BY(mu_) = 0;        // that have not ended
  Status error_ ABSL_GUARDED_BY(mu_);        // the first since somebody last asked
  Status failed_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace millrace::late
