// The step lane: a second, faster way between two tasks for what every step sends.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/timer.h"
#include "millrace/net/transport.h"

namespace millrace::net {

enum class LaneKind {
  kAuto,  // the fastest that both ends have
  kShm,   // a Unix socket; large pieces are read out of the sender's memory
  kTcp,   // TCP, also within a host
  kGrpc,  // no lane
};
// "auto", "shm", "tcp", "grpc"; INVALID_ARGUMENT lists them.
StatusOr<LaneKind> ParseLaneKind(absl::string_view text);
absl::string_view LaneKindName(LaneKind kind);

// The addresses of a host, each as text: "10.0.0.7", "fe80::1%eth0". It may take its time, on a thread that may outlive the transport.
using HostResolver = std::function<StatusOr<std::vector<std::string>>(const std::string& host)>;

struct LaneOptions {
  LaneKind kind = LaneKind::kAuto;
  // The wrapped transport encrypts. The lane does not, so it then never leaves the host: no TCP.
  bool secured = false;
  // Bytes that may be under way to this end of a connection before they are consumed; senders wait beyond it. One message may be larger.
  size_t window = size_t{256} << 20;
  // Calls and answers up to `small` go beyond the window, by `reserve` in all: what others wait for does not wait for tensors.
  size_t reserve = size_t{16} << 20;
  size_t small = size_t{64} << 10;
  // Pieces from this size on are read out of the sender's memory where that is possible.
  size_t read_from = size_t{32} << 10;
  // False: as if the system did not permit it.
  bool read_memory = true;
  // Nobody sends more than this in one message.
  size_t max_message = size_t{1} << 40;
  // Memory that was received into and is kept for what comes next.
  size_t kept_memory = size_t{512} << 20;
  // 0: two more than there are cores. When all of them have been in handlers for some time, there are more, up to the other number.
  int threads = 0;
  int max_threads = 64;
  // How long a new connection may take to say who it is, and a handshake altogether.
  absl::Duration handshake_timeout = absl::Seconds(5);
  // How long Channel::Prepare waits for it.
  absl::Duration prepare_timeout = absl::Seconds(2);
  // After a failed handshake: each wait is twice the last.
  absl::Duration first_retry = absl::Milliseconds(100);
  absl::Duration last_retry = absl::Seconds(5);
  // For a peer that has no lanes.
  absl::Duration no_lane_retry = absl::Seconds(60);
  TimerQueue* timers = TimerQueue::Real();
  Clock* clock = Clock::Real();
  // Null: as the system does it.
  HostResolver resolver = nullptr;
};

// Calls that every step makes (CallOptions::every_step, and Stream) take a lane of their own where the peer has one; all others, and
// these too while there is no lane, go over `setup`. The first of them, or Channel::Prepare, asks the peer over `setup` for an offer; no call waits
// for the lane. A connection that breaks fails the calls in flight on it with UNAVAILABLE; later ones go over `setup` until there is a new lane.
//
// Handlers (Service::OnCall, Channel::Done, on_message, cancellation callbacks) run on the threads that read from the network, several at once.
// The destructor cancels the calls that are in flight and returns when their Dones have run; not to be called from a handler.
std::unique_ptr<Transport> NewLaneTransport(std::unique_ptr<Transport> setup, LaneOptions options = {});

}  // namespace millrace::net
