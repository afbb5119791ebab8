// A convolution computes the moments of its output while it is in the cache, for the batch normalisation that follows.
#include "absl/container/flat_hash_set.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/passes/roles.h"

namespace millrace {
namespace {

constexpr char kConvWithMoments[] = "_Conv2DWithMoments";
constexpr char kFusedNorm[] = "_FusedBatchNormEx";

bool IsNormOfBatch(const Node& node) {
  return (node.is_type("FusedBatchNormV3") || node.is_type(kFusedNorm)) && node.output_type(0) == DType::kFloat &&
         node.AttrOr<bool>("is_training", true) && node.AttrOr<float>("exponential_avg_factor", 1.0f) == 1.0f &&
         !node.AttrOr<bool>(kMomentsGivenAttr, false) && RunsInHostMemory(node);
}

bool IsConvolutionFor(const Node& conv, const Node& norm) {
  return conv.is_type("Conv2D") && RunsInHostMemory(conv) &&
         conv.AttrOr<std::string>("data_format", "NHWC") == norm.AttrOr<std::string>("data_format", "NHWC") &&
         conv.requested_device() == norm.requested_device() && conv.assigned_device() == norm.assigned_device();
}

// The inputs, attributes and devices of a node, for another op.
NodeSpec Copy(const Node& node, const char* op) {
  NodeSpec spec;
  spec.op = op;
  spec.inputs.assign(node.inputs().begin(), node.inputs().end());
  spec.control_inputs.assign(node.control_inputs().begin(), node.control_inputs().end());
  spec.device = node.requested_device();
  for (const auto& [name, value] : node.attrs()) spec.attrs[name] = value;
  return spec;
}

// Adds a convolution with moments, which takes the place of `conv` for its consumers.
StatusOr<Node*> AddConvolution(Graph* graph, Node* conv, absl::Span<const Consumer> consumers) {
  NodeSpec spec = Copy(*conv, kConvWithMoments);
  spec.name = graph->UniqueName(absl::StrCat(conv->name(), "/WithMoments"));
  MR_ASSIGN_OR_RETURN(Node * both, graph->AddNode(std::move(spec)));
  graph->SetAssignedDevice(both, conv->assigned_device());
  graph->SetOrigins(both, std::vector<std::string>(conv->origins().begin(), conv->origins().end()));
  graph->SetOutputShape(both, 0, conv->output_shape(0));
  for (const Consumer& c : consumers) {
    if (c.slot >= 0) {
      graph->SetInput(c.node, c.slot, Endpoint{both, 0});
    } else {
      graph->RemoveControlInput(c.node, conv);
      graph->AddControlInput(c.node, both);
    }
  }
  return both;
}

Status UseMoments(Graph* graph, Node* norm, Node* conv) {
  NodeSpec spec = Copy(*norm, kFusedNorm);
  spec.inputs[3] = Endpoint{conv, 1};
  spec.inputs[4] = Endpoint{conv, 2};
  spec.attrs[kMomentsGivenAttr].set_b(true);
  std::vector<std::string> origins(norm->origins().begin(), norm->origins().end());
  MR_RETURN_IF_ERROR(graph->ReplaceNode(norm, std::move(spec)));
  graph->SetOrigins(norm, std::move(origins));
  return absl::OkStatus();
}

}  // namespace

Status FuseMoments(Graph* graph, const PassContext& context) {
  for (const char* op : {kConvWithMoments, kFusedNorm}) {
    if (OpRegistry::Global().FindOrNull(op) == nullptr) return absl::OkStatus();
  }
  std::vector<Node*> norms;
  for (Node* node : graph->nodes()) {
    if (IsNormOfBatch(*node)) norms.push_back(node);
  }
  if (norms.empty()) return absl::OkStatus();
  const Roles roles(*graph, context);
  const std::vector<std::vector<Consumer>> consumers = ConsumersById(*graph);
  absl::flat_hash_set<const Node*> gone;
  for (Node* norm : norms) {
    Node* conv = norm->input(0).node;
    if (!IsConvolutionFor(*conv, *norm) || !roles.IsInner(conv) || roles.IsFed(norm)) continue;
    MR_ASSIGN_OR_RETURN(Node * both, AddConvolution(graph, conv, consumers[conv->id()]));
    MR_RETURN_IF_ERROR(UseMoments(graph, norm, both));
    gone.insert(conv);
  }
  graph->RemoveNodes([&](const Node* node) { return gone.contains(node); });
  return absl::OkStatus();
}

}  // namespace millrace
