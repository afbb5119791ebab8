// A listening socket for lanes.
#pragma once

#include "millrace/base/fd.h"
#include "millrace/base/mutex.h"
#include "millrace/net/lane/event_loop.h"

namespace millrace::net {

class LaneEndpoint;
class LaneMedium;

class LaneAcceptor final : public EventHandler {
 public:
  // `socket` is of that medium.
  LaneAcceptor(RefPtr<LaneEndpoint> endpoint, EventLoop* loop, Fd socket, const LaneMedium* medium);
  ~LaneAcceptor() override;

  Status Start();
  // No connection is accepted after this.
  void Stop();
  void OnReadable(EventThread* here) override;

 private:
  // Called when the system has no resources for a connection, not even to refuse it: accepting again immediately would
  // be a busy loop.
  void TryAgainLater() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RefPtr<LaneEndpoint> endpoint_;
  EventLoop* const loop_;
  const LaneMedium* const medium_;
  Mutex mu_;
  Fd socket_ ABSL_GUARDED_BY(mu_);
  uint64_t id_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace::net
