#include "millrace/cluster/step/step_edges.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "millrace/cluster/step/group_receives.h"
#include "millrace/cluster/step/transfer_nodes.h"
#include "millrace/runtime/rendezvous.h"

namespace millrace {
namespace {

std::string SendDevice(const Node& node) { return node.AttrOr<std::string>("send_device", ""); }
std::string RecvDevice(const Node& node) { return node.AttrOr<std::string>("recv_device", ""); }
std::string OtherTask(const Node& node) { return TaskOf(node.IsSend() ? RecvDevice(node) : SendDevice(node)); }

std::string KeyOf(const Node& node) {
  return RendezvousKeyText(SendDevice(node), static_cast<uint64_t>(node.AttrOr<int64_t>("send_device_incarnation", 0)),
                           RecvDevice(node), node.AttrOr<std::string>("tensor_name", ""));
}

void SetNumber(Graph* graph, Node* node, const char* attr, int64_t number) {
  graph->SetAttr(node, attr, AttrInit(number).value());
}

// Whether the op completes by itself once its inputs are available.
bool EndsByItself(const Node& node) {
  if (IsPrompt(node) || node.op().Has(OpTrait::kUpdatesVariable)) return true;
  return (node.IsReceive() && IsClients(node)) ||
         (!node.op().is_stateful && std::none_of(node.input_types().begin(), node.input_types().end(),
                                                 [](DType t) { return BaseType(t) == DType::kResource; }));
}

// Marks the sends that are piggybacked on the part's end: those that depend on everything that the part receives and on
// everything in it that may block.
void FindRiders(const Graph& graph, const absl::flat_hash_map<const Node*, int>& slots, StepEdges* all) {
  // What the part waits for. Tensors that arrive together count as one.
  absl::flat_hash_map<const Node*, int> arrivals;
  absl::flat_hash_map<int64_t, int> groups;
  int count = 0;
  for (const Node* node : graph.nodes()) {
    if (node->IsControlFlow()) return;
    if (EndsByItself(*node) && (!node->IsReceive() || IsClients(*node))) continue;
    const int64_t group = node->AttrOr<int64_t>(kReceiveGroupAttr, 0);
    const bool known = group > 0 && groups.contains(group);
    const int arrival = known ? groups[group] : count++;
    if (group > 0) groups[group] = arrival;
    arrivals[node] = arrival;
  }
  if (count > 64) return;
  const uint64_t everything = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  std::vector<uint64_t> after(graph.max_id(), 0);  // the set of arrivals that each node depends on
  std::vector<int> pending(graph.max_id(), 0);
  std::vector<std::vector<const Node*>> users(graph.max_id());
  const auto depends = [&](const Node* node, const Node* on) {
    if (on->is_detached()) return;
    ++pending[node->id()];
    users[on->id()].push_back(node);
  };
  std::vector<const Node*> ready;
  for (const Node* node : graph.nodes()) {
    for (const Endpoint& input : node->inputs()) depends(node, input.node);
    for (const Node* before : node->control_inputs()) depends(node, before);
    if (pending[node->id()] == 0) ready.push_back(node);
  }
  while (!ready.empty()) {
    const Node* const node = ready.back();
    ready.pop_back();
    uint64_t& mask = after[node->id()];
    if (const auto it = arrivals.find(node); it != arrivals.end()) mask |= uint64_t{1} << it->second;
    for (const Node* user : users[node->id()]) {
      after[user->id()] |= mask;
      if (--pending[user->id()] == 0) ready.push_back(user);
    }
  }
  for (const auto& [node, slot] : slots) {
    if (all->edges[slot].kind == StepEdge::Kind::kSend) all->edges[slot].rides = after[node->id()] == everything;
  }
}

}  // namespace

void NumberEdges(absl::Span<Part> parts, const std::string& home,
                 absl::FunctionRef<bool(absl::string_view task)> speaks_millrace, std::vector<ClientNumbers>* client) {
  client->assign(parts.size(), {});
  // The ends at home, by key; a send there is a receive here and vice versa.
  absl::flat_hash_map<std::string, std::pair<Graph*, Node*>> at_home;
  for (const Part& part : parts) {
    if (part.task != home) continue;
    for (Node* node : part.graph->nodes()) {
      if ((node->IsSend() || node->IsReceive()) && !IsClients(*node)) at_home[KeyOf(*node)] = {part.graph.get(), node};
    }
  }
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].task == home || !speaks_millrace(parts[p].task)) continue;
    Graph* const graph = parts[p].graph.get();
    // Sorted by key, so that the result is deterministic.
    std::map<std::string, Node*> edges;
    std::map<std::pair<std::string, bool>, Node*> clients;
    for (Node* node : graph->nodes()) {
      if (!node->IsSend() && !node->IsReceive()) continue;
      if (IsClients(*node)) {
        clients[{KeyOf(*node), node->IsSend()}] = node;
      } else if (OtherTask(*node) == home) {
        edges[KeyOf(*node)] = node;
      }
    }
    int64_t number = 0;
    for (const auto& [key, node] : edges) {
      const auto other = at_home.find(key);
      if (other == at_home.end()) continue;
      SetNumber(graph, node, kEdgeNumberAttr, number);
      SetNumber(other->second.first, other->second.second, kEdgeNumberAttr, number++);
    }
    for (const auto& [name, node] : clients) {
      SetNumber(graph, node, kEdgeNumberAttr, number);
      (name.second ? (*client)[p].fetches : (*client)[p].feeds)[name.first] = static_cast<int>(number++);
    }
  }
}

