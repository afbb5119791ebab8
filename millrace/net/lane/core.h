// State shared by all parts of a lane transport.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "millrace/base/mutex.h"
#include "millrace/base/thread_group.h"
#include "millrace/net/admission.h"
#include "millrace/net/calls_in_flight.h"
#include "millrace/net/lane/deadlines.h"
#include "millrace/net/lane/event_loop.h"
#include "millrace/net/lane/host_lookups.h"
#include "millrace/net/lane/lane_transport.h"
#include "millrace/net/lane/receive_pool.h"

namespace millrace::net {

// The traffic of one peer, over all its connections.
struct PeerCounters {
  std::atomic<uint64_t> bytes_sent{0};
  std::atomic<uint64_t> bytes_received{0};
  std::atomic<uint64_t> calls{0};
};

struct LaneCore {
  LaneCore(LaneOptions options, std::unique_ptr<EventLoop> loop, Fd closing)
      : options(options),
        lookups(options.resolver),
        pool(MakeRef<ReceivePool>(options.kept_memory)),
        deadlines(options.timers, options.clock),
        admission({.what = "the step lane", .handshake_timeout = options.handshake_timeout, .clock = options.clock}),
        closing(std::move(closing)),
        loop(std::move(loop)) {}

  const LaneOptions options;
  HostLookups lookups;
  const RefPtr<ReceivePool> pool;
  LaneDeadlines deadlines;
  Admission admission;
  CallsInFlight calls;
  const Fd closing;                       // becomes readable when the transport is destroyed
  std::atomic<uint64_t> refused{0};       // rejected connections
  const std::unique_ptr<EventLoop> loop;  // destroyed first
};

}  // namespace millrace::net
