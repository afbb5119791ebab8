// The threads on which kernels of a server touch files.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/base/timer.h"
#include "millrace/runtime/wait_registry.h"

namespace millrace {

class FileSystem;

struct FileThreadsOptions {
  // What runs at once; the rest waits in line. Long work has as many threads of its own.
  int max_threads = 16;
  // Where each operation is listed from Run until it has returned. May be null.
  std::shared_ptr<WaitRegistry> waits = nullptr;
  // Kept alive for operations that outlive their task. May be null.
  std::shared_ptr<FileSystem> files = nullptr;
  // Long work that notes no progress for this time has failed: the disk does not answer.
  absl::Duration stall_timeout = absl::Minutes(2);
  // For simulations: runs the operations instead of threads.
  Scheduler* scheduler = nullptr;
  // Measures the patience with operations. Must outlive them.
  TimerQueue* timers = TimerQueue::Real();
};

// When long work last did something, in nanoseconds of the steady clock; 0 until it has begun. Thread-safe.
using FileProgress = std::atomic<int64_t>;

// A file operation may take for ever: a FIFO without a writer, a server that is gone, a disk that does not answer. No
// system call can be taken back from such a thread, so nothing else runs on these threads and nobody joins them: an
// operation that never returns costs its thread and no more. Thread-safe.
class FileThreads : public std::enable_shared_from_this<FileThreads> {
 public:
  struct Work {
    std::string node;  // "layer1/read"
    std::string what;  // "ReadFile of '/data/a'"
    int64_t step_id = 0;
    // Long and in the background, such as writing a checkpoint: has a thread to itself, which ends with it, so that it
    // may change the thread's priority.
    bool is_long = false;
    std::shared_ptr<FileProgress> progress = nullptr;  // what NoteProgress writes to; may be null
    absl::AnyInvocable<void()> run;
  };

  explicit FileThreads(FileThreadsOptions options);
  // Operations that have begun run on; those in line are dropped.
  ~FileThreads();
  FileThreads(const FileThreads&) = delete;

  // Returns immediately. Drops `work` if the system has no thread and none will become free.
  void Run(Work work);
  // Called by work, often: it is not stuck. A no-op on other threads.
  static void NoteProgress();
  absl::Duration stall_timeout() const;
  TimerQueue* timers() const;

 private:
  struct Core;
  const std::shared_ptr<Core> core_;
};

}  // namespace millrace
