#include "tests/late/late_stream.h"

#include <algorithm>
#include <utility>

#include "millrace/base/exception_status.h"
#include "tests/late/late_memory.h"

namespace millrace::late {

LateStream::LateStream() : thread_([this] { Loop(); }) {}

void LateStream::Enqueue(Work work) {
  MutexLock lock(&mu_);
  Push({.work = std::move(work)});
}

void LateStream::Fail(Status why) {
  MutexLock lock(&mu_);
  if (failed_.ok()) failed_ = std::move(why);
}

Status LateStream::TakeError() {
  MutexLock lock(&mu_);
  return error_.ok() ? failed_ : std::exchange(error_, absl::OkStatus());
}

void LateStream::EnqueueReader(Work work) {
  MutexLock lock(&mu_);
  while (runs_ > 0 && !IsAtWork()) changed_.Wait(&mu_);
  Push({.work = std::move(work)});
}

void LateStream::Push(Entry entry) {
  queue_.push_back(std::move(entry));
  ++enqueued_;
  if (enqueued_ - kMostWaiting > wanted_) {
    wanted_ = enqueued_ - kMostWaiting;
    changed_.SignalAll();
  }
}

void LateStream::WhenDone(absl::AnyInvocable<void(Status)> done) {
  MutexLock lock(&mu_);
  auto tell = [this, done = std::move(done)]() mutable -> Status {
    callbacks_.Schedule([status = TakeError(), done = std::move(done)]() mutable { done(status); });
    return absl::OkStatus();
  };
  queue_.push_back({.work = std::move(tell), .told = true});
  wanted_ = ++enqueued_;
  changed_.SignalAll();
}

Status LateStream::Synchronize() {
  Status result;
  Notification ended;
  {
    // Not by WhenDone: a callback may wait here, and so may as many as there are threads for callbacks.
    MutexLock lock(&mu_);
    const auto tell = [&]() -> Status {
      result = TakeError();
      ended.Notify();
      return absl::OkStatus();
    };
    queue_.push_back({.work = tell, .told = true});
    wanted_ = ++enqueued_;
    changed_.SignalAll();
  }
  ended.Wait();
  return result;
}

Status LateStream::Run(absl::FunctionRef<Status()> work) {
  if (IsAtWork()) return work();
  Status result;
  Notification ended;
  {
    MutexLock lock(&mu_);
    ++runs_;
    const auto run = [&]() -> Status {
      {
        MutexLock own(&mu_);
        result = failed_;
      }
      if (result.ok()) result = CatchExceptions([&] { return work(); });
      {
        MutexLock own(&mu_);
        --runs_;
        changed_.SignalAll();
      }
      ended.Notify();
      return absl::OkStatus();
    };
    queue_.push_back({.work = run, .told = true});
    wanted_ = ++enqueued_;
    changed_.SignalAll();
  }
  ended.Wait();
  return result;
}

void LateStream::Loop() {
  while (true) {
    {
      MutexLock lock(&mu_);
      while (begun_ >= wanted_) changed_.Wait(&mu_);
    }
    const LateMemory::Window window;
    while (DoNext()) {
    }
  }
}

bool LateStream::DoNext() {
  Work work;
  {
    MutexLock lock(&mu_);
    if (begun_ >= wanted_) return false;
    ++begun_;
    if (failed_.ok() || queue_.front().told) work = std::move(queue_.front().work);
    queue_.pop_front();
  }
  if (work == nullptr) return true;
  Status status = CatchExceptions([&] { return work(); });
  work = nullptr;  // what it holds may be freed, for which the window is needed
  if (status.ok()) return true;
  MutexLock lock(&mu_);
  if (error_.ok()) error_ = std::move(status);
  return true;
}

}  // namespace millrace::late
