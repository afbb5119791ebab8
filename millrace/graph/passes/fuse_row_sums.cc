// Fuses the sums of embeddings: Unique of the ids, a gather of these rows of a variable, and a SparseSegment op that
// sums them become one op, which reads the rows where they are.
//
// Only if nothing else reads the gathered rows: a gradient does, so that a training step keeps the three ops.
#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/passes/fused_node.h"
#include "millrace/graph/passes/roles.h"

namespace millrace {
namespace {

// The combiner of a SparseSegment op; null if the node is none.
const char* CombinerOf(const Node& node) {
  absl::string_view type = node.type();
  if (!absl::ConsumePrefix(&type, "SparseSegment")) return nullptr;
  absl::ConsumeSuffix(&type, "WithNumSegments");
  return type == "Sum" ? "sum" : type == "Mean" ? "mean" : type == "SqrtN" ? "sqrtn" : nullptr;
}

bool IsFloat(DType t) {
  return t == DType::kFloat || t == DType::kDouble || t == DType::kHalf || t == DType::kBFloat16;
}

bool IsOnDeviceOf(const Node& node, const Node& other) {
  return RunsInHostMemory(node) && node.requested_device() == other.requested_device() &&
         node.assigned_device() == other.assigned_device();
}

class RowSumFuser {
 public:
  RowSumFuser(Graph* graph, const PassContext& context)
      : graph_(graph), roles_(*graph, context), consumers_(ConsumersById(*graph)) {}

  Status TryFuse(Node* sum) {
    const char* const combiner = CombinerOf(*sum);
    if (combiner == nullptr || roles_.IsFed(sum) || !IsFloat(sum->output_type(0)) || !RunsInHostMemory(*sum)) {
      return absl::OkStatus();
    }
    Node* const gather = sum->input(0).node;
    if (!IsGatherFor(*gather, *sum)) return absl::OkStatus();
    Node* const unique = gather->input(1).node;
    const bool same = unique->is_type("Unique") && gather->input(1).index == 0 && sum->input(1).node == unique &&
                      sum->input(1).index == 1;
    // Who else reads what is distinct does not matter; Prune removes what nobody needs.
    if (!same || roles_.IsFed(unique) || !IsOnDeviceOf(*unique, *sum)) return absl::OkStatus();
    return Fuse(sum, gather, unique, combiner);
  }

  void RemoveFused() {
    graph_->RemoveNodes([&](const Node* node) { return gone_.contains(node); });
  }

 private:
  bool IsGatherFor(const Node& gather, const Node& sum) const {
    const bool rows = gather.is_type("_GatherVariableRows") ||
                      (gather.is_type("ResourceGather") && gather.AttrOr<int64_t>("batch_dims", 0) == 0);
    return rows && roles_.IsInner(&gather) && consumers_[gather.id()].size() == 1 &&
           consumers_[gather.id()][0].slot == 0 && IsOnDeviceOf(gather, sum);
  }

  Status Fuse(Node* sum, Node* gather, Node* unique, const char* combiner) {
    const bool by_reference = IsRef(gather->input_type(0));
    Node* const parts[] = {unique, gather, sum};
    NodeSpec spec = SpecInPlaceOf(parts, by_reference ? "_CombineVariableRows" : "_CombineResourceRows");
    spec.inputs = {gather->input(0), unique->input(0), sum->input(2)};
    const bool has_count = sum->num_inputs() > 3;
    if (has_count) spec.inputs.push_back(sum->input(3));
    spec.attrs["combiner"] = AttrInit(combiner).value();
    spec.attrs["N"] = AttrInit(int64_t{has_count}).value();
    if (!by_reference) spec.attrs["dtype"] = AttrInit(sum->output_type(0)).value();
    std::vector<std::string> origins = OriginsOf(parts);
    MR_RETURN_IF_ERROR(graph_->ReplaceNode(sum, std::move(spec)));
    graph_->SetOrigins(sum, std::move(origins));
    gone_.insert(gather);
    return absl::OkStatus();
  }

  Graph* const graph_;
  const Roles roles_;
  const std::vector<std::vector<Consumer>> consumers_;
  absl::flat_hash_set<const Node*> gone_;
};

}  // namespace

Status FuseRowSums(Graph* graph, const PassContext& context) {
  const bool has_any = std::any_of(graph->nodes().begin(), graph->nodes().end(),
                                   [](const Node* node) { return CombinerOf(*node) != nullptr; });
  if (!has_any || OpRegistry::Global().FindOrNull("_CombineResourceRows") == nullptr) return absl::OkStatus();
  RowSumFuser fuser(graph, context);
  for (Node* node : graph->nodes()) MR_RETURN_IF_ERROR(fuser.TryFuse(node));
  fuser.RemoveFused();
  return absl::OkStatus();
}

}  // namespace millrace
