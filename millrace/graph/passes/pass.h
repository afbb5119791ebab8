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
  // Calls, conditionals and loops that name functions become plain nodes (function_inliner.h).
  bool inline_functions = true;
  bool row_reads = true;
  bool elementwise_fusion = true;

  static PassOptions None() { return {false, false, false, false, false, false, false}; }
};

// What a pass must respect and may use.
struct PassContext {
  // Tensors that the step is given, gives back, and nodes it runs. Their nodes keep their names, and a
  // rewrite changes them in place at most.
  std::vector<Endpoint> feeds = {};
  std::vector<Endpoint> fetches = {};
  std::vector<Node*> targets = {};
  // Runs one node on constant inputs; null: nothing is folded.
  std::function<StatusOr<std::vector<Tensor>>(const Node& node, absl::Span<const Tensor> inputs)>
      evaluate = nullptr;
};

// Removes every node that neither a fetch nor a target needs. A feed cuts what stands behind it: a node
// that is needed only for tensors that are fed is detached (see Graph::Detach).
Status Prune(Graph* graph, const PassContext& context);

// Lets what is ordered after an update of a TF1 variable read it late, as TensorFlow does. Not a choice: it
// says what the graph means.
Status ReadAfterUpdates(Graph* graph);

// Computes now what depends on constants only: nodes become Const under their names. Also Shape, Size and
// Rank where shapes are known. Random, stateful and failing nodes and large results stay.
Status FoldConstants(Graph* graph, const PassContext& context);

// Keeps one of several nodes that compute the same from the same.
Status MergeCommonSubexpressions(Graph* graph, const PassContext& context);

// Bypasses Identity nodes that nothing hangs on but their value.
Status RemoveIdentities(Graph* graph, const PassContext& context);

// MatMul or Conv2D, BiasAdd and an activation become one _FusedMatMul or _FusedConv2D under the last one's name.
Status FuseMatMul(Graph* graph, const PassContext& context);

// A product of which a Slice takes all that is used becomes one _SlicedMatMul under the Slice's name.
Status SliceProducts(Graph* graph, const PassContext& context);

// FusedBatchNormV3, the addition of a shortcut and Relu become one _FusedBatchNormEx under the first one's name, and
// their gradients one _FusedBatchNormGradEx.
Status FuseBatchNorm(Graph* graph, const PassContext& context);

// A gather from a TF1 variable reads the rows it takes, not a snapshot of the whole.
Status ReadRowsOfVariables(Graph* graph, const PassContext& context);

// Trees of element-wise ops, and reductions of rows among them, become one _FusedElementwise under the name of the
// last one.
Status FuseElementwise(Graph* graph, const PassContext& context);

// A rewrite with the name it is switched by.
struct Pass {
  const char* name;
  bool PassOptions::*enabled;
  Status (*run)(Graph* graph, const PassContext& context);
};
// In the order in which they run.
absl::Span<const Pass> AllPasses();

// Prune and then the rewrites that `options` allows, in their order.
Status RunPasses(Graph* graph, const PassContext& context, const PassOptions& options);

}  // namespace millrace
