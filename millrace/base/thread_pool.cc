#include "millrace/base/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/optimization.h"
#include "millrace/base/affinity.h"
#include "millrace/base/exception_status.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

class InlineScheduler : public Scheduler {
 public:
  void Schedule(absl::AnyInvocable<void()> closure) override { closure(); }
  int num_threads() const override { return 1; }
};

// How long an idle worker, or a caller whose pieces are nearly done, spins before it blocks: longer than a futex
// wake-up takes, and too short to disturb other processes.
constexpr std::chrono::microseconds kSpin(30);

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <typename Condition>
bool SpinUntil(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (condition()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return condition();
}

// One ParallelFor call. Lives on the caller's stack until no worker is using it.
struct Job {
  absl::FunctionRef<void(int64_t, int64_t)> body;
  const int64_t total;
  const int64_t grain;
  const int64_t pieces;
  std::atomic<int64_t> next{0};
  std::atomic<int> users{0};  // workers using this job; incremented under the pool's lock
  std::atomic_flag failed{};
  std::exception_ptr exception{};  // of the first piece that threw; written by its thread, read when all are done

  void Work() {
    try {
      for (;;) {
        const int64_t piece = next.fetch_add(1, std::memory_order_relaxed);
        if (piece >= pieces) return;
        const int64_t begin = piece * grain;
        body(begin, std::min(begin + grain, total));
      }
    } catch (...) {
      if (!failed.test_and_set(std::memory_order_relaxed)) exception = std::current_exception();
      next.store(pieces, std::memory_order_relaxed);  // the others end after their current piece
    }
  }
};

// State shared by the threads, each of which holds a reference, because a pool may be destroyed by one of its own
// closures.
struct Core {
  Mutex mu;
  CondVar work_cv;
  CondVar done_cv;
  std::deque<absl::AnyInvocable<void()>> closures ABSL_GUARDED_BY(mu);
  std::vector<Job*> jobs ABSL_GUARDED_BY(mu);
  int sleeping ABSL_GUARDED_BY(mu) = 0;
  bool stop ABSL_GUARDED_BY(mu) = false;
  // Incremented whenever there is new work; spinning workers poll it.
  std::atomic<uint64_t> version{0};

  void Loop();
  bool RunOne();
};

// Runs one closure or joins one job. Returns false if there is nothing to do.
bool Core::RunOne() {
  Job* job = nullptr;
  absl::AnyInvocable<void()> closure;
  {
    MutexLock lock(&mu);
    while (!jobs.empty() && jobs.back()->next.load(std::memory_order_relaxed) >= jobs.back()->pieces) {
      jobs.pop_back();
    }
    if (!jobs.empty()) {
      job = jobs.back();
      job->users.fetch_add(1, std::memory_order_relaxed);
    } else if (!closures.empty()) {
      closure = std::move(closures.front());
      closures.pop_front();
    } else {
      return false;
    }
  }
  if (job == nullptr) {
    try {
      closure();
    } catch (const std::exception& exception) {
      MR_LOG(Error, "work on a thread pool was abandoned: ", ExceptionStatus(exception).ToString());
      // A callback of a kernel or a call that it held now reports the exception.
      closure = nullptr;
    }
    return true;
  }
  job->Work();
  if (job->users.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    // The caller may be blocked; it rechecks under the lock, so signal while holding it.
    MutexLock lock(&mu);
    done_cv.SignalAll();
  }
  return true;
}

void Core::Loop() {
  for (;;) {
    const uint64_t seen = version.load(std::memory_order_acquire);
    if (RunOne()) continue;
    if (SpinUntil([&] { return version.load(std::memory_order_acquire) != seen; })) continue;
    MutexLock lock(&mu);
    while (closures.empty() && version.load(std::memory_order_acquire) == seen) {
      if (stop) return;
      ++sleeping;
      work_cv.Wait(&mu);
      --sleeping;
    }
  }
}

}  // namespace

Scheduler* Scheduler::Inline() {
  static InlineScheduler* const scheduler = new InlineScheduler;
  return scheduler;
}

struct ThreadPool::State {
  const std::shared_ptr<Core> core = std::make_shared<Core>();
  std::vector<std::thread> threads;
};

ThreadPool::ThreadPool(std::string name, int num_threads) : state_(new State) {
  CoreFollower::LeaveHere();
  state_->threads.reserve(num_threads);
  for (int i = 0; i < num_threads; ++i) {
    state_->threads.emplace_back([core = state_->core] { core->Loop(); });
    pthread_setname_np(state_->threads.back().native_handle(), name.substr(0, 15).c_str());
  }
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(&state_->core->mu);
    state_->core->stop = true;
    state_->core->work_cv.SignalAll();
  }
  for (std::thread& thread : state_->threads) {
    // A closure that destroys its own pool cannot join itself; its thread ends when it returns.
    thread.get_id() == std::this_thread::get_id() ? thread.detach() : thread.join();
  }
  while (state_->core->RunOne()) {
  }
}

int ThreadPool::num_threads() const { return static_cast<int>(state_->threads.size()); }

void ThreadPool::Schedule(absl::AnyInvocable<void()> closure) {
  Core* const core = state_->core.get();
  MutexLock lock(&core->mu);
  core->closures.push_back(std::move(closure));
  core->version.fetch_add(1, std::memory_order_release);
  if (core->sleeping > 0) core->work_cv.Signal();
}

void ThreadPool::ParallelFor(int64_t total, int64_t grain, absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (total <= 0) return;
  Core* const core = state_->core.get();
  grain = std::max<int64_t>(grain, 1);
  const int64_t pieces = (total + grain - 1) / grain;
  if (pieces == 1 || state_->threads.empty()) {
    for (int64_t begin = 0; begin < total; begin += grain) body(begin, std::min(begin + grain, total));
    return;
  }
  Job job{body, total, grain, pieces};
  {
    MutexLock lock(&core->mu);
    core->jobs.push_back(&job);
    core->version.fetch_add(1, std::memory_order_release);
    const int64_t wanted = std::min<int64_t>(pieces - 1, core->sleeping);
    for (int64_t i = 0; i < wanted; ++i) core->work_cv.Signal();
  }
  job.Work();
  {
    MutexLock lock(&core->mu);
    auto it = std::find(core->jobs.begin(), core->jobs.end(), &job);
    if (it != core->jobs.end()) core->jobs.erase(it);
  }
  // No worker can enter any more; wait for those inside.
  const auto alone = [&] { return job.users.load(std::memory_order_acquire) == 0; };
  // A worker that is about to signal uses the pool's state, no longer the job.
  if (!SpinUntil(alone)) {
    MutexLock lock(&core->mu);
    while (!alone()) core->done_cv.Wait(&core->mu);
  }
  if (ABSL_PREDICT_FALSE(job.exception != nullptr)) std::rethrow_exception(job.exception);
}

}  // namespace millrace
