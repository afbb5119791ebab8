// Graph rewrites (optimisation passes).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "millrace/graph/graph.h"
#include "millrace/graph/pass_options.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// What a pass must respect and may use.
struct PassContext {
  // The step's feeds, fetches and targets. Their nodes keep their names; a pass may only modify them in place.
  std::vector<Endpoint> feeds = {};
  std::vector<Endpoint> fetches = {};
  std::vector<Node*> targets = {};
  // Evaluates one node on constant inputs; if null, nothing is folded.
  std::function<StatusOr<std::vector<Tensor>>(const Node& node, absl::Span<const Tensor> inputs)> evaluate = nullptr;
};

// Removes every node that no fetch or target depends on. Feeds cut dependencies: a node of which only fed outputs are
// needed is detached (see Graph::Detach).
Status Prune(Graph* graph, const PassContext& context);

// Makes consumers that are ordered after an update of a TF1 variable read the updated value, as in TensorFlow. Required
// for correctness, not an optimisation.
Status ReadAfterUpdates(Graph* graph);

// Evaluates nodes that depend only on constants and replaces them by Const nodes of the same name; likewise Shape, Size
// and Rank of known shapes. Random, stateful and failing nodes, and large results, are not folded.
Status FoldConstants(Graph* graph, const PassContext& context);

// Merges nodes that compute the same function of the same inputs.
Status MergeCommonSubexpressions(Graph* graph, const PassContext& context);

// Bypasses Identity nodes that only forward a value.
Status RemoveIdentities(Graph* graph, const PassContext& context);

// Fuses MatMul or Conv2D, BiasAdd and an activation into a _FusedMatMul or _FusedConv2D with the last node's name.
Status FuseMatMul(Graph* graph, const PassContext& context);

// Fuses a MatMul whose only consumer is a Slice into a _SlicedMatMul with the Slice's name.
Status SliceProducts(Graph* graph, const PassContext& context);

// Fuses FusedBatchNormV3, the addition of a shortcut and Relu into a _FusedBatchNormEx with the first node's name, and
// their gradients into a _FusedBatchNormGradEx.
Status FuseBatchNorm(Graph* graph, const PassContext& context);

// Makes a Conv2D whose output is normalised by the batch's moments compute these too (_Conv2DWithMoments), and its
// FusedBatchNormV3 or _FusedBatchNormEx use them.
Status FuseMoments(Graph* graph, const PassContext& context);
// An attribute of a _FusedBatchNormEx in training whose inputs mean and variance are the batch's.
inline constexpr char kMomentsGivenAttr[] = "_moments_given";

// Fuses a Conv2DBackpropInput whose only consumer adds another tensor into a _FusedConv2DBackpropInput with the
// addition's name.
Status FuseGradientSums(Graph* graph, const PassContext& context);

// Makes a gather from a TF1 variable read only its rows instead of a snapshot of the whole variable.
Status ReadRowsOfVariables(Graph* graph, const PassContext& context);

// Fuses Unique, a gather of rows of a variable and a SparseSegment op that sums them into a _CombineResourceRows or
// _CombineVariableRows with the last node's name.
Status FuseRowSums(Graph* graph, const PassContext& context);

// Fuses trees of element-wise ops and row reductions into a _FusedElementwise with the last node's name.
Status FuseElementwise(Graph* graph, const PassContext& context);

// Collective operations must have the same order on all tasks. Nodes with this attribute, an integer, run one after
// another: as data and control edges say, and otherwise by its value. So the order depends on these nodes alone, not on
// the rest of the graph, which may differ from task to task. Required for correctness, not an optimisation. The nodes
// must not be in loops.
inline constexpr char kCollectiveOrderAttr[] = "_collective_order";
Status OrderCollectives(Graph* graph);

// A rewrite and the option that enables it.
struct Pass {
  const char* name;
  bool PassOptions::*enabled;
  Status (*run)(Graph* graph, const PassContext& context);
};
// All passes in execution order.
absl::Span<const Pass> AllPasses();

// Runs Prune, then the rewrites that `options` enables, in order.
Status RunPasses(Graph* graph, const PassContext& context, const PassOptions& options);

}  // namespace millrace
