// The _Send and _Recv nodes that partitioning creates.
#pragma once

#include <string>

#include "millrace/graph/graph.h"

namespace millrace {

// True if the other end of the edge is the client: the node is a feed or a fetch.
inline bool IsClients(const Node& node) { return node.AttrOr<bool>("client_terminated", false); }

// The task of a full device name: the part before "/device:".
inline std::string TaskOf(const std::string& device) { return device.substr(0, device.find("/device:")); }

}  // namespace millrace
