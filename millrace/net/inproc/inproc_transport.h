// Calls within a process: for tests, and for several servers in one program.
#pragma once

#include <memory>

#include "millrace/base/clock.h"
#include "millrace/base/thread_pool.h"
#include "millrace/base/timer.h"
#include "millrace/net/transport.h"

namespace millrace::net {

// The addresses that transports of one process share: what one of them listens at, the others reach. Thread-safe.
class InprocNetwork;
std::shared_ptr<InprocNetwork> NewInprocNetwork();

struct InprocTransportOptions {
  // Null: a network of its own.
  std::shared_ptr<InprocNetwork> network;
  // Where requests are served and answers delivered; outlives the transport. With Scheduler::Inline() both happen on the thread of
  // whoever calls or answers, within Call or Reply.
  Scheduler* scheduler = Scheduler::Inline();
  // For time-outs; outlives the transport.
  TimerQueue* timers = TimerQueue::Real();
  // For IncomingCall::deadline.
  Clock* clock = Clock::Real();
  // Whether its channels make calls that stream.
  bool streams = true;
};

// Messages are handed over as they are, sharing their pieces. Hosts have no meaning: localhost:1 and 127.0.0.1:1 are two addresses.
// Port 0 gets one that is free on that host.
//
// The destructor cancels the calls that are in flight and returns when their Dones have run.
std::unique_ptr<Transport> NewInprocTransport(InprocTransportOptions options = {});

}  // namespace millrace::net
