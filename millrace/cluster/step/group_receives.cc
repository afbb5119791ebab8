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

}  // namespace

bool IsPrompt(const Node& node) {
  if (node.IsReceive()) return !IsClients(node);
  if (node.IsSend() || node.op().Has(OpTrait::kReadsVariable) || node.op().Has(OpTrait::kRandom)) return true;
  if (node.op().is_stateful) return false;
  return std::none_of(node.input_types().begin(), node.input_types().end(),
                      [](DType t) { return IsRef(t) || t == DType::kResource; });
}

void GroupReceives(absl::Span<Part> parts, absl::FunctionRef<bool(absl::string_view task)> speaks_millrace) {
  // The two ends of each edge.
  absl::flat_hash_map<std::string, std::pair<Node*, Node*>> edges;
  size_t nodes = 0;
  for (const Part& part : parts) {
    for (Node* node : part.graph->nodes()) {
      ++nodes;
      if (node->IsControlFlow()) return;
      if (IsClients(*node)) continue;
      if (node->IsSend()) edges[EdgeName(*node)].first = node;
      if (node->IsReceive()) edges[EdgeName(*node)].second = node;
    }
  }
  if (edges.size() < 2) return;
  absl::flat_hash_map<const Node*, Known> known;
  known.reserve(nodes);
  const auto depends = [&](Node* node, Node* on) {
    if (on->is_detached()) return;  // the client feeds it at home: it is available from the start
    ++known[node].pending;
    known[on].users.push_back(node);
  };
  for (const Part& part : parts) {
    for (Node* node : part.graph->nodes()) {
      for (const Endpoint& input : node->inputs()) depends(node, input.node);
      for (Node* before : node->control_inputs()) depends(node, before);
    }
  }
  for (const auto& [name, edge] : edges) {
    if (edge.first != nullptr && edge.second != nullptr) depends(edge.second, edge.first);
  }
  std::vector<Node*> ready;
  for (const Part& part : parts) {
    for (Node* node : part.graph->nodes()) {
      if (known[node].pending == 0) ready.push_back(node);
    }
  }
  size_t seen = 0;
  while (!ready.empty()) {
    Node* const node = ready.back();
    ready.pop_back();
    ++seen;
    Known& here = known[node];
    here.prompt &= IsPrompt(*node);
    for (Node* user : here.users) {
      Known& there = known[user];
      there.prompt &= here.prompt;
      there.depth = std::max(there.depth, here.depth + (node->IsSend() ? 1 : 0));
      if (--there.pending == 0) ready.push_back(user);
    }
  }
  if (seen < nodes) return;
  // Sorted by name, so that the result is deterministic.
  std::map<std::tuple<std::string, std::string, int>, std::map<std::string, std::pair<Node*, Node*>>> candidates;
  for (const auto& [name, edge] : edges) {
    const auto& [send, recv] = edge;
    if (send == nullptr || recv == nullptr || !known[send].prompt) continue;
    const int64_t bytes = KnownBytes(*send);
    if (bytes < 0 || bytes > kSmallTensor) continue;
    const std::string from = TaskOf(recv->AttrOr<std::string>("send_device", "")),
                      to = TaskOf(recv->AttrOr<std::string>("recv_device", ""));
    if (from == to || !speaks_millrace(from) || !speaks_millrace(to)) continue;
    candidates[{from, to, known[recv].depth}][name] = edge;
  }
  absl::flat_hash_map<const Node*, Graph*> graph_of;
  for (const Part& part : parts) {
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
