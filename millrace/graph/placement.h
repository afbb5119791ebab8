// Which device each node runs on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "millrace/graph/device_name.h"
#include "millrace/graph/graph.h"

namespace millrace {

struct PlacementOptions {
  // Full names, in order of preference.
  std::vector<std::string> devices = {};
  // Whether a device of that type has a kernel for the op of the node; asked once for each op and type.
  std::function<bool(const Node& node, const std::string& device_type)> has_kernel = nullptr;
  // What stands for the parts that a node's request leaves open; may be partial or empty.
  std::string default_device = {};
  // Fall back to another device of the requested task where the requested one does not exist or has no kernel. Only a node that asks for
  // no task may go to any. Of nodes that belong together and ask for different devices, the first decides.
  bool allow_soft_placement = false;
};

// Assigns a device to every node that has none: the first in the list that is what it asks for, so the same for the same graph. Nodes that
// belong together get the same one: those with a common `_class`, those that share a reference or a resource handle. What they ask for
// is put together; one that others name in their `_class` comes before them.
// INVALID_ARGUMENT names the node and what it asked for, and lists the devices that there are; or names two that belong together and ask for
// different devices.
Status PlaceNodes(Graph* graph, const PlacementOptions& options);

// Puts a copy node (_CopyToDevice) on every edge between nodes of different devices, one for each tensor
// and place, so that no kernel is given memory that it cannot read: see host_memory.h. Control edges stay as
// they are. A tensor in `fetches` that is not in the host's memory is replaced by a copy that is.
Status InsertCopies(Graph* graph, std::vector<Endpoint>* fetches);

}  // namespace millrace