int StepEdges::FindTask(absl::string_view name) const {
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::vector<LastFetch> TakeLastFetches(Graph* graph, PassContext* context) {
  std::vector<LastFetch> last;
  absl::flat_hash_set<const Node*> sends;
  for (const Node* node : graph->nodes()) {
    if (!node->IsSend() || !IsClients(*node) || !IsRef(node->input(0).dtype())) continue;
    sends.insert(node);
    context->fetches.push_back(node->input(0));
    last.push_back({.key = KeyOf(*node), .slot = static_cast<int>(node->AttrOr<int64_t>(kEdgeSlotAttr, -1))});
  }
  if (sends.empty()) return last;
  std::erase_if(context->targets, [&](const Node* node) { return sends.contains(node); });
  graph->RemoveNodes([&](const Node* node) { return sends.contains(node); });
  return last;
}

std::shared_ptr<const StepEdges> FindStepEdges(Graph* graph) {
  auto all = std::make_shared<StepEdges>();
  std::vector<Node*> numbered;
  for (Node* node : graph->nodes()) {
    if (!node->IsSend() && !node->IsReceive()) continue;
    if (node->FindAttr(kEdgeSlotAttr) != nullptr)
      SetNumber(graph, node, kEdgeSlotAttr, -1);  // set by somebody who did not know this part
    if (node->AttrOr<int64_t>(kEdgeNumberAttr, -1) >= 0) numbered.push_back(node);
  }
  if (numbered.empty()) return nullptr;
  for (const Node* node : numbered) {
    if (IsClients(*node) || all->FindTask(OtherTask(*node)) >= 0) continue;
    all->tasks.push_back({.name = OtherTask(*node)});
  }
  if (all->tasks.empty()) all->tasks.emplace_back();
  absl::flat_hash_map<const Node*, int> slots;
  std::map<std::pair<int, int64_t>, std::vector<int>> groups;
  for (Node* node : numbered) {
    const bool is_send = node->IsSend(), is_clients = IsClients(*node);
    StepEdge edge{.kind = is_send ? (is_clients ? StepEdge::Kind::kFetch : StepEdge::Kind::kSend)
                                  : (is_clients ? StepEdge::Kind::kFeed : StepEdge::Kind::kRecv)};
    edge.task = is_clients ? 0 : all->FindTask(OtherTask(*node));
    const int64_t number = node->AttrOr<int64_t>(kEdgeNumberAttr, -1);
    StepEdges::Task& task = all->tasks[edge.task];
    std::vector<int>& by_number = edge.arrives() ? task.arriving : task.leaving;
    if (number >= static_cast<int64_t>(numbered.size())) continue;
    if (by_number.size() <= static_cast<size_t>(number)) by_number.resize(number + 1, -1);
    if (by_number[number] >= 0) continue;
    const int slot = static_cast<int>(all->edges.size());
    by_number[number] = slot;
    edge.number = static_cast<int>(number);
    edge.key = KeyOf(*node);
    if (edge.kind == StepEdge::Kind::kRecv)
      task.incarnation = static_cast<uint64_t>(node->AttrOr<int64_t>("send_device_incarnation", 0));
    if (edge.kind == StepEdge::Kind::kFeed) ++all->num_feeds;
    const int64_t group = node->AttrOr<int64_t>(kReceiveGroupAttr, 0);
    if (edge.kind == StepEdge::Kind::kSend && group > 0) groups[{edge.task, group}].push_back(slot);
    SetNumber(graph, node, kEdgeSlotAttr, slot);
    slots[node] = slot;
    all->edges.push_back(std::move(edge));
  }
  FindRiders(*graph, slots, all.get());
  for (auto& [number, members] : groups) {
    if (members.size() < 2) continue;
    // All of them or none.
    const bool ride = std::all_of(members.begin(), members.end(), [&](int slot) { return all->edges[slot].rides; });
    for (const int slot : members) all->edges[slot].rides = ride;
    for (const int slot : members) all->edges[slot].group = static_cast<int>(all->groups.size());
    all->groups.push_back(std::move(members));
  }
  return all;
}

}  // namespace millrace
