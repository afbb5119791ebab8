// Utilities for tests of transports. For tests only.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/net/transport.h"

namespace millrace::net {

// Waits for `condition`, which another thread makes true; returns false if that takes too long.
inline bool WaitUntil(const std::function<bool()>& condition) {
  const absl::Time deadline = Clock::Real()->Now() + absl::Minutes(2);
  Notification never;
  while (!condition()) {
    if (Clock::Real()->Now() > deadline) return false;
    never.WaitFor(absl::Milliseconds(1));
  }
  return true;
}

// A service whose methods are handlers given by the test.
class TestService : public Service {
 public:
  using Handler = std::function<void(std::shared_ptr<IncomingCall>)>;

  TestService& On(const std::string& method, Handler handler) {
    methods_.push_back(FullName(method));
    handlers_.push_back(std::move(handler));
    return *this;
  }
  static std::string FullName(const std::string& method) { return "/test.Service/" + method; }

  const std::vector<std::string>& methods() const override { return methods_; }
  void OnCall(int method, std::shared_ptr<IncomingCall> call) override { handlers_[method](std::move(call)); }

 private:
  std::vector<std::string> methods_;
  std::vector<Handler> handlers_;
};

inline void Echo(std::shared_ptr<IncomingCall> call) { call->Reply(std::move(call->request())); }

// Keeps incoming calls until the test takes them.
class HeldCalls {
 public:
  TestService::Handler Handler() {
    return [this](std::shared_ptr<IncomingCall> call) {
      MutexLock lock(&mu_);
      calls_.push_back(std::move(call));
    };
  }
  int size() const {
    MutexLock lock(&mu_);
    return static_cast<int>(calls_.size());
  }
  std::shared_ptr<IncomingCall> Take() {
    MutexLock lock(&mu_);
    auto call = std::move(calls_.back());
    calls_.pop_back();
    return call;
  }

 private:
  mutable Mutex mu_;
  std::vector<std::shared_ptr<IncomingCall>> calls_ ABSL_GUARDED_BY(mu_);
};

// The answer to a call. Copies share the state.
class Answer {
 public:
  Channel::Done Done() const {
    return [state = state_](StatusOr<Bytes> result) {
      state->result = std::move(result);
      state->count.fetch_add(1);
      state->done.Notify();
    };
  }
  bool here() const { return state_->done.HasBeenNotified(); }
  int count() const { return state_->count; }
  // Valid once here().
  const StatusOr<Bytes>& result() const { return state_->result; }
  Status status() const { return state_->result.status(); }
  Notification& notification() const { return state_->done; }

 private:
  struct State {
    Notification done;
    std::atomic<int> count{0};
    StatusOr<Bytes> result = absl::UnknownError("no answer yet");
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace millrace::net
