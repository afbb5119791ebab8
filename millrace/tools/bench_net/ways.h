// The ways to move bytes from one process to another, each as a function that performs one transfer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/tools/bench_net/partner_link.h"

namespace millrace::bench_net {

// Moves `size` bytes into memory of this process and returns when they have arrived.
using Transfer = std::function<Status(size_t size)>;

struct Way {
  enum class Kind {
    kCopy,      // a copy within this process, which no way between two processes can exceed
    kBetween,   // offered by the system between two processes or hosts: the ceiling
    kMillrace,  // a call through a net::Transport
  };
  std::string name;   // in JSON
  std::string title;  // in the table
  Kind kind = Kind::kBetween;
  // Called once, before its measurement; earlier ways may not be used after it. An error says why the way is not
  // available.
  std::function<StatusOr<Transfer>()> open;
};

// The ways to this partner, in the order of the table. Between processes and hosts each transfer starts with a small
// request to the partner, like a call, so that the figures are comparable. `partner` must have memory and outlive the
// result.
std::vector<Way> WaysTo(PartnerLink* partner);

}  // namespace millrace::bench_net
