#include "millrace/cluster/step/group_receives.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "millrace/cluster/step/transfer_nodes.h"

namespace millrace {
namespace {

// The size above which a tensor is worth a call of its own, and the maximum size of a group.
constexpr int64_t kSmallTensor = 1 << 20;
constexpr int64_t kSmallGroup = 4 << 20;
constexpr size_t kMostInGroup = 256;

// A name that is the same at both ends of an edge.
std::string EdgeName(const Node& node) {
  return absl::StrCat(node.AttrOr<std::string>("send_device", ""), ";", node.AttrOr<std::string>("recv_device", ""),
                      ";", node.AttrOr<std::string>("tensor_name", ""));
}

// What is known statically about a node.
struct Known {
  int pending = 0;           // inputs that have not been visited yet
  bool prompt = true;        // the node and everything that it depends on is prompt
  int depth = 0;             // the number of edges between tasks on the longest path to it
  std::vector<Node*> users;  // in any part
};

// The size of the tensor that a _Send sends; -1 if unknown.
int64_t KnownBytes(const Node& send) {
  const Endpoint& value = send.input(0);
  const PartialShape shape = value.shape();
  const DType dtype = BaseType(value.node->output_type(value.index));
  if (!shape.IsFullyDefined() || dtype == DType::kString || dtype == DType::kVariant || dtype == DType::kResource)
    return -1;
  const int64_t elements = shape.AsShape().num_elements();
  return elements > kSmallTensor ? elements : elements * static_cast<int64_t>(SizeOf(dtype));
}

// One GroupReceives, in phases.
class ReceiveGrouping {
 public:
  using Edge = std::pair<Node*, Node*>;  // its two ends: Send and Recv
  // Edges that may share a group, in the order of their names, so that all runs of a program agree: by sender, receiver
  // and depth.
  using CandidateEdges = std::map<std::tuple<std::string, std::string, int>, std::map<std::string, Edge>>;

  explicit ReceiveGrouping(absl::Span<Part> parts) : parts_(parts) {}

  // False if there is nothing to group: too few edges, or control flow.
  bool FindEdges() {
    for (const Part& part : parts_) {
      for (Node* node : part.graph->nodes()) {
        ++num_nodes_;
        if (node->IsControlFlow()) return false;
        if (IsClients(*node)) continue;
        if (node->IsSend()) edges_[EdgeName(*node)].first = node;
        if (node->IsReceive()) edges_[EdgeName(*node)].second = node;
      }
    }
    return edges_.size() >= 2;
  }

  // Notes who uses whom, within the parts and between them.
  void LinkNodes() {
    known_.reserve(num_nodes_);
    for (const Part& part : parts_) {
      for (Node* node : part.graph->nodes()) {
        for (const Endpoint& input : node->inputs()) Depends(node, input.node);
        for (Node* before : node->control_inputs()) Depends(node, before);
      }
    }
    for (const auto& [name, edge] : edges_) {
      if (edge.first != nullptr && edge.second != nullptr) Depends(edge.second, edge.first);
    }
  }

  // Carries promptness and depth from the nodes to their users. False if the parts wait for each other in a circle.
  bool Propagate() {
    std::vector<Node*> ready;
    for (const Part& part : parts_) {
      for (Node* node : part.graph->nodes()) {
        if (known_[node].pending == 0) ready.push_back(node);
      }
    }
    size_t seen = 0;
    while (!ready.empty()) {
      Node* const node = ready.back();
      ready.pop_back();
      ++seen;
      Known& here = known_[node];
      here.prompt &= IsPrompt(*node);
      for (Node* user : here.users) {
        Known& there = known_[user];
        there.prompt &= here.prompt;
        there.depth = std::max(there.depth, here.depth + (node->IsSend() ? 1 : 0));
        if (--there.pending == 0) ready.push_back(user);
      }
    }
    return seen >= num_nodes_;
  }

