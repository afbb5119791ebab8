// A socket that listens for lanes.
#pragma once

#include "millrace/base/fd.h"
#include "millrace/base/mutex.h"
#include "millrace/net/lane/event_loop.h"

namespace millrace::net {

class LaneEndpoint;

class LaneAcceptor final : public EventHandler {
 public:
  // `local`: a Unix socket.
  LaneAcceptor(RefPtr<LaneEndpoint> endpoint, EventLoop* loop, Fd socket, bool local);
  ~LaneAcceptor() override;

  Status Start();
  // No connection is accepted after this.
  void Stop();
  void OnReadable() override;

 private:
  // The system has no descriptors left: asking again at once would be asking for ever.
  void TryAgainLater() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RefPtr<LaneEndpoint> endpoint_;
  EventLoop* const loop_;
  const bool local_;
  Mutex mu_;
  Fd socket_ ABSL_GUARDED_BY(mu_);
  uint64_t id_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace millrace::net
