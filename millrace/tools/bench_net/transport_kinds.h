// The transports that Millrace's part of the table is measured with.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/net/transport.h"

namespace millrace::bench_net {

struct TransportKind {
  std::string name;   // one word, by which the two sides mean the same
  std::string title;  // in the table
  std::function<std::unique_ptr<net::Transport>()> make;
  bool same_host = false;  // is of use within one host only
  bool is_lane = false;    // gRPC carries the calls until there is one, and when there is none
};

// All there are. To add one: a line here.
std::vector<TransportKind> TransportKinds();

}  // namespace millrace::bench_net
