// Programs of blocking code on a simulated network. For tests only.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "millrace/base/mutex.h"
#include "millrace/cluster/client/remote_session.h"
#include "millrace/net/sim/sim_network.h"
#include "millrace/session/session.h"
#include "millrace/train/named_wait.h"

namespace millrace {

// One process of a user: `body` runs on a thread of its own, but only while the simulation's thread is in Proceed, so
// that at any moment one of the two runs and a seed determines the order of everything. It blocks where its session or
// its WaitSettings wait, and the simulation goes on meanwhile. So do the threads that it starts through its
// WaitSettings (those of coordinators and queue runners), in the order in which they were started.
//
// Sessions with the target "sim://TASK:2222" that the body creates are on this network.
class SimProgram {
 public:
  SimProgram(net::SimNetwork* network, std::string host, std::function<void(SimProgram&)> body)
      : network_(network), host_(std::move(host)), transport_(network->NewTransport(host_)) {
    RegisterTargets();
    StartThread([this, body = std::move(body)] { body(*this); });
  }
  // The body must have finished.
  ~SimProgram() {
    MR_CHECK(finished());
    for (const auto& thread : threads_) thread->thread.join();
  }
  SimProgram(const SimProgram&) = delete;

  // For the simulation's thread.

  // Runs all threads until each waits for something that has not come, or has ended. Returns finished().
  bool Proceed() {
    for (bool any = true; any;) {
      any = false;
      for (size_t i = 0; i < threads_.size(); ++i) {  // they may start others
        Thread& thread = *threads_[i];
        if (!IsReady(thread)) continue;
        any = true;
        MutexLock lock(&mu_);
        thread.running = true;
        changed_.SignalAll();
        while (thread.running) changed_.Wait(&mu_);
      }
    }
    return finished();
  }
  // As SIGKILL, except that the threads have to return: their calls fail and their waits end. What it sends arrives
  // nowhere.
  void Kill() {
    killed_ = true;
    network_->Kill(host_);
  }
  bool killed() const { return killed_; }
  bool finished() const {
    MutexLock lock(&mu_);
    return std::all_of(threads_.begin(), threads_.end(), [](const auto& thread) { return thread->finished; });
  }
  const std::string& host() const { return host_; }

  // For the body.

  void Wait(Notification* come) {
    this_thread->come = come;
    {
      MutexLock lock(&mu_);
      this_thread->running = false;
      changed_.SignalAll();
    }
    Take(this_thread);
    this_thread->come = nullptr;
  }
  void Pause(absl::Duration time) {
    Notification over;
    // A thread that only waits for the others of a killed program must let them end.
    if (killed_) time = std::min(time, absl::Milliseconds(1));
    network_->timers(host_)->Schedule(time, [&over] { over.Notify(); });
    Wait(&over);
  }
  void StartThread(absl::AnyInvocable<void()> body) {
    threads_.push_back(std::make_unique<Thread>());
    Thread* const thread = threads_.back().get();
    thread->thread = std::thread([this, thread, body = std::move(body)]() mutable {
      Take(thread);
      current = this;
      this_thread = thread;
      body();
      body = nullptr;
      MutexLock lock(&mu_);
      thread->finished = true;
      thread->running = false;
      changed_.SignalAll();
    });
  }
  WaitSettings waits() {
    return {.clock = network_->clock(host_),
            .pause = [this](absl::Duration time) { Pause(time); },
            .give_up = [this]() -> Status { return killed_ ? Cancelled("killed") : absl::OkStatus(); },
            .start_thread =
                [this](absl::AnyInvocable<void()> body) {
                  StartThread(std::move(body));
                  return true;
                }};
  }
  RemoteSessionOptions sessions() {
    return {.transport = transport_.get(),
            .timers = network_->timers(host_),
            .first_request_id = 1000 * ++sessions_,
            .wait = [this](Notification* come) { Wait(come); }};
  }

 private:
  class Sessions : public SessionFactory {
   public:
    bool Accepts(const std::string& target) const override { return absl::StartsWith(target, "sim://"); }
    StatusOr<std::unique_ptr<Session>> Create(const SessionOptions& options) override {
      SessionOptions changed = options;
      changed.target = absl::StrCat("grpc://", options.target.substr(6));
      return RemoteSession::Create(changed, current->sessions());
    }
  };
  static void RegisterTargets() {
    static const bool once = [] {
      SessionFactory::Register(std::make_unique<Sessions>());
      return true;
    }();
    (void)once;
  }

  struct Thread {
    std::thread thread;
    Notification* come = nullptr;            // what it waits for
    bool running = false, finished = false;  // guarded by mu_
  };

  // Waits for the thread's turn, which lasts until it waits for something else.
  void Take(Thread* thread) {
    MutexLock lock(&mu_);
    while (!thread->running) changed_.Wait(&mu_);
  }
  bool IsReady(const Thread& thread) const {
    MutexLock lock(&mu_);
    return !thread.finished && (thread.come == nullptr || thread.come->HasBeenNotified());
  }

  static inline thread_local SimProgram* current = nullptr;
  static inline thread_local Thread* this_thread = nullptr;

  net::SimNetwork* const network_;
  const std::string host_;
  const std::unique_ptr<net::Transport> transport_;
  // Used by whoever runs.
  bool killed_ = false;
  uint64_t sessions_ = 0;
  std::vector<std::unique_ptr<Thread>> threads_;
  mutable Mutex mu_;
  CondVar changed_;
};

}  // namespace millrace
