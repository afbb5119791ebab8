// A channel whose calls fail if the peer is silent.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "millrace/base/timer.h"
#include "millrace/net/transport.h"

namespace millrace {

struct WatchOptions {
  // How long a peer may be silent. If infinite, the channel is not watched.
  absl::Duration peer_timeout = absl::Seconds(5);
  // Must outlive the channel and its calls.
  TimerQueue* timers = TimerQueue::Real();
};

// While calls are in flight on the result, the peer is pinged (WorkerService's GetStatus, five times within
// `peer_timeout`). As long as it answers, a call may take hours. If it has been silent for `peer_timeout` (at most a
// fifth longer), every call in flight fails with UNAVAILABLE, which names the address, the time and the method. No
// pings are sent while no call is in flight. Time is counted in timer ticks, so a process that was itself suspended
// does not blame its peers.
std::shared_ptr<net::Channel> WatchChannel(std::shared_ptr<net::Channel> channel, const WatchOptions& options = {});

}  // namespace millrace
