#include "millrace/base/thread_group.h"

#include <pthread.h>

#include <list>
#include <system_error>
#include <thread>
#include <utility>

#include "millrace/base/affinity.h"
#include "millrace/base/mutex.h"

namespace millrace {

namespace {

constexpr size_t kLongestName = 15;  // Linux's limit

}  // namespace

struct ThreadGroup::State {
  Mutex mu;
  CondVar changed;
  std::string name;
  std::list<std::thread> running ABSL_GUARDED_BY(mu);
  // Threads that have returned or are about to; joining them does not block for long.
  std::list<std::thread> ended ABSL_GUARDED_BY(mu);

  void JoinEnded() {
    std::list<std::thread> threads;
    {
      MutexLock lock(&mu);
      threads.swap(ended);
    }
    for (std::thread& thread : threads) thread.join();
  }
};

ThreadGroup::ThreadGroup(std::string name) : state_(new State) { state_->name = name.substr(0, kLongestName); }

ThreadGroup::~ThreadGroup() {
  {
    MutexLock lock(&state_->mu);
    while (!state_->running.empty()) state_->changed.Wait(&state_->mu);
  }
  state_->JoinEnded();
}

bool ThreadGroup::Start(absl::AnyInvocable<void()> body) {
  CoreFollower::LeaveHere();
  state_->JoinEnded();
  MutexLock lock(&state_->mu);
  const auto it = state_->running.emplace(state_->running.end());
  try {
    *it = std::thread([state = state_.get(), it, body = std::move(body)]() mutable {
      body();
      body = nullptr;
      MutexLock lock(&state->mu);
      state->ended.splice(state->ended.end(), state->running, it);
      state->changed.SignalAll();
    });
  } catch (const std::system_error&) {
    state_->running.erase(it);
    return false;
  }
  pthread_setname_np(it->native_handle(), state_->name.c_str());
  return true;
}

bool StartDetachedThread(const std::string& name, absl::AnyInvocable<void()> body) {
  CoreFollower::LeaveHere();
  try {
    std::thread([name = name.substr(0, kLongestName), body = std::move(body)]() mutable {
      pthread_setname_np(pthread_self(), name.c_str());
      body();
    }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

}  // namespace millrace
