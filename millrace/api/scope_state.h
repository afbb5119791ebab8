// What the scopes of one graph share. Internal to the front end.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "millrace/api/scope.h"
#include "millrace/api/variable_slice.h"
#include "millrace/base/status.h"
#include "millrace/graph/graph.h"

namespace millrace::api_internal {

// A variable as the graph has it. Plain pointers: the handles outside own the state, not the
// reverse.
struct VariableNodes {
  Node* handle = nullptr;
  Endpoint value;
  Endpoint initial_value;
  Node* initializer = nullptr;
  bool trainable = false;
  bool local = false;
};

struct GraphState {
  Graph graph;
  Status status;
  // How many functions this graph is within: bodies of functions are graphs of their own.
  int depth = 0;
  const GraphState* outer = nullptr;  // the graph around the function; its tensors may be used
  std::string function_name;  // of the body that this graph is; functions within it are named after it
  // How often a full name was asked for: node names and sub-scopes share one set.
  absl::flat_hash_map<std::string, int> names;
  std::optional<int64_t> random_seed;

  std::vector<VariableNodes> variables;
  // What a training step runs beside the optimizer's updates: moving averages.
  std::vector<Node*> update_ops;
  std::vector<Endpoint> regularization_losses;
  std::optional<size_t> global_step;  // its place in `variables`
  // What rooms above keep with a graph, by name; without handles, as above.
  absl::flat_hash_map<std::string, std::shared_ptr<void>> collections;
  std::vector<Endpoint> summaries;
  // Parts of partitioned variables, by handle. Never moved: pointers to them are given out.
  std::map<const Node*, VariableSlice> slices;
  // While the initial value of a part is made: which one. Initializers that look at the whole shape ask.
  const VariableSlice* initializing = nullptr;

  // True for this graph and those around it.
  bool MayUse(const GraphState& other) const {
    const GraphState* at = this;
    while (at != nullptr && at != &other) at = at->outer;
    return at != nullptr;
  }
};

// One WithDeviceFunction, and the device of the scope around it.
struct ScopedDeviceFunction {
  DeviceFunction choose;
  std::string outer_device;
};

struct ScopeSettings {
  std::shared_ptr<GraphState> state;
  std::string prefix;
  std::string op_name;
  // A full name that TakeName gave: the next node's, as it is.
  std::string taken_name;
  std::string device;  // since the innermost device function
  std::vector<ScopedDeviceFunction> device_functions;  // from the outside in
  std::vector<Node*> control_inputs;
  std::vector<std::string> colocate_with;
};

// Makes a new node ask for the device that its scope wants. One that is colocated asks for what the other node asked for, and so does one that
// takes a handle for whose device somebody asked: it can run nowhere else.
Status AskForDevice(const ScopeSettings& settings, Node* node);

}  // namespace millrace::api_internal
