// Rewrites of a graph before it runs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "millrace/graph/graph.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// Which rewrites are made; each can be switched off by itself.
struct PassOptions {
  bool constant_folding = true;
  bool common_subexpressions = true;
  bool identity_removal = true;
  bool fusion = true;

  static PassOptions None() { return {false, false, false, false}; }
};

// What a pass must respect and may use.
struct PassContext {
  // Tensors that the step is given, gives back, and nodes it runs. Their nodes keep their names.
  std::vector<Endpoint> feeds = {};
  std::vector<Endpoint> fetches = {};
  std::vector<Node*> targets = {};
  // Runs one node on constant inputs; null: nothing is folded.
  std::function<StatusOr<std::vector<Tensor>>(const Node& node, absl::Span<const Tensor> inputs)>
      evaluate = nullptr;
};

// Removes every node that neither a fetch nor a target needs; a feed cuts what stands behind it.
Status Prune(Graph* graph, const PassContext& context);

// Prune and then the rewrites that `options` allows, in their order.
Status RunPasses(Graph* graph, const PassContext& context, const PassOptions& options);

}  // namespace millrace
