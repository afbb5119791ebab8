// A transport within a process, for tests and for several servers in one program.
#pragma once

#include <memory>

#include "millrace/base/clock.h"
#include "millrace/base/thread_pool.h"
#include "millrace/base/timer.h"
#include "millrace/net/transport.h"

namespace millrace::net {

// An address space shared by transports of one process: what one of them listens at, the others can reach. Thread-safe.
class InprocNetwork;
std::shared_ptr<InprocNetwork> NewInprocNetwork();

struct InprocTransportOptions {
  // Null creates a network of its own.
  std::shared_ptr<InprocNetwork> network;
  // Where requests are served and answers delivered; must outlive the transport. With Scheduler::Inline() both happen
  // on the thread of the caller or the service, within Call or Reply.
  Scheduler* scheduler = Scheduler::Inline();
  // For timeouts; must outlive the transport.
  TimerQueue* timers = TimerQueue::Real();
  // For IncomingCall::deadline.
  Clock* clock = Clock::Real();
  // Whether its channels support streaming calls.
  bool streams = true;
};

// Messages are passed without copying; both ends share their pieces. Host names are not resolved: localhost:1 and
// 127.0.0.1:1 are different addresses. For port 0 a free port of that host is chosen.
//
// The destructor cancels the calls in flight and returns when their Dones have run.
std::unique_ptr<Transport> NewInprocTransport(InprocTransportOptions options = {});

}  // namespace millrace::net
