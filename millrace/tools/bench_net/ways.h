// The ways from one process to another, each as a function that moves so many bytes once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/tools/bench_net/partner_link.h"

namespace millrace::bench_net {

// Moves `size` bytes into memory of this process and returns when they are there.
using Transfer = std::function<Status(size_t size)>;

struct Way {
  enum class Kind {
    kCopy,      // within this process: what no way between two can exceed
    kBetween,   // what the system offers between two processes or hosts: the ceiling
    kMillrace,  // a call through a net::Transport
  };
  std::string name;   // in JSON
  std::string title;  // in the table
  Kind kind = Kind::kBetween;
  // Once, when its turn comes: an earlier way may not be used after it. An error says why there is no such way here.
  std::function<StatusOr<Transfer>()> open;
};

// The ways to this partner, in the order of the table. Between processes and hosts each transfer begins with a small question to the partner, as
// a call does, so that the figures may be compared. `partner` has memory and outlives them.
std::vector<Way> WaysTo(PartnerLink* partner);

}  // namespace millrace::bench_net
