#pragma once

#include <memory>
#include <string>

#include "millrace/net/sim/sim_network.h"

namespace millrace::net {

// The transport of one host of the network.
std::unique_ptr<Transport> NewSimTransport(std::shared_ptr<SimNetwork::State> state, std::string host);

}  // namespace millrace::net
