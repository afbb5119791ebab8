// Copies of tensors that one device produces and another reads.
#include "absl/algorithm/container.h"
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

  // The value of a reference in host memory, for this reader alone: another one may read it at another time.
  StatusOr<Endpoint> Read(const Endpoint& reference, const Node& reader) {
    MR_ASSIGN_OR_RETURN(Node * copy, Add(reference, reference, reference.node->assigned_device(), true, &reader));
    return copy->output(0);
  }
  // A value in host memory, or that of a reference if it `reads` one, in the memory of the reader's device.
  StatusOr<Endpoint> Write(const Endpoint& value, const Endpoint& origin, const Node& reader, bool reads) {
    MR_ASSIGN_OR_RETURN(Node * copy, Add(value, origin, reader.assigned_device(), false, reads ? &reader : nullptr));
    return copy->output(0);
  }

 private:
  // With `reader`, the copy waits for all that its reader waits for.
  StatusOr<Node*> Add(const Endpoint& from, const Endpoint& origin, const std::string& device, bool to_host,
                      const Node* reader = nullptr) {
    NodeSpec spec;
    spec.name = graph_->UniqueName(absl::StrCat(origin.node->name(), "/_copy"));
    spec.op = "_CopyToDevice";
    spec.inputs = {from};
    if (reader != nullptr) {
      spec.control_inputs.assign(reader->control_inputs().begin(), reader->control_inputs().end());
      for (const Endpoint& input : reader->inputs()) {
        if (!input.node->is_detached() && input.node != from.node &&
            !absl::c_linear_search(spec.control_inputs, input.node))
          spec.control_inputs.push_back(input.node);
      }
    }
    spec.attrs["to_host"].set_b(to_host);
    MR_ASSIGN_OR_RETURN(Node * copy, graph_->AddNode(std::move(spec)));
    graph_->SetAssignedDevice(copy, device);
    graph_->SetOrigins(copy, {origin.node->name()});
    return copy;
  }

  Graph* const graph_;
  absl::flat_hash_map<std::pair<Endpoint, std::string>, Node*> copies_;
};

// Input i of the node is a reference: the node gets its value, copied when the node would have read it. A node that
// takes the reference itself is on the same device.
Status CopyReferredValue(Graph* graph, Copies* copies, Node* node, int i) {
  const Endpoint source = node->input(i);
  if (IsRef(node->input_type(i))) return absl::OkStatus();
  const bool from_host = IsReferredValueInHostMemory(source), to_host = WantsHostMemory(*node, i);
  const bool same_device = source.node->assigned_device() == node->assigned_device();
  if (from_host ? to_host : same_device && !to_host) return absl::OkStatus();
  Endpoint value = source;
  if (!from_host) {
    MR_ASSIGN_OR_RETURN(value, copies->Read(source, *node));
  }
  if (!to_host) {
    MR_ASSIGN_OR_RETURN(value, copies->Write(value, source, *node, /*reads=*/from_host));
  }
  graph->SetInput(node, i, value);
  return absl::OkStatus();
}

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
      if (IsRef(source.dtype()) && !source.node->is_detached()) {
        MR_RETURN_IF_ERROR(CopyReferredValue(graph, &copies, node, i));
        continue;
      }
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
    const bool refers = IsRef(fetch.dtype()) && !fetch.node->is_detached();
    if (refers ? !IsReferredValueInHostMemory(fetch) : !IsInHostMemory(fetch)) {
      MR_ASSIGN_OR_RETURN(fetch, copies.In("", fetch));
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
