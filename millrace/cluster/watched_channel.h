// A channel whose calls do not wait for a peer that is gone without a word.
#pragma once

#include <memory>

#include "absl/time/time.h"
#include "millrace/base/timer.h"
#include "millrace/net/transport.h"

namespace millrace {

struct WatchOptions {
  // InfiniteDuration: nobody watches.
  absl::Duration timeout = absl::Seconds(5);
  // Outlives the channel and its calls.
  TimerQueue* timers = TimerQueue::Real();
};

// While calls are out on the result, the peer is asked whether it is there (WorkerService's GetStatus, five times within `timeout`). As long as it
// answers anything at all, a call may take hours. When it has been silent for `timeout`, and before that has passed by a fifth more, every
// call that is out ends with UNAVAILABLE, saying which address has not answered for how long and to which method. Nothing is
// asked while no call is out. Time is counted by the timers' ticks: a process that was stopped itself does not blame its peers.
std::shared_ptr<net::Channel> WatchChannel(std::shared_ptr<net::Channel> channel, const WatchOptions& options = {});

}  // namespace millrace
