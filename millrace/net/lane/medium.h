// The kinds of lanes: how connections of each are made, and how large pieces travel over them.
//
// To add one (RDMA, for example): a file with a LaneMedium, a line in LaneMedia() and in the names of LaneKind, and a
// field of LaneOffer (proto/lane.proto) with the address to connect to. Frames, calls, flow control and the handshake
// are the same for all.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "millrace/base/fd.h"
#include "millrace/base/status.h"
#include "millrace/net/address.h"
#include "millrace/net/lane/core.h"
#include "millrace/net/lane/cross_memory.h"
#include "millrace/net/lane/lane_transport.h"
#include "millrace/proto/lane.pb.h"

namespace millrace::net {

// Immutable and thread-safe.
class LaneMedium {
 public:
  virtual ~LaneMedium() = default;

  virtual LaneKind kind() const = 0;
  // As in the status report: "shm".
  absl::string_view name() const { return LaneKindName(kind()); }
  // What carries the frames, for use in messages: "the Unix socket".
  virtual absl::string_view carrier() const = 0;
  // OK, or the reason why a task with these options neither offers nor dials such lanes, as a clause: "this task was
  // told to use tcp". Nothing of a medium is used where it is not allowed.
  Status Allowed(const LaneOptions& options) const;
  // On the listening side: returns sockets that accept connections for the task at `address`, and adds what Dial needs
  // to `offer`.
  virtual StatusOr<std::vector<Fd>> Listen(const HostPort& address, LaneOffer* offer) const = 0;
  // Checks the accepted connection `fd`; an error refuses it.
  virtual Status Admit(int fd) const = 0;

  // On the connecting side: connects to the task at `host` that made the offer. Blocks until `deadline`, or until the
  // transport is destroyed (CANCELLED). Any other error is the reason why there is no such lane, as a clause.
  virtual StatusOr<Fd> Dial(LaneCore* core, const LaneOffer& offer, const std::string& host,
                            absl::Time deadline) const = 0;

  // Whether it connects processes of one host only. The serving side then gives each connection a thread of its own
  // (README.md says why).
  virtual bool within_host() const = 0;
  // Whether large pieces are read out of the sender's memory if both sides find that they can. Otherwise they go
  // through the carrier like everything else.
  virtual bool reads_memory() const = 0;
  // Lets the process at the other end of `fd` read this one's memory; must be called before it tries. An error if that
  // would let others read it as well. Requires reads_memory().
  virtual Status AllowReads(int fd) const = 0;
  // The memory of the process at the other end of `fd`; an error if `probe` is not found at `address`. Requires
  // reads_memory().
  virtual StatusOr<std::shared_ptr<const PeerMemory>> OpenMemory(int fd, uint64_t address,
                                                                 const MemoryProbe& probe) const = 0;
};

const LaneMedium* UnixMedium();  // unix_medium.cc
const LaneMedium* TcpMedium();   // tcp_medium.cc

// All of them, the fastest first.
absl::Span<const LaneMedium* const> LaneMedia();

struct DialledLane {
  const LaneMedium* medium = nullptr;
  Fd fd;
  std::string why_not_better;  // empty if it is of the fastest kind
};
// Connects by the fastest kind that both sides support. The error lists why each kind is not available.
StatusOr<DialledLane> DialFastest(LaneCore* core, const LaneOffer& offer, const std::string& host, absl::Time deadline);

}  // namespace millrace::net
