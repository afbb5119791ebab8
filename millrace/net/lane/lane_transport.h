// The step lane: a second, faster connection between two tasks for the messages of every step.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/timer.h"
#include "millrace/net/tls/tls_stream.h"
#include "millrace/net/transport.h"

namespace millrace::net {

enum class LaneKind {
  kAuto,  // the fastest that both ends support
  kShm,   // a Unix socket; large pieces are read out of the sender's memory
  kTcp,   // TCP, also within a host
  kGrpc,  // no lane
};
// Parses "auto", "shm", "tcp", "grpc". INVALID_ARGUMENT lists them.
StatusOr<LaneKind> ParseLaneKind(absl::string_view text);
absl::string_view LaneKindName(LaneKind kind);

// Returns the addresses of a host as text: "10.0.0.7", "fe80::1%eth0". May block; runs on a thread that may outlive the
// transport.
using HostResolver = std::function<StatusOr<std::vector<std::string>>(const std::string& host)>;

struct LaneOptions {
  LaneKind kind = LaneKind::kAuto;
  // The TLS of lanes between hosts, if the wrapped transport encrypts. Lanes within a host are not encrypted: they
  // connect processes of one user only.
  std::shared_ptr<const TlsContext> tls = nullptr;
  // Flow control: the bytes that may be in flight to this end of a connection before they are consumed. Beyond it
  // senders wait. A single message may be larger.
  size_t window = size_t{256} << 20;
  // Calls and answers of up to `small` bytes may exceed the window by `reserve` in total, so that control messages do
  // not wait for tensors.
  size_t reserve = size_t{16} << 20;
  size_t small = size_t{64} << 10;
  // Pieces of at least this size are read from the sender's memory if possible.
  size_t read_from = size_t{32} << 10;
  // If false, memory of other processes is not read, as if the system did not permit it.
  bool read_memory = true;
  // The maximum size of a message.
  size_t max_message = size_t{1} << 40;
  // The amount of receive memory that is kept for reuse.
  size_t kept_memory = size_t{512} << 20;
  // The number of threads; 0 means two more than there are cores. If all have been in handlers for some time, more are
  // started, up to max_threads.
  int threads = 0;
  int max_threads = 64;
  // A peer that does not complete the handshake in this time is disconnected.
  absl::Duration handshake_timeout = absl::Seconds(5);
  // Both ends of a lane between hosts send something at least this often, and end it after three intervals of silence.
  absl::Duration heartbeat = absl::Seconds(3);
  // How long Channel::Prepare waits for a lane.
  absl::Duration prepare_timeout = absl::Seconds(2);
  // The backoff after a failed handshake, which doubles from the first to the last.
  absl::Duration first_retry = absl::Milliseconds(100);
  absl::Duration last_retry = absl::Seconds(5);
  // The interval of attempts for a peer that does not support lanes.
  absl::Duration no_lane_retry = absl::Seconds(60);
  TimerQueue* timers = TimerQueue::Real();
  Clock* clock = Clock::Real();
  // Null uses the system's resolver.
  HostResolver resolver = nullptr;
};

// Calls of every step (CallOptions::every_step, and Stream) use a lane if the peer has one. All other calls, and these
// too while there is no lane, go over `setup`. The first of them, or Channel::Prepare, asks the peer over `setup` for
// an offer; no call waits for the lane. A broken connection fails the calls in flight on it with UNAVAILABLE; later
// calls go over `setup` until there is a new lane.
//
// Handlers (Service::OnCall, Channel::Done, on_message, cancellation callbacks) run concurrently on the threads that
// read from the network. The destructor cancels the calls in flight and returns when their Dones have run. It must not
// run in a handler.
std::unique_ptr<Transport> NewLaneTransport(std::unique_ptr<Transport> setup, LaneOptions options = {});

}  // namespace millrace::net
