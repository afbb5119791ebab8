#include "millrace/graph/cut_graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "millrace/graph/device_name.h"

namespace millrace {

void SetEdgeAttrs(NodeSpec* spec, absl::string_view name, const std::string& send_device, uint64_t incarnation,
                  const std::string& recv_device, bool client_terminated) {
  static const std::string& incarnation_attr = *new std::string("send_device_incarnation");
  static const std::string& client_attr = *new std::string("client_terminated");
  spec->attrs["tensor_name"].set_s(std::string(name));
  spec->attrs["send_device"].set_s(send_device);
  spec->attrs[incarnation_attr].set_i(static_cast<int64_t>(incarnation));
  spec->attrs["recv_device"].set_s(recv_device);
  spec->attrs[client_attr].set_b(client_terminated);
}

StatusOr<int> CutGraph::FindDevice(const std::string& name) {
  if (const auto it = device_index_.find(name); it != device_index_.end()) return it->second;
  MR_ASSIGN_OR_RETURN(DeviceName parsed, DeviceName::Parse(name));
  if (!parsed.IsFull()) return InvalidArgument("device '", name, "' is not a full name");
  const bool is_host = parsed.type == "CPU";
  Device device;
  device.name = name;
  if (const auto it = options_.incarnations.find(name); it != options_.incarnations.end()) {
    device.incarnation = it->second;
    device.has_incarnation = true;
  }
  parsed.type.reset();
  parsed.index.reset();
  const auto [task, is_new] = task_index_.emplace(parsed.ToString(), static_cast<int>(tasks_.size()));
  if (is_new) tasks_.push_back(task->first);
  device.task = task->second;
  const int index = static_cast<int>(devices_.size());
  devices_.push_back(std::move(device));
  device_index_.emplace(name, index);
  if (is_host) {
    devices_[index].host = index;
  } else {
    const std::string host_name = HostDevice(task->second);
    MR_ASSIGN_OR_RETURN(const int host, FindDevice(host_name));
    devices_[index].host = host;
  }
  return index;
}

Status CutGraph::FindTasks() {
  for (size_t i = 0; i < options_.feeds.size(); ++i) {
    feeds_.emplace(std::make_pair(options_.feeds[i].node->id(), options_.feeds[i].index), static_cast<int>(i));
    fed_nodes_.insert(options_.feeds[i].node->id());
  }
  device_of_.assign(graph_->max_id(), -1);
  const std::string* last = nullptr;
  int last_device = -1;
  for (const Node* node : graph_->nodes()) {
    if (!fed_nodes_.empty() && IsFeed(node)) continue;
    if (last == nullptr || *last != node->assigned_device()) {
      const StatusOr<int> device = FindDevice(node->assigned_device());
      if (!device.ok()) {
        return WithPrefix(absl::StrCat("{{node ", node->name(), "}} (op ", node->type(), "): "), device.status());
      }
      last = &node->assigned_device();
      last_device = *device;
    }
    device_of_[node->id()] = last_device;
  }
  if (tasks_.empty() && !options_.home_task.empty()) tasks_.push_back(options_.home_task);
  return absl::OkStatus();
}

int CutGraph::FeedIndex(const Endpoint& e) const {
  const auto it = feeds_.find(std::make_pair(e.node->id(), e.index));
  return it == feeds_.end() ? -1 : it->second;
}

StatusOr<Node*> CutGraph::Add(NodeSpec spec, int device, absl::Span<const std::string> origins, int home, int output) {
  MR_ASSIGN_OR_RETURN(Node * node, graph_->AddNode(std::move(spec)));
  graph_->SetAssignedDevice(node, devices_[device].name);
  graph_->SetOrigins(node, {origins.begin(), origins.end()});
  device_of_.resize(node->id() + 1, -1);
  device_of_[node->id()] = device;
  if (!home_.empty()) {
    home_.resize(node->id() + 1, kRoot);
    outer_.resize(node->id() + 1, kRoot);
    home_[node->id()] = home;
    outer_[node->id()] = output;
  }
  return node;
}

void CutGraph::Move(Node* node, int device) {
  graph_->SetAssignedDevice(node, devices_[device].name);
  device_of_[node->id()] = device;
}

absl::flat_hash_set<int> CutGraph::FeedsOf(int task) const {
  absl::flat_hash_set<int> used;
  if (fed_nodes_.empty()) return used;
  for (const Node* node : graph_->nodes()) {
    if (TaskOf(node) != task) continue;
    for (const Endpoint& e : node->inputs()) {
      if (TaskOf(e.node) < 0) used.insert(e.node->id());
    }
  }
  return used;
}

std::vector<std::string> CutGraph::FramesOf(const Node* node) const {
  std::vector<std::string> frames;
  for (int loop = LoopOf(node); loop != kRoot; loop = loops_[loop].parent) frames.push_back(loops_[loop].frame_name);
  std::reverse(frames.begin(), frames.end());
  return frames;
}

void CutGraph::SetLoops(const LoopForest& forest) {
  for (const Loop& loop : forest.loops()) {
    loops_.push_back({loop.frame_name, loop.parent, loop.condition, loop.enters[0]});
  }
  home_.assign(graph_->max_id(), kRoot);
  outer_.assign(graph_->max_id(), kRoot);
  for (const Node* node : graph_->nodes()) {
    home_[node->id()] = forest.LoopOf(node);
    outer_[node->id()] = forest.OutputLoopOf(node);
  }
}

Node* CutGraph::TriggerOf(int loop, int task) const {
  const auto it = triggers_.find(std::make_pair(loop, task));
  return it == triggers_.end() ? nullptr : it->second;
}

void CutGraph::AddSender(int from_task, int to_task) {
  if (senders_.size() < tasks_.size()) senders_.resize(tasks_.size());
  senders_[to_task].insert(from_task);
}

std::vector<std::string> CutGraph::SendersTo(int task) const {
  std::vector<std::string> names;
  if (task >= static_cast<int>(senders_.size())) return names;
  for (const int sender : senders_[task]) names.push_back(tasks_[sender]);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace millrace
