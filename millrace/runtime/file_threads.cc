#include "millrace/runtime/file_threads.h"

#include <atomic>
#include <deque>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/exception_status.h"
#include "millrace/base/file.h"
#include "millrace/base/log.h"
#include "millrace/base/thread_group.h"

namespace millrace {
namespace {

// Of the work that runs on this thread.
thread_local FileProgress* progress_here = nullptr;

// How long a thread without work is kept.
constexpr absl::Duration kIdleTime = absl::Seconds(5);

// One operation, listed among the task's waits while this exists.
class ListedWork {
 public:
  ListedWork(FileThreads::Work work, std::shared_ptr<WaitRegistry> waits)
      : work_(std::move(work)), waits_(std::move(waits)) {
    if (waits_ == nullptr) return;
    wait_ = waits_->Begin({.node = work_.node, .what = work_.what, .step_id = work_.step_id},
                          [what = work_.what, begun = begun_](Wait* wait) {
                            if (!*begun) wait->what = absl::StrCat(what, ", in line for a thread for files");
                          });
  }
  ~ListedWork() {
    if (waits_ != nullptr) waits_->End(wait_);
  }
  ListedWork(const ListedWork&) = delete;

  void Run() {
    *begun_ = true;
    progress_here = work_.progress.get();
    FileThreads::NoteProgress();
    try {
      work_.run();
    } catch (const std::exception& exception) {
      MR_LOG(Error, work_.what, ": ", ExceptionStatus(exception).ToString());
    }
    progress_here = nullptr;
  }

 private:
  FileThreads::Work work_;
  const std::shared_ptr<WaitRegistry> waits_;
  const std::shared_ptr<std::atomic<bool>> begun_ = std::make_shared<std::atomic<bool>>(false);
  uint64_t wait_ = 0;
};

}  // namespace

// What the threads share; each holds a reference.
struct FileThreads::Core : std::enable_shared_from_this<Core> {
  struct Kind {
    std::deque<std::unique_ptr<ListedWork>> line;
    int threads = 0;
    int idle = 0;
  };

  explicit Core(FileThreadsOptions given) : options(std::move(given)) {}

  // Runs work of one kind until there is none.
  void Loop(bool is_long);
  // The next work; waits for it for a while. Null if this thread, which no longer counts, is to end.
  std::unique_ptr<ListedWork> Next(bool is_long);
  bool StartThread(bool is_long) {
    return StartDetachedThread("files", [self = shared_from_this(), is_long] { self->Loop(is_long); });
  }
  bool HasWork(bool is_long) {
    MutexLock lock(&mu);
    return !kinds[is_long].line.empty();
  }

  const FileThreadsOptions options;
  Mutex mu;
  CondVar changed;
  bool stopped ABSL_GUARDED_BY(mu) = false;
  Kind kinds[2] ABSL_GUARDED_BY(mu);  // quick, long
};

std::unique_ptr<ListedWork> FileThreads::Core::Next(bool is_long) {
  MutexLock lock(&mu);
  Kind& mine = kinds[is_long];
  if (mine.line.empty() && !stopped && !is_long) {
    ++mine.idle;
    changed.WaitFor(&mu, kIdleTime);
    --mine.idle;
  }
  if (mine.line.empty()) {
    --mine.threads;
    return nullptr;
  }
  std::unique_ptr<ListedWork> work = std::move(mine.line.front());
  mine.line.pop_front();
  return work;
}

void FileThreads::Core::Loop(bool is_long) {
  while (std::unique_ptr<ListedWork> work = Next(is_long)) {
    work->Run();
    work.reset();
    // Long work may have changed this thread's priority, so the next one gets a new thread.
    if (is_long && HasWork(is_long) && StartThread(is_long)) return;
  }
}

FileThreads::FileThreads(FileThreadsOptions options) : core_(std::make_shared<Core>(std::move(options))) {}

FileThreads::~FileThreads() {
  std::deque<std::unique_ptr<ListedWork>> dropped[2];  // destroyed without the lock
  MutexLock lock(&core_->mu);
  core_->stopped = true;
  for (const bool is_long : {false, true}) dropped[is_long].swap(core_->kinds[is_long].line);
  core_->changed.SignalAll();
}

void FileThreads::NoteProgress() {
  if (progress_here != nullptr)
    progress_here->store(absl::ToUnixNanos(Clock::Real()->Now()), std::memory_order_relaxed);
}

absl::Duration FileThreads::stall_timeout() const { return core_->options.stall_timeout; }
TimerQueue* FileThreads::timers() const { return core_->options.timers; }

void FileThreads::Run(Work work) {
  const bool is_long = work.is_long;
  auto listed = std::make_unique<ListedWork>(std::move(work), core_->options.waits);
  if (Scheduler* const scheduler = core_->options.scheduler)
    return scheduler->Schedule([listed = std::move(listed)] { listed->Run(); });
  {
    MutexLock lock(&core_->mu);
    Core::Kind& its = core_->kinds[is_long];
    its.line.push_back(std::move(listed));
    if (its.idle >= static_cast<int>(its.line.size())) return core_->changed.SignalAll();
    if (its.threads >= core_->options.max_threads) return;
    ++its.threads;
  }
  if (core_->StartThread(is_long)) return;
  std::deque<std::unique_ptr<ListedWork>> dropped;  // destroyed without the lock
  MutexLock lock(&core_->mu);
  Core::Kind& its = core_->kinds[is_long];
  if (--its.threads == 0) dropped.swap(its.line);
}

}  // namespace millrace
