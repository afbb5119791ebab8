// Who belongs to a group, and how it works.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "millrace/base/clock.h"
#include "millrace/base/timer.h"
#include "millrace/net/transport.h"

namespace millrace {
class WaitRegistry;
}

namespace millrace::collective {

struct RankAddress {
  std::string address;    // "host:port" at which its CollectiveService is served
  std::string task = {};  // its name in messages, "/job:worker/task:1"; may be empty
  // Ranks with the same one share a host, for the choice of algorithms; if empty, the host of `address`.
  std::string host = {};
};
// The ranks of each host, ascending; the hosts by their first rank.
std::vector<std::vector<int>> RanksByHost(const std::vector<RankAddress>& ranks);

struct GroupOptions {
  // The same on all ranks, and of no other group of these tasks. A group that takes the place of a failed one needs
  // another key.
  std::string key = {};
  int rank = 0;
  std::vector<RankAddress> ranks = {};
  // Must outlive the group.
  net::Transport* transport = nullptr;
  Clock* clock = Clock::Real();
  TimerQueue* timers = TimerQueue::Real();
  // Gets the operations that wait for longer than `ping_interval`. May be null.
  WaitRegistry* waits = nullptr;
  // Gets a line for people when an operation has waited 2 s for ranks that have not joined, which names them; again
  // every 10 s; and when all have joined. Called on any thread, not after the group; must not use the group. May be
  // null.
  std::function<void(const std::string& line)> announce = nullptr;

  // How long another rank may take to join, from the first operation that needs it.
  absl::Duration join_timeout = absl::Seconds(60);
  // While an operation waits, the other ranks are pinged at this interval. A rank that does not answer for
  // `peer_timeout` is lost.
  absl::Duration ping_interval = absl::Seconds(1);
  absl::Duration peer_timeout = absl::Seconds(5);

  // Operations of up to this size send at once; for larger ones the receiver first says that it has started too.
  // Together with `most_in_flight` this bounds the memory that ranks which are ahead need at the others.
  size_t eager_bytes = size_t{1} << 20;
  // More operations wait until earlier ones are complete.
  int most_in_flight = 64;
  // How large data is divided, so that transfers and sums overlap.
  size_t chunk_bytes = size_t{512} << 10;
  // In a direct exchange, so many chunks are added before the first results of other ranks are taken.
  int chunks_ahead = 4;
  // The sizes at which kAuto chooses another algorithm for all-reduce. On one host: up to the first, the full exchange
  // (for up to 8 ranks) or the tree; then the direct exchange. If each rank has its own host: up to the first, doubling
  // (for up to 8 ranks) or the tree; then halving and doubling; beyond the second, the ring. Otherwise the hierarchy,
  // and these between hosts.
  size_t small_bytes = size_t{16} << 10;
  size_t halving_bytes = size_t{256} << 10;
};

}  // namespace millrace::collective