  CandidateEdges Candidates(absl::FunctionRef<bool(absl::string_view task)> speaks_millrace) {
    CandidateEdges candidates;
    for (const auto& [name, edge] : edges_) {
      const auto& [send, recv] = edge;
      if (send == nullptr || recv == nullptr || !known_[send].prompt) continue;
      const int64_t bytes = KnownBytes(*send);
      if (bytes < 0 || bytes > kSmallTensor) continue;
      const std::string from = TaskOf(recv->AttrOr<std::string>("send_device", "")),
                        to = TaskOf(recv->AttrOr<std::string>("recv_device", ""));
      if (from == to || !speaks_millrace(from) || !speaks_millrace(to)) continue;
      candidates[{from, to, known_[recv].depth}][name] = edge;
    }
    return candidates;
  }

  void NumberGroups(const CandidateEdges& candidates) {
    absl::flat_hash_map<const Node*, Graph*> graph_of;
    for (const Part& part : parts_) {
      for (const Node* node : part.graph->nodes()) {
        if (node->IsSend() || node->IsReceive()) graph_of[node] = part.graph.get();
      }
    }
    int64_t group = 0;
    for (const auto& [key, members] : candidates) {
      int64_t bytes = kSmallGroup;
      size_t count = 0;
      for (const auto& [name, edge] : members) {
        const int64_t more = KnownBytes(*edge.first);
        if (bytes + more > kSmallGroup || count == kMostInGroup) {
          ++group;
          bytes = 0;
          count = 0;
        }
        bytes += more;
        ++count;
        for (Node* end : {edge.first, edge.second})
          graph_of[end]->SetAttr(end, kReceiveGroupAttr, AttrInit(group).value());
      }
    }
  }

 private:
  void Depends(Node* node, Node* on) {
    if (on->is_detached()) return;  // the client feeds it, at home: it is there from the beginning
    ++known_[node].pending;
    known_[on].users.push_back(node);
  }

  const absl::Span<Part> parts_;
  size_t num_nodes_ = 0;
  absl::flat_hash_map<std::string, Edge> edges_;
  absl::flat_hash_map<const Node*, Known> known_;
};

}  // namespace

bool IsPrompt(const Node& node) {
  if (node.IsReceive()) return !IsClients(node);
  if (node.IsSend() || node.op().Has(OpTrait::kReadsVariable) || node.op().Has(OpTrait::kRandom)) return true;
  if (node.op().is_stateful) return false;
  return std::none_of(node.input_types().begin(), node.input_types().end(),
                      [](DType t) { return IsRef(t) || t == DType::kResource; });
}

void GroupReceives(absl::Span<Part> parts, absl::FunctionRef<bool(absl::string_view task)> speaks_millrace) {
  ReceiveGrouping grouping(parts);
  if (!grouping.FindEdges()) return;
  grouping.LinkNodes();
  if (!grouping.Propagate()) return;
  grouping.NumberGroups(grouping.Candidates(speaks_millrace));
}

ReceiveGroups FindReceiveGroups(const Graph& graph) {
  std::map<std::pair<int64_t, std::string>, std::vector<std::string>> by_number;
  for (const Node* node : graph.nodes()) {
    if (!node->IsReceive() || IsClients(*node)) continue;
    const int64_t number = node->AttrOr<int64_t>(kReceiveGroupAttr, 0);
    if (number <= 0) continue;
    const std::string from = node->AttrOr<std::string>("send_device", "");
    by_number[{number, TaskOf(from)}].push_back(
        RendezvousKeyText(from, static_cast<uint64_t>(node->AttrOr<int64_t>("send_device_incarnation", 0)),
                          node->AttrOr<std::string>("recv_device", ""), node->AttrOr<std::string>("tensor_name", "")));
  }
  ReceiveGroups result;
  for (auto& [number, keys] : by_number) {
    if (keys.size() < 2) continue;
    result.keys.insert(keys.begin(), keys.end());
    result.groups.push_back({.task = number.second, .keys = std::move(keys)});
  }
  return result;
}

}  // namespace millrace
