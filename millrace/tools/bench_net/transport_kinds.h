// The transports of Millrace that are measured.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/net/transport.h"

namespace millrace::bench_net {

struct TransportKind {
  std::string name;   // one word that identifies it to both sides
  std::string title;  // in the table
  std::function<std::unique_ptr<net::Transport>()> make;
  bool same_host = false;  // works only within one host
  bool is_lane = false;    // gRPC carries the calls until the lane is established, or if it cannot be
};

// All kinds. To add one, add a line to its definition.
std::vector<TransportKind> TransportKinds();

}  // namespace millrace::bench_net
