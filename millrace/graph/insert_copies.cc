// Copies of tensors that one device produces and another reads.
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "millrace/graph/host_memory.h"
#include "millrace/graph/placement.h"

namespace millrace {
namespace {

// Copy nodes, one per tensor and destination.
class Copies {
 public:
  explicit Copies(Graph* graph) : graph_(graph) {}

  // The tensor in the memory of `device`, or in host memory if empty. A copy runs on the device whose memory is not the
  // host's; a copy between two such devices goes through the host.
  StatusOr<Endpoint> In(const std::string& device, const Endpoint& source) {
    Node*& copy = copies_[{source, device}];
    if (copy == nullptr) {
      Endpoint from = source;
      const bool to_host = device.empty();
      if (!to_host && !IsInHostMemory(source)) {
        MR_ASSIGN_OR_RETURN(from, In("", source));
      }
      MR_ASSIGN_OR_RETURN(Node * made, Add(from, source, to_host ? source.node->assigned_device() : device, to_host));
      // The call above may have rehashed the table.
      copies_[{source, device}] = made;
      return made->output(0);
    }
    return copy->output(0);
  }

 private:
  StatusOr<Node*> Add(const Endpoint& from, const Endpoint& origin, const std::string& device, bool to_host) {
    NodeSpec spec;
    spec.name = graph_->UniqueName(absl::StrCat(origin.node->name(), "/_copy"));
    spec.op = "_CopyToDevice";
    spec.inputs = {from};
    spec.attrs["to_host"].set_b(to_host);
    MR_ASSIGN_OR_RETURN(Node * copy, graph_->AddNode(std::move(spec)));
    graph_->SetAssignedDevice(copy, device);
    graph_->SetOrigins(copy, {origin.node->name()});
    return copy;
  }

  Graph* const graph_;
  absl::flat_hash_map<std::pair<Endpoint, std::string>, Node*> copies_;
};

bool IsHandle(const Endpoint& tensor) { return BaseType(tensor.dtype()) == DType::kResource; }

}  // namespace

Status InsertCopies(Graph* graph, std::vector<Endpoint>* fetches) {
  bool several = false, all_host = true;
  for (const Node* node : graph->nodes()) {
    several |= node->assigned_device() != graph->nodes()[0]->assigned_device();
  }
  for (const Node* node : graph->nodes()) {
    // In the common case all nodes are on one host device, and comparing names is unnecessary.
    if (several || node == graph->nodes()[0]) all_host &= RunsInHostMemory(*node);
  }
  if (!several && all_host) return absl::OkStatus();
  Copies copies(graph);
  const std::vector<Node*> nodes(graph->nodes().begin(), graph->nodes().end());
  for (Node* node : nodes) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Endpoint source = node->input(i);
      if (IsHandle(source)) continue;  // handles are not copied
      const bool from_host = IsInHostMemory(source), to_host = WantsHostMemory(*node, i);
      Endpoint copy = source;
      if (!to_host) {
        if (from_host || source.node->assigned_device() != node->assigned_device()) {
          MR_ASSIGN_OR_RETURN(copy, copies.In(node->assigned_device(), source));
        }
      } else if (!from_host) {
        MR_ASSIGN_OR_RETURN(copy, copies.In("", source));
      } else if (RunsInHostMemory(*node) && !source.node->is_detached() && RunsInHostMemory(*source.node) &&
                 source.node->assigned_device() != node->assigned_device()) {
        // Between devices in host memory the copy node moves no data.
        MR_ASSIGN_OR_RETURN(copy, copies.In(node->assigned_device(), source));
      }
      if (!(copy == source)) graph->SetInput(node, i, copy);
    }
  }
  if (fetches == nullptr) return absl::OkStatus();
  for (Endpoint& fetch : *fetches) {
    if (!IsInHostMemory(fetch)) {
      MR_ASSIGN_OR_RETURN(fetch, copies.In("", fetch));
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
