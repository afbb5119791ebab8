// Programs of blocking code on a simulated network. For tests only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

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
// its WaitSettings wait, and the simulation goes on meanwhile.
//
// Sessions with the target "sim://TASK:2222" that the body creates are on this network.
class SimProgram {
 public:
  SimProgram(net::SimNetwork* network, std::string host, std::function<void(SimProgram&)> body)
      : network_(network), host_(std::move(host)), transport_(network->NewTransport(host_)) {
    RegisterTargets();
    thread_ = std::thread([this, body = std::move(body)] {
      Take();
      current = this;
      body(*this);
      MutexLock lock(&mu_);
      finished_ = true;
      running_ = false;
      changed_.SignalAll();
    });
  }
  // The body must have finished.
  ~SimProgram() {
    MR_CHECK(finished());
    thread_.join();
  }
  SimProgram(const SimProgram&) = delete;

  // For the simulation's thread.

  // Runs the body until it waits for something that has not come, or ends. Returns finished().
  bool Proceed() {
    while (IsReady()) {
      MutexLock lock(&mu_);
      running_ = true;
      changed_.SignalAll();
      while (running_) changed_.Wait(&mu_);
    }
    return finished();
  }
  // As SIGKILL, except that the body has to return: its calls fail and its waits end. What it sends arrives nowhere.
  void Kill() {
    killed_ = true;
    network_->Kill(host_);
  }
  bool killed() const { return killed_; }
  bool finished() const {
    MutexLock lock(&mu_);
    return finished_;
  }
  const std::string& host() const { return host_; }

  // For the body.

  void Wait(Notification* come) {
    come_ = come;
    GiveBack();
    Take();
    come_ = nullptr;
  }
  void Pause(absl::Duration time) {
    Notification over;
    if (killed_) return;
    network_->timers(host_)->Schedule(time, [&over] { over.Notify(); });
    Wait(&over);
  }
  WaitSettings waits() {
    return {.clock = network_->clock(host_),
            .pause = [this](absl::Duration time) { Pause(time); },
            .give_up = [this]() -> Status { return killed_ ? Cancelled("killed") : absl::OkStatus(); }};
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

  // The body runs only between Take and GiveBack.
  void Take() {
    MutexLock lock(&mu_);
    while (!running_) changed_.Wait(&mu_);
  }
  void GiveBack() {
    MutexLock lock(&mu_);
    running_ = false;
    changed_.SignalAll();
  }
  bool IsReady() const { return !finished() && (come_ == nullptr || come_->HasBeenNotified()); }

  static inline thread_local SimProgram* current = nullptr;

  net::SimNetwork* const network_;
  const std::string host_;
  const std::unique_ptr<net::Transport> transport_;
  // Used by whoever runs.
  Notification* come_ = nullptr;
  bool killed_ = false;
  uint64_t sessions_ = 0;
  mutable Mutex mu_;
  CondVar changed_;
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace millrace
