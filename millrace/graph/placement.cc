#include "millrace/graph/placement.h"

#include <numeric>

#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "millrace/graph/host_memory.h"

namespace millrace {
namespace {

// Disjoint sets of node ids.
class Groups {
 public:
  explicit Groups(int n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  int Find(int i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void Join(int a, int b) { parent_[Find(b)] = Find(a); }

 private:
  std::vector<int> parent_;
};

bool TiesTogether(const Endpoint& source, const Node& consumer, int input) {
  if (IsRef(source.dtype())) return IsRef(consumer.input_type(input));
  return source.dtype() == DType::kResource;
}

Status JoinColocated(const Graph& graph, Groups& groups) {
  for (const Node* node : graph.nodes()) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      if (TiesTogether(node->input(i), *node, i)) groups.Join(node->input(i).node->id(), node->id());
    }
    const pb::AttrValue* classes = node->FindAttr("_class");
    if (classes == nullptr) continue;
    for (const std::string& name : classes->list().s()) {
      absl::string_view other = name;
      if (!absl::ConsumePrefix(&other, "loc:@")) continue;
      // A node that pruning removed no longer binds anybody.
      if (const Node* found = graph.FindNode(other)) groups.Join(found->id(), node->id());
    }
  }
  return absl::OkStatus();
}

// A group's wishes and members.
struct Group {
  std::vector<Node*> nodes;
  DeviceName wish;
  const Node* wisher = nullptr;
};

std::string DescribeDevices(const PlacementOptions& options) {
  return absl::StrJoin(options.devices, ", ");
}

}  // namespace

Status PlaceNodes(Graph* graph, const PlacementOptions& options) {
  std::vector<DeviceName> devices;
  for (const std::string& name : options.devices) {
    MR_ASSIGN_OR_RETURN(DeviceName parsed, DeviceName::Parse(name));
    devices.push_back(std::move(parsed));
  }
  MR_ASSIGN_OR_RETURN(const DeviceName fallback, DeviceName::Parse(options.default_device));
  Groups groups(graph->max_id());
  MR_RETURN_IF_ERROR(JoinColocated(*graph, groups));

  absl::flat_hash_map<int, Group> members;
  absl::flat_hash_map<std::string, DeviceName> parsed_wishes;
  for (Node* node : graph->nodes()) {
    if (!node->assigned_device().empty()) continue;
    Group& group = members[groups.Find(node->id())];
    group.nodes.push_back(node);
    if (node->requested_device().empty()) continue;
    auto [it, is_new] = parsed_wishes.try_emplace(node->requested_device());
    if (is_new) {
      StatusOr<DeviceName> wish = DeviceName::Parse(node->requested_device());
      if (!wish.ok()) {
        return InvalidArgument("node ", node->name(), " (", node->type(), "): ", wish.status().message());
      }
      it->second = *std::move(wish);
    }
    // The first to ask decides; the others join it.
    group.wish = group.wish.Over(it->second);
    if (group.wisher == nullptr) group.wisher = node;
  }
  for (auto& [id, group] : members) {
    const DeviceName wish = group.wish.Over(fallback);
    const std::vector<Node*>& nodes = group.nodes;
    const auto runs_all = [&](size_t d) {
      for (const Node* node : nodes) {
        if (!options.has_kernel(*node, *devices[d].type)) return false;
      }
      return true;
    };
    int chosen = -1;
    bool exists = false;
    for (size_t d = 0; d < devices.size() && chosen < 0; ++d) {
      if (!wish.Matches(devices[d])) continue;
      exists = true;
      if (runs_all(d)) chosen = static_cast<int>(d);
    }
    for (size_t d = 0; options.allow_soft_placement && d < devices.size() && chosen < 0; ++d) {
      if (runs_all(d)) chosen = static_cast<int>(d);
    }
    if (chosen < 0) {
      const Node& node = group.wisher != nullptr ? *group.wisher : *group.nodes.front();
      if (!exists) {
        return InvalidArgument("cannot place node ", node.name(), " (", node.type(), "): it asks for ",
                               node.requested_device(), ", but the devices are: ",
                               DescribeDevices(options), "\n\t [[{{node ", node.name(), "}}]]");
      }
      for (const Node* member : group.nodes) {
        bool anywhere = false;
        for (const DeviceName& d : devices) {
          anywhere |= wish.Matches(d) && options.has_kernel(*member, *d.type);
        }
        if (!anywhere) {
          return InvalidArgument("cannot place node ", member->name(), ": no kernel for op ",
                                 member->type(), " on ", wish.ToString().empty() ? "any device" : wish.ToString(),
                                 "; the devices are: ", DescribeDevices(options), "\n\t [[{{node ",
                                 member->name(), "}}]]");
        }
      }
      return InvalidArgument("cannot place node ", node.name(), " (", node.type(),
                             ") together with the nodes it shares a resource with");
    }
    for (Node* node : group.nodes) graph->SetAssignedDevice(node, options.devices[chosen]);
  }
  return absl::OkStatus();
}

namespace {

// Copy nodes, one for each tensor and place.
class Copies {
 public:
  explicit Copies(Graph* graph) : graph_(graph) {}

  // The tensor as `device`, or the host when that is empty, can use it. Copies run on the device whose
  // memory is not the host's; between two such devices the way leads through the host.
  StatusOr<Endpoint> In(const std::string& device, const Endpoint& source) {
    Node*& copy = copies_[{source, device}];
    if (copy == nullptr) {
      Endpoint from = source;
      const bool to_host = device.empty();
      if (!to_host && !IsInHostMemory(source)) {
        MR_ASSIGN_OR_RETURN(from, In("", source));
      }
      MR_ASSIGN_OR_RETURN(Node * made, Add(from, source, to_host ? source.node->assigned_device() : device,
                                           to_host));
      // The call above may have moved the table.
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
    // One device that is the host's is the common case, and has nothing to ask the names for.
    if (several || node == graph->nodes()[0]) all_host &= RunsInHostMemory(*node);
  }
  if (!several && all_host) return absl::OkStatus();
  Copies copies(graph);
  const std::vector<Node*> nodes(graph->nodes().begin(), graph->nodes().end());
  for (Node* node : nodes) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Endpoint source = node->input(i);
      if (IsHandle(source)) continue;  // a handle is no data
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
        // Between devices that share the host's memory a copy only marks the border.
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
