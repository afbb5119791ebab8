// Placement: choosing the device of each node.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "millrace/graph/device_name.h"
#include "millrace/graph/graph.h"

namespace millrace {

struct PlacementOptions {
  // Full device names, the preferred task first. Within a task, a device with an accelerator is preferred to the CPU,
  // as in TensorFlow: a node that asks for nothing runs on GPU:0 if there are kernels there for all that it is
  // colocated with.
  std::vector<std::string> devices = {};
  // Whether devices of that type have a kernel for the node; called once per op, its types and device type.
  std::function<bool(const Node& node, const std::string& device_type)> has_kernel = nullptr;
  // Completes the fields that a node's request leaves open; may be partial or empty.
  std::string default_device = {};
  // Falls back to another device of the requested task if the requested one does not exist or has no kernel; only a
  // node that requests no task may be placed on any. If colocated nodes request different devices, the first decides.
  bool allow_soft_placement = false;
};

// Assigns a device to every node that has none: the preferred one that matches its request, so the result is
// deterministic. A node without a request that only makes a value, or only asks for a shape, follows those that it
// makes it for, or asks: no copies are needed for it. Colocated nodes (by a common `_class`, or because they share a
// reference or a resource handle) get the same device, and their requests are merged; a node named in others' `_class`
// takes precedence. INVALID_ARGUMENT names the node, its request and the available devices, or two colocated nodes that
// request different devices.
Status PlaceNodes(Graph* graph, const PlacementOptions& options);

// Inserts a copy node (_CopyToDevice) into every data edge between different devices, one per tensor and destination,
// so that every kernel can access its inputs: see host_memory.h. Control edges are unchanged. A tensor in `fetches`
// that is not in host memory is replaced by its copy in host memory.
Status InsertCopies(Graph* graph, std::vector<Endpoint>* fetches);

}  // namespace millrace
