#include "millrace/graph/placement.h"

#include <numeric>

#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

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

Status InsertCopies(Graph* graph) {
  bool several = false;
  for (const Node* node : graph->nodes()) {
    several |= node->assigned_device() != graph->nodes()[0]->assigned_device();
  }
  if (!several) return absl::OkStatus();
  absl::flat_hash_map<std::pair<Endpoint, std::string>, Node*> copies;
  const std::vector<Node*> nodes(graph->nodes().begin(), graph->nodes().end());
  for (Node* node : nodes) {
    for (int i = 0; i < node->num_inputs(); ++i) {
      const Endpoint source = node->input(i);
      if (source.node->is_detached()) continue;  // fed, wherever it is wanted
      if (source.node->assigned_device() == node->assigned_device()) continue;
      if (BaseType(source.dtype()) == DType::kResource) continue;  // a handle is no data
      Node*& copy = copies[{source, node->assigned_device()}];
      if (copy == nullptr) {
        NodeSpec spec;
        spec.name = graph->UniqueName(absl::StrCat(source.node->name(), "/_copy"));
        spec.op = "_CopyToDevice";
        spec.inputs = {source};
        MR_ASSIGN_OR_RETURN(copy, graph->AddNode(std::move(spec)));
        graph->SetAssignedDevice(copy, node->assigned_device());
        graph->SetOrigins(copy, {source.node->name()});
      }
      graph->SetInput(node, i, copy->output(0));
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
